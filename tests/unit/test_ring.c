/* SPDX-License-Identifier: Apache-2.0 */
/* The batch ring in one process: order and content over a million batches, back-pressure, wake-ups, and an engine
 * that is not impressed by what a trainer writes into its words. Run under ThreadSanitizer too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "shm/ring.h"
#include "shm/wait.h"

#define GENERATION 99u

static struct rp_geometry tiny(uint32_t slots)
{
    struct rp_geometry g = {.rows = 1, .seq_len = 4, .max_docs_per_row = 1, .world = 2, .rank = 1,
                            .micro_batches = 1, .slots = slots, .base_row = 10, .state_bytes = 16};
    assert_true(rp_geometry_layout(&g, 0, RP_DTYPE_U16) > 0);
    return g;
}

struct pair {
    struct rp_ring ring;
    struct rp_ring_view view;
    uint64_t batches; /* to pass */
};

static void pair_open(struct pair *pair, uint32_t slots, uint64_t first)
{
    struct rp_error error;
    struct rp_geometry g = tiny(slots);
    if (rp_ring_create(&pair->ring, &g, (struct rp_hash128){1, 2}, GENERATION, first, &error) != 0 ||
        rp_ring_attach_trainer(&pair->ring, first, &error) != 0 ||
        rp_ring_view_open(&pair->view, dup(pair->ring.data.fd), dup(pair->ring.control.fd), first, &error) != 0)
        fail_msg("%s", error.message);
}

static void pair_close(struct pair *pair)
{
    rp_ring_view_close(&pair->view);
    rp_ring_close(&pair->ring);
}

static struct rp_ring_control *control_of(struct pair *pair)
{
    return (struct rp_ring_control *)(void *)pair->view.control.data;
}

static struct rp_ring_engine *engine_of(struct pair *pair)
{
    return (struct rp_ring_engine *)(void *)(pair->ring.data.data + RP_PAGE_BYTES);
}

static void fill(const struct rp_ring *ring, uint64_t batch)
{
    uint8_t *slot = rp_ring_slot(ring, batch);
    struct rp_slot_header header = {.batch = batch, .generation = GENERATION, .first_row = 10 + batch * 2 + 1,
                                    .next_row = 10 + batch * 2 + 2, .rows_real = 1, .tokens_real = 4,
                                    .state_offset = RP_SLOT_STATE_OFFSET};
    memcpy(slot, &header, sizeof header);
    rp_store_u64(slot + ring->geometry.sections[RP_SECTION_INPUT_IDS].offset, batch * 0x9e3779b97f4a7c15u);
}

static bool content_is_right(const struct rp_ring_view *view, const uint8_t *slot, uint64_t batch)
{
    uint64_t ids = rp_load_u64(slot + view->geometry.sections[RP_SECTION_INPUT_IDS].offset);
    return ids == batch * 0x9e3779b97f4a7c15u;
}

static int take(struct pair *pair, struct rp_error *error)
{
    const uint8_t *slot;
    struct rp_slot_header header;
    return rp_ring_view_take(&pair->view, &slot, &header, error);
}

/* ---- layout ------------------------------------------------------------------------------------------- */

