/* SPDX-License-Identifier: Apache-2.0 */
#include "flow/costs.h"

void rp_costs_add_batch(struct rp_rank_cost *rank, bool has_cost, uint64_t cost)
{
    rank->newest = has_cost ? (double)cost : 0;
    rank->cost += rank->newest;
    rank->without_cost += !has_cost;
}

void rp_costs_add_micro_step(struct rp_flow_costs *costs, uint32_t rank_count)
{
    double slowest = 0;
    for (uint32_t r = 0; r < rank_count; r++) {
        struct rp_rank_cost *rank = &costs->ranks[r];
        rank->together += rank->newest;
        slowest = rank->newest > slowest ? rank->newest : slowest;
    }
    costs->slowest += slowest;
}

void rp_costs_join(struct rp_rank_cost *rank, const struct rp_rank_cost *other)
{
    rank->cost += other->cost;
    rank->without_cost += other->without_cost;
}

struct rp_flow_imbalance rp_costs_imbalance(const struct rp_flow_costs *costs, uint32_t rank_count)
{
    double sum = 0, most = 0;
    for (uint32_t r = 0; r < rank_count; r++) {
        const struct rp_rank_cost *rank = &costs->ranks[r];
        if (rank->without_cost > 0)
            return (struct rp_flow_imbalance){0};
        sum += rank->together;
        most = rank->together > most ? rank->together : most;
    }
    if (rank_count == 1 || !(sum > 0))
        return (struct rp_flow_imbalance){0};
    return (struct rp_flow_imbalance){most * rank_count / sum, costs->slowest * rank_count / sum};
}
