/* SPDX-License-Identifier: Apache-2.0 */
/* A batch ring (shm/ring.c, shm/ring_view.c): every batch is taken once, in order and whole, by a
 * trainer that sleeps without a batch, from an engine that sleeps without space; with a kill of
 * either, anywhere. */
#include <string.h>

#include "model.h"
#include "scenarios.h"
#include "shm/ring.h"

#define BATCHES (model_long ? 3u : 2u)
#define ENGINE 0u /* a thread, and its bell */
#define TRAINER 1u
#define SECOND 2u
#define NOT_FULL(ring, k) ((k) - (ring).release < (ring).geometry.slots)

static struct {
    struct rp_ring ring;
    uint64_t taken;
    uint64_t resumed_at; /* by the second trainer */
    bool closed, asks_kernel;
    char said[64];
    struct rp_a32 *made; /* a word of the model: the memory is there */
} own;
#define STATE .state = &own, .state_bytes = sizeof own

static void begin_with_seats(uint32_t slot_count, uint32_t replicas)
{
    struct rp_geometry g = {.rows = 1, .seq_len = 2, .max_docs_per_row = 1, .world = 1};
    model_segments_reset();
    g.slots = slot_count;
    memset(&own, 0, sizeof own);
    MODEL_REQUIRE(rp_geometry_layout(&g, 0, RP_DTYPE_I32) > 0);
    MODEL_REQUIRE(rp_ring_create(&own.ring, &g, replicas, (struct rp_ring_identity){{1, 2}, 3}, 0,
                                 NULL) == 0);
    for (uint32_t r = 0; r < replicas; r++)
        MODEL_REQUIRE(rp_ring_attach_trainer(&own.ring, r, 0, NULL) == 0);
}

static void begin_with(uint32_t slot_count)
{
    begin_with_seats(slot_count, 1);
}

static void begin_one_slot(void)
{
    begin_with(1);
}
static void begin_two_slots(void)
{
    begin_with(2);
}
static void begin_mortal_engine(void)
{
    begin_with(2);
    own.asks_kernel = true;
}

/* ---- the engine ----------------------------------------------------------------------------- */

static uint32_t *first_token(const struct rp_geometry *g, const uint8_t *slot)
{
    return (uint32_t *)(uintptr_t)(slot + g->sections[RP_SECTION_INPUT_IDS].offset);
}

static void publish(uint64_t k)
{
    struct rp_slot_header header = {.batch = k,
                                    .generation = 3,
                                    .first_row = k,
                                    .next_row = k + 1,
                                    .rows = 1,
                                    .micro_batches = 1,
                                    .state_offset = RP_SLOT_STATE_OFFSET};
    uint8_t *slot = rp_ring_slot(&own.ring, k);
    *first_token(&own.ring.geometry, slot) = (uint32_t)k + 100;
    memcpy(slot, &header, sizeof header);
    rp_ring_publish(&own.ring, k + 1);
}

/* Sleep until there is space or a trainer has gone; as flow/flow.c parks. */
static void wait_for_space(uint64_t k)
{
    rp_ring_set_doorbell(&own.ring, true);
    MODEL_REQUIRE(rp_ring_poll_release(&own.ring) == 0);
    if (!NOT_FULL(own.ring, k))
        model_bell_wait(ENGINE);
    rp_ring_set_doorbell(&own.ring, false);
}

static void run_engine_without_end(void)
{
    for (uint64_t k = 0; k < BATCHES;) {
        MODEL_REQUIRE(rp_ring_poll_release(&own.ring) == 0);
        if (NOT_FULL(own.ring, k))
            publish(k++);
        else
            wait_for_space(k);
    }
}

static void run_engine(void)
{
    run_engine_without_end();
    rp_ring_set_status(&own.ring, RP_RING_END, BATCHES, NULL);
}

/* Publishes one batch, then fails. */
static void run_failing_engine(void)
{
    publish(0);
    rp_ring_set_status(&own.ring, RP_RING_FAILED, (uint64_t)-5, "the disk has failed");
}

/* ---- a trainer ------------------------------------------------------------------------------ */

static void take(struct rp_ring_view *view, const uint8_t *slot,
                 const struct rp_slot_header *header, uint64_t held)
{
    MODEL_REQUIRE(header->batch == own.taken);
    MODEL_REQUIRE(*first_token(&view->geometry, slot) == own.taken + 100);
    own.taken++;
    if (own.taken > held && rp_ring_view_release(view, own.taken - held))
        model_bell_ring(ENGINE);
}