static void geometry_is_checked(void **state)
{
    (void)state;
    struct rp_geometry g = tiny(8), broken;
    uint64_t total = rp_geometry_total(&g);
    assert_int_equal(total, RP_RING_SLOTS_OFFSET + 8 * g.slot_bytes);
    for (unsigned i = 0; i < RP_SECTION_COUNT; i++)
        assert_int_equal(g.sections[i].offset % 64, 0);
    for (size_t bit = 0; bit < sizeof g * 8; bit++) { /* no flipped bit of what decides addresses passes */
        broken = g;
        ((uint8_t *)&broken)[bit / 8] ^= (uint8_t)(1u << bit % 8);
        uint64_t other = rp_geometry_total(&broken);
        assert_true(other == 0 || other >= RP_RING_SLOTS_OFFSET + broken.slots * broken.slot_bytes);
        if (bit / 8 >= offsetof(struct rp_geometry, slot_bytes))
            assert_int_equal(other, 0);
    }
    const struct rp_geometry bad[] = {
        {.rows = 0, .seq_len = 4, .max_docs_per_row = 1, .world = 1, .slots = 4},
        {.rows = 1, .seq_len = 0, .max_docs_per_row = 1, .world = 1, .slots = 4},
        {.rows = 1, .seq_len = 4, .max_docs_per_row = 0, .world = 1, .slots = 4},
        {.rows = 1, .seq_len = 4, .max_docs_per_row = 1, .world = 1, .slots = 3},
        {.rows = 1, .seq_len = 4, .max_docs_per_row = 1, .world = 1, .slots = 8192},
        {.rows = 1, .seq_len = 4, .max_docs_per_row = 1, .world = 1, .rank = 1, .slots = 4},
        {.rows = 1u << 16, .seq_len = 1u << 15, .max_docs_per_row = 1, .world = 1, .slots = 4},
        {.rows = 1, .seq_len = 4, .max_docs_per_row = 1, .world = 1, .slots = 4, .state_bytes = UINT64_MAX},
    };
    for (size_t i = 0; i < RP_ARRAY_COUNT(bad); i++) {
        broken = bad[i];
        assert_int_equal(rp_geometry_layout(&broken, UINT32_MAX, RP_DTYPE_I64), 0);
    }
    broken = g;
    assert_int_equal(rp_geometry_layout(&broken, 0, RP_DTYPE_F32), 0);
}

static void damaged_headers_are_refused(void **state)
{
    (void)state;
    struct pair pair;
    struct rp_error error;
    pair_open(&pair, 4, 0);
    rp_ring_view_close(&pair.view);
    size_t bytes = offsetof(struct rp_ring_header, ready) + sizeof(struct rp_a32);
    for (size_t bit = 0; bit < bytes * 8; bit += 3) {
        pair.ring.data.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        int code = rp_ring_view_open(&pair.view, dup(pair.ring.data.fd), dup(pair.ring.control.fd), 0, &error);
        assert_true(code == -RP_E_PROTOCOL || code == -RP_E_VERSION);
        pair.ring.data.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    /* data and control swapped */
    assert_true(rp_ring_view_open(&pair.view, dup(pair.ring.control.fd), dup(pair.ring.data.fd), 0, &error) < 0);
    assert_int_equal(rp_ring_view_open(&pair.view, dup(pair.ring.data.fd), dup(pair.ring.control.fd), 0, &error), 0);
    pair_close(&pair);
}

/* ---- flow --------------------------------------------------------------------------------------------- */

static void *produce(void *argument)
{
    struct pair *pair = argument;
    struct rp_ring *ring = &pair->ring;
    for (uint64_t batch = 0; batch < pair->batches; batch++) {
        while (ring->tail - ring->release == ring->geometry.slots) {
            if (rp_ring_poll_release(ring) < 0)
                return "a good trainer was quarantined";
            if (ring->tail - ring->release == ring->geometry.slots)
                sched_yield();
        }
        fill(ring, batch);
        rp_ring_publish(ring, batch + 1);
    }
    rp_ring_set_status(ring, RP_RING_END, pair->batches, NULL);
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
            return batch == pair->batches ? NULL : "it ended too early";
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

/* ThreadSanitizer knows memory by its address, and sees nothing where the two ends have a mapping each. */
static void share_addresses(struct pair *pair)
{
    uint8_t *data = pair->view.data.data, *control = pair->view.control.data;
    munmap(data, pair->view.data.bytes);
    munmap(control, pair->view.control.bytes);
    pair->view.data.data = pair->ring.data.data;
    pair->view.control.data = pair->ring.control.data;
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
        assert_false(rp_ring_view_release(&pair.view, batch - 1)); /* nobody asked for the bell */
        rp_ring_want_space(&pair.ring, true);
        assert_true(rp_ring_view_release(&pair.view, batch));
        rp_ring_want_space(&pair.ring, false);
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
    } cases[] = {{6, 8}, {4, 8}, {8, 8}, {3, 3}, {9, 9}, {0, 0}}; /* in [4, 8] what is there is kept */
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
        rp_ring_detach_trainer(&pair.ring);
        assert_int_equal(rp_ring_poll_release(&pair.ring), 0); /* nobody there: nothing changes */
        assert_int_equal(pair.ring.release, 4);
        assert_int_equal(rp_ring_attach_trainer(&pair.ring, cases[i].batch, &error), 0);
        assert_int_equal(pair.ring.release, cases[i].batch);
        assert_int_equal(pair.ring.tail, cases[i].tail);
        int code = rp_ring_view_open(&pair.view, dup(pair.ring.data.fd), dup(pair.ring.control.fd),
                                     cases[i].batch, &error);
        assert_int_equal(code, 0);
        for (uint64_t batch = cases[i].batch; batch < cases[i].tail; batch++)
            assert_int_equal(take(&pair, &error), RP_RING_TAKEN);
        assert_int_equal(take(&pair, &error), RP_RING_EMPTY);
        pair_close(&pair);
    }
}

