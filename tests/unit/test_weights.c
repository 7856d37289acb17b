/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of two contracts: only the ones that differ relative to the others are reported, with the
 * numbers of the user; and a difference is never lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/bits.h"
#include "base/contract.h"

#define MOST 6

static struct rp_contract make(char *text, const uint64_t *weights, unsigned count)
{
    size_t bytes = 0;
    struct rp_contract contract;
    for (unsigned s = 0; s < count; s++)
        bytes += (size_t)sprintf(text + bytes, "source[%04u].weight=%llu\n", s,
                                 (unsigned long long)weights[s]);
    bytes += (size_t)sprintf(text + bytes, "sources=%u\n\nbatch_size=1\n", count);
    assert_int_equal(rp_contract_open(&contract, text, bytes, NULL), 0);
    return contract;
}

static int compare(const uint64_t *had, const uint64_t *has, unsigned count, unsigned count_has,
                   uint64_t unit, struct rp_error *error)
{
    char texts[2][1024];
    struct rp_contract before = make(texts[0], had, count), now = make(texts[1], has, count_has);
    const struct rp_contract_sides sides = {RP_AT_RESUME, "the state", "this run", unit, 0};
    *error = (struct rp_error){0};
    return rp_contract_compare(&before, &now, &sides, error);
}

static void changed_ratios_are_told_as_the_user_wrote_them(void **state)
{
    (void)state;
    static const struct {
        uint64_t had[MOST], has[MOST];
        unsigned count;
        uint64_t unit; /* millionths */
        const char *told;
    } cases[] = {
        /* 7, 2, 1 -> 7, 2, 2 */
        {{7, 2, 1}, {7, 2, 2}, 3, 1000000, "2: the state has 1, this run has 2"},
        /* 0.7, 0.2, 0.1 -> 0.7, 0.2, 0.2 */
        {{7, 2, 1}, {7, 2, 2}, 3, 100000, "2: the state has 0.1, this run has 0.2"},
        /* 2, 1, 1 -> 2, 1, 4: the divisor is 1 before and after */
        {{2, 1, 1}, {2, 1, 4}, 3, 1000000, "2: the state has 1, this run has 4"},
        /* 6, 3, 1 -> 6, 3, 3, which is 2, 1, 1: the number of the last one stays 1 */
        {{6, 3, 1}, {2, 1, 1}, 3, 3000000, "2: the state has 1, this run has 3"},
        /* 3, 1 -> 2, 1: of two sources, the one whose number stays is kept */
        {{3, 1}, {2, 1}, 2, 1000000, "0: the state has 3, this run has 2"},
        /* 0.75, 0.25 -> 0.5, 0.25 */
        {{3, 1}, {2, 1}, 2, 250000, "0: the state has 0.75, this run has 0.5"},
        /* no number stays: the larger one is kept */
        {{5, 2}, {3, 4}, 2, 1000000, "1: the state has 1.2, this run has 4"},
        /* a weight before that no decimal is */
        {{3, 6, 1}, {1, 2, 1}, 3, 1000000, "2: the state has about 0.333333333, this run has 1"},
        /* two of five */
        {{4, 4, 4, 1, 1},
         {4, 4, 4, 2, 3},
         5,
         1000000,
         "3: the state has 1, this run has 2; 4: the state has 1, this run has 3"},
        /* the largest numbers */
        {{UINT32_MAX, 1, 1},
         {UINT32_MAX, 1, UINT32_MAX - 1},
         3,
         1,
         "2: the state has 0.000001, this run has 4294.967294"},
    };
    struct rp_error error;
    for (size_t i = 0; i < RP_ARRAY_COUNT(cases); i++) {
        char expected[512] = "", *at = expected;
        assert_int_equal(compare(cases[i].had, cases[i].has, cases[i].count, cases[i].count,
                                 cases[i].unit, &error),
                         -RP_E_MISMATCH);
        for (const char *c = cases[i].told; *c;) { /* "2: the" as "weight of source 2 differs:" */
            size_t digits = strspn(c, "0123456789"), rest = strcspn(c, ";");
            at += sprintf(at, "%sweight of source %.*s differs%.*s", at > expected ? "; " : "",
                          (int)digits, c, (int)(rest - digits), c + digits);
            c += rest;
            c += strspn(c, "; ");
        }
        assert_string_equal(error.message, expected);
    }
}

static void reduce(uint64_t *weights, unsigned count)
{
    uint64_t divisor = 0;
    for (unsigned s = 0; s < count; s++)
        divisor = rp_gcd_u64(divisor, weights[s]);
    for (unsigned s = 0; s < count; s++)
        weights[s] /= divisor;
}

/* A refusal names a source, and not all of them; equal ratios are never refused. */
static void no_difference_is_lost(void **state)
{
    (void)state;
    struct rp_error error;
    srand(17);
    for (int round = 0; round < 20000; round++) {
        uint64_t had[MOST], has[MOST];
        unsigned count = 1 + (unsigned)rand() % MOST;
        for (unsigned s = 0; s < count; s++) {
            had[s] = 1 + (uint64_t)rand() % 9;
            has[s] = rand() % 3 ? had[s] * (1 + (uint64_t)(round % 4)) : 1 + (uint64_t)rand() % 9;
        }
        reduce(had, count);
        reduce(has, count);
        bool is_same = memcmp(had, has, count * sizeof *had) == 0;
        int code = compare(had, has, count, count, 1000000, &error);
        assert_int_equal(code, is_same ? 0 : -RP_E_MISMATCH);
        unsigned told = 0;
        for (const char *c = error.message; (c = strstr(c, "differs")); c++)
            told++;
        assert_true(is_same ? told == 0 : told >= 1 && told < count);
    }
}

static void other_numbers_of_sources_are_told_alone(void **state)
{
    (void)state;
    const uint64_t weights[] = {3, 2, 1};
    struct rp_error error;
    assert_int_equal(compare(weights, weights, 3, 2, 1000000, &error), -RP_E_MISMATCH);
    assert_string_equal(error.message,
                        "number of sources differs: the state has 3, this run has 2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(changed_ratios_are_told_as_the_user_wrote_them),
        cmocka_unit_test(no_difference_is_lost),
        cmocka_unit_test(other_numbers_of_sources_are_told_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