/* Take until the ring is closed or the engine is gone, with `held` batches on lease. */
static void train(uint64_t first, uint64_t held)
{
    struct rp_ring_view view;
    const uint8_t *slot;
    struct rp_slot_header header;
    int code = rp_ring_view_open(&view, own.ring.data.fd, own.ring.seats[0].control.fd, first,
                                 NULL);
    MODEL_REQUIRE(code == 0);
    for (;;) {
        bool gone = own.asks_kernel && model_has_ended(ENGINE);
        code = rp_ring_view_take(&view, &slot, &header, NULL);
        if (code == RP_RING_TAKEN)
            take(&view, slot, &header, held);
        else if (code == RP_RING_EMPTY && !gone)
            rp_ring_view_wait(&view, 100000000);
        else
            break;
    }
    own.closed = code == RP_RING_CLOSED;
    if (own.closed && view.status == RP_RING_FAILED)
        memcpy(own.said,
               ((struct rp_ring_engine *)(void *)(view.data.data + RP_PAGE_BYTES))->message,
               sizeof own.said);
}

static void run_trainer(void)
{
    train(0, 0);
}
static void run_holding_trainer(void)
{
    train(0, 1);
}
static void end_all_taken(void)
{
    MODEL_REQUIRE(own.closed && own.taken == BATCHES);
}
static void end_failure_told(void)
{
    MODEL_REQUIRE(own.closed && own.taken == 1 && strcmp(own.said, "the disk has failed") == 0);
}

const struct model_scenario model_ring_one_slot = {
    .name = "ring-of-one-slot",
    .begin = begin_one_slot,
    STATE,
    .end = end_all_taken,
    .threads = {{.name = "engine", .run = run_engine}, {.name = "trainer", .run = run_trainer}},
    .timeouts = true, /* a change of status may be seen only then: ring.h */
};

const struct model_scenario model_ring_leases = {
    .name = "ring-with-leases",
    .begin = begin_two_slots,
    STATE,
    .end = end_all_taken,
    .threads = {{.name = "engine", .run = run_engine},
                {.name = "trainer", .run = run_holding_trainer}},
    .timeouts = true,
};

const struct model_scenario model_ring_failure = {
    .name = "ring-that-fails",
    .begin = begin_one_slot,
    STATE,
    .end = end_failure_told,
    .threads = {{.name = "engine", .run = run_failing_engine},
                {.name = "trainer", .run = run_trainer}},
    .timeouts = true,
};

/* ---- no trainer may sleep past a batch
 * ----------------------------------------------------------- */

static void run_trainer_of_three(void)
{
    struct rp_ring_view view;
    const uint8_t *slot;
    struct rp_slot_header header;
    MODEL_REQUIRE(
        rp_ring_view_open(&view, own.ring.data.fd, own.ring.seats[0].control.fd, 0, NULL) == 0);
    while (own.taken < BATCHES)
        if (rp_ring_view_take(&view, &slot, &header, NULL) == RP_RING_TAKEN)
            take(&view, slot, &header, 0);
        else
            rp_ring_view_wait(&view, 100000000);
}

static void end_three_taken(void)
{
    MODEL_REQUIRE(own.taken == BATCHES);
}

const struct model_scenario model_ring_wakes = {
    .name = "ring-without-timeouts",
    .begin = begin_one_slot,
    STATE,
    .end = end_three_taken,
    .threads = {{.name = "engine", .run = run_engine_without_end},
                {.name = "trainer", .run = run_trainer_of_three}},
};

/* ---- two trainers of one ring ---------------------------------------------------------------- */

static void begin_two_seats(void)
{
    begin_with_seats(1, 2);
}

/* Each gets every batch, whole, before it is written over, and none sleeps past one. */
static void run_seat(uint32_t replica)
{
    struct rp_ring_view view;
    const uint8_t *slot;
    struct rp_slot_header header;
    int control = own.ring.seats[replica].control.fd;
    MODEL_REQUIRE(rp_ring_view_open(&view, own.ring.data.fd, control, 0, NULL) == 0);
    view.replica = replica;
    for (uint64_t taken = 0; taken < 2;) {
        if (rp_ring_view_take(&view, &slot, &header, NULL) != RP_RING_TAKEN) {
            rp_ring_view_wait(&view, 100000000);
            continue;
        }
        MODEL_REQUIRE(header.batch == taken);
        MODEL_REQUIRE(*first_token(&view.geometry, slot) == taken + 100);
        if (rp_ring_view_release(&view, ++taken))
            model_bell_ring(ENGINE);
    }
}

static void run_first_seat(void)
{
    run_seat(0);
}
static void run_second_seat(void)
{
    run_seat(1);
}

