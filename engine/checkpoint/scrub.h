/* SPDX-License-Identifier: Apache-2.0 */
/* scrub.h — a thread that reads kept checkpoints periodically, so that a decayed checkpoint is
 * known before it is needed, while others still exist. */
#ifndef RP_CHECKPOINT_SCRUB_H
#define RP_CHECKPOINT_SCRUB_H

#include "checkpoint/locked_dir.h"

struct rp_scrubber;

/** Start the thread for the checkpoint directory and the mirror (NULL = none), which must
 * outlive it. The first pass begins after one period. */
RP_MUST_CHECK int rp_scrubber_open(struct rp_scrubber **out, struct rp_locked_dir *const dirs[2],
                                   uint32_t period_seconds, struct rp_error *error);
void rp_scrubber_counts(struct rp_scrubber *scrubber, struct rp_scrub_counts *counts);
/** End the thread, at once. NULL is fine. */
void rp_scrubber_close(struct rp_scrubber *scrubber);

#endif
