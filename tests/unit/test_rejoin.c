/* SPDX-License-Identifier: Apache-2.0 */
/* The actions of rejoin.c besides its decisions: seats that are skipped, and the memory of a stream
 * that moves. The flow, the probe and the clock are fakes. */
#define rp_now_ns real_now_ns
#include "base/clock.h"
#undef rp_now_ns
#define rp_now_ns fake_now_ns
static unsigned long fake_now_ns(void);
#define rp_engine_probe_row fake_probe_row
#define rp_engine_make_ring fake_make_ring
#define rp_engine_start_flow fake_start_flow
#define rp_engine_stop_flow fake_stop_flow
#define rp_flow_forget_states fake_forget_states
#include "server/rejoin.c"

#include "log_kit.h"
#include "ring_pair.h"

#define RINGS 3u
#define WAITS 2u /* the seat whose trainer waits for the others */
#define SLOTS 4u
#define SECOND 1000000000ull

static struct {
    struct rp_engine engine;
    struct rp_ring rings[RINGS];
    struct rp_seat seats[RINGS];
    struct rp_config config;
    uint64_t now_ns;
    unsigned rebuilt;
} world;

static unsigned long fake_now_ns(void)
{
    return world.now_ns;
}

int fake_probe_row(struct rp_engine *engine, uint64_t row, const void *token, size_t bytes,
                   struct rp_error *error)
{
    (void)engine, (void)row, (void)token, (void)bytes, (void)error;
    return 0;
}

void fake_stop_flow(struct rp_engine *engine)
{
    engine->delivery.state = RP_DELIVERY_STOPPED;
}

int fake_start_flow(struct rp_engine *engine, struct rp_error *error)
{
    (void)error;
    engine->delivery.state = RP_DELIVERY_RUNNING;
    return 0;
}

void fake_forget_states(struct rp_flow *flow)
{
    (void)flow;
}

/* No old ring has memory that a new one needs. */
int fake_make_ring(struct rp_engine *engine, uint32_t ring, uint32_t replica, uint64_t batch,
                   struct rp_error *error)
{
    (void)ring, (void)replica, (void)batch, (void)error;
    for (uint32_t r = 0; r < engine->delivery.ring_count; r++)
        assert_null(engine->delivery.rings[r].data.data);
    world.rebuilt++;
    return 0;
}

static void open_ring(uint32_t r)
{
    struct rp_error error;
    struct rp_geometry g = tiny(SLOTS);
    g.rank = r;
    g.world = RINGS;
    const struct rp_ring_identity identity = {rp_contract_hash(&world.engine.stream.contract),
                                              GENERATION};
    assert_int_equal(rp_ring_create(&world.rings[r], &g, 1, identity, 0, &error), 0);
    for (uint64_t batch = 0; batch < SLOTS; batch++)
        fill(&world.rings[r], batch);
    rp_ring_publish(&world.rings[r], SLOTS);
    world.seats[r] = (struct rp_seat){.ring = &world.rings[r]};
}

/* All rings are full, and no consumer is attached. */
static int enter(void **state)
{
    (void)state;
    memset(&world, 0, sizeof world);
    for (uint32_t r = 0; r < RINGS; r++)
        open_ring(r);
    static const struct rp_batch_stage sizes = {0, RINGS, RINGS};
    static struct rp_numbering_part parts[] = {{.batch_rows = RINGS, .step_rows = RINGS},
                                               {.batch_rows = RINGS, .step_rows = RINGS}};
    world.engine = (struct rp_engine){.delivery.rings = world.rings,
                                      .delivery.ring_count = RINGS,
                                      .delivery.seats = world.seats,
                                      .delivery.seat_count = RINGS,
                                      .config = &world.config,
                                      .delivery.config = &world.config,
                                      .stream.config = &world.config,

                                      .delivery.numbering = {&sizes, &parts[0], 1},
                                      .delivery.trial = {&sizes, &parts[1], 1},
                                      .life.life_state = RP_LIFE_RUNNING,
                                      .delivery.state = RP_DELIVERY_RUNNING};
    return 0;
}

