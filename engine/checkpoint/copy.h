/* SPDX-License-Identifier: Apache-2.0 */
/* copy.h — the second location: a thread that copies finished checkpoints to another directory.
 *
 * Slow or broken, the other side never delays "saved" here. It takes the newest that is offered;
 * one that is overtaken while it waits is skipped. Nothing is pruned at the source before its copy,
 * or that of a newer one, has been verified. */
#ifndef RP_CHECKPOINT_COPY_H
#define RP_CHECKPOINT_COPY_H

#include "checkpoint/locked_dir.h"

struct rp_copier;

/** Take `path` for copies of what `source` (outlives the copier) will hold, and start the thread.
 *  *newest_sequence_out: of what is already there, so that numbers go on above it. */
RP_MUST_CHECK int rp_copier_open(struct rp_copier **copier_out, const struct rp_locked_dir *source,
                                 const char *path, uint64_t *newest_sequence_out,
                                 struct rp_error *error);
/** The checkpoint `sequence` of the source is durable: copy it when there is time. */
void rp_copier_offer(struct rp_copier *copier, uint64_t sequence);
/** The newest checkpoint of which a verified copy was made, or found, since the copier was opened;
 * 0 = none yet. */
uint64_t rp_copier_newest(struct rp_copier *copier);
/** Finish what was offered last, then stop. Returns the newest that was copied. NULL is fine. */
uint64_t rp_copier_close(struct rp_copier *copier);
/** rp_locked_dir_set_aside of the copies. Before anything is offered. */
RP_MUST_CHECK int rp_copier_set_aside(struct rp_copier *copier, struct rp_error *error);
/** Keep a history there, too; see struct rp_locked_dir. Before anything is offered. */
void rp_copier_keep_every(struct rp_copier *copier, uint64_t rows);

#endif
