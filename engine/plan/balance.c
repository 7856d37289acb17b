/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/balance.h"

#include <errno.h>

#include "base/bits.h"
#include "base/mem.h"
#include "plan/v2/deal.h"

/* The cost of the micro-batch whose first row is at place `first`. */
static uint64_t cost_of_batch(const struct rp_balance_shape *shape, const uint64_t *cost,
                              const uint32_t *order, uint32_t first)
{
    uint64_t sum = 0;
    for (uint32_t i = first; i < first + shape->bundle; i++)
        sum += cost[order ? order[i] : i];
    return sum;
}

static void add_step(struct rp_balance *balance, const struct rp_balance_shape *shape,
                     const uint64_t *cost, const uint32_t *order, uint32_t first)
{
    uint32_t tier = shape->ranks * shape->bundle, end = first + shape->step;
    uint64_t largest = 0, of_rank = 0;
    for (uint32_t row = first; row < end; row += tier) {
        uint64_t most = 0;
        for (uint32_t rank = 0; rank < shape->ranks; rank++) {
            uint64_t batch = cost_of_batch(shape, cost, order, row + rank * shape->bundle);
            most = rp_max_u64(most, batch);
            balance->total += batch;
        }
        balance->micro_step += most;
        largest = rp_max_u64(largest, most);
    }
    for (uint32_t rank = 0; rank < shape->ranks; rank++) {
        uint64_t sum = 0;
        for (uint32_t row = first; row < end; row += tier)
            sum += cost_of_batch(shape, cost, order, row + rank * shape->bundle);
        of_rank = rp_max_u64(of_rank, sum);
    }
    balance->step += of_rank;
    balance->largest += largest;
    balance->steps++;
}

void rp_balance_add(struct rp_balance *balance, const struct rp_balance_shape *shape,
                    const uint64_t *cost, const uint32_t *order, uint32_t rows)
{
    for (uint32_t i = 0; i < rows / shape->step; i++)
        add_step(balance, shape, cost, order, i * shape->step);
}

/* Set order[i] to the row at place i when each window of deal->window rows is dealt, the first from
 * row 0. */
static int order_rows(const struct rp_deal *deal, const uint64_t *cost, uint32_t rows,
                      uint32_t *order)
{
    for (uint64_t row = 0; row < rows; row += deal->window) {
        uint32_t count = (uint32_t)rp_min_u64(deal->window, rows - row);
        int code = rp_deal_order(deal, cost + row, count, order + row, NULL);
        if (code < 0)
            return code;
        for (uint32_t i = 0; i < count; i++)
            order[row + i] += (uint32_t)row;
    }
    return 0;
}

/* Windows may end inside a step of the shape, so the order of all rows is made first. */
int rp_balance_dealt(struct rp_balance *balance, const struct rp_balance_shape *shape,
                     const struct rp_deal *deal, const uint64_t *cost, uint32_t rows)
{
    if (!deal || deal->window == 0) {
        rp_balance_add(balance, shape, cost, NULL, rows);
        return 0;
    }
    uint32_t *order = rp_calloc(rows, sizeof *order);
    int code = order ? order_rows(deal, cost, rows, order) : -ENOMEM;
    if (code >= 0)
        rp_balance_add(balance, shape, cost, order, rows);
    free(order);
    return code;
}

double rp_balance_of_micro_steps(const struct rp_balance *balance,
                                 const struct rp_balance_shape *shape)
{
    if (balance->total == 0)
        return 1;
    return (double)balance->micro_step * shape->ranks / (double)balance->total;
}
