/* SPDX-License-Identifier: Apache-2.0 */
/* cost.h — the key `cost` of a config: K as measured, or from the numbers of a model. Private to
 * engine/config. */
#ifndef RP_CONFIG_COST_H
#define RP_CONFIG_COST_H

#include "config/key.h"

#define RP_COST_KEYS_MAX 16

void rp_config_cost_set_standard(struct rp_config_cost *cost);

/** Check the values as given, and set cost->cost. `places` has the place of each key that was
 * given, as in rp_cost_key_list. */
RP_MUST_CHECK int rp_config_cost_finish(struct rp_config_cost *cost,
                                        const struct rp_config_place *places,
                                        struct rp_key_place place, struct rp_error *error);

/** Refuse a deal whose own cost is not that of the key `cost`, if both are given: batches and
 * reports would show costs by which rows were not dealt. */
RP_MUST_CHECK int rp_config_check_costs(const struct rp_config *config, struct rp_error *error);

#endif
