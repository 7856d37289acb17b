/* SPDX-License-Identifier: Apache-2.0 */
/* flow_view.c — views of a flow for checkpoints, attaching trainers, and status.
 *
 * Dispatch saves states in slots, which it reuses (rp_queue_save). Other threads read a slot in two
 * places:
 *
 *   rp_complete_batch           the state after a batch that is not published: choose_sizes
 *                               (flow_open.c) has slots for all of these
 *   rp_flow_state_at            any position, on the engine's thread while it has the turn. So no
 *                               tail moves meanwhile, which limits dispatch (may_be_overwritten).
 *                               Callers copy the state, or load a plan of it, and then
 *                               deliver.
 *
 * States are forgotten only while the flow is stopped. */
#include "base/bits.h"
#include "flow/catch_up.h"
#include "flow/flow_struct.h"

bool rp_flow_is_mapped(const struct rp_flow *flow)
{
    const struct rp_files *files = &flow->files;
    uint64_t taken = rp_a64_load_relaxed(&files->taken_bytes);
    uint64_t read = rp_a64_load_relaxed(&files->buffered_bytes) +
                    rp_a64_load_relaxed(&files->direct_bytes);
    return files->state == RP_FILES_ADAPT ? (taken ? read < taken / 2 : flow->options.mapped)
                                          : rp_files_are_mapped(files);
}

struct rp_flow_page_cache rp_flow_page_cache(const struct rp_flow *flow)
{
    const struct rp_residency *r = &flow->files.residency;
    if (flow->files.state != RP_FILES_ADAPT)
        return (struct rp_flow_page_cache){.is_watched = false};
    return (struct rp_flow_page_cache){.is_watched = true,
                                       .corpus_bytes = r->options.corpus_bytes,
                                       .held_bytes = rp_a64_load_relaxed(&r->cached_bytes) +
                                                     rp_a64_load_relaxed(&r->memory_bytes),
                                       .room_bytes = rp_a64_load_relaxed(&r->room_bytes)};
}

bool rp_flow_is_catching_up(const struct rp_flow *flow, uint32_t ring)
{
    return flow->catch_up[ring] != NULL;
}

bool rp_flow_uses_plan(const struct rp_flow *flow, const struct rp_plan *plan)
{
    bool uses = false;
    for (uint32_t r = 0; r < flow->options.rank_count; r++)
        uses |= flow->catch_up[r] && flow->catch_up[r]->dispatch.plan == plan;
    for (uint32_t i = 0; i < RP_ENDINGS_MAX; i++)
        uses |= flow->ending[i] && flow->ending[i]->dispatch.plan == plan;
    return uses;
}

uint32_t rp_flow_catch_ups(const struct rp_flow *flow)
{
    uint32_t count = 0;
    for (uint32_t r = 0; r < flow->options.rank_count; r++)
        count += flow->catch_up[r] != NULL;
    return count;
}

static void add_readers(struct rp_flow_readers *sum, const struct rp_flow *flow)
{
    for (uint32_t i = 0; i < flow->options.readers; i++) {
        const struct rp_fetcher *f = &flow->fetchers[i];
        bool is_refused = f->started && f->refusal.code < 0;
        sum->count += f->started;
        sum->refused += is_refused;
        sum->why = is_refused ? &f->refusal : sum->why;
    }
    for (uint32_t r = 0; r < flow->options.rank_count; r++)
        if (flow->catch_up[r])
            add_readers(sum, flow->catch_up[r]);
}

struct rp_flow_readers rp_flow_readers(const struct rp_flow *flow)
{
    struct rp_flow_readers sum = {0};
    add_readers(&sum, flow);
    return sum;
}

const uint8_t *rp_flow_transfer_tokens(const struct rp_flow *flow,
                                       const struct rp_transfer *transfer)
{
    return rp_files_tokens(&flow->files, flow->arena.data, transfer);
}

/* May dispatch write over the state of `position` before the engine's thread delivers or changes a
 * ring? Slots of positions that this start has not reached have states of earlier starts. Until
 * then dispatch saves states of positions from `first` to `last` only:
 *
 *   first  It began at the lowest tail of all rings, and the state after a batch is saved before
 *          the batch is published.
 *   last   Each batch from the lowest tail of the served rings on has a ticket that is not retired,
 *          and planning is ahead of tickets by rp_queue_states. Batches below that tail may have no
 *          ticket, so dispatch may pass them at any time.
 *
 * It writes over the state when it saves another position in the same slot. */
