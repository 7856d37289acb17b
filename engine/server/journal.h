/* SPDX-License-Identifier: Apache-2.0 */
/* journal.h — writes the events of an engine's life into the run journal of its checkpoint
 * directory (checkpoint/run_journal.h).
 *
 * Invariants:
 *
 *   - The journal's thread writes entries in order: a disk that hangs delays neither a batch nor a
 *     save, and the end of the engine by 5 seconds. The engine waits only for the entry of its
 *     start, which is on the disk before a trainer can get a batch. The engine's thread writes the
 *     entries of records, because a record holds only once it is on the disk.
 *   - A start that fails after its entry was begun also has an end.
 *   - The entry of the end is the last one, and written while the directory is locked. A kill of
 *     the engine prevents it, and the next start says so.
 *   - No entry is begun after the engine has waited those 5 seconds, because the next engine may
 *     own the directory by then. Only the entry that hangs in the disk may follow later.
 *   - A journal that cannot be written is a warning. The engine runs without it. */
#ifndef RP_SERVER_JOURNAL_H
#define RP_SERVER_JOURNAL_H

#include "server/engine.h"

/* If the engine keeps no journal, rp_engine_journal_record must not be called, and the other
 * functions have no effect. */

/** Begin the entry of the start. */
void rp_engine_journal_start(struct rp_engine *engine);
/** Wait until the entry of the start is written, or could not be. */
void rp_saving_journal_finish_start(struct rp_saving *saving);
/** Trainers have attached from a state at `row`: a new rollback epoch. */
void rp_engine_journal_rollback(struct rp_engine *engine, uint64_t row);
/** A record holds from `row` on: weights, or documents, as name=value with spaces between. Written
 * by the engine's thread; the entry is on the disk when this returns 0. Otherwise *error says why,
 * and *is_unknown whether the entry may be there nevertheless. */
RP_MUST_CHECK int rp_engine_journal_record(struct rp_engine *engine, uint64_t row,
                                           bool is_documents, const char *text, bool *is_unknown,
                                           struct rp_error *error);
/** A save has failed, or the disk did not return it as it was written. */
void rp_saving_journal_failure(struct rp_saving *saving, const struct rp_error *error);
/** Note the end, and wait until all entries are written. */
void rp_engine_journal_close(struct rp_engine *engine);

#endif
