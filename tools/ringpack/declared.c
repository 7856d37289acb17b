/* SPDX-License-Identifier: Apache-2.0 */
/* declared.c — see declared.h. */
#include "declared.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cmd.h"
#include "cmd_options.h"
#include "config/config.h"
#include "config/key.h"
#include "interrupt.h"
#include "object/url.h"

static int take_eos(struct rp_declared *declared, const char *verb, const char *argument)
{
    uint64_t eos;
    if (!rp_text_u64(argument, &eos) || eos > INT64_MAX)
        return rp_cmd_misuse(verb, "--eos: expected a token id, found `%s`", argument);
    declared->hints.eos = (int64_t)eos;
    return 0;
}

/* Returns 0, or RP_EXIT_TROUBLE after reporting a mistake. */
static int take_option(struct rp_declared *declared, const char *verb, int option,
                       const char *argument)
{
    switch (option) {
    case 'f':
        if (!rp_format_parse(argument, &declared->hints.format))
            return rp_cmd_misuse(
                verb, "--format: expected one of auto" RP_DECLARED_FORMATS ", found `%s`",
                argument);
        return 0;
    case 'd':
        if (!rp_token_type_parse(argument, &declared->hints.type))
            return rp_cmd_misuse(verb, "--dtype: expected one of" RP_DECLARED_TYPES ", found `%s`",
                                 argument);
        return 0;
    case 'c':
        declared->hints.column = argument;
        return 0;
    case 'm':
        declared->hints.mask.name = argument;
        return 0;
    case 'v':
        if (strcmp(argument, "train") != 0 && strcmp(argument, "ignore") != 0)
            return rp_cmd_misuse(verb, "--mask-value: expected train or ignore, found `%s`",
                                 argument);
        declared->hints.mask.value = argument;
        return 0;
    case 'o':
        if (strcmp(argument, "token") != 0 && strcmp(argument, "next") != 0)
            return rp_cmd_misuse(verb, "--mask-of: expected token or next, found `%s`", argument);
        declared->hints.mask.of = argument;
        return 0;
    case 'e':
        return take_eos(declared, verb, argument);
    case 'I':
        declared->index_dir = argument;
        return rp_cmd_refuse_url(verb, "index-dir", argument);
    case 'j':
        declared->json = true;
        return 0;
    case 'q':
        declared->quiet = true;
        return 0;
    case 's':
        declared->scan = true;
        return 0;
    default:
        return rp_cmd_misuse(verb, NULL);
    }
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

static int walk(const struct rp_declared_verb *verb, const struct rp_declared *declared,
                char *const *paths, int count)
{
    json_t *list = json_array();
    int status = RP_EXIT_FINE;
    for (int i = 0; i < count && !rp_interrupted(); i++) {
        struct rp_config_source found = {0};
        if (find_shards(paths[i], &found) != RP_EXIT_FINE)
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

int rp_declared_run(const struct rp_declared_verb *verb, int argc, char **argv)
{
    struct rp_declared declared = {.hints = {.eos = RP_EOS_NONE}, .state = verb->state};
    if (rp_cmd_check_getopt(verb->options, argc, argv) != RP_EXIT_FINE)
        return RP_EXIT_TROUBLE;
    for (int option; (option = getopt_long(argc, argv, "qh", verb->options, NULL)) != -1;) {
        if (option == 'h') {
            fputs(verb->help, stdout);
            return RP_EXIT_FINE;
        }
        if (take_option(&declared, verb->name, option, optarg))
            return RP_EXIT_TROUBLE;
    }
    if (optind == argc)
        return rp_cmd_misuse(verb->name, "expected at least one path");
    for (int i = optind; i < argc; i++)
        if (!*argv[i])
            return rp_cmd_misuse(verb->name, "expected a path, found an empty text");
    return walk(verb, &declared, argv + optind, argc - optind);
}
