/* SPDX-License-Identifier: Apache-2.0 */
/* join.h — how dispatch takes rings back from their catch-up flows (catch_up.h).
 *
 * The engine's thread may sleep until a ring is joined, so it is woken. */
#ifndef RP_FLOW_JOIN_H
#define RP_FLOW_JOIN_H

#include "base/file.h"
#include "flow/ticket.h"

/** For each ring that waits to be joined: dispatch plans its rows from `batch` on, unless `batch`
 * is below the lowest batch that pack_from allows. */
static inline void rp_join_rings(const struct rp_arena *arena, uint32_t ring_count, uint64_t batch,
                                 int wake_fd)
{
    for (uint32_t r = 0; r < ring_count; r++) {
        struct rp_a64 *pack_from = &arena->pack_from[r];
        uint64_t from = rp_a64_load_relaxed(pack_from);
        if (rp_pack_is_joined(from))
            continue;
        if (RP_PACK_JOIN(batch) < from)
            continue;
        rp_a64_store_relaxed(pack_from, batch);
        rp_fd_wake(wake_fd);
    }
}

/** All `batches` of the stream are planned, so no ring will be joined. */
static inline void rp_join_no_more(const struct rp_arena *arena, uint64_t batches, int wake_fd)
{
    rp_a64_store_release(&arena->words->planned_all, batches + 1); /* PAIRS planned-all */
    rp_fd_wake(wake_fd);
}

#endif
