/* SPDX-License-Identifier: Apache-2.0 */
/* Counts of waits by length, and the recent speed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "server/rate_samples.h"
#include "shm/waits.h"

#define US UINT64_C(1000)
#define SECOND UINT64_C(1000000000)

static void buckets_are_powers_of_two(void **state)
{
    (void)state;
    assert_int_equal(rp_waits_bucket(0), 0);
    assert_int_equal(rp_waits_bucket(US - 1), 0);
    for (uint32_t i = 0; i < RP_WAIT_BUCKETS - 1; i++) {
        uint64_t end = rp_waits_bucket_end_ns(i);
        assert_int_equal(end, US << i);
        assert_int_equal(rp_waits_bucket(end - 1), i);
        assert_int_equal(rp_waits_bucket(end), i + 1);
    }
    assert_int_equal(rp_waits_bucket(UINT64_MAX), RP_WAIT_BUCKETS - 1);
    assert_true(rp_waits_bucket_end_ns(RP_WAIT_BUCKETS - 1) == UINT64_MAX);
}

static void percentiles_are_bounds(void **state)
{
    struct rp_ring_control words = {0};
    struct rp_waits waits = {0};
    (void)state;
    assert_int_equal(rp_waits_percentile_ns(&waits, 50), 0);
    for (uint64_t i = 1; i <= 100; i++) /* 1 us to 100 us */
        rp_waits_note(&words, i * US);
    rp_waits_add(&waits, &words);
    assert_int_equal(rp_waits_count(&waits), 100);
    assert_int_equal(waits.total_ns, 5050 * US);
    assert_int_equal(rp_waits_percentile_ns(&waits, 0), 2 * US);
    assert_int_equal(rp_waits_percentile_ns(&waits, 1), 2 * US);
    assert_int_equal(rp_waits_percentile_ns(&waits, 3), 4 * US);
    assert_int_equal(rp_waits_percentile_ns(&waits, 50), 64 * US);
    assert_int_equal(rp_waits_percentile_ns(&waits, 99), 100 * US);
    assert_int_equal(rp_waits_percentile_ns(&waits, 100), 100 * US);
    rp_waits_add(&waits, &words);
    assert_int_equal(rp_waits_count(&waits), 200);
    assert_int_equal(rp_waits_percentile_ns(&waits, 50), 64 * US);
    rp_waits_note(&words, 9 * SECOND);
    rp_waits_add(&waits, &words);
    assert_int_equal(rp_waits_percentile_ns(&waits, 100), 9 * SECOND);
    assert_int_equal(rp_waits_percentile_ns(&waits, 99), 128 * US);
}

/* No word of a hostile trainer makes a sum overflow, however many trainers follow it. */
static void garbage_is_bounded(void **state)
{
    struct rp_ring_control words;
    struct rp_waits waits = {0};
    (void)state;
    __builtin_memset(&words, 0xff, sizeof words);
    for (int i = 0; i < 1000; i++) {
        rp_waits_add(&waits, &words);
        uint64_t count = rp_waits_count(&waits);
        assert_true(count <= INT64_MAX && waits.total_ns <= INT64_MAX);
        assert_true(rp_waits_percentile_ns(&waits, 99) <= waits.longest_ns);
    }
}

static struct rp_rate_sample sample(uint64_t at_ns, uint64_t tokens)
{
    return (struct rp_rate_sample){.at_ns = at_ns, .counts = {[RP_RATE_TOKENS] = tokens}};
}

static double speed(const struct rp_rate_samples *pace, uint64_t at_ns, uint64_t tokens,
                    uint64_t window)
{
    struct rp_rate_sample now = sample(at_ns, tokens);
    return rp_rate_of(pace, &now, RP_RATE_TOKENS, window * SECOND);
}

/* 100 tokens a second for two minutes, then none for 30 seconds. */
static void speeds_are_of_their_window(void **state)
{
    static struct rp_rate_samples pace;
    uint64_t now = SECOND, tokens = 0;
    (void)state;
    assert_int_equal(rp_rate_last_ns(&pace), 0);
    assert_true(speed(&pace, now, 7, 1) == 0);
    for (int i = 0; i < 1500; i++, now += SECOND / 10) {
        struct rp_rate_sample kept = sample(now, tokens);
        rp_rate_note(&pace, &kept);
        assert_int_equal(rp_rate_last_ns(&pace), now);
        if (i == 0) {
            assert_true(speed(&pace, now, tokens, 1) == 0);
            assert_true(speed(&pace, now + SECOND / 2, 50, 60) == 100);
        }
        if (i > 0 && i < 1200) {
            assert_true(speed(&pace, now, tokens, 1) == 100);
            assert_true(speed(&pace, now, tokens, 60) == 100);
        }
        tokens += i < 1200 ? 10 : 0;
    }
    assert_true(speed(&pace, now, tokens, 1) == 0);
    assert_true(speed(&pace, now, tokens, 60) == 50);
    assert_true(speed(&pace, now, 0, 60) == 0); /* the stream was moved back */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_are_powers_of_two),
        cmocka_unit_test(percentiles_are_bounds),
        cmocka_unit_test(garbage_is_bounded),
        cmocka_unit_test(speeds_are_of_their_window),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
