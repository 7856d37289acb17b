/* SPDX-License-Identifier: Apache-2.0 */
/* flow.c — starts, pauses and stops the stages of a flow, and runs its catch-up flows. */
#include "flow/flow.h"

#include <inttypes.h>

#include "base/bits.h"
#include "base/log.h"
#include "flow/catch_up.h"
#include "flow/ending.h"
#include "flow/flow_struct.h"
#include "flow/startup_yield.h"

/* Is the data ring in use? If the read mode adapts, not while all taken tokens are mapped; in any
 * other mode it counts as used. */
static bool is_reading(const struct rp_flow *flow)
{
    return flow->files.state != RP_FILES_ADAPT ||
           rp_a64_load_relaxed(&flow->files.buffered_bytes) ||
           rp_a64_load_relaxed(&flow->files.direct_bytes);
}

/* Start the prefaulting after the first batch, which it would delay; then look for its failure. */
static int watch_prefault(struct rp_flow *flow, struct rp_error *error)
{
    bool is_due = flow->deliver.batches > 0 && is_reading(flow) &&
                  !rp_a32_load_relaxed(&flow->arena.prefaulted);
    if (is_due && !flow->prefault.started)
        return rp_prefault_start(&flow->prefault, &flow->arena, flow->wake_fd, error);
    return rp_prefault_check(&flow->prefault, error);
}

/* The caller has the turn, so no thread publishes, and every batch is announced. */
static void check_turn(const struct rp_flow *flow)
{
    RP_ASSERT(flow->flow_state != RP_FLOW_PARKED);
    RP_ASSERT(rp_a32_load_relaxed(&flow->deliver.unannounced) == 0);
}

/* Dispatch checks its files once more before it ends. */
static void order_stop(struct rp_flow *flow)
{
    struct rp_arena_words *words = flow->arena.words;
    rp_revalidation_request(&flow->revalidation);
    rp_a32_store_release(&words->stop, RP_ARENA_STOPS);
    rp_event_signal(&words->planned);
    rp_event_signal(&words->ready);
    rp_event_signal(&words->retired_event);
    rp_event_signal(&words->space);
}

static void join_packers(struct rp_flow *flow)
{
    for (uint32_t i = 0; i < flow->options.packers; i++)
        rp_packer_join(&flow->packers[i]);
}

/* ---- rings that are behind (catch_up.h) ---------------------------------------------------- */

/* The batch up to which the ring's catch-up flow may deliver: the highest tail of the rings that
 * the main flow serves, but at least the first batch that this start has planned for the ring. */
static uint64_t catch_up_limit(const struct rp_flow *flow, uint32_t ring)
{
    uint64_t limit = rp_max_u64(flow->deliver.rings[ring].tail, flow->start_batch[ring]);
    for (uint32_t r = 0; r < flow->options.rank_count; r++)
        if (!flow->is_left_out[r])
            limit = rp_max_u64(limit, flow->deliver.rings[r].tail);
    return limit;
}

void rp_flow_leave_out(struct rp_flow *flow, uint32_t ring)
{
    RP_ASSERT(rp_flow_packers_are_paused(flow) && !flow->catch_up[ring] && !flow->deliver.held);
    flow->is_left_out[ring] = true;
    rp_a64_store_relaxed(&flow->arena.pack_from[ring], RP_PACK_NONE);
    rp_a64_store_relaxed(&flow->arena.free_until[ring], 0);
    flow->sums[ring] = (struct rp_batch_sums){0}; /* belongs to a batch that was packed in part */
}

int rp_flow_start_catch_up(struct rp_flow *flow, struct rp_flow *made, uint32_t ring,
                           struct rp_plan *plan, const struct rp_row_state *before,
                           struct rp_error *error)
{
    struct rp_deliver *d = &flow->deliver;
    struct rp_ring *behind = &d->rings[ring];
    RP_ASSERT(rp_flow_packers_are_paused(flow) && !flow->catch_up[ring]);
    RP_ASSERT(flow->is_left_out[ring]);
    flow->catch_up[ring] = made;
    RP_ASSERT(rp_flow_catch_ups(flow) <= rp_flow_catch_ups_max(flow->options.rank_count));
    const struct rp_flow_begin begin = {.batch = behind->tail,
                                        .plan = plan,
                                        .numbering = d->numbering,
                                        .rings = behind,
                                        .before = before};
    int code = rp_flow_start(made, &begin, error);
    made->deliver.end_batch = catch_up_limit(flow, ring);
    if (code >= 0)
        rp_log_event(RP_EVENT_behind,
                     "rank %" PRIu32 " is behind: a flow of its own reads its rows",
                     behind->geometry.rank);
    return code;
}

