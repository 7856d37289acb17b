/* SPDX-License-Identifier: Apache-2.0 */
/* The prefetch ring (flow/ticket.h) from planning to delivery: the batches are those that were
 * planned, in order and whole, each with the state after it, and no thread sleeps for ever; also if
 * a packer process is killed, wherever, and another takes its place. */
#include "switch.h" /* the switches in flow.c */

#define rp_ending_begin forget_flow
#include "flow/flow.c"

#include "flow_stages.h"
#include "model.h"
#include "scenarios.h"

#define BATCHES (model_long ? 2u : 1u)
#define JOINING_BATCHES 2u
#define RINGS_MAX 2u
#define STATE_BYTES 64u
#define BEHIND_SLOTS 4u
#define ENGINE 0u /* a thread, and its bell */
#define PLANNER 1u
#define PACKER 2u
#define SECOND 3u

/* The shared data of the threads, in checked memory: the engine process's. */
static struct {
    struct rp_flow flow;
    struct rp_pack_target targets[RINGS_MAX];
    struct rp_ring rings[RINGS_MAX];
    uint64_t start_batch[RINGS_MAX];
    struct rp_batch_sums sums[RINGS_MAX];
    struct rp_rank_cost costs[RINGS_MAX];
    struct rp_flow *catch_up[RINGS_MAX];
    bool is_left_out[RINGS_MAX];
} * shared;
static struct {
    uint64_t taken;
    bool replaced;
    /* the catch-up flow, whose stages all run in the engine's thread */
    struct rp_flow behind;
    struct rp_arena_words behind_words;
    struct rp_a64 behind_free_until, behind_pack_from;
    uint64_t behind_packed;
    struct rp_batch_sums behind_sums;
    struct rp_rank_cost behind_costs;
    struct rp_flow *behind_catch_up; /* NULL, and */
    bool behind_aside;               /* false */
} own;
#define STATE                                                                                      \
    .state = &own, .state_bytes = sizeof own, .known[0] = {&stage_planned, sizeof stage_planned}
#define STATE_BEHIND                                                                               \
    .known[1] = {behind_tickets, sizeof behind_tickets},                                           \
    .known[2] = {behind_states, sizeof behind_states}

static void begin_ring(uint32_t ring, uint32_t rings, uint32_t slots)
{
    struct rp_geometry g = {.rows = 1, .seq_len = STAGE_TOKENS, .max_docs_per_row = 1};
    g.world = rings;
    g.rank = ring;
    g.slots = slots;
    g.state_bytes = STATE_BYTES;
    struct rp_ring *made = &shared->rings[ring];
    MODEL_REQUIRE(rp_geometry_layout(&g, 0, RP_DTYPE_I32) > 0);
    MODEL_REQUIRE(rp_ring_create(made, &g, 1, (struct rp_ring_identity){{1, 2}, 3}, 0, NULL) == 0);
    MODEL_REQUIRE(rp_ring_attach_trainer(made, 0, 0, NULL) == 0);
}

/* Batches of one row for each ring, each a step. */
static struct rp_numbering_part parts[] = {{.batch_rows = 1, .step_rows = 1},
                                           {.batch_rows = 2, .step_rows = 2}};
static const struct rp_numbering numberings[] = {{.parts = &parts[0], .count = 1},
                                                 {.parts = &parts[1], .count = 1}};

static void begin_with(uint32_t rings, uint32_t tickets, uint32_t slots, bool processes)
{
    model_segments_reset();
    memset(&own, 0, sizeof own);
    shared = model_memory(sizeof *shared);
    for (uint32_t r = 0; r < rings; r++)
        begin_ring(r, rings, slots);
    struct rp_flow *flow = &shared->flow;
    flow->options = (struct rp_flow_options){
        .rank_count = rings, .batch_size = 1, .token_limit = 1000};
    flow->targets = shared->targets;
    flow->start_batch = shared->start_batch;
    flow->sums = shared->sums;
    flow->costs.ranks = shared->costs;
    flow->catch_up = shared->catch_up;
    flow->is_left_out = shared->is_left_out;
    flow->wake_fd = MODEL_BELL_FD + ENGINE;
    uint32_t states = rings == 1 ? 2 : 4;
    const struct rp_arena_sizes sizes = {.ring_count = rings,
                                         .slot_count = tickets,
                                         .data_bytes = 4096,
                                         .state_count = states,
                                         .state_bytes = STATE_BYTES};
    MODEL_REQUIRE(rp_arena_create(&flow->arena, false, &sizes, NULL) == 0);
    MODEL_REQUIRE(rings <= 2);
    prepare_start(
        flow, &(struct rp_flow_begin){.numbering = &numberings[rings - 1], .rings = shared->rings});
    flow->pack_plan = (struct rp_pack_plan){.arena = &flow->arena,
                                            .deliver = processes ? NULL : &flow->deliver,
                                            .targets = flow->targets,
                                            .files = &flow->files,
                                            .packers = 1,
                                            .token_limit = 1000,
                                            .wake_fd = flow->wake_fd};
}

