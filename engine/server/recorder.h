/* SPDX-License-Identifier: Apache-2.0 */
/* recorder.h — keeps the run record (checkpoint/run_record.h), and compares it with the checkpoint
 * directory that a start finds.
 *
 * Invariants:
 *
 *   - The record is never ahead of the directory: a position is noted once its checkpoint is
 *     durable. It may be behind, by saves just before a crash.
 *   - No thread waits for a note: the recorder's thread writes it. A directory of records that
 *     hangs delays neither a batch nor a save, and the end of the engine by 5 seconds.
 *   - An engine without a record leaves out the comparison, and is otherwise the same. */
#ifndef RP_SERVER_RECORDER_H
#define RP_SERVER_RECORDER_H

#include "server/engine.h"

/** Read the record of this run and its checkpoint directory, which is open. Where no record can be
 * kept, the log says why, and *out stays NULL. */
void rp_recorder_open(struct rp_recorder **out, const struct rp_config *config);

/** Refuse a start in a directory other than the record's, from a position before the record's.
 * `row`: the first row of the start; has_checkpoint: that row is a checkpoint's of this directory.
 */
RP_MUST_CHECK int rp_recorder_check(const struct rp_recorder *recorder,
                                    const struct rp_checkpoint_dir *directory, uint64_t row,
                                    bool has_checkpoint, struct rp_error *error);
/** As rp_recorder_check for a start from the copies of the directory's checkpoints; only warns. */
void rp_recorder_warn_of_copies(const struct rp_recorder *recorder, uint64_t row);

#define RP_RECORDER_ROW_UNKNOWN UINT64_MAX
/** Note that the run begins with this directory, which gets an id if it has none. `row`: the
 * position of its newest checkpoint, 0 without one, or RP_RECORDER_ROW_UNKNOWN. */
RP_MUST_CHECK int rp_recorder_begin(struct rp_recorder *recorder,
                                    struct rp_checkpoint_dir *directory, uint64_t row,
                                    struct rp_error *error);
/** Note that the newest checkpoint of the directory is at `row`, and durable. */
void rp_recorder_note(struct rp_recorder *recorder, uint64_t row);

/** Write the last note, and end the thread. NULL is fine. */
void rp_recorder_close(struct rp_recorder *recorder);

#endif