static void drop_catch_up(struct rp_flow *flow, uint32_t ring)
{
    struct rp_flow *catch_up = flow->catch_up[ring];
    if (!catch_up)
        return;
    check_turn(catch_up);
    order_stop(catch_up); /* checks its files */
    join_packers(catch_up);
    rp_costs_join(&flow->costs.ranks[ring], &catch_up->costs.ranks[0]);
    flow->catch_up[ring] = NULL;
    rp_ending_begin(flow, catch_up);
}

/* The flow itself delivers to the ring from now on. */
static void end_catch_up(struct rp_flow *flow, uint32_t ring)
{
    rp_log_event(RP_EVENT_caught_up, "rank %" PRIu32 " has caught up",
                 flow->deliver.rings[ring].geometry.rank);
    drop_catch_up(flow, ring);
    flow->is_left_out[ring] = false;
    (void)rp_deliver_free_slots(&flow->deliver);
}

/* The ring is as far as it may be, or nearly: BEHIND with another limit, or JOINING. */
static void renew_limit(struct rp_flow *flow, uint32_t ring)
{
    const struct rp_ring *behind = &flow->deliver.rings[ring];
    uint64_t limit = catch_up_limit(flow, ring);
    flow->catch_up[ring]->deliver.end_batch = limit;
    if (limit - behind->tail > behind->geometry.slots)
        return;
    rp_a64_store_relaxed(&flow->arena.pack_from[ring], RP_PACK_JOIN(limit));
    rp_event_signal(&flow->arena.words->retired_event);
}

void rp_flow_drop_catch_up(struct rp_flow *flow, uint32_t ring)
{
    RP_ASSERT(rp_flow_packers_are_paused(flow));
    drop_catch_up(flow, ring);
}

/* The ring's pack_from. If all of the stream is planned, dispatch will not replace that word any
 * more: then it becomes a batch past the end, and the catch-up flow delivers all that is left. */
static uint64_t poll_join(struct rp_flow *flow, uint32_t ring)
{
    struct rp_a64 *pack_from = &flow->arena.pack_from[ring];
    uint64_t all = rp_a64_load_acquire(&flow->arena.words->planned_all); /* PAIRS planned-all */
    uint64_t from = rp_a64_load_relaxed(pack_from);
    if (!rp_pack_is_joined(from) && all > 0) {
        from = all;
        rp_a64_store_relaxed(pack_from, from);
    }
    return from;
}

static int deliver_catch_up(struct rp_flow *flow, uint32_t ring, struct rp_error *error)
{
    struct rp_flow *catch_up = flow->catch_up[ring];
    const struct rp_ring *behind = &flow->deliver.rings[ring];
    int step = rp_flow_deliver(catch_up, error);
    RP_ASSERT(step != RP_FLOW_RESTART); /* it reads no blocks */
    if (step < 0)
        return step;
    uint64_t from = poll_join(flow, ring);
    bool is_joined = rp_pack_is_joined(from);
    RP_ASSERT(!is_joined || behind->tail <= from);
    /* if the main flow has already ended, only the catch-up flow can end the ring */
    bool has_caught_up = is_joined && behind->tail == from &&
                         flow->deliver.phase != RP_STREAM_ENDED;
    if (step == RP_FLOW_ENDED || has_caught_up) {
        end_catch_up(flow, ring);
        return RP_FLOW_WORKED;
    }
    if (is_joined)
        catch_up->deliver.end_batch = from;
    else if (from == RP_PACK_NONE &&
             behind->tail + behind->geometry.slots >= catch_up->deliver.end_batch)
        renew_limit(flow, ring);
    return step;
}

