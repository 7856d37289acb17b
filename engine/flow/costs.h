/* SPDX-License-Identifier: Apache-2.0 */
/* costs.h — costs of published batches by rank, and the waiting that follows from them.
 *
 * The holder of the turn to deliver (deliver.h) adds to them. A micro-step counts if all local
 * ranks got it together: not if a rank got it from another flow, or from an earlier start. */
#ifndef RP_FLOW_COSTS_H
#define RP_FLOW_COSTS_H

#include <stdbool.h>
#include <stdint.h>

struct rp_rank_cost {
    double cost, newest;   /* all batches; the newest one */
    double together;       /* in micro-steps that count */
    uint64_t without_cost; /* batches that have no cost */
};

struct rp_flow_costs {
    struct rp_rank_cost *ranks; /* [rank_count] */
    double slowest;             /* sum of the costliest batch of each micro-step that counts */
};

/* Ratios to the time of ranks of equal cost, at least 1. 0: not known, as with one rank. */
struct rp_flow_imbalance {
    double ranks;      /* the costliest rank in all, over the mean one */
    double micro_step; /* with a barrier for each micro-step */
};

void rp_costs_add_batch(struct rp_rank_cost *rank, bool has_cost, uint64_t cost);
/** After the batches of a micro-step. */
void rp_costs_add_micro_step(struct rp_flow_costs *costs, uint32_t rank_count);
/** Add a rank's batches of another flow. */
void rp_costs_join(struct rp_rank_cost *rank, const struct rp_rank_cost *other);
struct rp_flow_imbalance rp_costs_imbalance(const struct rp_flow_costs *costs, uint32_t rank_count);

#endif
