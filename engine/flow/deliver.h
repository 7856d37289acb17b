/* SPDX-License-Identifier: Apache-2.0 */
/* deliver.h — stage 3: packed tickets, in order, become published batches. Runs on the engine's own
 * thread. */
#ifndef RP_FLOW_DELIVER_H
#define RP_FLOW_DELIVER_H

#include "flow/flow.h"
#include "flow/pack.h"

struct rp_deliver {
    const struct rp_flow_options *options;
    struct rp_arena *arena;
    struct rp_ring *rings; /* [rank_count] */
    const struct rp_files *files;
    uint64_t base_row;
    uint64_t next_ticket; /* first ticket not yet retired */
    bool ended;
    bool held;
    uint64_t held_batch, held_ticket;
    uint64_t batches, rows, tokens; /* published since open */
};

/** One step; see rp_flow_deliver. */
RP_MUST_CHECK int rp_deliver_step(struct rp_deliver *deliver, struct rp_error *error);
/** Read every trainer's release word, and let packers write what it freed. True if anything moved.
 */
bool rp_deliver_poll_space(struct rp_deliver *deliver);
/** True if the next ticket is packed. */
bool rp_deliver_has_work(const struct rp_deliver *deliver);

#endif
