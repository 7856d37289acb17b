/* SPDX-License-Identifier: Apache-2.0 */
/* config.c — the defaults of keys, setting a key, and freeing a config. */
#include "config/config.h"

#include <errno.h>
#include <string.h>

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
    rp_key_set_standards(rp_config_key_table, RP_KEY_COUNT, config);
    rp_config_cost_set_standard(&config->cost);
}

static void free_sources(struct rp_config *config)
{
    for (uint32_t i = 0; i < config->source_count; i++)
        rp_config_source_free(&config->sources[i]);
    free(config->sources);
    config->sources = NULL;
    config->source_count = 0;
}

/* --sources a.bin,b.bin: every element is a source with that one shard. The first such option
 * replaces the sources of the file; further ones add to it. */
static int set_sources(struct rp_config *config, const char *text, bool again,
                       struct rp_error *error)
{
    if (!again)
        free_sources(config);
    char *copy = strdup(text), *rest = copy;
    if (!copy)
        return rp_fail(error, -ENOMEM, NULL, "out of memory while listing sources");
    int code = 0;
    for (char *path; code == 0 && (path = strsep(&rest, ",")) != NULL;) {
        struct rp_config_source *source = rp_config_add_source(config);
        if (!source)
            code = rp_fail(error, -ENOMEM, NULL, "out of memory while listing sources");
        else if (!*path)
            code = rp_fail(error, -RP_E_CONFIG, NULL,
                           "sources: expected paths separated by commas, found `%.200s`", text);
        else
            code = rp_config_source_add_shard(source, NULL, path, error);
    }
    free(copy);
    return code;
}

int rp_config_set(struct rp_config *config, const char *name, const char *text,
                  struct rp_error *error)
{
    static const struct rp_key_place option = {0};
    const struct rp_key *key;
    int code = rp_key_find(rp_config_key_table, RP_KEY_COUNT, name, option, &key, error);
    if (code < 0)
        return code;
    rp_key_tell_older(config, key, name);
    uint32_t *line = &config->lines[key - rp_config_key_table];
    if (key->kind == RP_KIND_SOURCES)
        code = set_sources(config, text, *line == RP_CONFIG_OPTION, error);
    else if (rp_key_is_nested(key))
        code = rp_config_set_nested(config, key, text, error);
    else
        code = rp_key_set(key, config, text, option, error);
    if (code == 0)
        code = rp_config_note_given(config, key, text, error);
    if (code == 0)
        *line = RP_CONFIG_OPTION;
    return code;
}

void rp_config_free(struct rp_config *config)
{
    static const enum rp_key_index nested[] = {RP_KEY_deal, RP_KEY_stages, RP_KEY_skip};
    free_sources(config);
    for (size_t i = 0; i < RP_ARRAY_COUNT(nested); i++)
        rp_key_free_nested(&rp_config_key_table[nested[i]], config);
    rp_key_free_texts(rp_config_key_table, RP_KEY_COUNT, config);
    free(config->path);
    free(config->called);
    free(config->text);
    free(config->given);
    *config = (struct rp_config){0};
}
