/* SPDX-License-Identifier: Apache-2.0 */
/* key_tables.c — the rows of key.h as tables. */
#include "base/bits.h"
#include "config/key.h"

const struct rp_key rp_config_key_table[RP_KEY_COUNT] = {
#define RP_CONFIG_ROW(...) RP_KEY_ROW(rp_config, __VA_ARGS__)
    RP_CONFIG_KEYS(RP_CONFIG_ROW)
#undef RP_CONFIG_ROW
};

const struct rp_key rp_source_key_table[RP_SOURCE_KEY_COUNT] = {
#define RP_SOURCE_ROW(...) RP_KEY_ROW(rp_config_source, __VA_ARGS__)
    RP_SOURCE_KEYS(RP_SOURCE_ROW)
#undef RP_SOURCE_ROW
};
const struct rp_key rp_stage_key_table[RP_STAGE_KEY_COUNT] = {
#define RP_STAGE_ROW(...) RP_KEY_ROW(rp_config_stage, __VA_ARGS__)
    RP_STAGE_KEYS(RP_STAGE_ROW)
#undef RP_STAGE_ROW
};
static const struct rp_key deal_keys[] = {
#define RP_DEAL_ROW(...) RP_KEY_ROW(rp_config_deal, __VA_ARGS__)
    RP_DEAL_KEYS(RP_DEAL_ROW)
#undef RP_DEAL_ROW
};
static const struct rp_key cost_keys[] = {
#define RP_COST_ROW(...) RP_KEY_ROW(rp_config_cost, __VA_ARGS__)
    RP_COST_KEYS(RP_COST_ROW)
#undef RP_COST_ROW
};
static const struct rp_key limits_keys[] = {
#define RP_LIMITS_ROW(...) RP_KEY_ROW(rp_config_limits, __VA_ARGS__)
    RP_LIMITS_KEYS(RP_LIMITS_ROW)
#undef RP_LIMITS_ROW
};
const struct rp_key_list rp_config_key_list = {rp_config_key_table, RP_KEY_COUNT};
const struct rp_key_list rp_source_key_list = {rp_source_key_table, RP_SOURCE_KEY_COUNT};
const struct rp_key_list rp_stage_key_list = {rp_stage_key_table, RP_STAGE_KEY_COUNT};
const struct rp_key_list rp_deal_key_list = {deal_keys, RP_ARRAY_COUNT(deal_keys)};
const struct rp_key_list rp_cost_key_list = {cost_keys, RP_ARRAY_COUNT(cost_keys)};
const struct rp_key_list rp_limits_key_list = {limits_keys, RP_ARRAY_COUNT(limits_keys)};