static bool may_be_overwritten(const struct rp_flow *flow, uint64_t position)
{
    uint64_t begin = UINT64_MAX, published = 0, lowest_tail = UINT64_MAX;
    uint64_t count = flow->arena.state_count;
    for (uint32_t r = 0; r < flow->options.rank_count; r++) {
        uint64_t start = flow->start_batch[r], tail = flow->deliver.rings[r].tail;
        begin = rp_min_u64(begin, start);
        if (flow->is_left_out[r])
            continue;
        lowest_tail = rp_min_u64(lowest_tail, tail);
        published = tail > start ? rp_max_u64(published, tail) : published;
    }
    uint64_t first = rp_max_u64(begin, published);
    uint64_t last = lowest_tail + flow->arena.slot_count + 1 + rp_queue_states(&flow->options);
    return position + count <= last || position >= first + count;
}

struct rp_row_state rp_flow_state_at(const struct rp_flow *flow, uint64_t position)
{
    struct rp_row_state kept = {.token = NULL};
    RP_ASSERT(flow->flow_state != RP_FLOW_PARKED);
    for (uint32_t r = 0; r < flow->options.rank_count && !kept.token; r++)
        if (flow->catch_up[r])
            kept = rp_flow_state_at(flow->catch_up[r], position);
    if (kept.token || (rp_flow_runs(flow) && may_be_overwritten(flow, position)))
        return kept;
    return rp_arena_state_at(&flow->arena, position);
}

void rp_flow_forget_states(struct rp_flow *flow)
{
    RP_ASSERT(!rp_flow_runs(flow));
    for (uint32_t i = 0; i < flow->arena.state_count; i++)
        rp_a64_store_relaxed(&rp_arena_state(&flow->arena, i)->position, 0);
}

