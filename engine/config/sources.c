/* SPDX-License-Identifier: Apache-2.0 */
/* sources.c — the list of sources of a config, and the shards of one. */
#include <errno.h>

#include "base/bits.h"
#include "base/mem.h"
#include "config/key.h"

struct rp_config_source *rp_config_add_source(struct rp_config *config)
{
    size_t count = config->source_count;
    struct rp_config_source *grown = reallocarray(config->sources, count + 1, sizeof *grown);
    if (!grown)
        return NULL;
    config->sources = grown;
    struct rp_config_source *source = &grown[config->source_count++];
    *source = (struct rp_config_source){0};
    rp_key_set_standards(&rp_source_key_list, source);
    return source;
}

int rp_config_source_add_shard(struct rp_config_source *source, const char *directory,
                               const char *path, struct rp_error *error)
{
    static const char no_memory[] = "out of memory while listing shards";
    uint32_t count = source->shard_count;
    if (count == 0 || rp_is_pow2(count)) { /* room for the next power of two */
        char **grown = reallocarray(source->shards, count ? 2 * (size_t)count : 1, sizeof *grown);
        if (!grown)
            return rp_fail(error, -ENOMEM, NULL, no_memory);
        source->shards = grown;
    }
    char *copy = rp_config_path_behind(directory, path);
    if (!copy)
        return rp_fail(error, -ENOMEM, NULL, no_memory);
    source->shards[source->shard_count++] = copy;
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
