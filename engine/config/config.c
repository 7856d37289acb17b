/* SPDX-License-Identifier: Apache-2.0 */
/* config.c — set a key of a config from text. */
#include "config/config.h"

#include <errno.h>
#include <string.h>

#include "base/mem.h"
#include "config/key_name.h"

/* --sources a.bin,b.bin: every element is a source with that one shard. The first such option
 * replaces the sources of the file; further ones add to it. */
static int set_sources(struct rp_config *config, const char *text, bool again,
                       struct rp_error *error)
{
    if (!again)
        rp_config_free_sources(config);
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
    int code = rp_key_find(&rp_config_key_list, name, option, &key, error);
    if (code < 0)
        return code;
    rp_key_tell_older(config, key, name);
    const struct rp_key *twin = rp_key_twin(&rp_config_key_list, name);
    if (key->kind == RP_KIND_SOURCES)
        code = set_sources(config, text, config->lines[RP_KEY_sources] == RP_CONFIG_OPTION, error);
    else if (rp_key_is_nested(key))
        code = rp_config_set_nested(config, key, text, error);
    else
        code = rp_key_set(key, config, text, option, error);
    if (code == 0 && twin)
        code = rp_key_set(twin, config, text, option, error);
    if (code == 0)
        code = rp_config_note_given(config, key, twin ? name : key->name, text, error);
    if (code < 0)
        return code;
    const struct rp_key *const set[2] = {key, twin};
    for (size_t i = 0; i < 2 && set[i]; i++) {
        size_t number = (size_t)(set[i] - rp_config_key_table);
        config->lines[number] = RP_CONFIG_OPTION;
        config->of_stream[number] = false;
        config->of_window[number] = twin != NULL;
    }
    return 0;
}
