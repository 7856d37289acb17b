/* SPDX-License-Identifier: Apache-2.0 */
/* diff.c — `ringpack config diff A B`: the keys in which two configs differ, and whether a run of
 * one may resume with the other. Defaults count as given, and nothing is derived, so an explicit
 * default equals a missing line. Sources are compared by their names. */
#include <stdio.h>
#include <string.h>

#include "cmd.h"
#include "config/keys.h"

struct differences {
    json_t *list; /* NULL = print lines */
    size_t count;
};

static void note(struct differences *found, const char *what, const char *had, const char *has,
                 const char *at_resume)
{
    found->count++;
    if (found->list)
        json_array_append_new(found->list,
                              json_pack("{s:o, s:o, s:o, s:s}", "key", rp_cmd_json_text(what),
                                        "first", rp_cmd_json_text(had), "second",
                                        rp_cmd_json_text(has), "at_resume", at_resume));
    else
        printf("%s: %s\n  - %s\n  + %s\n", what, at_resume, had, has);
}

/* A source without a name is known by its first shard, from which its name will be made. */
static const char *name_of(const struct rp_config_source *source)
{
    return source->name ? source->name : source->shard_count > 0 ? source->shards[0] : "";
}

static const struct rp_config_source *find_source(const struct rp_config *config, const char *name)
{
    for (uint32_t i = 0; i < config->source_count; i++)
        if (!strcmp(name_of(&config->sources[i]), name))
            return &config->sources[i];
    return NULL;
}

static void compare_source(struct differences *found, const struct rp_config_source *had,
                           const struct rp_config_source *has)
{
    char first[RP_KEYS_VALUE_BYTES], second[RP_KEYS_VALUE_BYTES], what[RP_KEYS_VALUE_BYTES];
    for (const struct rp_config_key *key = rp_config_source_keys(); key->name; key++) {
        if (!strcmp(key->name, "path"))
            continue; /* the same as shards */
        rp_config_source_value_text(had, key->name, first, sizeof first);
        rp_config_source_value_text(has, key->name, second, sizeof second);
        snprintf(what, sizeof what, "source %.256s: %s", name_of(had), key->name);
        if (strcmp(first, second) != 0)
            note(found, what, first, second, rp_keys_of_source_at_resume(key->name));
    }
}

static void compare_sources(struct differences *found, const struct rp_config *had,
                            const struct rp_config *has)
{
    static const char may_not[] = "must stay";
    for (uint32_t i = 0; i < had->source_count; i++) {
        const char *name = name_of(&had->sources[i]);
        const struct rp_config_source *other = find_source(has, name);
        if (other)
            compare_source(found, &had->sources[i], other);
        else
            note(found, "source", name, "(not there)", may_not);
    }
    for (uint32_t i = 0; i < has->source_count; i++)
        if (!find_source(had, name_of(&has->sources[i])))
            note(found, "source", "(not there)", name_of(&has->sources[i]), may_not);
}

static void compare(struct differences *found, const struct rp_config *had,
                    const struct rp_config *has)
{
    char first[RP_KEYS_VALUE_BYTES], second[RP_KEYS_VALUE_BYTES];
    const struct rp_config_key *keys = rp_config_keys();
    for (size_t i = 0; keys[i].name; i++) {
        if (!strcmp(keys[i].name, "sources"))
            continue;
        rp_keys_value(had, i, first);
        rp_keys_value(has, i, second);
        if (strcmp(first, second) != 0)
            note(found, keys[i].name, first, second, rp_keys_at_resume(keys[i].name));
    }
    compare_sources(found, had, has);
}

int rp_keys_diff(const struct rp_keys_arguments *arguments)
{
    if (arguments->word_count != 2)
        return rp_cmd_misuse("config", "diff: expected two configs, found %zu",
                             arguments->word_count);
    struct rp_config configs[2];
    struct rp_error error;
    int code = 0;
    for (size_t i = 0; i < 2; i++)
        rp_config_init(&configs[i]);
    for (size_t i = 0; i < 2 && code >= 0; i++)
        code = rp_config_read(&configs[i], arguments->words[i], &error);
    struct differences found = {.list = arguments->json ? json_array() : NULL};
    if (code >= 0)
        compare(&found, &configs[0], &configs[1]);
    for (size_t i = 0; i < 2; i++)
        rp_config_free(&configs[i]);
    if (code < 0) {
        json_decref(found.list);
        return rp_cmd_report(&error);
    }
    if (found.list)
        rp_cmd_print_json(found.list);
    return found.count > 0 ? RP_EXIT_DIFFERS : RP_EXIT_FINE;
}
