/* SPDX-License-Identifier: Apache-2.0 */
/* The batch ring in one process: order and content over a million batches, back-pressure, wake-ups.
 * Run under ThreadSanitizer too. */
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "ring_pair.h"
#include "shm/wait.h"

/* ---- geometry -------------------------------------------------------------------------------- */

static void a_ring_without_geometry_is_refused(void **state)
{
    (void)state;
    struct rp_ring ring;
    struct rp_error error;
    struct rp_geometry geometry = {.rank = 7};
    struct rp_hash128 identity = {0};
    assert_int_equal(
        rp_ring_create(&ring, &geometry, 1, (struct rp_ring_identity){identity, 1}, 0, &error),
        -RP_E_USAGE);
    assert_non_null(strstr(error.message, "rank 7: its geometry is not laid out"));
}

static void a_side_column_is_a_section(void **state)
{
    (void)state;
    const struct rp_side weight = {"weight", RP_DTYPE_F32, 3, 12, RP_SIDE_OF_LABEL};
    const struct rp_side score = {"score", RP_DTYPE_F64, 1, 8, RP_SIDE_OF_DOCUMENT};
    struct rp_geometry good = {.rows = 2, .seq_len = 8, .max_docs_per_row = 4, .world = 1};
    good.slots = 2;
    good.sides[0] = weight;
    good.sides[1] = score;
    assert_true(rp_geometry_layout(&good, 0, RP_DTYPE_I32) > 0);
    assert_int_equal(rp_geometry_total(&good), rp_geometry_layout(&good, 0, RP_DTYPE_I32));
    assert_int_equal(good.sections[RP_SECTION_SIDES].bytes, 2 * 8 * 12);
    assert_int_equal(good.sections[RP_SECTION_SIDES].dtype, RP_DTYPE_F32);
    assert_int_equal(good.sections[RP_SECTION_SIDES + 1].bytes, 2 * 4 * 8);
    assert_int_equal(good.sections[RP_SECTION_SIDES + 2].offset, 0);
    const struct rp_side bad[] = {
        {"", RP_DTYPE_F32, 3, 12, RP_SIDE_OF_LABEL},           {"w", RP_DTYPE_RECORD, 3, 12, 1},
        {"w", RP_DTYPE_F32, 0, 0, RP_SIDE_OF_LABEL},           {"w", RP_DTYPE_F32, 3, 16, 1},
        {"w", RP_DTYPE_F32, 129, 516, RP_SIDE_OF_LABEL},       {"w", RP_DTYPE_F32, 3, 12, 4},
        {"w", RP_DTYPE_F32, 0x40000003, 12, RP_SIDE_OF_LABEL}, {.of = RP_SIDE_NONE},
    };
    for (size_t i = 0; i < RP_ARRAY_COUNT(bad); i++) {
        struct rp_geometry other = good;
        other.sides[0] = bad[i];
        assert_int_equal(rp_geometry_total(&other), 0);
    }
}

/* ---- flow ------------------------------------------------------------------------------------ */

#define EFFORT_NS 10000000000ull /* on a busy machine every hand-over takes milliseconds */

static void *produce(void *argument)
{
    struct pair *pair = argument;
    struct rp_ring *ring = &pair->ring;
    uint64_t until = rp_now_ns() + EFFORT_NS, batch = 0;
    for (; batch < pair->batches && (batch < 100 || rp_now_ns() < until); batch++) {
        while (ring->tail - ring->release == ring->geometry.slots) {
            if (rp_ring_poll_release(ring) < 0)
                return "a good trainer was quarantined";
            if (ring->tail - ring->release == ring->geometry.slots)
                sched_yield();
        }
        fill(ring, batch);
        rp_ring_publish(ring, batch + 1);
    }
    pair->batches = batch;
    rp_ring_set_status(ring, RP_RING_END, batch, NULL);
    return NULL;
}

