/* SPDX-License-Identifier: Apache-2.0 */
/* Costs by rank, and the waiting that follows from them, of a few batches. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "flow/costs.h"

static void test_ranks_that_wait(void **unused)
{
    (void)unused;
    struct rp_rank_cost ranks[2] = {0};
    struct rp_flow_costs costs = {.ranks = ranks};
    assert_true(rp_costs_imbalance(&costs, 2).ranks == 0); /* nothing is published */
    static const uint64_t batches[][2] = {{3, 1}, {2, 5}, {4, 4}};
    for (int i = 0; i < 3; i++) {
        rp_costs_add_batch(&ranks[0], true, batches[i][0]);
        rp_costs_add_batch(&ranks[1], true, batches[i][1]);
        rp_costs_add_micro_step(&costs, 2);
    }
    struct rp_flow_imbalance found = rp_costs_imbalance(&costs, 2);
    assert_true(found.ranks == 10.0 * 2 / 19);
    assert_true(found.micro_step == (3 + 5 + 4) * 2.0 / 19);
    /* a batch that one rank gets by itself, and batches of another flow, change sums only */
    rp_costs_add_batch(&ranks[0], true, 100);
    struct rp_rank_cost other = {.cost = 7};
    rp_costs_join(&ranks[1], &other);
    assert_true(ranks[0].cost == 109 && ranks[1].cost == 17);
    assert_true(rp_costs_imbalance(&costs, 2).micro_step == found.micro_step);
}

static void test_unknown(void **unused)
{
    (void)unused;
    struct rp_rank_cost ranks[2] = {0}, other = {.without_cost = 1};
    struct rp_flow_costs costs = {.ranks = ranks};
    rp_costs_add_batch(&ranks[0], true, 3);
    rp_costs_add_micro_step(&costs, 1);
    assert_true(rp_costs_imbalance(&costs, 1).ranks == 0); /* one rank waits for none */
    rp_costs_add_batch(&ranks[1], false, 9);
    rp_costs_add_micro_step(&costs, 2);
    assert_true(ranks[1].cost == 0 && ranks[1].without_cost == 1);
    assert_true(rp_costs_imbalance(&costs, 2).ranks == 0);
    rp_costs_join(&ranks[0], &other);
    assert_int_equal(ranks[0].without_cost, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ranks_that_wait),
                                       cmocka_unit_test(test_unknown)};
    return cmocka_run_group_tests_name("costs", tests, NULL, NULL);
}