static void run_engine_of_two(void)
{
    for (uint64_t k = 0; k < 2;) {
        MODEL_REQUIRE(rp_ring_poll_release(&own.ring) == 0);
        if (NOT_FULL(own.ring, k))
            publish(k++);
        else
            wait_for_space(k);
    }
}

const struct model_scenario model_ring_seats = {
    .name = "ring-of-two-trainers",
    .begin = begin_two_seats,
    STATE,
    .threads = {{.name = "engine", .run = run_engine_of_two},
                {.name = "first", .run = run_first_seat},
                {.name = "second", .run = run_second_seat}},
    .preemptions = 1,
};

/* ---- a killed trainer ------------------------------------------------------------------------ */

static bool replace_trainer(void)
{
    if (!model_has_ended(TRAINER) || own.closed)
        return false;
    MODEL_REQUIRE(rp_ring_poll_release(&own.ring) == 0);
    rp_ring_detach_trainer(&own.ring, 0);
    own.resumed_at = own.ring.release;
    MODEL_REQUIRE(rp_ring_attach_trainer(&own.ring, 0, own.ring.release, NULL) == 0);
    model_start(SECOND);
    return true;
}

static void run_engine_with_two_trainers(void)
{
    bool replaced = false;
    for (uint64_t k = 0; k < BATCHES;) {
        MODEL_REQUIRE(rp_ring_poll_release(&own.ring) == 0);
        if (NOT_FULL(own.ring, k))
            publish(k++);
        else if (replaced || !(replaced = replace_trainer()))
            wait_for_space(k);
    }
    rp_ring_set_status(&own.ring, RP_RING_END, BATCHES, NULL);
    while (!own.closed && !replaced && !(replaced = replace_trainer()))
        model_bell_wait(ENGINE);
}

static void run_second_trainer(void)
{
    MODEL_REQUIRE(own.resumed_at <= own.taken &&
                  own.taken <= own.resumed_at + 1); /* one may be taken again */
    own.taken = own.resumed_at;
    train(own.resumed_at, 0);
}

const struct model_scenario model_ring_trainer_killed = {
    .name = "ring-whose-trainer-is-killed",
    .begin = begin_one_slot,
    STATE,
    .end = end_all_taken,
    .threads = {{.name = "engine", .run = run_engine_with_two_trainers},
                {.name = "trainer", .run = run_trainer, .killable = true, .rings = true},
                {.name = "second", .run = run_second_trainer, .waits = true}},
    .kills = 1,
    .timeouts = true,
};

/* ---- a killed engine ------------------------------------------------------------------------- */

/* Its published batches are taken to the last one, and no others. */
static void end_published_taken(void)
{
    const struct rp_ring_engine *words = (const void *)(own.ring.data.data + RP_PAGE_BYTES);
    MODEL_REQUIRE(own.taken == words->tail.value);
}

const struct model_scenario model_ring_engine_killed = {
    .name = "ring-whose-engine-is-killed",
    .begin = begin_mortal_engine,
    STATE,
    .end = end_published_taken,
    .threads = {{.name = "engine", .run = run_engine, .killable = true},
                {.name = "trainer", .run = run_trainer}},
    .kills = 1,
    .timeouts = true,
};

/* ---- the header ------------------------------------------------------------------------------ */

static void begin_nothing(void)
{
    model_segments_reset();
    memset(&own, 0, sizeof own);
    own.made = model_memory(sizeof *own.made);
}

static void run_create(void)
{
    struct rp_geometry g = {.rows = 1, .seq_len = 2, .max_docs_per_row = 1, .world = 1, .slots = 1};
    MODEL_REQUIRE(rp_geometry_layout(&g, 0, RP_DTYPE_I32) > 0);
    MODEL_REQUIRE(rp_ring_create(&own.ring, &g, 1, (struct rp_ring_identity){{1, 2}, 3}, 0, NULL) ==
                  0);
    MODEL_REQUIRE(rp_ring_attach_trainer(&own.ring, 0, 0, NULL) == 0);
    rp_a32_store_relaxed(own.made, 1);
}

static void run_open(void)
{
    struct rp_ring_view view;
    if (rp_a32_load_relaxed(own.made) == 0)
        return;
    int code = rp_ring_view_open(&view, own.ring.data.fd, own.ring.seats[0].control.fd, 0, NULL);
    MODEL_REQUIRE(code == 0 || code == -RP_E_PROTOCOL); /* not ready */
    MODEL_REQUIRE(code < 0 || view.generation == 3);
}

const struct model_scenario model_ring_ready = {
    .name = "ring-that-is-made",
    .begin = begin_nothing,
    STATE,
    .threads = {{.name = "engine", .run = run_create}, {.name = "trainer", .run = run_open}},
};