static const char *consume(struct pair *pair)
{
    struct rp_error error;
    const uint8_t *slot;
    struct rp_slot_header header;
    for (uint64_t batch = 0;;) {
        int code = rp_ring_view_take(&pair->view, &slot, &header, &error);
        if (code == RP_RING_CLOSED)
            return batch == pair->view.end ? NULL : "it ended too early";
        if (code == RP_RING_EMPTY) {
            rp_ring_view_wait(&pair->view, 100000000u);
            continue;
        }
        if (code < 0 || header.batch != batch || !content_is_right(&pair->view, slot, batch))
            return "wrong batch";
        batch++;
        rp_ring_view_release(&pair->view, batch);
    }
}

/* ThreadSanitizer knows memory by its address, and is blind if the two ends have a mapping each. */
static void share_addresses(struct pair *pair)
{
    uint8_t *data = pair->view.data.data, *control = pair->view.control.data;
    munmap(data, pair->view.data.bytes);
    munmap(control, pair->view.control.bytes);
    pair->view.data.data = pair->ring.data.data;
    pair->view.control.data = pair->ring.seats[0].control.data;
}

static void unshare_addresses(struct pair *pair)
{
    pair->view.data.data = pair->view.control.data = NULL;
}

static void a_million_batches_pass(void **state)
{
    (void)state;
    const struct {
        uint32_t slots, batches;
        bool shared;
    } cases[] = {{16, 1000000, false}, {16, 100000, true}, {2, 100000, true}, {1, 20000, true}};
    for (size_t i = 0; i < RP_ARRAY_COUNT(cases); i++) {
        struct pair pair = {.batches = cases[i].batches};
        pthread_t thread;
        void *trouble;
        pair_open(&pair, cases[i].slots, 0);
        if (cases[i].shared)
            share_addresses(&pair);
        pthread_create(&thread, NULL, produce, &pair);
        const char *found = consume(&pair);
        pthread_join(thread, &trouble);
        if (found || trouble)
            fail_msg("%u slots: %s", cases[i].slots, found ? found : (const char *)trouble);
        assert_int_equal(pair.view.end, pair.batches);
        if (cases[i].shared)
            unshare_addresses(&pair);
        pair_close(&pair);
    }
}

static void a_full_ring_waits(void **state)
{
    (void)state;
    struct pair pair;
    struct rp_error error;
    pair_open(&pair, 4, UINT32_MAX - 1ull); /* the futex word wraps */
    uint64_t batch = UINT32_MAX - 1ull;
    for (int lap = 0; lap < 5; lap++) {
        for (int i = 0; i < 4; i++, batch++) {
            fill(&pair.ring, batch);
            rp_ring_publish(&pair.ring, batch + 1);
        }
        assert_int_equal(rp_ring_poll_release(&pair.ring), 0);
        assert_int_equal(pair.ring.tail - pair.ring.release, 4);
        for (int i = 0; i < 4; i++)
            assert_int_equal(take(&pair, &error), RP_RING_TAKEN);
        assert_int_equal(take(&pair, &error), RP_RING_EMPTY);
        assert_false(rp_ring_view_release(&pair.view, batch - 1)); /* no bell was wanted */
        rp_ring_set_doorbell(&pair.ring, true);
        assert_true(rp_ring_view_release(&pair.view, batch));
        rp_ring_set_doorbell(&pair.ring, false);
        assert_int_equal(rp_ring_poll_release(&pair.ring), 0);
        assert_int_equal(pair.ring.release, batch);
    }
    pair_close(&pair);
}

static void status_comes_after_the_last_batch(void **state)
{
    (void)state;
    struct pair pair;
    struct rp_error error;
    char text[64];
    pair_open(&pair, 4, 0);
    fill(&pair.ring, 0);
    rp_ring_publish(&pair.ring, 1);
    rp_ring_set_status(&pair.ring, RP_RING_END, 2, NULL);
    assert_int_equal(take(&pair, &error), RP_RING_TAKEN);
    assert_int_equal(take(&pair, &error), RP_RING_EMPTY); /* one more is promised */
    fill(&pair.ring, 1);
    rp_ring_publish(&pair.ring, 2);
    assert_int_equal(take(&pair, &error), RP_RING_TAKEN);
    assert_int_equal(take(&pair, &error), RP_RING_CLOSED);
    assert_int_equal(pair.view.status, RP_RING_END);
    fill(&pair.ring, 2);
    rp_ring_publish(&pair.ring, 3);
    rp_ring_set_status(&pair.ring, RP_RING_FAILED, (uint64_t)-5004ll, "no luck");
    assert_int_equal(take(&pair, &error), RP_RING_TAKEN);
    assert_int_equal(take(&pair, &error), RP_RING_CLOSED);
    assert_int_equal(pair.view.status, RP_RING_FAILED);
    assert_int_equal((int64_t)pair.view.end, -5004);
    rp_ring_view_message(&pair.view, text, sizeof text);
    assert_string_equal(text, "no luck");
    pair_close(&pair);
}

