/* SPDX-License-Identifier: Apache-2.0 */
/* journal.h — writes the events of an engine's life into the run journal of its checkpoint
 * directory (checkpoint/run_journal.h).
 *
 * Invariants:
 *
 *   - Entries are written by a thread of its own, in order: a disk that hangs delays neither a
 *     batch nor a save, and the end of the engine by 5 seconds. Only the entry of a start is waited
 *     for: it is on the disk before a trainer can get a batch. Entries of records, which hold only
 *     once they are on the disk, are written by the engine's thread.
 *   - A start that fails after its entry was begun also has an end.
 *   - The entry of the end is the last one, and written while the directory is locked. A kill of
 *     the engine prevents it, and the next start says so.
 *   - No entry is begun after the engine has waited those 5 seconds, because the next engine may
 *     own the directory by then. Only the entry that hangs in the disk may follow later.
 *   - A journal that cannot be written is a warning. The engine runs without it. */
#ifndef RP_SERVER_JOURNAL_H
#define RP_SERVER_JOURNAL_H

#include "server/engine.h"

/** Begin the entry of the start. No effect, here and below, if the engine keeps no journal. */
void rp_engine_journal_start(struct rp_engine *engine);
/** Wait until it is written, or could not be. */
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
