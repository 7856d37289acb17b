/* SPDX-License-Identifier: Apache-2.0 */
/* flow — builds, starts and stops the pipeline; holds no per-document work of its own. */
#include "flow/flow.h"

#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "base/defect.h"
#include "base/log.h"
#include "base/mem.h"
#include "flow/block_reads.h"
#include "flow/deliver.h"
#include "flow/dispatch.h"
#include "flow/fetch.h"
#include "flow/files.h"
#include "flow/fill.h"
#include "flow/masks.h"
#include "flow/pack.h"

#define TICKET_BYTES (64u << 10)
#define SLOTS_MIN 8u
#define SLOTS_MAX 4096u
#define SLOTS_MAPPED 64u /* nothing has to be fetched ahead, and so few stay in cache */
#define PREFETCH_BYTES_STANDARD_MAX (1ull << 30)
#define STEP_STATES_BYTES_MAX (16ull << 20)
#define PIECES_MIN 4u /* of the longest kind, that the data holds: so that reads overlap */

struct rp_flow {
    struct rp_flow_options options;
    struct rp_arena arena;
    struct rp_filler filler;
    struct rp_files files;
    struct rp_dispatch dispatch;
    struct rp_fetcher *fetchers; /* [readers] */
    struct rp_pack_plan pack_plan;
    struct rp_pack_target *targets; /* [rank_count] */
    struct rp_packer *packers;      /* [packers] */
    struct rp_verified *verified;   /* [packers], where a mapped file has hashes; else NULL */
    struct rp_deliver deliver;
    uint64_t *start_batch; /* [rank_count] */
    uint64_t *unlabelled;  /* [rank_count] */
    uint64_t packers_replaced;
    bool running, has_run, is_parked;
    int wake_fd;
};

/* One ticket for every TICKET_BYTES of data, which is what a micro-batch of a few thousand tokens
 * reads; but tickets and the states of their micro-batches take at most a quarter of the bytes that
 * the data takes, as long as SLOTS_MIN tickets are left. */
static uint32_t choose_slots(const struct rp_flow_options *o, uint64_t data_bytes)
{
    uint64_t wanted = rp_min_u64(SLOTS_MAX, rp_pow2_at_least(data_bytes / TICKET_BYTES));
    uint64_t each = sizeof(struct rp_ticket) + o->state_bytes;
    while (wanted > SLOTS_MIN && wanted * each > data_bytes / 4)
        wanted /= 2;
    return (uint32_t)rp_max_u64(wanted, SLOTS_MIN);
}

static int open_files(struct rp_flow *flow, struct rp_error *error)
{
    struct rp_error why;
    int code = rp_files_open(&flow->files, &flow->options, error);
    if (code >= 0 && flow->options.mapped && rp_files_map(&flow->files, &why) < 0)
        rp_log(RP_LOG_WARNING, "token files are read, not mapped: %s", why.message);
    return code;
}

/* The longest transfer: a whole row of the widest tokens, rounded out to blocks at both ends. */
static uint64_t piece_bytes_max(const struct rp_flow_options *o)
{
    return (uint64_t)o->seq_len * sizeof(uint64_t) + 2 * RP_BLOCK_BYTES;
}

/* Before packer processes are forked: each then has a copy of its own. */
static int open_verified(struct rp_flow *flow, struct rp_error *error)
{
    const struct rp_flow_options *o = &flow->options;
    if (!rp_files_are_mapped(&flow->files) || !rp_files_have_hashes(&flow->files))
        return 0;
    flow->verified = rp_calloc(o->packers, sizeof *flow->verified);
    int code = flow->verified ? 0 : rp_fail(error, -ENOMEM, NULL, "out of memory for packers");
    for (uint32_t i = 0; i < o->packers && code >= 0; i++)
        code = rp_verified_open(&flow->verified[i], piece_bytes_max(o), error);
    return code;
}

struct sizes {
    uint64_t data_bytes; /* with what masks take of it */
    uint32_t slots, states;
};

/* A checkpoint needs the state at the end of the last step that every ring has consumed, so the
 * states of one whole step are kept, as far as STEP_STATES_BYTES_MAX allows. */
