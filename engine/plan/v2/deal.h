/* SPDX-License-Identifier: Apache-2.0 */
/* deal.h — the order in which the rows of a deal window are delivered (STREAM2.md section 8). Pure
 * functions; `deal` was checked by rp_calendar_open. Costs of rows are of base/cost.h. */
#ifndef RP_PLAN_V2_DEAL_H
#define RP_PLAN_V2_DEAL_H

#include "plan/v2/spec.h"

/** The word of a config and of a contract. */
const char *rp_deal_order_name(enum rp_deal_order order);

/** Set places[t] to the place of tier t of a step, for t < tiers. */
void rp_deal_places(enum rp_deal_order order, uint32_t tiers, uint32_t *places);

/** Bytes of scratch memory for a window of `rows` rows. */
size_t rp_deal_scratch_bytes(uint32_t rows);

/** Set order[i] to the planned row (from 0) that is delivered at place i of a window of `rows` rows
 * with these costs. `scratch` has rp_deal_scratch_bytes(rows), aligned as by malloc. NULL: it is
 * allocated here, and the only error is -ENOMEM. */
int rp_deal_order(const struct rp_deal *deal, const uint64_t *cost, uint32_t rows, uint32_t *order,
                  void *scratch);

#endif
