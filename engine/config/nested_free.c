/* SPDX-License-Identifier: Apache-2.0 */
/* nested_free.c — free the nested values of a config (stages.h). */
#include <string.h>

#include "base/mem.h"
#include "config/key.h"

static void free_by_source(struct rp_config_by_source *map)
{
    for (uint32_t i = 0; i < map->count; i++) {
        free(map->pairs[i].name);
        free(map->pairs[i].path);
    }
    free(map->pairs);
}

static void free_stages(struct rp_config_stages *stages)
{
    for (uint32_t i = 0; i < stages->count; i++)
        for (size_t key = 0; key < RP_STAGE_KEY_COUNT; key++)
            if (rp_key_is_nested(&rp_stage_key_table[key]))
                rp_key_free_nested(&rp_stage_key_table[key], &stages->stages[i]);
    free(stages->stages);
}

static void free_repeats(struct rp_config_repeats *repeats)
{
    for (uint32_t i = 0; i < repeats->count; i++)
        free(repeats->entries[i].expression);
    free(repeats->entries);
}

static void free_skip(struct rp_config_skip *skip)
{
    free(skip->rows.ranges);
    free(skip->steps.ranges);
    free(skip->all.ranges);
}

static void free_streams(struct rp_config_streams *streams)
{
    for (uint32_t i = 0; i < streams->count; i++) {
        free(streams->streams[i].name);
        rp_free_secret(streams->streams[i].keys);
    }
    free(streams->streams);
}

void rp_key_free_nested(const struct rp_key *key, void *object)
{
    void *field = (char *)object + key->offset;
    switch (key->kind) {
    case RP_KIND_UNTIL:
    case RP_KIND_DEAL:
    case RP_KIND_COST:
        break; /* on no heap */
    case RP_KIND_SKIP:
        free_skip(field);
        break;
    case RP_KIND_REPEAT:
        free_repeats(field);
        break;
    case RP_KIND_STAGES:
        free_stages(field);
        break;
    case RP_KIND_STREAMS:
        free_streams(field);
        break;
    default:
        free_by_source(field);
        break;
    }
    memset(field, 0, key->size);
}
