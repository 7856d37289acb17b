/* SPDX-License-Identifier: Apache-2.0 */
/* The prefetch ring (flow/ticket.h) from planning to delivery: the batches are those that were
 * planned, in order and whole, each with the state behind it, and nobody sleeps for ever; also when
 * a packer process is killed, wherever, and another takes its place. */
#include "flow/flow.c"

#include "flow_stages.h"
#include "model.h"
#include "scenarios.h"

#define BATCHES (model_long ? 2u : 1u)
#define ENGINE 0u /* a thread, and its bell */
#define PACKER 2u
#define SECOND 3u

/* What the threads share, in memory that is looked at: that of the engine's process. */
static struct {
    struct rp_flow flow;
    struct rp_pack_target target;
    struct rp_ring ring;
    uint64_t start_batch, unlabelled;
} * shared;
static struct {
    uint64_t taken;
    bool replaced;
} own;
#define STATE .state = &own, .state_bytes = sizeof own

static void begin_with(uint32_t tickets, uint32_t slots, bool processes)
{
    struct rp_geometry g = {.rows = 1, .seq_len = STAGE_TOKENS, .max_docs_per_row = 1, .world = 1};
    model_segments_reset();
    memset(&own, 0, sizeof own);
    shared = model_memory(sizeof *shared);
    g.slots = slots;
    g.state_bytes = 64;
    MODEL_REQUIRE(rp_geometry_layout(&g, 0, RP_DTYPE_I32) > 0);
    MODEL_REQUIRE(rp_ring_create(&shared->ring, &g, 1, (struct rp_hash128){1, 2}, 3, 0, NULL) == 0);
    MODEL_REQUIRE(rp_ring_attach_trainer(&shared->ring, 0, 0, NULL) == 0);
    struct rp_flow *flow = &shared->flow;
    flow->options = (struct rp_flow_options){.rank_count = 1, .rows = 1, .token_limit = 1000};
    flow->targets = &shared->target;
    flow->start_batch = &shared->start_batch;
    flow->unlabelled = &shared->unlabelled;
    flow->wake_fd = MODEL_BELL_FD + ENGINE;
    MODEL_REQUIRE(rp_arena_create(&flow->arena, false, 1, tickets, 4096, 2, 64, NULL) == 0);
    prepare_start(flow, NULL, NULL, 0, 0, &shared->ring);
    flow->pack_plan = (struct rp_pack_plan){.arena = &flow->arena,
                                            .deliver = processes ? NULL : &flow->deliver,
                                            .targets = flow->targets,
                                            .files = &flow->files,
                                            .packers = 1,
                                            .token_limit = 1000,
                                            .wake_fd = flow->wake_fd};
    flow->running = true;
}

static void begin_threads(void)
{
    begin_with(1, 2, false);
}
static void begin_threads_without_space(void)
{
    begin_with(1, 1, false);
}
static void begin_processes(void)
{
    begin_with(1, 2, true);
}

/* ---- the stages ------------------------------------------------------------------------------ */

static void replace_packer(void)
{
    if (!model_kills() || own.replaced || !model_has_ended(PACKER))
        return;
    own.replaced = true;
    model_start(SECOND);
}

/* The engine's thread, as in engine.c. */
static void run_engine(void)
{
    int code = 0;
    while ((code = rp_flow_deliver(&shared->flow, NULL)) != RP_FLOW_ENDED) {
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
    stage_plan(&flow->arena, &flow->looks, flow->wake_fd, BATCHES, with_reads, with_empty);
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
static void run_reader(void)
{
    stage_read(&shared->flow.arena);
}
static void run_packer(void)
{
    rp_packer_run(&shared->flow.pack_plan, 0);
}

/* ---- who looks at the batches ---------------------------------------------------------------- */

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
    MODEL_REQUIRE(shared->ring.tail == BATCHES);
    while (own.taken < BATCHES)
        check_batch(rp_ring_slot(&shared->ring, own.taken), &shared->ring.geometry);
}

static void run_trainer(void)
{
    struct rp_ring_view view;
    const uint8_t *slot;
    struct rp_slot_header header;
    int data = shared->ring.data.fd, control = shared->ring.seats[0].control.fd;
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