static void a_new_trainer_begins_where_it_says(void **state)
{
    (void)state;
    const struct {
        uint64_t batch, tail;
    } cases[] = {{6, 8}, {4, 8}, {8, 8}, {3, 3}, {9, 9}, {0, 0}}; /* [4, 8] is kept as it is */
    for (size_t i = 0; i < RP_ARRAY_COUNT(cases); i++) {
        struct pair pair;
        struct rp_error error;
        pair_open(&pair, 4, 0);
        for (uint64_t batch = 0; batch < 8; batch++) {
            fill(&pair.ring, batch);
            rp_ring_publish(&pair.ring, batch + 1);
            assert_int_equal(take(&pair, &error), RP_RING_TAKEN);
            if (batch < 4)
                rp_ring_view_release(&pair.view, batch + 1);
            assert_int_equal(rp_ring_poll_release(&pair.ring), 0);
        }
        rp_ring_view_close(&pair.view);
        rp_ring_detach_trainer(&pair.ring, 0);
        assert_int_equal(rp_ring_poll_release(&pair.ring), 0); /* no consumer: no change */
        assert_int_equal(pair.ring.release, 4);
        assert_int_equal(rp_ring_attach_trainer(&pair.ring, 0, cases[i].batch, &error), 0);
        assert_int_equal(pair.ring.release, cases[i].batch);
        assert_int_equal(pair.ring.tail, cases[i].tail);
        int code = rp_ring_view_open(&pair.view, dup(pair.ring.data.fd),
                                     dup(pair.ring.seats[0].control.fd), cases[i].batch, &error);
        assert_int_equal(code, 0);
        for (uint64_t batch = cases[i].batch; batch < cases[i].tail; batch++)
            assert_int_equal(take(&pair, &error), RP_RING_TAKEN);
        assert_int_equal(take(&pair, &error), RP_RING_EMPTY);
        pair_close(&pair);
    }
}

/* ---- several trainers ------------------------------------------------------------------------ */

/* Seats 1, 2 and 3 of a ring: the slowest frees slots, whatever the others do; a false word has no
 * effect, nor has one that is ahead of the ring. */
static void a_slot_is_free_when_all_have_released_it(void **state)
{
    (void)state;
    struct rp_ring ring;
    struct rp_error error;
    struct rp_geometry g = tiny(4);
    struct rp_hash128 identity = {1, 2};
    assert_int_equal(
        rp_ring_create(&ring, &g, 3, (struct rp_ring_identity){identity, GENERATION}, 0, &error),
        0);
    for (uint32_t r = 0; r < 3; r++)
        assert_int_equal(rp_ring_attach_trainer(&ring, r, r == 2 ? 6 : 0, &error), 0);
    for (uint64_t batch = 0; batch < 4; batch++) {
        fill(&ring, batch);
        rp_ring_publish(&ring, batch + 1);
    }
    const struct {
        uint32_t seat;
        uint64_t word, lowest;
        bool lies;
    } steps[] = {{0, 3, 0, false}, {1, 2, 2, false}, {2, 6, 2, false}, {1, 4, 3, false},
                 {2, 7, 3, true},  {0, 4, 4, true},  {1, 3, 4, true}};
    for (size_t i = 0; i < RP_ARRAY_COUNT(steps); i++) {
        struct rp_ring_control *words = (void *)ring.seats[steps[i].seat].control.data;
        rp_a64_store_release(&words->release, steps[i].word);
        assert_int_equal(rp_ring_poll_release(&ring), steps[i].lies ? -RP_E_PROTOCOL : 0);
        assert_int_equal(ring.release, steps[i].lowest);
    }
    assert_int_equal(ring.quarantined, 1u << 1 | 1u << 2);
    rp_ring_detach_trainer(&ring, 1);
    assert_int_equal(rp_ring_attach_trainer(&ring, 1, 4, &error), 0);
    assert_int_equal(ring.quarantined, 1u << 2); /* each seat's own */
    rp_ring_close(&ring);
}