static uint64_t states_of_a_step(const struct rp_flow_options *o)
{
    uint64_t micro_batches = o->global_batch_rows / ((uint64_t)o->rows * o->world);
    return rp_min_u64(micro_batches, STEP_STATES_BYTES_MAX / rp_max_u64(o->state_bytes, 1) + 1);
}

static struct sizes choose_sizes(const struct rp_flow_options *o, bool is_mapped)
{
    uint64_t least = rp_align_up(PIECES_MIN * piece_bytes_max(o), RP_BLOCK_BYTES);
    uint64_t most = rp_align_up(rp_max_u64(o->prefetch_bytes, least), RP_BLOCK_BYTES);
    /* mapped tokens stay where they are: only what a checkpoint brought is copied into the data */
    struct sizes sizes = {.data_bytes = is_mapped ? least : most};
    sizes.data_bytes += rp_masks_bytes(o);
    sizes.slots = is_mapped ? SLOTS_MAPPED : choose_slots(o, most);
    /* a position is asked for until every ring has released the step behind it, and planned at most
     * `slots` micro-batches ahead */
    sizes.states = (uint32_t)rp_pow2_at_least((uint64_t)sizes.slots + o->batch_slots +
                                              states_of_a_step(o) + 4);
    return sizes;
}

uint64_t rp_flow_prefetch_bytes(const struct rp_flow_options *options, const struct rp_plan *plan,
                                uint64_t base_row)
{
    if (options->prefetch_bytes)
        return options->prefetch_bytes;
    uint64_t windows = rp_block_reads_data_bytes(plan, options, base_row,
                                                 PREFETCH_BYTES_STANDARD_MAX);
    return rp_max_u64(windows, RP_PREFETCH_BYTES_STANDARD);
}

uint64_t rp_flow_memory_bytes(const struct rp_flow_options *options, bool is_mapped)
{
    struct sizes sizes = choose_sizes(options, is_mapped);
    return rp_arena_bytes(options->rank_count, sizes.slots, sizes.data_bytes, sizes.states,
                          options->state_bytes);
}

static int create_arena(struct rp_flow *flow, struct rp_error *error)
{
    const struct rp_flow_options *o = &flow->options;
    struct sizes sizes = choose_sizes(o, rp_files_are_mapped(&flow->files));
    return rp_arena_create(&flow->arena, !o->packer_processes, o->rank_count, sizes.slots,
                           sizes.data_bytes, sizes.states, o->state_bytes, error);
}

/* Filling starts after the first batch, which it would delay. */
static int watch_filling(struct rp_flow *flow, struct rp_error *error)
{
    bool is_due = flow->deliver.batches > 0 && !rp_a32_load_relaxed(&flow->arena.filled);
    if (is_due && !flow->filler.started)
        return rp_filler_start(&flow->filler, &flow->arena, flow->wake_fd, error);
    return rp_filler_check(&flow->filler, error);
}

int rp_flow_open(struct rp_flow **flow_out, const struct rp_flow_options *options, int wake_fd,
                 struct rp_error *error)
{
    RP_ASSERT(options->readers >= 1 && options->readers <= RP_READERS_MAX);
    RP_ASSERT(options->packers >= 1 && options->packers <= RP_PACKERS_MAX);
    RP_ASSERT(options->rows >= 1 && options->rank_count >= 1);
    RP_ASSERT(options->rank_first + options->rank_count <= options->world);
    struct rp_flow *flow = rp_calloc(1, sizeof *flow);
    if (!flow)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for the pipeline");
    flow->options = *options;
    flow->wake_fd = wake_fd;
    flow->arena.segment.fd = -1;
    flow->fetchers = rp_calloc(options->readers, sizeof *flow->fetchers);
    flow->packers = rp_calloc(options->packers, sizeof *flow->packers);
    flow->targets = rp_calloc(options->rank_count, sizeof *flow->targets);
    flow->start_batch = rp_calloc(options->rank_count, sizeof *flow->start_batch);
    flow->unlabelled = rp_calloc(options->rank_count, sizeof *flow->unlabelled);
    int code = flow->fetchers && flow->packers && flow->targets && flow->start_batch &&
                       flow->unlabelled
                   ? open_files(flow, error)
                   : rp_fail(error, -ENOMEM, NULL, "out of memory for the pipeline");
    if (code >= 0)
        code = open_verified(flow, error);
    if (code >= 0)
        code = create_arena(flow, error);
    if (code >= 0)
        code = rp_reads_open(&flow->dispatch.reads, &flow->options, &flow->files, &flow->arena,
                             error);
    if (code < 0) {
        rp_flow_close(flow);
        return code;
    }
    flow->pack_plan = (struct rp_pack_plan){.arena = &flow->arena,
                                            .targets = flow->targets,
                                            .files = &flow->files,
                                            .verified = flow->verified,
                                            .packers = options->packers,
                                            .deliver = options->packer_processes ? NULL
                                                                                 : &flow->deliver,
                                            .token_limit = options->token_limit,
                                            .pad_id = options->pad_id,
                                            .wake_fd = wake_fd};
    for (uint32_t i = 0; i < options->packers; i++)
        flow->packers[i] = (struct rp_packer){.plan = &flow->pack_plan, .index = i, .pidfd = -1};
    for (uint32_t i = 0; i < options->readers; i++)
        flow->fetchers[i] = (struct rp_fetcher){
            .options = &flow->options, .arena = &flow->arena, .files = &flow->files, .index = i};
    *flow_out = flow;
    return 0;
}

