/* SPDX-License-Identifier: Apache-2.0 */
/* lifetime.c — the defaults of a config, and freeing it. */

#include "base/bits.h"
#include "base/mem.h"
#include "config/cost.h"
#include "config/key.h"

_Static_assert(RP_KEY_COUNT <= RP_CONFIG_KEYS_MAX, "struct rp_config.lines has room for every key");
_Static_assert(RP_SOURCE_KEY_COUNT <= RP_CONFIG_SOURCE_KEYS_MAX &&
                   RP_STAGE_KEY_COUNT <= RP_CONFIG_STAGE_KEYS_MAX,
               "places have room for every key");
_Static_assert(RP_DTYPE_U16 == 1 && RP_DTYPE_I32 == 2 && RP_DTYPE_I64 == 3,
               "the words of token_dtype are in the order of enum rp_dtype");

void rp_config_init(struct rp_config *config)
{
    *config = (struct rp_config){0};
    rp_key_set_standards(&rp_config_key_list, config);
    rp_config_cost_set_standard(&config->cost);
}

void rp_config_free_sources(struct rp_config *config)
{
    for (uint32_t i = 0; i < config->source_count; i++)
        rp_config_source_free(&config->sources[i]);
    free(config->sources);
    config->sources = NULL;
    config->source_count = 0;
}

void rp_config_free(struct rp_config *config)
{
    static const enum rp_key_index nested[] = {RP_KEY_removed, RP_KEY_deal, RP_KEY_stages,
                                               RP_KEY_skip, RP_KEY_streams};
    rp_config_free_sources(config);
    for (size_t i = 0; i < RP_ARRAY_COUNT(nested); i++)
        rp_key_free_nested(&rp_config_key_table[nested[i]], config);
    rp_key_free_texts(&rp_config_key_list, config);
    free(config->batches.stages);
    free(config->path);
    free(config->called);
    free(config->text);
    free(config->given);
    *config = (struct rp_config){0};
}