/* ---- hostile words ------------------------------------------------------------------------------------ */

static void a_trainer_cannot_lie(void **state)
{
    (void)state;
    const int64_t lies[] = {-1, -4, 3, 4, 1000, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < RP_ARRAY_COUNT(lies); i++) { /* release stands at 5, tail at 7 */
        struct pair pair;
        struct rp_error error;
        char text[512];
        pair_open(&pair, 4, 5);
        for (uint64_t batch = 5; batch < 7; batch++) {
            fill(&pair.ring, batch);
            rp_ring_publish(&pair.ring, batch + 1);
        }
        rp_a64_store_release(&control_of(&pair)->release, 5 + (uint64_t)lies[i]);
        assert_int_equal(rp_ring_poll_release(&pair.ring), -RP_E_PROTOCOL);
        assert_int_equal(rp_ring_poll_release(&pair.ring), -RP_E_PROTOCOL); /* for good */
        assert_true(pair.ring.quarantined);
        assert_int_equal(pair.ring.release, 5);
        rp_ring_set_status(&pair.ring, RP_RING_END, 100, NULL); /* does not lift it */
        assert_int_equal(take(&pair, &error), RP_RING_TAKEN);
        assert_int_equal(take(&pair, &error), RP_RING_TAKEN);
        assert_int_equal(take(&pair, &error), RP_RING_CLOSED);
        assert_int_equal(pair.view.status, RP_RING_QUARANTINED);
        rp_ring_view_message(&pair.view, text, sizeof text);
        assert_non_null(strstr(text, "expected 5 to 7"));
        rp_ring_view_close(&pair.view);
        rp_ring_detach_trainer(&pair.ring);
        assert_int_equal(rp_ring_attach_trainer(&pair.ring, 6, &error), 0); /* the next trainer does */
        assert_false(pair.ring.quarantined);
        assert_int_equal(rp_a32_load_acquire(&engine_of(&pair)->status), RP_RING_END);
        assert_int_equal(rp_ring_poll_release(&pair.ring), 0);
        rp_ring_close(&pair.ring);
    }
}

/* Garbage in every word that the trainer owns: the engine either keeps its invariant or stops the ring. */
static void garbage_never_gets_through(void **state)
{
    (void)state;
    unsigned seed = (unsigned)time(NULL);
    print_message("seed %u\n", seed);
    srand48((long)seed);
    uint64_t accepted = 0, refused = 0;
    for (int round = 0; round < 2000; round++) {
        struct pair pair;
        pair_open(&pair, 8, 100);
        for (uint64_t batch = 100; !pair.ring.quarantined && batch < 150; batch++) {
            uint64_t before = pair.ring.release;
            uint64_t garbage = drand48() < 0.95 ? before + (uint64_t)lrand48() % (pair.ring.tail - before + 1)
                                                : (uint64_t)mrand48() << (lrand48() % 40);
            rp_a64_store_release(&control_of(&pair)->release, garbage);
            rp_a32_store_relaxed(&control_of(&pair)->want_data, (uint32_t)mrand48());
            rp_a64_store_relaxed(&control_of(&pair)->heartbeat_ns, (uint64_t)mrand48());
            bool legal = garbage >= before && garbage <= pair.ring.tail;
            assert_int_equal(rp_ring_poll_release(&pair.ring), legal ? 0 : -RP_E_PROTOCOL);
            accepted += legal;
            refused += !legal;
            assert_true(pair.ring.tail - pair.ring.release <= 8);
            if (pair.ring.tail - pair.ring.release == 8)
                continue;
            fill(&pair.ring, pair.ring.tail);
            rp_ring_publish(&pair.ring, pair.ring.tail + 1);
        }
        pair_close(&pair);
    }
    print_message("%llu accepted, %llu refused\n", (unsigned long long)accepted, (unsigned long long)refused);
    assert_true(accepted > 0 && refused > 0);
}