void rp_flow_close(struct rp_flow *flow)
{
    if (!flow)
        return;
    rp_flow_stop(flow);
    rp_reads_close(&flow->dispatch.reads);
    if (flow->files.files)
        rp_files_close(&flow->files);
    rp_filler_join(&flow->filler);
    rp_arena_close(&flow->arena);
    for (uint32_t i = 0; flow->verified && i < flow->options.packers; i++)
        rp_verified_close(&flow->verified[i]);
    free(flow->verified);
    free(flow->fetchers);
    free(flow->packers);
    free(flow->targets);
    free(flow->start_batch);
    free(flow->unlabelled);
    free(flow);
}

static void prepare_start(struct rp_flow *flow, struct rp_plan *plan, struct rp_plan *scout,
                          uint64_t base_row, uint64_t batch, struct rp_ring *rings)
{
    const struct rp_flow_options *o = &flow->options;
    if (flow->has_run) /* a new arena is all zero: to write that would be to touch it */
        rp_arena_reset(&flow->arena);
    flow->has_run = true;
    for (uint32_t r = 0; r < o->rank_count; r++) {
        RP_ASSERT(batch <= rings[r].tail);
        flow->start_batch[r] = rings[r].tail;
        flow->unlabelled[r] = 0;
        rp_pack_target_init(&flow->targets[r], &rings[r]);
        rp_a64_store_relaxed(&flow->arena.free_until[r],
                             rings[r].release + rings[r].geometry.slots);
    }
    struct rp_deliver *d = &flow->deliver;
    *d = (struct rp_deliver){.options = &flow->options,
                             .wake_fd = flow->wake_fd,
                             .turn.taken.value = 1, /* the engine's */
                             .wake_at = UINT64_MAX,
                             .arena = &flow->arena,
                             .rings = rings,
                             .files = &flow->files,
                             .base_row = base_row,
                             .unlabelled = flow->unlabelled,
                             .batches = d->batches,
                             .rows = d->rows,
                             .tokens = d->tokens};
    flow->dispatch = (struct rp_dispatch){.options = &flow->options,
                                          .arena = &flow->arena,
                                          .reads = flow->dispatch.reads,
                                          .plan = plan,
                                          .scout = scout,
                                          .base_row = base_row,
                                          .begin_row = base_row + batch * o->rows * o->world,
                                          .batch = batch,
                                          .start_batch = flow->start_batch};
}

int rp_flow_start(struct rp_flow *flow, struct rp_plan *plan, struct rp_plan *scout,
                  uint64_t base_row, uint64_t batch, struct rp_ring *rings, struct rp_error *error)
{
    const struct rp_flow_options *o = &flow->options;
    RP_ASSERT(!flow->running && !flow->is_parked);
    RP_ASSERT(plan && rings);
    prepare_start(flow, plan, scout, base_row, batch, rings);
    int code = rp_reads_start(&flow->dispatch.reads, plan, base_row, error);
    flow->running = true;
    /* processes first: a child is forked before the threads of this start exist */
    for (uint32_t i = 0; i < o->packers && code >= 0; i++)
        code = rp_packer_start(&flow->packers[i], o->packer_processes, error);
    for (uint32_t i = 0; i < o->readers && code >= 0; i++)
        code = rp_fetcher_start(&flow->fetchers[i], error);
    if (code >= 0)
        code = rp_dispatch_start(&flow->dispatch, error);
    if (code < 0)
        rp_flow_stop(flow);
    return code;
}