static int leave(void **state)
{
    (void)state;
    for (uint32_t r = 0; r < RINGS; r++)
        rp_ring_close(&world.rings[r]);
    return 0;
}

static uint32_t skipped_seats(void)
{
    uint32_t count = 0;
    for (uint32_t r = 0; r < RINGS; r++)
        count += world.rings[r].seats[0].is_skipped;
    return count;
}

/* One trainer has taken all batches, and waits for as long as it takes until others are skipped. */
static void wait_until_others_are_skipped(void)
{
    struct rp_error error;
    assert_int_equal(rp_ring_attach_trainer(&world.rings[WAITS], 0, SLOTS, &error), 0);
    rp_seat_transition(&world.seats[WAITS], RP_SEAT_ATTACH);
    world.now_ns = SECOND;
    rp_delivery_skip_absent(&world.engine.delivery); /* the wait begins */
    world.now_ns += SKIP_ABSENT_AFTER_NS - 1;
    rp_delivery_skip_absent(&world.engine.delivery);
    assert_int_equal(skipped_seats(), 0);
    world.now_ns++;
    rp_delivery_skip_absent(&world.engine.delivery);
    assert_int_equal(skipped_seats(), RINGS - 1);
}

static uint32_t count_in(const char *text, const char *words)
{
    uint32_t count = 0;
    for (const char *at = text; (at = strstr(at, words)); at++)
        count++;
    return count;
}

static void each_skipped_seat_is_named_once(void **state)
{
    (void)state;
    hear_log();
    wait_until_others_are_skipped();
    rp_delivery_skip_absent(&world.engine.delivery);
    const char *text = log_heard();
    const char *words = " has not attached and other trainers wait: they continue without it";
    assert_int_equal(count_in(text, words), RINGS - 1);
    assert_non_null(strstr(text, "rank 0 has not"));
    assert_non_null(strstr(text, "rank 1 has not"));
}

static int attach_at_row(uint32_t r, uint64_t row)
{
    struct rp_error error;
    const struct rp_request request = {.next_row = row};
    int64_t batch = rp_engine_rejoin(&world.engine, &world.seats[r], &request, true, NULL, &error);
    return batch < 0 ? (int)batch : 0;
}

/* Any trainer that is let in may be one of many that start now. */
static void an_attach_ends_all_skipping(void **state)
{
    (void)state;
    wait_until_others_are_skipped();
    assert_int_equal(attach_at_row(0, 0), 0);
    assert_int_equal(skipped_seats(), 0);
    assert_false(world.engine.delivery.skipping_absent);
}

/* Refused trainers try again several times a second: no other waits for them. */
static void a_refused_attach_ends_no_skipping(void **state)
{
    (void)state;
    wait_until_others_are_skipped();
    assert_int_equal(attach_at_row(1, 1), -RP_E_BUSY); /* does not begin a batch */
    assert_int_equal(skipped_seats(), RINGS - 1);
    assert_true(world.engine.delivery.skipping_absent);
}

static void a_stream_that_moves_gives_its_memory_back_first(void **state)
{
    (void)state;
    const struct rp_request request = {.state_bytes = 0};
    const struct attach attach = {.seat = &world.seats[0], .request = &request};
    const struct rp_placement placement = {
        .action = RP_PLACEMENT_MOVE_ALL, .row = 150, .batch = 50};
    struct rp_error error;
    assert_int_equal(move_all(&world.engine, &attach, &placement, &error), 0);
    assert_int_equal(world.rebuilt, RINGS);
    assert_int_equal(world.engine.delivery.state, RP_DELIVERY_RUNNING);
}

int main(void)
{
    rp_log_set_level(RP_LOG_ERROR); /* these tests provoke warnings */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_skipped_seat_is_named_once, enter, leave),
        cmocka_unit_test_setup_teardown(an_attach_ends_all_skipping, enter, leave),
        cmocka_unit_test_setup_teardown(a_refused_attach_ends_no_skipping, enter, leave),
        cmocka_unit_test_setup_teardown(a_stream_that_moves_gives_its_memory_back_first, enter,
                                        leave),
    };
    return cmocka_run_group_tests_name("rejoin", tests, NULL, NULL);
}