static void begin_threads(void)
{
    begin_with(1, 1, 2, false);
}
static void begin_threads_without_space(void)
{
    begin_with(1, 1, 1, false);
}
static void begin_threads_with_space(void)
{
    begin_with(1, 1, 4, false);
}
static void begin_processes(void)
{
    begin_with(1, 1, 2, true);
}

/* ---- a ring that is behind (flow/catch_up.h) ------------------------------------------------ */

void forget_flow(struct rp_flow *flow, struct rp_flow *ended)
{
    MODEL_REQUIRE(flow == &shared->flow && ended == &own.behind);
}

/* The tickets and states of the catch-up flow, which has all of them at once. */
static struct rp_ticket behind_tickets[BEHIND_SLOTS];
static uint8_t behind_states[BEHIND_SLOTS * (sizeof(struct rp_state_slot) + STATE_BYTES)];

static void fill_behind(struct rp_arena *arena)
{
    *arena = (struct rp_arena){.slot_count = BEHIND_SLOTS,
                               .state_count = BEHIND_SLOTS,
                               .state_bytes = STATE_BYTES,
                               .words = &own.behind_words,
                               .free_until = &own.behind_free_until,
                               .pack_from = &own.behind_pack_from,
                               .tickets = behind_tickets,
                               .states = behind_states,
                               .prefaulted.value = 1};
    for (uint64_t b = 0; b <= JOINING_BATCHES; b++) {
        struct rp_state_slot *slot = rp_arena_state(arena, b);
        behind_tickets[b] = (struct rp_ticket){.state.value = rp_ticket_word(b, RP_TICKET_PACKED),
                                               .batch = b,
                                               .kind = b < JOINING_BATCHES ? RP_TICKET_BATCH_END
                                                                           : RP_TICKET_STREAM_END};
        *slot = (struct rp_state_slot){.position.value = b + 1, .next_row = b, .bytes = sizeof b};
        memcpy(slot + 1, &b, sizeof b);
    }
}

/* As rp_flow_start_catch_up does it, at the first batch. The flow has begun to plan rows for the
 * ring at batch `first`. */
static void begin_behind(uint64_t first)
{
    begin_with(RINGS_MAX, 1, 4, false);
    struct rp_flow *flow = &shared->flow, *behind = &own.behind;
    flow->start_batch[1] = first;
    flow->catch_up[1] = behind;
    flow->is_left_out[1] = true;
    rp_a64_store_relaxed(&flow->arena.pack_from[1], RP_PACK_NONE);
    rp_a64_store_relaxed(&flow->arena.free_until[1], 0);
    fill_behind(&behind->arena);
    behind->options = (struct rp_flow_options){.rank_count = 1, .batch_size = 1};
    behind->catch_up = &own.behind_catch_up;
    behind->is_left_out = &own.behind_aside;
    behind->costs.ranks = &own.behind_costs;
    behind->flow_state = RP_FLOW_RUNNING;
    behind->wake_fd = flow->wake_fd;
    behind->deliver = (struct rp_deliver){.options = &behind->options,
                                          .wake_fd = flow->wake_fd,
                                          .turn.value = 1,
                                          .wake_at = UINT64_MAX,
                                          .end_batch = catch_up_limit(flow, 1),
                                          .is_left_out = behind->is_left_out,
                                          .arena = &behind->arena,
                                          .rings = &shared->rings[1],
                                          .numbering = flow->deliver.numbering,
                                          .files = &behind->files,
                                          .revalidation = &behind->revalidation,
                                          .sums = &own.behind_sums,
                                          .costs = &behind->costs};
}