void rp_flow_stop(struct rp_flow *flow)
{
    if (!flow->running)
        return;
    struct rp_arena_words *words = flow->arena.words;
    rp_a32_store_release(&words->stop, RP_ARENA_STOPS);
    rp_event_signal(&words->planned);
    rp_event_signal(&words->ready);
    rp_event_signal(&words->retired_event);
    rp_event_signal(&words->space);
    rp_dispatch_join(&flow->dispatch);
    for (uint32_t i = 0; i < flow->options.readers; i++)
        rp_fetcher_join(&flow->fetchers[i]);
    for (uint32_t i = 0; i < flow->options.packers; i++)
        rp_packer_join(&flow->packers[i]);
    flow->running = false;
}

/* ---- another ring in the place of one -------------------------------------------------------- */

void rp_flow_pause_packers(struct rp_flow *flow)
{
    struct rp_arena_words *words = flow->arena.words;
    RP_ASSERT(flow->running && !flow->is_parked);
    rp_a32_store_release(&words->stop, RP_ARENA_STOPS_PACKERS);
    rp_event_signal(&words->ready);
    rp_event_signal(&words->space);
    for (uint32_t i = 0; i < flow->options.packers; i++)
        rp_packer_join(&flow->packers[i]);
}

uint64_t rp_flow_packed_end(const struct rp_flow *flow, uint32_t ring)
{
    /* of the next batch there may be tickets that are packed and retired already */
    RP_ASSERT(ring < flow->options.rank_count);
    uint64_t first, last, end = flow->deliver.rings[ring].tail + 1;
    RP_ASSERT(rp_a32_load_relaxed(&flow->arena.words->stop) == RP_ARENA_STOPS_PACKERS);
    rp_flow_tickets(flow, &first, &last);
    for (uint64_t t = first; t < last; t++) {
        const struct rp_ticket *ticket = rp_arena_ticket(&flow->arena, t);
        uint64_t word = rp_a64_load_acquire(&ticket->state); /* PAIRS ticket-state */
        if (word == rp_ticket_word(t, RP_TICKET_PACKED) &&
            ticket->transfer_count + ticket->row_count)
            end = rp_max_u64(end, ticket->batch + 1);
    }
    /* a ticket may be of other rings alone, which have more room */
    return rp_min_u64(end, rp_a64_load_relaxed(&flow->arena.free_until[ring]));
}

int rp_flow_resume_packers(struct rp_flow *flow, struct rp_error *error)
{
    const struct rp_flow_options *o = &flow->options;
    int code = 0;
    RP_ASSERT(rp_a32_load_relaxed(&flow->arena.words->stop) == RP_ARENA_STOPS_PACKERS);
    for (uint32_t r = 0; r < o->rank_count; r++)
        rp_pack_target_init(&flow->targets[r], &flow->deliver.rings[r]);
    rp_a32_store_release(&flow->arena.words->stop, RP_ARENA_RUNS);
    for (uint32_t i = 0; i < o->packers && code >= 0; i++) {
        RP_ASSERT(!flow->packers[i].started);
        code = rp_packer_start(&flow->packers[i], o->packer_processes, error);
    }
    if (code < 0)
        rp_flow_stop(flow);
    return code;
}

/* ---- delivering ------------------------------------------------------------------------------ */

int rp_flow_deliver(struct rp_flow *flow, struct rp_error *error)
{
    RP_ASSERT(flow->running);
    int code = watch_filling(flow, error);
    if (code < 0)
        return code;
    int step = rp_deliver_step(&flow->deliver, error);
    if (step == RP_FLOW_RESTART)
        flow->dispatch.reads.no_block_reads = true; /* read by nobody before the next start */
    return step;
}

void rp_flow_wake_at(struct rp_flow *flow, uint64_t batch)
{
    flow->deliver.wake_at = batch;
}