/* `step` is the main flow's result. A ring that is behind still expects batches. */
static int deliver_catch_ups(struct rp_flow *flow, int step, struct rp_error *error)
{
    for (uint32_t r = 0; r < flow->options.rank_count; r++) {
        if (!flow->catch_up[r])
            continue;
        int other = deliver_catch_up(flow, r, error);
        if (other < 0)
            return other;
        step = step == RP_FLOW_WORKED ? step : other;
    }
    return step;
}

/* ---- start and stop ------------------------------------------------------------------------ */

void rp_flow_close(struct rp_flow *flow)
{
    if (!flow)
        return;
    rp_flow_stop(flow);
    rp_flow_free(flow);
}

static void prepare_start(struct rp_flow *flow, const struct rp_flow_begin *begin)
{
    struct rp_ring *rings = begin->rings;
    const struct rp_flow_options *o = &flow->options;
    if (flow->flow_state != RP_FLOW_NEW)
        rp_arena_reset(&flow->arena);
    flow->flow_state = RP_FLOW_RUNNING;
    flow->wake_at = UINT64_MAX;
    for (uint32_t r = 0; r < o->rank_count; r++) {
        RP_ASSERT(begin->batch <= rings[r].tail);
        RP_ASSERT(!flow->catch_up[r]);
        flow->is_left_out[r] = false;
        flow->start_batch[r] = rings[r].tail;
        flow->sums[r] = (struct rp_batch_sums){0};
        rp_pack_target_init(&flow->targets[r], &rings[r]);
        rp_a64_store_relaxed(&flow->arena.pack_from[r], 0);
        rp_a64_store_relaxed(&flow->arena.free_until[r],
                             rings[r].release + rings[r].geometry.slots);
    }
    struct rp_deliver *d = &flow->deliver;
    *d = (struct rp_deliver){.options = &flow->options,
                             .wake_fd = flow->wake_fd,
                             .turn.value = 1, /* the engine's */
                             .wake_at = UINT64_MAX,
                             .end_batch = UINT64_MAX,
                             .is_left_out = flow->is_left_out,
                             .arena = &flow->arena,
                             .rings = rings,
                             .files = &flow->files,
                             .revalidation = &flow->revalidation,
                             .numbering = begin->numbering,
                             .sums = flow->sums,
                             .costs = &flow->costs,
                             .batches = d->batches,
                             .rows = d->rows,
                             .tokens = d->tokens};
    rp_startup_yield_begin();
    flow->dispatch = (struct rp_dispatch){
        .options = &flow->options,
        .arena = &flow->arena,
        .reads = flow->dispatch.reads,
        .queue = flow->dispatch.queue,
        .plan = begin->plan,
        .numbering = begin->numbering,
        .begin_row = rp_numbering_row(begin->numbering, begin->batch),
        .batch = begin->batch,
        .start_batch = flow->start_batch,
        .revalidation = &flow->revalidation,
        .wake_fd = flow->wake_fd};
}

static int start_planning(struct rp_flow *flow, const struct rp_row_state *before,
                          struct rp_error *error)
{
    struct rp_dispatch *d = &flow->dispatch;
    const struct rp_queue parts = {.options = &flow->options,
                                   .arena = &flow->arena,
                                   .plan = d->plan,
                                   .masks = &d->reads.masks,
                                   .block_reads = &d->reads.block_reads,
                                   .numbering = d->numbering};
    int code = rp_queue_start(&d->queue, &parts, before, error);
    return code < 0 ? code
                    : rp_reads_start(&d->reads, d->plan, rp_numbering_base(d->numbering), error);
}

static int start_packers(struct rp_flow *flow, struct rp_error *error)
{
    int code = 0;
    for (uint32_t i = 0; i < flow->options.packers && code >= 0; i++)
        code = rp_packer_start(&flow->packers[i], flow->options.packer_processes, error);
    return code;
}

int rp_flow_start(struct rp_flow *flow, const struct rp_flow_begin *begin, struct rp_error *error)
{
    const struct rp_flow_options *o = &flow->options;
    RP_ASSERT(!rp_flow_runs(flow));
    RP_ASSERT(begin->plan && begin->rings);
    prepare_start(flow, begin);
    int code = start_planning(flow, begin->before, error);
    for (uint32_t i = 0; i < o->packers; i++)
        flow->packers[i].deaths = 0; /* ticket numbers restart */
    if (code >= 0) /* processes first: a child is forked before the threads of this start exist */
        code = start_packers(flow, error);
    for (uint32_t i = 0; i < o->readers && code >= 0; i++)
        code = rp_fetcher_start(&flow->fetchers[i], error);
    if (code >= 0)
        code = rp_dispatch_start(&flow->dispatch, error);
    if (code >= 0)
        rp_residency_start(&flow->files.residency);
    if (code < 0)
        rp_flow_stop(flow);
    return code;
}

