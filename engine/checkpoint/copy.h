/* SPDX-License-Identifier: Apache-2.0 */
/* copy.h — the mirror: a thread that copies finished checkpoints to another directory.
 *
 * A slow or broken mirror never delays a save. The thread copies the newest checkpoint
 * that was offered; if a newer one is offered before the copy has begun, the older one is skipped.
 * No checkpoint is pruned at the source before its copy, or the copy of a newer checkpoint, has
 * been verified. */
#ifndef RP_CHECKPOINT_COPY_H
#define RP_CHECKPOINT_COPY_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/locked_dir.h"

struct rp_copier;

/** Open `path` as the mirror of `source`, which must outlive the copier, begin its trial
 * write, and start the thread. *newest_sequence_out: the newest sequence in `path`; new checkpoints
 * must be above it. */
RP_MUST_CHECK int rp_copier_open(struct rp_copier **copier_out, const struct rp_locked_dir *source,
                                 const char *path, uint64_t *newest_sequence_out,
                                 struct rp_error *error);
/** Wait for the trial write, before anything else. On failure the copier may only be closed. */
RP_MUST_CHECK int rp_copier_finish_trial(struct rp_copier *copier, struct rp_error *error);
/** Let the thread copy the checkpoint `sequence` of the source, which is durable. */
void rp_copier_offer(struct rp_copier *copier, uint64_t sequence);
/** The newest sequence with a verified copy, made or found since the copier was opened; 0 = none
 * yet. */
uint64_t rp_copier_newest(struct rp_copier *copier);
/** The results of copying; is_kept is set. */
void rp_copier_counts(struct rp_copier *copier, struct rp_copy_counts *counts);
/** Copy the checkpoint that was offered last, then stop. Returns rp_copier_newest. NULL is fine. */
uint64_t rp_copier_close(struct rp_copier *copier);
/** The mirror; it lives as long as the copier. */
struct rp_locked_dir *rp_copier_target(struct rp_copier *copier);
/** rp_locked_dir_set_aside of the mirror. Call it before anything is offered. */
RP_MUST_CHECK int rp_copier_set_aside(struct rp_copier *copier, struct rp_error *error);
/** Set keep_every_rows of the mirror. Call it before anything is offered. */
void rp_copier_keep_every(struct rp_copier *copier, uint64_t rows);

#endif