bool rp_flow_park(struct rp_flow *flow)
{
    struct rp_deliver *d = &flow->deliver;
    RP_ASSERT(!flow->is_parked);
    rp_deliver_ask_for_space(d);
    rp_a32_store_relaxed(&flow->arena.words->parked, 1);
    rp_fence_seq_cst(); /* PAIRS deliver-park */
    flow->is_parked = true;
    return rp_deliver_give_back(d);
}

void rp_flow_unpark(struct rp_flow *flow)
{
    if (!flow->is_parked)
        return;
    flow->is_parked = false;
    rp_turn_take(&flow->deliver.turn);
    rp_a32_store_relaxed(&flow->arena.words->parked, 0);
    for (uint32_t r = 0; r < flow->options.rank_count; r++)
        rp_ring_want_space(&flow->deliver.rings[r], false);
}

bool rp_flow_is_mapped(const struct rp_flow *flow)
{
    return rp_files_are_mapped(&flow->files);
}

int rp_flow_packer_pidfd(const struct rp_flow *flow, uint32_t packer)
{
    RP_ASSERT(packer < flow->options.packers);
    return flow->packers[packer].started ? flow->packers[packer].pidfd : -1;
}

int rp_flow_replace_packer(struct rp_flow *flow, uint32_t packer, struct rp_error *error)
{
    RP_ASSERT(packer < flow->options.packers);
    if (!rp_packer_is_dead(&flow->packers[packer])) /* it can write nothing any more */
        return 0; /* the news was of one that an earlier start had */
    int code = rp_packer_judge_death(&flow->packers[packer], error);
    if (code < 0)
        return code;
    rp_packer_join(&flow->packers[packer]);
    flow->packers_replaced++;
    rp_log(RP_LOG_WARNING, "packer process %u died; a new one does its ticket again", packer);
    return rp_packer_start(&flow->packers[packer], true, error);
}

void rp_flow_hold(struct rp_flow *flow, uint64_t batch)
{
    RP_ASSERT(!flow->is_parked && !flow->deliver.held);
    flow->deliver.held_batch = batch;
    flow->deliver.held_ticket = flow->deliver.next_ticket;
    flow->deliver.held = true;
}

void rp_flow_release_hold(struct rp_flow *flow)
{
    flow->deliver.held = false;
    if (flow->running) {
        rp_a64_store_release(&flow->arena.words->retired, flow->deliver.next_ticket);
        rp_event_signal(&flow->arena.words->retired_event);
        (void)rp_deliver_poll_space(&flow->deliver);
    }
}

const uint8_t *rp_flow_transfer_tokens(const struct rp_flow *flow,
                                       const struct rp_transfer *transfer)
{
    return rp_files_tokens(&flow->files, flow->arena.data, transfer);
}

/* An earlier start of the flow may have planned further than this one, and its states are still in
 * their slots. Dispatch may be overwriting any whose position is `state_count` or more ahead of
 * what is published. */
static bool may_be_overwritten(const struct rp_flow *flow, uint64_t position)
{
    uint64_t lowest_tail = UINT64_MAX;
    for (uint32_t r = 0; r < flow->options.rank_count; r++)
        lowest_tail = rp_min_u64(lowest_tail, flow->deliver.rings[r].tail);
    return position >= lowest_tail && position - lowest_tail >= flow->arena.state_count;
}

const void *rp_flow_state_at(const struct rp_flow *flow, uint64_t position, size_t *bytes_out,
                             uint64_t *next_row_out)
{
    if (flow->running && may_be_overwritten(flow, position))
        return NULL;
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
    *counts = (struct rp_flow_counts){
        .batches = d->batches,
        .rows = d->rows,
        .tokens = d->tokens,
        .taken_bytes = rp_a64_load_relaxed(&flow->files.taken_bytes),
        .unverified_bytes = rp_a64_load_relaxed(&flow->files.unverified_bytes),
        .packers_replaced = flow->packers_replaced};
    for (uint32_t i = 0; i < flow->options.readers; i++) {
        const struct rp_fetcher *f = &flow->fetchers[i];
        counts->reads += rp_a64_load_relaxed(&f->reads);
        counts->read_bytes += rp_a64_load_relaxed(&f->read_bytes);
        counts->short_reads += rp_a64_load_relaxed(&f->short_reads);
        counts->read_retries += rp_a64_load_relaxed(&f->retries);
    }
}
