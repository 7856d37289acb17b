/* SPDX-License-Identifier: Apache-2.0 */
#include "declared.h"

#include <stdlib.h>

#include "base/text.h"
#include "cmd.h"
#include "config/config.h"
#include "config/key.h"
#include "interrupt.h"
#include "object/url.h"

bool rp_declared_take_format(const char *text, void *place)
{
    return rp_format_parse(text, place);
}

bool rp_declared_take_type(const char *text, void *place)
{
    return rp_token_type_parse(text, place);
}

bool rp_declared_take_eos(const char *text, void *place)
{
    uint64_t eos;
    if (!rp_text_u64(text, &eos) || eos > INT64_MAX)
        return false;
    *(int64_t *)place = (int64_t)eos;
    return true;
}

/* Expand a path as the config expands the shards of a source. */
static int find_shards(const char *path, struct rp_config_source *found)
{
    struct rp_error error;
    int code = rp_config_source_add_shard(found, NULL, path, &error);
    if (code >= 0)
        code = rp_config_source_expand(found, (struct rp_key_place){0}, &error);
    return code < 0 ? rp_cmd_report(&error) : RP_EXIT_FINE;
}

static int handle(const struct rp_declared_verb *verb, const struct rp_declared *declared,
                  const char *path, json_t *list)
{
    char *name = rp_url_is(path) ? rp_url_name(path) : NULL;
    int status = verb->one(path, name ? name : path, declared, list);
    free(name);
    return status;
}

/* After the last file. Takes `list`. */
static int end_walk(const struct rp_declared_verb *verb, const struct rp_declared *declared,
                    json_t *list, int status)
{
    if (verb->end && verb->end(declared, list) != RP_EXIT_FINE)
        status = RP_EXIT_TROUBLE;
    if (declared->json)
        rp_cmd_print_json(list);
    else
        json_decref(list);
    return status;
}

static int walk(const struct rp_declared_verb *verb, const struct rp_declared *declared)
{
    json_t *list = json_array();
    int status = RP_EXIT_FINE;
    for (size_t i = 0; i < declared->line.count && !rp_interrupted(); i++) {
        struct rp_config_source found = {0};
        if (find_shards(declared->line.words[i], &found) != RP_EXIT_FINE)
            status = RP_EXIT_TROUBLE; /* continue with the other paths */
        else
            for (uint32_t k = 0; k < found.shard_count && !rp_interrupted(); k++)
                if (handle(verb, declared, found.shards[k], list) != RP_EXIT_FINE)
                    status = RP_EXIT_TROUBLE;
        rp_config_source_free(&found);
    }
    return end_walk(verb, declared, list, status);
}

int rp_declared_sources(const struct rp_declared_verb *verb, const struct rp_declared *common,
                        const struct rp_source_spec *sources, uint32_t source_count)
{
    struct rp_declared declared = *common;
    declared.state = verb->state;
    json_t *list = json_array();
    int status = RP_EXIT_FINE;
    for (uint32_t i = 0; i < source_count; i++) {
        declared.hints = sources[i];
        for (uint32_t k = 0; k < sources[i].shard_count && !rp_interrupted(); k++)
            if (handle(verb, &declared, sources[i].shards[k], list) != RP_EXIT_FINE)
                status = RP_EXIT_TROUBLE;
    }
    return end_walk(verb, &declared, list, status);
}

int rp_declared_run(const struct rp_declared_verb *verb, struct rp_declared *declared)
{
    declared->state = verb->state;
    const struct rp_cmd_line *line = &declared->line;
    for (size_t i = 0; i < line->count; i++)
        if (!*line->words[i])
            return rp_cmd_misuse(line->verb->name, "expected a path, found an empty text");
    return walk(verb, declared);
}
