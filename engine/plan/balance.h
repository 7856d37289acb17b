/* SPDX-License-Identifier: Apache-2.0 */
/* balance.h — the time that ranks lose by waiting for each other, of a list of rows with costs.
 *
 * Rows are in the order of delivery, and the first of them begins a step: rows of a step go to
 * ranks as STREAM2.md section 10.2 has it. All sums are of integers, so every node finds the same
 * figures. Pure functions. */
#ifndef RP_PLAN_BALANCE_H
#define RP_PLAN_BALANCE_H

#include <stdint.h>

#include "base/fail.h"
#include "plan/v2/spec.h"

__extension__ typedef unsigned __int128 rp_cost_sum;

/* A step: `step` rows, a multiple of ranks · bundle. */
struct rp_balance_shape {
    uint32_t ranks;  /* that get other rows: data-parallel ones */
    uint32_t bundle; /* rows of a micro-batch */
    uint32_t step;
};

/* Sums over whole steps. A barrier waits for the costliest rank. */
struct rp_balance {
    uint64_t steps;
    rp_cost_sum total;      /* sum over all rows */
    rp_cost_sum step;       /* each step's costliest rank: a barrier for each step (DDP) */
    rp_cost_sum micro_step; /* each micro-step's costliest micro-batch: a barrier for each
                             * micro-step (FSDP, expert parallel) */
    rp_cost_sum largest;    /* each step's costliest micro-batch */
};

/** Count the whole steps at the beginning of a list. order[i] is the row at place i; NULL: rows are
 * in their own order. */
void rp_balance_add(struct rp_balance *balance, const struct rp_balance_shape *shape,
                    const uint64_t *cost, const uint32_t *order, uint32_t rows);

/** rp_balance_add with windows dealt. NULL or a window of 0 rows: without deal. The only error is
 * -ENOMEM. */
RP_MUST_CHECK int rp_balance_dealt(struct rp_balance *balance, const struct rp_balance_shape *shape,
                                   const struct rp_deal *deal, const uint64_t *cost, uint32_t rows);

/** The time of micro_step over the time in perfect balance, >= 1; 1 without a step or a cost. */
double rp_balance_of_micro_steps(const struct rp_balance *balance,
                                 const struct rp_balance_shape *shape);

#endif