static void begin_joining(void)
{
    begin_behind(0);
}
static void begin_joining_later(void)
{
    begin_behind(1);
}

static void pack_batch_behind(uint64_t batch)
{
    const struct rp_ring *ring = &shared->rings[1];
    const struct rp_section_layout *sections = ring->geometry.sections;
    uint8_t *slot = rp_ring_slot(ring, batch);
    const uint32_t tokens[STAGE_TOKENS] = {(uint32_t)batch + 100, (uint32_t)batch + 200};
    const int32_t length = STAGE_TOKENS;
    const struct rp_row_info info = {.row = batch, .fragments = 1, .tokens = STAGE_TOKENS};
    memcpy(slot + sections[RP_SECTION_INPUT_IDS].offset, tokens, sizeof tokens);
    memcpy(slot + sections[RP_SECTION_DOC_LENS].offset, &length, sizeof length);
    memcpy(slot + sections[RP_SECTION_ROWS].offset, &info, sizeof info);
}

/* Pack for the lagging ring the batches that the catch-up flow may deliver. */
static void pack_behind(void)
{
    uint64_t end = rp_min_u64(own.behind.deliver.end_batch, JOINING_BATCHES);
    for (; own.behind_packed < end; own.behind_packed++)
        pack_batch_behind(own.behind_packed);
}

/* ---- the stages ------------------------------------------------------------------------------ */

static void replace_packer(void)
{
    if (!model_kills() || own.replaced || !model_has_ended(PACKER))
        return;
    own.replaced = true;
    model_start(SECOND);
}

static int deliver(void)
{
    struct rp_flow *behind = &own.behind;
    if (shared->catch_up[1])
        pack_behind();
    int code = rp_flow_deliver(&shared->flow, NULL);
    if (shared->catch_up[1] && rp_revalidation_is_requested(&behind->revalidation))
        rp_revalidation_answer(&behind->revalidation, &behind->files, 0, behind->wake_fd);
    return code;
}

/* The engine's thread, as in engine.c. */
static void run_engine(void)
{
    int code = 0;
    while ((code = deliver()) != RP_FLOW_ENDED) {
        MODEL_REQUIRE(code == RP_FLOW_WORKED || code == RP_FLOW_IDLE);
        if (code == RP_FLOW_WORKED)
            continue;
        if (rp_flow_park(&shared->flow))
            model_bell_wait(ENGINE);
        rp_flow_unpark(&shared->flow);
        replace_packer();
    }
    rp_flow_stop(&shared->flow);
}

static void plan(bool with_reads, bool with_empty)
{
    struct rp_flow *flow = &shared->flow;
    stage_plan(&flow->arena, &flow->revalidation, flow->wake_fd, BATCHES, with_reads, with_empty);
}

static void run_planner(void)
{
    plan(false, false);
}
static void run_planner_of_empty(void)
{
    plan(false, true);
}
static void run_planner_of_reads(void)
{
    plan(true, false);
}
static void run_planner_that_is_slow(void)
{
    struct rp_flow *flow = &shared->flow;
    stage_plan_awaited(&flow->arena, &flow->revalidation, flow->wake_fd, BATCHES, PLANNER);
}
static void run_planner_that_joins(void)
{
    struct rp_flow *flow = &shared->flow;
    stage_plan_joining(&flow->arena, &flow->revalidation, flow->wake_fd, shared->start_batch[1],
                       JOINING_BATCHES);
}
static void run_reader(void)
{
    stage_read(&shared->flow.arena);
}
static void run_packer(void)
{
    rp_packer_run(&shared->flow.pack_plan, 0);
}

/* ---- who checks the batches ------------------------------------------------------------------ */

static void check_batch(const uint8_t *slot, const struct rp_geometry *g)
{
    const struct rp_slot_header *header = (const struct rp_slot_header *)(const void *)slot;
    const uint32_t *tokens = (const void *)(slot + g->sections[RP_SECTION_INPUT_IDS].offset);
    MODEL_REQUIRE(tokens[0] == own.taken + 100 && tokens[1] == own.taken + 200);
    MODEL_REQUIRE(header->batch == own.taken && header->next_row == own.taken + 1);
    MODEL_REQUIRE(*(const uint64_t *)(const void *)(slot + header->state_offset) == own.taken + 1);
    own.taken++;
}

