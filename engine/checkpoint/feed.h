/* SPDX-License-Identifier: Apache-2.0 */
/* feed.h — what the writer sees of bytes that come while the file is written (checkpoint.h). */
#ifndef RP_CHECKPOINT_FEED_H
#define RP_CHECKPOINT_FEED_H

#include "checkpoint/checkpoint.h"

/** All of them, there or not. */
const struct rp_checkpoint_piece *rp_feed_piece(const struct rp_checkpoint_feed *feed);

/** Wait until so many bytes are there. Returns how many are, or -RP_E_STOPPED: they will not come.
 */
RP_MUST_CHECK int64_t rp_feed_wait(struct rp_checkpoint_feed *feed, uint64_t wanted);

/** The hash of all of them, when all are there. */
struct rp_hash128 rp_feed_hash(const struct rp_checkpoint_feed *feed);

#endif
