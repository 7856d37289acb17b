/* SPDX-License-Identifier: Apache-2.0 */
/* The time that ranks lose by waiting, counted by hand for a few rows; and the deal of windows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan/balance.h"

static void expect(const struct rp_balance *balance, uint64_t steps, uint64_t total, uint64_t step,
                   uint64_t micro_step, uint64_t largest)
{
    assert_int_equal(balance->steps, steps);
    assert_int_equal(balance->total, total);
    assert_int_equal(balance->step, step);
    assert_int_equal(balance->micro_step, micro_step);
    assert_int_equal(balance->largest, largest);
}

/* Two ranks, micro-batches of two rows, two micro-steps; the last row is in no whole step. */
static void test_sums(void **unused)
{
    (void)unused;
    static const uint64_t cost[] = {5, 1, 2, 2, 1, 1, 9, 3, 100};
    static const uint32_t backwards[] = {7, 6, 5, 4, 3, 2, 1, 0, 8};
    struct rp_balance_shape shape = {.ranks = 2, .bundle = 2, .step = 8};
    struct rp_balance balance = {0};
    rp_balance_add(&balance, &shape, cost, NULL, 9);
    /* rank 0: 6 + 2, rank 1: 4 + 12 */
    expect(&balance, 1, 24, 16, 6 + 12, 12);
    assert_true(rp_balance_of_micro_steps(&balance, &shape) == 18.0 * 2 / 24);
    rp_balance_add(&balance, &shape, cost, backwards, 9);
    /* rank 0: 12 + 4, rank 1: 2 + 6 */
    expect(&balance, 2, 48, 32, 36, 24);
    balance = (struct rp_balance){0};
    shape.step = 4; /* each micro-step is a step */
    rp_balance_add(&balance, &shape, cost, NULL, 9);
    expect(&balance, 2, 24, 18, 18, 18);
}

static void test_nothing_waits(void **unused)
{
    (void)unused;
    static const uint64_t none[8], equal[] = {3, 3, 3, 3, 3, 3, 3, 3};
    struct rp_balance_shape shape = {.ranks = 4, .bundle = 1, .step = 8};
    struct rp_balance balance = {0};
    assert_true(rp_balance_of_micro_steps(&balance, &shape) == 1);
    rp_balance_add(&balance, &shape, none, NULL, 8);
    assert_true(rp_balance_of_micro_steps(&balance, &shape) == 1);
    rp_balance_add(&balance, &shape, equal, NULL, 8);
    expect(&balance, 2, 24, 6, 6, 3);
    assert_true(rp_balance_of_micro_steps(&balance, &shape) == 1);
}

/* Sums of costs near 2^63 do not wrap. */
static void test_great_costs(void **unused)
{
    (void)unused;
    uint64_t cost[16];
    struct rp_balance_shape shape = {.ranks = 2, .bundle = 1, .step = 2};
    struct rp_balance balance = {0};
    for (unsigned i = 0; i < 16; i++)
        cost[i] = i % 2 ? 1 : UINT64_C(1) << 62;
    rp_balance_add(&balance, &shape, cost, NULL, 16);
    assert_true(balance.step == (rp_cost_sum)1 << 65);
    assert_true(rp_balance_of_micro_steps(&balance, &shape) == 2);
}

/* Mixed rows: windows of two steps make micro-steps of like cost, the last one is shorter. */
static void test_dealt(void **unused)
{
    (void)unused;
    enum { ROWS = 44 };
    uint64_t cost[ROWS];
    struct rp_balance_shape shape = {.ranks = 4, .bundle = 1, .step = 8};
    struct rp_deal deal = {
        .window = 16, .step = 8, .tier = 4, .bundle = 1, .cost.k = 1, .cost.b = 1};
    struct rp_balance plain = {0}, off = {0}, dealt = {0};
    for (uint32_t i = 0; i < ROWS; i++)
        cost[i] = 1 + i * UINT64_C(2654435761) % 997;
    assert_int_equal(rp_balance_dealt(&plain, &shape, NULL, cost, ROWS), 0);
    assert_int_equal(rp_balance_dealt(&dealt, &shape, &deal, cost, ROWS), 0);
    deal.window = 0;
    assert_int_equal(rp_balance_dealt(&off, &shape, &deal, cost, ROWS), 0);
    assert_true(off.step == plain.step && off.micro_step == plain.micro_step);
    assert_int_equal(dealt.steps, 5);
    assert_true(dealt.total == plain.total); /* 44 rows: the last 4 are in no step */
    assert_true(dealt.step < plain.step && dealt.micro_step < plain.micro_step);
    assert_true(rp_balance_of_micro_steps(&dealt, &shape) < 1.25);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_nothing_waits),
        cmocka_unit_test(test_great_costs),
        cmocka_unit_test(test_dealt),
    };
    return cmocka_run_group_tests_name("balance", tests, NULL, NULL);
}