static void a_trainer_checks_the_engine(void **state)
{
    (void)state;
    struct pair pair;
    struct rp_error error;
    const uint64_t tails[] = {99, 105, 0, UINT64_MAX};
    for (size_t i = 0; i < RP_ARRAY_COUNT(tails); i++) {
        pair_open(&pair, 4, 100);
        rp_a64_store_release(&engine_of(&pair)->tail, tails[i]);
        assert_int_equal(take(&pair, &error), -RP_E_PROTOCOL);
        pair_close(&pair);
    }
    for (size_t word = 0; word < 4; word++) { /* batch, generation, first_row, next_row */
        pair_open(&pair, 4, 100);
        fill(&pair.ring, 100);
        ((uint64_t *)(void *)rp_ring_slot(&pair.ring, 100))[word]++;
        rp_ring_publish(&pair.ring, 101);
        assert_int_equal(take(&pair, &error), -RP_E_PROTOCOL);
        pair_close(&pair);
    }
    pair_open(&pair, 4, 100);
    fill(&pair.ring, 100);
    ((struct rp_slot_header *)(void *)rp_ring_slot(&pair.ring, 100))->state_bytes = 17; /* 16 fit */
    rp_ring_publish(&pair.ring, 101);
    assert_int_equal(take(&pair, &error), -RP_E_PROTOCOL);
    pair_close(&pair);
}

/* ---- wake-ups ----------------------------------------------------------------------------------------- */

#define PINGS 3000u

/* The engine's side of a hand-over that sleeps each time: each batch is published only when the one before came
 * back, and the wait for that is the doorbell. */
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
            rp_ring_want_space(ring, true);
            if (rp_ring_poll_release(ring) == 0 && ring->release == batch + 1) {
                rp_event_cancel(&bell->rung);
                break;
            }
            rp_event_sleep(&bell->rung, ticket, 20000000000ull);
        }
        if (batch % 3 == 0)
            rp_sleep_ns(50000); /* let the trainer fall asleep */
    }
    return NULL;
}

/* A lost wake-up in either direction would sleep its full 20 seconds, and the alarm would end the test. */
static void no_wake_up_is_lost(void **state)
{
    (void)state;
    struct bell bell = {0};
    struct rp_error error;
    pthread_t thread;
    pair_open(&bell.pair, 2, 0);
    alarm(60);
    pthread_create(&thread, NULL, answer, &bell);
    uint64_t slept_long = 0;
    for (uint64_t batch = 0; batch < PINGS;) {
        uint64_t begin = rp_now_ns();
        int code = take(&bell.pair, &error);
        assert_true(code >= 0);
        if (code == RP_RING_EMPTY) {
            rp_ring_view_wait(&bell.pair.view, 20000000000ull);
            slept_long += rp_now_ns() - begin > 15000000000ull;
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
    assert_int_equal(slept_long, 0);
    pair_close(&bell.pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(geometry_is_checked),
        cmocka_unit_test(damaged_headers_are_refused),
        cmocka_unit_test(a_million_batches_pass),
        cmocka_unit_test(a_full_ring_waits),
        cmocka_unit_test(status_comes_after_the_last_batch),
        cmocka_unit_test(a_new_trainer_begins_where_it_says),
        cmocka_unit_test(a_trainer_cannot_lie),
        cmocka_unit_test(garbage_never_gets_through),
        cmocka_unit_test(a_trainer_checks_the_engine),
        cmocka_unit_test(no_wake_up_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