void rp_flow_abandon(struct rp_flow *flow)
{
    for (uint32_t r = 0; rp_flow_runs(flow) && r < flow->options.rank_count; r++)
        if (flow->catch_up[r])
            order_stop(flow->catch_up[r]);
    if (rp_flow_runs(flow))
        order_stop(flow);
}

void rp_flow_stop(struct rp_flow *flow)
{
    if (!rp_flow_runs(flow))
        return;
    check_turn(flow);
    for (uint32_t r = 0; r < flow->options.rank_count; r++)
        drop_catch_up(flow, r);
    order_stop(flow);
    rp_flow_join_threads(flow);
    join_packers(flow);
    flow->flow_state = RP_FLOW_STOPPED;
    rp_ending_collect(flow, true);
}

/* ---- another ring in the place of one -------------------------------------------------------- */

void rp_flow_pause_packers(struct rp_flow *flow)
{
    struct rp_arena_words *words = flow->arena.words;
    RP_ASSERT(flow->flow_state == RP_FLOW_RUNNING);
    rp_a32_store_release(&words->stop, RP_ARENA_STOPS_PACKERS);
    rp_event_signal(&words->ready);
    rp_event_signal(&words->space);
    join_packers(flow);
}

bool rp_flow_packers_are_paused(const struct rp_flow *flow)
{
    return rp_a32_load_relaxed(&flow->arena.words->stop) == RP_ARENA_STOPS_PACKERS;
}

uint64_t rp_flow_packed_end(const struct rp_flow *flow, uint32_t ring)
{
    /* tickets of the next batch may be packed and retired already */
    RP_ASSERT(ring < flow->options.rank_count && !flow->is_left_out[ring]);
    uint64_t first, last, end = flow->deliver.rings[ring].tail + 1;
    RP_ASSERT(rp_flow_packers_are_paused(flow));
    rp_flow_tickets(flow, &first, &last);
    for (uint64_t t = first; t < last; t++) {
        const struct rp_ticket *ticket = rp_arena_ticket(&flow->arena, t);
        uint64_t word = rp_a64_load_acquire(&ticket->state); /* PAIRS ticket-state */
        if (word == rp_ticket_word(t, RP_TICKET_PACKED) &&
            ticket->transfer_count + ticket->row_count)
            end = rp_max_u64(end, ticket->batch + 1);
    }
    /* a ticket may write only to other rings, which have more room */
    return rp_min_u64(end, rp_a64_load_relaxed(&flow->arena.free_until[ring]));
}

int rp_flow_resume_packers(struct rp_flow *flow, struct rp_error *error)
{
    RP_ASSERT(rp_flow_packers_are_paused(flow));
    for (uint32_t r = 0; r < flow->options.rank_count; r++)
        rp_pack_target_init(&flow->targets[r], &flow->deliver.rings[r]);
    rp_a32_store_release(&flow->arena.words->stop, RP_ARENA_RUNS);
    int code = start_packers(flow, error);
    if (code < 0)
        rp_flow_stop(flow);
    return code;
}

/* ---- delivering ------------------------------------------------------------------------------ */

/* The failure of a catch-up flow that has ended: a token file that it had read has changed. */
static int caught_up_failure(const struct rp_flow *flow, struct rp_error *error)
{
    if (flow->caught_up_error.code < 0 && error)
        *error = flow->caught_up_error;
    return flow->caught_up_error.code;
}

int rp_flow_deliver(struct rp_flow *flow, struct rp_error *error)
{
    RP_ASSERT(flow->flow_state == RP_FLOW_RUNNING);
    rp_ending_collect(flow, false);
    int code = caught_up_failure(flow, error);
    if (code >= 0)
        code = watch_prefault(flow, error);
    if (code < 0)
        return code;
    int step = rp_deliver_step(&flow->deliver, error);
    if (step == RP_FLOW_RESTART)
        flow->dispatch.reads.no_block_reads = true; /* no thread reads it before the next start */
    if (step < 0 || step == RP_FLOW_RESTART)
        return step;
    return deliver_catch_ups(flow, step, error);
}

