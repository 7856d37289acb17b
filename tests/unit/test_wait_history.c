/* SPDX-License-Identifier: Apache-2.0 */
/* The history of waits: no wait is lost however long it is, and each wait is in its period. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/cause.h"

#define SECOND UINT64_C(1000000000)

static void every_wait_is_in_its_period(void **state)
{
    struct rp_wait_history history = {0};
    uint64_t begin = 5 * SECOND, sums[RP_CAUSES] = {0}, day = 86400;
    (void)state;
    for (uint64_t second = 0; second < day; second++) {
        enum rp_cause cause = second < day / 2 ? RP_CAUSE_DISK : RP_CAUSE_PACK;
        rp_wait_history_begin(&history, begin + second * SECOND);
        rp_wait_history_add(&history, cause, second);
        sums[cause] += second;
        assert_in_range(history.count, 1, RP_HISTORY_PERIODS);
    }
    assert_true(history.period_ns == 2048 * SECOND); /* the first with 64 of them in a day */
    assert_int_equal(history.count, (day - 1) / 2048 + 1);
    for (uint32_t i = 0; i < RP_HISTORY_PERIODS; i++) {
        sums[RP_CAUSE_DISK] -= history.waited_ns[i][RP_CAUSE_DISK];
        sums[RP_CAUSE_PACK] -= history.waited_ns[i][RP_CAUSE_PACK];
        if (i > day / 2 / 2048)
            assert_int_equal(history.waited_ns[i][RP_CAUSE_DISK], 0);
        if (i < day / 2 / 2048)
            assert_int_equal(history.waited_ns[i][RP_CAUSE_PACK], 0);
    }
    assert_int_equal(sums[RP_CAUSE_DISK], 0);
    assert_int_equal(sums[RP_CAUSE_PACK], 0);
}

static void a_long_silence_makes_long_periods(void **state)
{
    struct rp_wait_history history = {0};
    (void)state;
    rp_wait_history_begin(&history, 1);
    rp_wait_history_add(&history, RP_CAUSE_PLAN, 7);
    rp_wait_history_begin(&history, UINT64_C(1) << 62);
    rp_wait_history_add(&history, RP_CAUSE_PLAN, 8);
    assert_int_equal(history.waited_ns[0][RP_CAUSE_PLAN], 7);
    assert_int_equal(history.waited_ns[history.count - 1][RP_CAUSE_PLAN], 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_wait_is_in_its_period),
        cmocka_unit_test(a_long_silence_makes_long_periods),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