/* ---- wake-ups -------------------------------------------------------------------------------- */

#define PINGS 1000u
#define LONG_NS 1000000000000ull /* a lost wake-up sleeps this long */
#define ALARM_S 300u             /* and this ends the test */

/* The engine's side of a hand-over that sleeps each time: each batch is published only when the one
 * before came back, and the wait for that is the doorbell. */
struct bell {
    struct pair pair;
    struct rp_event rung;
};

static void *answer(void *argument)
{
    struct bell *bell = argument;
    struct rp_ring *ring = &bell->pair.ring;
    for (uint64_t batch = 0; batch < PINGS; batch++) {
        fill(ring, batch);
        rp_ring_publish(ring, batch + 1);
        for (;;) {
            uint32_t ticket = rp_event_prepare(&bell->rung);
            rp_ring_set_doorbell(ring, true);
            if (rp_ring_poll_release(ring) == 0 && ring->release == batch + 1) {
                rp_event_cancel(&bell->rung);
                break;
            }
            rp_event_sleep(&bell->rung, ticket, LONG_NS);
        }
        if (batch % 3 == 0)
            rp_sleep_ns(50000); /* let the trainer fall asleep */
    }
    return NULL;
}

static void no_wake_up_is_lost(void **state)
{
    (void)state;
    struct bell bell = {0};
    struct rp_error error;
    pthread_t thread;
    pair_open(&bell.pair, 2, 0);
    alarm(ALARM_S);
    pthread_create(&thread, NULL, answer, &bell);
    for (uint64_t batch = 0; batch < PINGS;) {
        int code = take(&bell.pair, &error);
        assert_true(code >= 0);
        if (code == RP_RING_EMPTY) {
            rp_ring_view_wait(&bell.pair.view, LONG_NS);
            continue;
        }
        batch++;
        if (batch % 5 == 0)
            rp_sleep_ns(50000); /* let the engine fall asleep */
        if (rp_ring_view_release(&bell.pair.view, batch))
            rp_event_signal(&bell.rung);
    }
    pthread_join(thread, NULL);
    alarm(0);
    pair_close(&bell.pair);
}

/* The ring stands where the last of its seats does, whichever that is. */
static void a_seat_is_placed_among_others(void **state)
{
    (void)state;
    struct rp_geometry g = tiny(8);
    for (uint32_t last = 0; last < 3; last++) {
        struct rp_ring ring;
        struct rp_error error;
        assert_int_equal(
            rp_ring_create(&ring, &g, 3, (struct rp_ring_identity){{1, 2}, GENERATION}, 0, &error),
            0);
        rp_ring_publish(&ring, 5);
        for (uint32_t seat = 0; seat < 3; seat++)
            if (seat != last)
                rp_ring_place_seat(&ring, seat, 5);
        assert_int_equal(ring.release, 0);
        rp_ring_place_seat(&ring, last, 3);
        assert_int_equal(ring.release, 3);
        assert_int_equal(ring.tail, 5);
        rp_ring_close(&ring);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ring_without_geometry_is_refused),
        cmocka_unit_test(a_side_column_is_a_section),
        cmocka_unit_test(a_seat_is_placed_among_others),
        cmocka_unit_test(a_million_batches_pass),
        cmocka_unit_test(a_full_ring_waits),
        cmocka_unit_test(status_comes_after_the_last_batch),
        cmocka_unit_test(a_new_trainer_begins_where_it_says),
        cmocka_unit_test(a_slot_is_free_when_all_have_released_it),
        cmocka_unit_test(no_wake_up_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
