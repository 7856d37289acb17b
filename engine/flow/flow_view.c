/* SPDX-License-Identifier: Apache-2.0 */
/* flow_view.c — what a flow has, for checkpoints, trainers that attach, and status. */
#include "base/bits.h"
#include "base/defect.h"
#include "flow/flow_struct.h"

const uint8_t *rp_flow_transfer_tokens(const struct rp_flow *flow,
                                       const struct rp_transfer *transfer)
{
    return rp_files_tokens(&flow->files, flow->arena.data, transfer);
}

/* An earlier start of the flow may have planned further than this one, and its states are still in
 * their slots. Dispatch may be overwriting any whose position is `state_count` or more ahead of
 * what is published; and, while a ring catches up, those so far behind that nobody else asks. */
static bool may_be_overwritten(const struct rp_flow *flow, uint64_t position)
{
    uint64_t lowest_tail = UINT64_MAX, count = flow->arena.state_count;
    for (uint32_t r = 0; r < flow->options.rank_count; r++)
        if (r != flow->deliver.ring_aside)
            lowest_tail = rp_min_u64(lowest_tail, flow->deliver.rings[r].tail);
    if (position >= lowest_tail)
        return position - lowest_tail >= count;
    return flow->catch_up && lowest_tail - position + flow->arena.slot_count + 1 >= count;
}

const void *rp_flow_state_at(const struct rp_flow *flow, uint64_t position, size_t *bytes_out,
                             uint64_t *next_row_out)
{
    const void *kept = flow->catch_up
                           ? rp_flow_state_at(flow->catch_up, position, bytes_out, next_row_out)
                           : NULL;
    if (kept || (flow->running && may_be_overwritten(flow, position)))
        return kept;
    return rp_arena_state_at(&flow->arena, position, bytes_out, next_row_out);
}

void rp_flow_forget_states(struct rp_flow *flow)
{
    RP_ASSERT(!flow->running);
    for (uint32_t i = 0; i < flow->arena.state_count && !RP_DEFECT(keep_stale_marks); i++)
        rp_a64_store_relaxed(&rp_arena_state(&flow->arena, i)->position, 0);
}

struct rp_arena *rp_flow_arena(struct rp_flow *flow)
{
    return &flow->arena;
}

void rp_flow_tickets(const struct rp_flow *flow, uint64_t *first, uint64_t *last)
{
    *first = flow->deliver.next_ticket;
    *last = *first + flow->arena.slot_count;
}

void rp_flow_counts(const struct rp_flow *flow, struct rp_flow_counts *counts)
{
    const struct rp_deliver *d = &flow->deliver;
    *counts = flow->caught_up;
    counts->batches += d->batches;
    counts->rows += d->rows;
    counts->tokens += d->tokens;
    counts->taken_bytes += rp_a64_load_relaxed(&flow->files.taken_bytes);
    counts->unverified_bytes += rp_a64_load_relaxed(&flow->files.unverified_bytes);
    counts->packers_replaced = flow->packers_replaced;
    for (uint32_t i = 0; i < flow->options.readers; i++) {
        const struct rp_fetcher *f = &flow->fetchers[i];
        counts->reads += rp_a64_load_relaxed(&f->reads);
        counts->read_bytes += rp_a64_load_relaxed(&f->read_bytes);
        counts->short_reads += rp_a64_load_relaxed(&f->short_reads);
        counts->read_retries += rp_a64_load_relaxed(&f->retries);
    }
}