static void end_published(void)
{
    MODEL_REQUIRE(shared->rings[0].tail == BATCHES);
    while (own.taken < BATCHES)
        check_batch(rp_ring_slot(&shared->rings[0], own.taken), &shared->rings[0].geometry);
}

static void end_joined(void)
{
    for (uint32_t r = 0; r < RINGS_MAX; r++) {
        MODEL_REQUIRE(shared->rings[r].tail == JOINING_BATCHES);
        MODEL_REQUIRE(shared->rings[r].status == RP_RING_END);
        for (own.taken = 0; own.taken < JOINING_BATCHES;)
            check_batch(rp_ring_slot(&shared->rings[r], own.taken), &shared->rings[r].geometry);
    }
}

static void run_trainer(void)
{
    struct rp_ring_view view;
    const uint8_t *slot;
    struct rp_slot_header header;
    int data = shared->rings[0].data.fd, control = shared->rings[0].seats[0].control.fd;
    MODEL_REQUIRE(rp_ring_view_open(&view, data, control, 0, NULL) == 0);
    while (own.taken < BATCHES) {
        int code = rp_ring_view_take(&view, &slot, &header, NULL);
        if (code != RP_RING_TAKEN) {
            rp_ring_view_wait(&view, 100000000);
            continue;
        }
        check_batch(slot, &view.geometry);
        if (rp_ring_view_release(&view, own.taken))
            model_bell_ring(ENGINE);
    }
}

static void run_trainer_that_is_awaited(void)
{
    run_trainer();
    model_bell_ring(PLANNER);
}

const struct model_scenario model_flow_threads = {
    .name = "flow-of-threads",
    .begin = begin_threads,
    .end = end_published,
    STATE,
    .preemptions = 1,
    .threads = {{.name = "engine", .run = run_engine},
                {.name = "planner", .run = run_planner_of_empty},
                {.name = "packer", .run = run_packer}},
};

const struct model_scenario model_flow_reads = {
    .name = "flow-with-reads",
    .begin = begin_processes,
    .end = end_published,
    STATE,
    .preemptions = 1,
    .threads = {{.name = "engine", .run = run_engine},
                {.name = "planner", .run = run_planner_of_reads},
                {.name = "packer", .run = run_packer},
                {.name = "reader", .run = run_reader}},
};

const struct model_scenario model_flow_space = {
    .name = "flow-without-space",
    .begin = begin_threads_without_space,
    STATE,
    .preemptions = 1,
    .threads = {{.name = "engine", .run = run_engine},
                {.name = "planner", .run = run_planner},
                {.name = "packer", .run = run_packer},
                {.name = "trainer", .run = run_trainer}},
};

/* A batch of less than half of a ring, and no ticket to pack after it until the trainer has it:
 * only its publisher can wake the trainer. */
const struct model_scenario model_flow_announces = {
    .name = "flow-that-announces-late",
    .begin = begin_threads_with_space,
    STATE,
    .preemptions = 1,
    .threads = {{.name = "engine", .run = run_engine},
                {.name = "planner", .run = run_planner_that_is_slow},
                {.name = "packer", .run = run_packer},
                {.name = "trainer", .run = run_trainer_that_is_awaited}},
};

const struct model_scenario model_flow_joins = {
    .name = "flow-that-joins-a-ring",
    .begin = begin_joining,
    .end = end_joined,
    STATE,
    STATE_BEHIND,
    .preemptions = 1,
    .threads = {{.name = "engine", .run = run_engine},
                {.name = "planner", .run = run_planner_that_joins},
                {.name = "packer", .run = run_packer}},
};

const struct model_scenario model_flow_joins_later = {
    .name = "flow-that-joins-a-ring-later",
    .begin = begin_joining_later,
    .end = end_joined,
    STATE,
    STATE_BEHIND,
    .preemptions = 1,
    .threads = {{.name = "engine", .run = run_engine},
                {.name = "planner", .run = run_planner_that_joins},
                {.name = "packer", .run = run_packer}},
};

const struct model_scenario model_flow_packer_killed = {
    .name = "flow-whose-packer-is-killed",
    .begin = begin_processes,
    .end = end_published,
    STATE,
    .preemptions = 1,
    .threads = {{.name = "engine", .run = run_engine},
                {.name = "planner", .run = run_planner},
                {.name = "packer", .run = run_packer, .killable = true, .rings = true},
                {.name = "second", .run = run_packer, .waits = true}},
    .kills = 1,
};
