/* SPDX-License-Identifier: Apache-2.0 */
/* diff.c — `ringpack config diff A B`: the differing keys of two configs, and whether a run of one
 * may resume with the other. Defaults count as given, and no value is derived, so an explicit
 * default equals a missing line. Sources are compared by their names, and by their order, on which
 * the plan of version 1 depends. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "cmd.h"
#include "config/keys.h"

#define SHARDS "shards"
#define TEXT_BYTES RP_KEYS_STAGE_BYTES /* no value is longer than a file of a config */
#define SHOWN_BYTES 400u               /* shown of a longer value, around its first difference */

struct differences {
    json_t *list; /* NULL = print lines */
    size_t count;
    char *first, *second; /* values of both, TEXT_BYTES each */
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

/* The part of a value that is shown; `at`: its first byte that differs. */
static void cut_value(const char *value, size_t at, char shown[RP_KEYS_VALUE_BYTES])
{
    size_t begin = at > SHOWN_BYTES / 4 ? at - SHOWN_BYTES / 4 : 0;
    if (strlen(value) < RP_KEYS_VALUE_BYTES)
        snprintf(shown, RP_KEYS_VALUE_BYTES, "%s", value);
    else
        snprintf(shown, RP_KEYS_VALUE_BYTES, "(from byte %zu on) %.*s", begin, (int)SHOWN_BYTES,
                 value + begin);
}

/* Compare the two values of a key. */
static void compare_values(struct differences *found, const char *what, const char *at_resume)
{
    char had[RP_KEYS_VALUE_BYTES], has[RP_KEYS_VALUE_BYTES];
    size_t at = 0;
    while (found->first[at] && found->first[at] == found->second[at])
        at++;
    if (found->first[at] == found->second[at])
        return;
    cut_value(found->first, at, had);
    cut_value(found->second, at, has);
    note(found, what, had, has, at_resume);
}

/* A source without a name is known by its first shard, which will give it its name. */
static const char *name_of(const struct rp_config_source *source)
{
    return source->name ? source->name : source->shard_count > 0 ? source->shards[0] : "";
}

/* The place of a source in the list, from 0; -1 if it is not there. */
static int64_t find_source(const struct rp_config *config, const char *name)
{
    for (uint32_t i = 0; i < config->source_count; i++)
        if (!strcmp(name_of(&config->sources[i]), name))
            return i;
    return -1;
}

/* Entry `i` of the list of shards, and the number of entries unless there is one. */
static void write_shard(const struct rp_config_source *source, uint32_t i,
                        char text[RP_KEYS_VALUE_BYTES])
{
    const char *shard = i < source->shard_count ? source->shards[i] : "(not there)";
    if (source->shard_count == 1)
        snprintf(text, RP_KEYS_VALUE_BYTES, "%s", shard);
    else
        snprintf(text, RP_KEYS_VALUE_BYTES, "(%" PRIu32 " shards) number %" PRIu32 ": %s",
                 source->shard_count, i + 1, shard);
}

/* The entries are compared, and the first that differs is shown: a comma may be part of a name. */
static void compare_shards(struct differences *found, const char *what,
                           const struct rp_config_source *had, const struct rp_config_source *has)
{
    char first[RP_KEYS_VALUE_BYTES], second[RP_KEYS_VALUE_BYTES];
    uint32_t i = 0;
    while (i < had->shard_count && i < has->shard_count && !strcmp(had->shards[i], has->shards[i]))
        i++;
    if (i == had->shard_count && i == has->shard_count)
        return;
    write_shard(had, i, first);
    write_shard(has, i, second);
    note(found, what, first, second, rp_keys_of_source_at_resume(SHARDS));
}

static void compare_source(struct differences *found, const struct rp_config_source *had,
                           const struct rp_config_source *has)
{
    char what[RP_KEYS_VALUE_BYTES];
    for (const struct rp_config_key *key = rp_config_source_keys(); key->name; key++) {
        if (!strcmp(key->name, "path"))
            continue; /* the same as shards */
        snprintf(what, sizeof what, "source %.256s: %s", name_of(had), key->name);
        if (!strcmp(key->name, SHARDS)) {
            compare_shards(found, what, had, has);
            continue;
        }
        rp_config_source_value_text(had, key->name, found->first, TEXT_BYTES);
        rp_config_source_value_text(has, key->name, found->second, TEXT_BYTES);
        compare_values(found, what, rp_keys_of_source_at_resume(key->name));
    }
}

/* A new run without the key is of the newest version. */
static uint32_t version_of(const struct rp_config *config)
{
    return config->stream_version ? config->stream_version : RP_STREAM_VERSION_NEW;
}

/* Version 2 knows sources by their names; version 1 knows their order, and it has no more. */
static const char *in_version_2(const struct rp_config *had, const char *words)
{
    return version_of(had) == 1 ? "must stay" : words;
}

/* Both configs have the same sources. */
static void compare_places(struct differences *found, const struct rp_config *had,
                           const struct rp_config *has)
{
    for (uint32_t i = 0; i < had->source_count; i++) {
        const char *name = name_of(&had->sources[i]);
        int64_t place = find_source(has, name);
        char what[RP_KEYS_VALUE_BYTES], first[24], second[24];
        snprintf(what, sizeof what, "place of source %.256s", name);
        snprintf(first, sizeof first, "%" PRIu32, i + 1);
        snprintf(second, sizeof second, "%" PRId64, place + 1);
        if (place != i)
            note(found, what, first, second, in_version_2(had, "may change"));
    }
}

static void compare_sources(struct differences *found, const struct rp_config *had,
                            const struct rp_config *has)
{
    bool are_same = true;
    for (uint32_t i = 0; i < had->source_count; i++) {
        const char *name = name_of(&had->sources[i]);
        int64_t place = find_source(has, name);
        are_same = are_same && place >= 0;
        if (place >= 0)
            compare_source(found, &had->sources[i], &has->sources[place]);
        else
            note(found, "source", name, "(not there)",
                 in_version_2(had, "may change, once no row needs it (`removed`)"));
    }
    for (uint32_t i = 0; i < has->source_count; i++) {
        if (find_source(had, name_of(&has->sources[i])) >= 0)
            continue;
        are_same = false;
        note(found, "source", "(not there)", name_of(&has->sources[i]),
             in_version_2(had, "may change, at a stage"));
    }
    if (are_same) /* else the places follow from the missing sources */
        compare_places(found, had, has);
}

/* One by one, because the text of all of them is cut. */
static void compare_stages(struct differences *found, const struct rp_config *had,
                           const struct rp_config *has)
{
    uint32_t count = (uint32_t)rp_max_u64(had->stages.count, has->stages.count);
    for (uint32_t i = 0; i < count; i++) {
        char what[32], *first = i < had->stages.count ? rp_keys_stage(had, i) : NULL;
        char *second = i < has->stages.count ? rp_keys_stage(has, i) : NULL;
        snprintf(what, sizeof what, "stage %" PRIu32, i);
        if (!first || !second || strcmp(first, second) != 0)
            note(found, what, first ? first : "(not there)", second ? second : "(not there)",
                 rp_keys_at_resume("stages"));
        free(first);
        free(second);
    }
}

static void compare(struct differences *found, const struct rp_config *had,
                    const struct rp_config *has)
{
    const struct rp_config_key *keys = rp_config_keys();
    for (size_t i = 0; keys[i].name; i++) {
        if (!strcmp(keys[i].name, "sources") || !strcmp(keys[i].name, "stages"))
            continue;
        if (!strcmp(keys[i].name, "stream_version") && version_of(had) == version_of(has))
            continue;
        rp_keys_value(had, i, found->first, TEXT_BYTES);
        rp_keys_value(has, i, found->second, TEXT_BYTES);
        compare_values(found, keys[i].name, rp_keys_at_resume(keys[i].name));
    }
    compare_sources(found, had, has);
    compare_stages(found, had, has);
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
    for (size_t i = 0; i < 2 && code >= 0; i++) {
        code = rp_config_read(&configs[i], arguments->words[i], &error);
        rp_config_settle_window(&configs[i]);
    }
    struct differences found = {.list = arguments->json ? json_array() : NULL,
                                .first = malloc(TEXT_BYTES),
                                .second = malloc(TEXT_BYTES)};
    if (code >= 0 && (!found.first || !found.second))
        code = rp_fail(&error, -ENOMEM, NULL, "out of memory for the values of keys");
    if (code >= 0)
        compare(&found, &configs[0], &configs[1]);
    free(found.first);
    free(found.second);
    for (size_t i = 0; i < 2; i++)
        rp_config_free(&configs[i]);
    return rp_cmd_end_diff(code, found.list, found.count, &error);
}
