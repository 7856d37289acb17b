/* SPDX-License-Identifier: Apache-2.0 */
/* test_utc.c — moments as text, against the C library. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/utc.h"

static void check(time_t seconds, long ns)
{
    struct tm utc;
    char date[40], expected[RP_UTC_BYTES], found[RP_UTC_BYTES];
    assert_non_null(gmtime_r(&seconds, &utc));
    assert_true(strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &utc) > 0);
    snprintf(expected, sizeof expected, "%s.%03ldZ", date, ns / 1000000);
    rp_utc_text(&(struct timespec){.tv_sec = seconds, .tv_nsec = ns}, found);
    assert_string_equal(found, expected);
}

/* Three eras of 400 years, in steps that meet each hour, and both ends of each day of one era. */
static void as_the_c_library_says_it(void **state)
{
    const time_t day = 86400;
    (void)state;
    for (time_t at = 0; at < 3 * 146097 * day; at += 3 * day + 3601)
        check(at, (long)(at % 1000) * 1000003);
    for (time_t at = 0; at < 146097 * day; at += day) {
        check(at, 0);
        check(at + day - 1, 999999999);
    }
}

static void now_is_now(void **state)
{
    char before[RP_UTC_BYTES], now[RP_UTC_BYTES], after[RP_UTC_BYTES];
    struct timespec moment;
    (void)state;
    clock_gettime(CLOCK_REALTIME, &moment);
    rp_utc_text(&moment, before);
    rp_utc_now(now);
    clock_gettime(CLOCK_REALTIME, &moment);
    rp_utc_text(&moment, after);
    if (strcmp(before, after) <= 0) /* unless the clock was set back meanwhile */
        assert_true(strcmp(before, now) <= 0 && strcmp(now, after) <= 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_the_c_library_says_it),
        cmocka_unit_test(now_is_now),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
