/* SPDX-License-Identifier: Apache-2.0 */
/* sources.c — the list of sources of a config, and the shards of one. */
#include <errno.h>

#include "base/mem.h"
#include "config/key.h"

struct rp_config_source *rp_config_add_source(struct rp_config *config)
{
    struct rp_config_source *source = RP_APPEND(config->sources, config->source_count);
    if (source)
        rp_key_set_standards(&rp_source_key_list, source);
    return source;
}

int rp_config_source_add_shard(struct rp_config_source *source, const char *directory,
                               const char *path, struct rp_error *error)
{
    char *copy = rp_config_path_behind(directory, path);
    char **shard = copy ? RP_APPEND(source->shards, source->shard_count) : NULL;
    if (!shard) {
        free(copy);
        return rp_fail(error, -ENOMEM, NULL, "out of memory while listing shards");
    }
    *shard = copy;
    return 0;
}

void rp_config_source_free(struct rp_config_source *source)
{
    for (uint32_t i = 0; i < source->shard_count; i++)
        free(source->shards[i]);
    for (uint32_t i = 0; i < source->pattern_count; i++)
        free(source->patterns[i]);
    free(source->shards);
    free(source->patterns);
    rp_key_free_nested(&rp_source_key_table[RP_SOURCE_KEY_repeat], source);
    rp_key_free_texts(&rp_source_key_list, source);
    *source = (struct rp_config_source){0};
}