void rp_flow_forget_states_after(struct rp_flow *flow, uint64_t row)
{
    RP_ASSERT(!rp_flow_runs(flow));
    for (uint32_t i = 0; i < flow->arena.state_count; i++) {
        struct rp_state_slot *slot = rp_arena_state(&flow->arena, i);
        if (slot->next_row > row)
            rp_a64_store_relaxed(&slot->position, 0);
    }
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

void rp_flow_add_counts(const struct rp_flow *flow, struct rp_flow_counts *counts)
{
    const struct rp_deliver *d = &flow->deliver;
    counts->batches += d->batches;
    counts->rows += d->rows;
    counts->tokens += d->tokens;
    counts->taken_bytes += rp_a64_load_relaxed(&flow->files.taken_bytes);
    counts->unverified_bytes += rp_a64_load_relaxed(&flow->files.unverified_bytes);
    counts->buffered_bytes += rp_a64_load_relaxed(&flow->files.buffered_bytes);
    counts->direct_bytes += rp_a64_load_relaxed(&flow->files.direct_bytes);
    counts->packers_replaced += flow->packers_replaced;
    for (uint32_t i = 0; i < flow->options.readers; i++) {
        const struct rp_fetcher *f = &flow->fetchers[i];
        counts->reads += rp_a64_load_relaxed(&f->reads);
        counts->read_bytes += rp_a64_load_relaxed(&f->read_bytes);
        counts->short_reads += rp_a64_load_relaxed(&f->short_reads);
        counts->read_retries += rp_a64_load_relaxed(&f->retries);
    }
}

void rp_flow_counts(const struct rp_flow *flow, struct rp_flow_counts *counts)
{
    *counts = flow->earlier_counts;
    rp_flow_add_counts(flow, counts);
    for (uint32_t i = 0; i < RP_ENDINGS_MAX; i++)
        if (flow->ending[i])
            rp_flow_add_counts(flow->ending[i], counts);
}

double rp_flow_rank_cost(const struct rp_flow *flow, uint32_t ring)
{
    struct rp_rank_cost cost = flow->costs.ranks[ring];
    const struct rp_flow *catch_up = flow->catch_up[ring];
    if (catch_up)
        rp_costs_join(&cost, &catch_up->costs.ranks[0]);
    return cost.without_cost > 0 ? -1 : cost.cost;
}

struct rp_flow_imbalance rp_flow_imbalance(const struct rp_flow *flow)
{
    return rp_costs_imbalance(&flow->costs, flow->options.rank_count);
}

void rp_flow_continue_counts(struct rp_flow *flow, struct rp_flow *stopped)
{
    rp_flow_counts(stopped, &flow->earlier_counts);
    struct rp_flow_costs unused = flow->costs;
    flow->costs = stopped->costs;
    stopped->costs = unused;
}

/* ---- batches for a checkpoint ---------------------------------------------------------------- */

void rp_flow_hold(struct rp_flow *flow, uint64_t batch)
{
    RP_ASSERT(flow->flow_state != RP_FLOW_PARKED && !flow->deliver.held);
    flow->deliver.held_batch = batch;
    flow->deliver.held_ticket = flow->deliver.next_ticket;
    flow->deliver.held = true;
    for (uint32_t r = 0; r < flow->options.rank_count; r++)
        if (flow->catch_up[r])
            rp_flow_hold(flow->catch_up[r], batch);
}

void rp_flow_release_hold(struct rp_flow *flow)
{
    flow->deliver.held = false;
    if (rp_flow_runs(flow)) {
        rp_a64_store_release(&flow->arena.words->retired, flow->deliver.next_ticket);
        rp_event_signal(&flow->arena.words->retired_event);
        (void)rp_deliver_free_slots(&flow->deliver);
    }
    for (uint32_t r = 0; r < flow->options.rank_count; r++)
        if (flow->catch_up[r])
            rp_flow_release_hold(flow->catch_up[r]);
}

/* ---- the oldest ticket ----------------------------------------------------------------------- */

/* Does an unread ticket wait for a server? Cached bytes of objects are read from files, so this
 * holds only if its reader has a request at a server. */
static bool is_remote(const struct rp_flow *flow, const struct rp_ticket *ticket, uint64_t number)
{
    const struct rp_fetcher *reader = &flow->fetchers[number % flow->options.readers];
    for (uint32_t i = 0; i < ticket->read_count; i++) {
        uint32_t shard = ticket->reads[i].shard;
        if (shard != RP_READ_CONTENTS && rp_corpus_shard(flow->options.corpus, shard)->url)
            return !flow->options.cache || rp_a32_load_relaxed(&reader->at_server) > 0;
    }
    return false;
}

/* Note in *oldest whether the ring has no room for the batch: READ_FULL, because its consumers have
 * not released enough; or READ_HELD. */
static void note_room(const struct rp_flow *flow, uint32_t ring, uint64_t batch,
                      struct rp_oldest_ticket *oldest)
{
    const struct rp_deliver *d = &flow->deliver;
    const struct rp_ring *own = &d->rings[ring];
    if (oldest->stage == RP_OLDEST_READ_FULL || d->is_left_out[ring] ||
        batch < rp_a64_load_relaxed(&flow->arena.pack_from[ring]))
        return; /* known; or another flow packs it */
    if (batch >= own->release + own->geometry.slots)
        *oldest = (struct rp_oldest_ticket){RP_OLDEST_READ_FULL, ring};
    else if (d->held && batch >= rp_min_u64(own->release, d->held_batch) + own->geometry.slots)
        oldest->stage = RP_OLDEST_READ_HELD;
}

static struct rp_oldest_ticket read_ticket(const struct rp_flow *flow,
                                           const struct rp_ticket *ticket)
{
    struct rp_oldest_ticket oldest = {.stage = RP_OLDEST_READ};
    for (uint32_t i = 0; i < ticket->transfer_count; i++)
        note_room(flow, ticket->transfers[i].ring, ticket->batch, &oldest);
    for (uint32_t i = 0; i < ticket->row_count; i++)
        note_room(flow, ticket->rows[i].ring, ticket->batch, &oldest);
    return oldest;
}

/* While a save holds tickets, dispatch may have no slot, or no room in the data, for the next. */
static bool save_holds_planning(const struct rp_flow *flow)
{
    const struct rp_arena_words *words = flow->arena.words;
    uint64_t wanted = rp_a64_load_relaxed(&words->retired_wanted);
    return flow->deliver.held && wanted != UINT64_MAX &&
           rp_a64_load_relaxed(&words->retired) < wanted;
}

static bool is_at_limit(const struct rp_flow *catch_up)
{
    return catch_up->deliver.rings[0].tail >= catch_up->deliver.end_batch;
}

struct rp_oldest_ticket rp_flow_oldest_ticket(const struct rp_flow *flow, uint32_t ring)
{
    struct rp_oldest_ticket oldest = {.stage = RP_OLDEST_NONE};
    const struct rp_deliver *d = &flow->deliver;
    if (flow->catch_up[ring] && !is_at_limit(flow->catch_up[ring])) {
        oldest = rp_flow_oldest_ticket(flow->catch_up[ring], 0);
        oldest.full_ring = ring; /* its only one */
        return oldest;
    }
    if (!rp_flow_runs(flow) || d->phase == RP_STREAM_ENDED)
        return oldest;
    uint64_t number = d->next_ticket;
    const struct rp_ticket *ticket = rp_arena_ticket(&flow->arena, number);
    uint64_t word = rp_a64_load_acquire(&ticket->state); /* PAIRS ticket-state */
    if (word >= rp_ticket_word(number, RP_TICKET_PACKED))
        oldest.stage = RP_OLDEST_PACKED;
    else if (word >= rp_ticket_word(number, RP_TICKET_READY))
        oldest = read_ticket(flow, ticket);
    else if (word >= rp_ticket_word(number, RP_TICKET_PLANNED))
        oldest.stage = is_remote(flow, ticket, number) ? RP_OLDEST_AT_SERVER : RP_OLDEST_AT_FILE;
    else
        oldest.stage = save_holds_planning(flow) ? RP_OLDEST_UNPLANNED_HELD : RP_OLDEST_UNPLANNED;
    return oldest;
}
