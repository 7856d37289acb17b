/* SPDX-License-Identifier: Apache-2.0 */
/* The moment of waking a sleeping trainer for published batches: for half of a ring at once, after
 * a while, and always before a packer waits. The time is the test's (tests/CMakeLists.txt). */
#include "deliver_bench.h"

#include "flow/pack.h"

#define BEGIN_NS 1000000000u

static struct {
    uint64_t ns, tick; /* each read of the clock takes so long */
    unsigned wakes;
    struct bench *sleeps_in; /* a packer may sleep in there, once, when all is announced */
} stage;

int __wrap_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
    (void)clock;
    stage.ns += stage.tick;
    *out = (struct timespec){(time_t)(stage.ns / 1000000000u), (long)(stage.ns % 1000000000u)};
    return 0;
}

void __wrap_rp_futex_wake_all(const struct rp_a32 *word);
void __wrap_rp_futex_wake_all(const struct rp_a32 *word)
{
    (void)word;
    stage.wakes++;
}

void __wrap_rp_event_sleep(struct rp_event *event, uint32_t ticket, uint64_t timeout_ns);
void __wrap_rp_event_sleep(struct rp_event *event, uint32_t ticket, uint64_t timeout_ns)
{
    (void)ticket;
    (void)timeout_ns;
    struct bench *bench = stage.sleeps_in;
    assert_non_null(bench);
    assert_int_equal(bench->rings[0].announced, bench->rings[0].tail);
    rp_a32_store_release(&bench->arena.words->stop, RP_ARENA_STOPS);
    rp_event_cancel(event);
    stage.sleeps_in = NULL;
}

/* The turn is free, a batch was published just now, and the trainers sleep. */
static void announcing_open(struct bench *bench)
{
    bench_open(bench);
    bench->deliver.wake_at = UINT64_MAX;
    bench->deliver.published_ns = stage.ns = BEGIN_NS;
    stage.tick = 0;
    stage.wakes = 0;
    for (uint32_t r = 0; r < RINGS; r++) {
        struct rp_ring_control *words = (void *)bench->views[r].control.data;
        rp_a32_store_relaxed(&words->want_data, 1);
    }
}

static void pack_one(struct bench *bench)
{
    add_ticket(bench, bench->next_ticket, RP_TICKET_BATCH_END);
    hand_over(bench);
    rp_deliver_as_packer(&bench->deliver, RP_TURN_PACKED);
}

static void one_wake_up_serves_half_of_a_ring(void **state)
{
    (void)state;
    struct bench bench;
    announcing_open(&bench);
    pack_one(&bench);
    assert_int_equal(stage.wakes, 0);
    pack_one(&bench);
    assert_int_equal(stage.wakes, RINGS);
    pack_one(&bench);
    assert_int_equal(stage.wakes, RINGS);
    bench_close(&bench);
}

/* A packed batch is announced when `ns` have passed, and not before. */
static void assert_announced_after(struct bench *bench, uint64_t ns)
{
    stage.ns += ns - 1;
    rp_deliver_as_packer(&bench->deliver, RP_TURN_PACKED);
    assert_int_equal(stage.wakes, 0);
    stage.ns++;
    rp_deliver_as_packer(&bench->deliver, RP_TURN_PACKED);
    assert_int_equal(stage.wakes, RINGS);
}

static void a_batch_is_announced_after_a_while(void **state)
{
    (void)state;
    struct bench bench;
    announcing_open(&bench);
    pack_one(&bench);
    assert_announced_after(&bench, RP_ANNOUNCE_NS);
    rp_deliver_as_packer(&bench.deliver, RP_TURN_PACKED);
    assert_int_equal(stage.wakes, RINGS);
    bench_close(&bench);
}

/* All but the first RINGS are left to other flows. */
static void many_ranks_have_more_time(void **state)
{
    (void)state;
    enum { RANKS = 16 };
    bool is_left_out[RANKS];
    struct bench bench;
    announcing_open(&bench);
    for (uint32_t r = 0; r < RANKS; r++)
        is_left_out[r] = r >= RINGS;
    bench.deliver.is_left_out = is_left_out;
    bench.options.rank_count = RANKS;
    pack_one(&bench);
    assert_announced_after(&bench, RANKS * RP_ANNOUNCE_RANK_NS);
    bench_close(&bench);
}

static void slow_batches_are_announced_one_by_one(void **state)
{
    (void)state;
    struct bench bench;
    announcing_open(&bench);
    for (unsigned i = 1; i <= SLOTS; i++) {
        stage.ns += RP_ANNOUNCE_NS;
        pack_one(&bench);
        assert_int_equal(stage.wakes, i * RINGS);
    }
    bench_close(&bench);
}

static void who_does_not_sleep_is_not_woken(void **state)
{
    (void)state;
    struct bench bench;
    announcing_open(&bench);
    for (uint32_t r = 0; r < RINGS; r++) {
        struct rp_ring_control *words = (void *)bench.views[r].control.data;
        rp_a32_store_relaxed(&words->want_data, 0);
    }
    for (unsigned i = 0; i < SLOTS; i++)
        pack_one(&bench);
    stage.ns += RP_ANNOUNCE_NS;
    rp_deliver_as_packer(&bench.deliver, RP_TURN_WAITS);
    assert_int_equal(stage.wakes, 0);
    bench_close(&bench);
}

/* Batches that the engine publishes, and batches that packers have published when it takes the
 * turn. */
static void the_engine_announces_all(void **state)
{
    (void)state;
    struct bench bench;
    announcing_open(&bench);
    add_ticket(&bench, 0, RP_TICKET_BATCH_END);
    hand_over(&bench);
    step(&bench);
    assert_int_equal(stage.wakes, RINGS);
    pack_one(&bench);
    assert_int_equal(stage.wakes, RINGS);
    step(&bench);
    assert_int_equal(stage.wakes, 2 * RINGS);
    bench_close(&bench);
}

/* The packer has packed one batch, and no more is read; or there is no room for another. */
static void a_packer_that_waits_announces_first(void **state)
{
    (void)state;
    for (int has_room = 0; has_room < 2; has_room++) {
        struct bench bench;
        announcing_open(&bench);
        struct rp_pack_plan plan = {
            .arena = &bench.arena, .deliver = &bench.deliver, .packers = 1, .token_limit = 1000};
        add_ticket(&bench, 0, RP_TICKET_BATCH_END);
        rp_a64_store_release(&rp_arena_ticket(&bench.arena, 0)->state,
                             rp_ticket_word(0, RP_TICKET_READY));
        struct rp_ticket *next = rp_arena_ticket(&bench.arena, 1);
        *next = (struct rp_ticket){.batch = SLOTS, .row_count = 1};
        if (!has_room)
            rp_a64_store_release(&next->state, rp_ticket_word(1, RP_TICKET_READY));
        stage.tick = 1000; /* so that a spin ends */
        stage.sleeps_in = &bench;
        rp_packer_run(&plan, 0);
        assert_null(stage.sleeps_in);
        assert_int_equal(bench.rings[0].tail, 1);
        assert_int_equal(stage.wakes, RINGS);
        bench_close(&bench);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_wake_up_serves_half_of_a_ring),
        cmocka_unit_test(a_batch_is_announced_after_a_while),
        cmocka_unit_test(many_ranks_have_more_time),
        cmocka_unit_test(slow_batches_are_announced_one_by_one),
        cmocka_unit_test(who_does_not_sleep_is_not_woken),
        cmocka_unit_test(the_engine_announces_all),
        cmocka_unit_test(a_packer_that_waits_announces_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