void rp_flow_wake_at(struct rp_flow *flow, uint64_t batch)
{
    flow->wake_at = flow->deliver.wake_at = batch;
}

/* Each flow wakes the sleeper when its own rings have reached wake_at. While rings catch up, a flow
 * whose rings are there already must not wake it again: the last flow does. */
static void share_wake_up(struct rp_flow *flow)
{
    bool is_alone = true;
    for (uint32_t r = 0; r < flow->options.rank_count; r++) {
        struct rp_flow *catch_up = flow->catch_up[r];
        if (!catch_up)
            continue;
        is_alone = false;
        bool is_there = rp_deliver_is_consumed(&catch_up->deliver, flow->wake_at);
        rp_flow_wake_at(catch_up, is_there ? UINT64_MAX : flow->wake_at);
    }
    bool is_there = !is_alone && rp_deliver_is_consumed(&flow->deliver, flow->wake_at);
    flow->deliver.wake_at = is_there ? UINT64_MAX : flow->wake_at;
}

bool rp_flow_park(struct rp_flow *flow)
{
    RP_ASSERT(flow->flow_state == RP_FLOW_RUNNING);
    share_wake_up(flow);
    flow->flow_state = RP_FLOW_PARKED;
    bool is_parked = rp_deliver_park(&flow->deliver);
    for (uint32_t r = 0; r < flow->options.rank_count; r++)
        if (flow->catch_up[r])
            is_parked &= rp_flow_park(flow->catch_up[r]);
    return is_parked;
}

void rp_flow_unpark(struct rp_flow *flow)
{
    if (flow->flow_state != RP_FLOW_PARKED)
        return;
    flow->flow_state = RP_FLOW_RUNNING;
    for (uint32_t r = 0; r < flow->options.rank_count; r++)
        if (flow->catch_up[r])
            rp_flow_unpark(flow->catch_up[r]);
    rp_deliver_unpark(&flow->deliver);
}

/* ---- the last check of token files ---------------------------------------------------------- */

void rp_flow_request_revalidation(struct rp_flow *flow)
{
    if (!rp_flow_runs(flow))
        return;
    rp_revalidation_request(&flow->revalidation);
    rp_event_signal(&flow->arena.words->retired_event);
    for (uint32_t r = 0; r < flow->options.rank_count; r++)
        if (flow->catch_up[r])
            rp_flow_request_revalidation(flow->catch_up[r]);
}

int rp_flow_revalidation_result(const struct rp_flow *flow, struct rp_error *error)
{
    int result = caught_up_failure(flow, error);
    if (result == 0)
        result = rp_revalidation_result(&flow->revalidation, error);
    for (uint32_t r = 0; r < flow->options.rank_count && result > 0; r++)
        if (flow->catch_up[r])
            result = rp_flow_revalidation_result(flow->catch_up[r], error);
    return result > 0 ? rp_ending_revalidation_result(flow, error) : result;
}

/* ---- packer processes ------------------------------------------------------------------------ */

int rp_flow_packer_pidfd(const struct rp_flow *flow, uint32_t packer)
{
    RP_ASSERT(packer < flow->options.packers);
    return flow->packers[packer].started ? flow->packers[packer].pidfd : -1;
}

int rp_flow_replace_packer(struct rp_flow *flow, uint32_t packer, struct rp_error *error)
{
    RP_ASSERT(packer < flow->options.packers);
    if (!rp_packer_is_dead(&flow->packers[packer])) /* once dead, it writes no more */
        return 0; /* the event was of a process of an earlier start */
    int code = rp_packer_judge_death(&flow->packers[packer], error);
    if (code < 0)
        return code;
    rp_packer_join(&flow->packers[packer]);
    flow->packers_replaced++;
    rp_log_event(RP_EVENT_packer_replaced,
                 "packer process %u died; a new one does its ticket again", packer);
    return rp_packer_start(&flow->packers[packer], true, error);
}
