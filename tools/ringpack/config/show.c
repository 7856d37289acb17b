/* SPDX-License-Identifier: Apache-2.0 */
/* show.c — `ringpack config show`: the value of each key, the line or option that set it, and
 * whether it may change when the run resumes. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/contract.h"
#include "base/hide.h"
#include "base/mem.h"
#include "base/text.h"
#include "cmd.h"
#include "config/keys.h"

#define SOURCES "sources"
#define STAGES "stages"
#define STREAMS "streams"

const char *rp_keys_at_resume(const char *key)
{
    static const struct {
        const char *key, *words;
    } others[] = {
        {"align", "must stay"}, /* in the first stage, as all keys that a stage may set */
        {"spread", "must stay"},
        {"deal", "must stay"},
        {"cost", "may change, a deal keeps the cost that it began with"},
        {"stages", "may change, if they are not begun"},
        {"skip", "may change, for rows that are ahead"},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strcmp(others[i].key, key))
            return others[i].words;
    return rp_contract_may_differ(key) & (RP_AT_RESUME | RP_AT_EXTENSION) ? "may change"
                                                                          : "must stay";
}

const char *rp_keys_of_source_at_resume(const char *key)
{
    static const struct {
        const char *key, *words;
    } others[] = {
        {"name", "must stay (version 1: may change)"},
        {"weight", "may change, at a stage (version 1: with --accept-weights)"},
        {"shards", "may change, if the files hold the same"},
        {"mask", "may change, if the same tokens are trained"},
        {"mask_value", "may change, if the same tokens are trained"},
        {"mask_of", "may change, if the same tokens are trained"},
        {"max_epochs", "may change, until it is reached"},
        {"max_tokens", "may change, until it is reached"},
        {"on_exhausted", "may change, until a limit is reached"},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strcmp(others[i].key, key))
            return others[i].words;
    return "must stay";
}

void rp_keys_value(const struct rp_config *config, size_t i, char *text, size_t bytes)
{
    const struct rp_config_key *key = &rp_config_keys()[i];
    if (config->lines[i] == 0)
        snprintf(text, bytes, "%s", key->standard);
    else
        rp_config_value_text(config, key->name, text, bytes);
}

/* The same for a key of a source; false if it has its default. */
static bool source_value(const struct rp_config_source *source, const struct rp_config_key *key,
                         char text[RP_KEYS_VALUE_BYTES])
{
    rp_config_source_value_text(source, key->name, text, RP_KEYS_VALUE_BYTES);
    return text[0] != '\0' && strcmp(text, key->standard) != 0;
}

/* The origin of the value of a key: "c.yaml:3", "--seq-len", "default". */
static void write_origin(const struct rp_config *config, size_t i, char *text, size_t bytes)
{
    uint32_t line = config->lines[i];
    if (line == RP_CONFIG_OPTION) {
        snprintf(text, bytes, "--%s", rp_config_keys()[i].name);
        for (char *c = text; *c; c++)
            *c = *c == '_' ? '-' : *c;
    } else if (line > 0) {
        snprintf(text, bytes, "%s:%" PRIu32, config->called, line);
    } else {
        snprintf(text, bytes, "default");
    }
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *source_json(const struct rp_config_source *source)
{
    char value[RP_KEYS_VALUE_BYTES];
    json_t *object = json_object(), *shards = json_array();
    for (const struct rp_config_key *key = rp_config_source_keys(); key->name; key++)
        if (strcmp(key->name, "path") != 0 && strcmp(key->name, "shards") != 0 &&
            source_value(source, key, value))
            json_object_set_new(object, key->name, rp_cmd_json_text(value));
    for (uint32_t i = 0; i < source->shard_count; i++)
        json_array_append_new(shards, rp_cmd_json_text(source->shards[i]));
    json_object_set_new(object, "shards", shards);
    return object;
}

char *rp_keys_stage(const struct rp_config *config, uint32_t stage)
{
    char *text = rp_calloc(1, RP_KEYS_STAGE_BYTES);
    if (text)
        rp_config_stage_text(config, stage, text, RP_KEYS_STAGE_BYTES);
    return text;
}

static json_t *stages_json(const struct rp_config *config)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < config->stages.count; i++) {
        char *text = rp_keys_stage(config, i);
        json_array_append_new(list, rp_cmd_json_text(text ? text : ""));
        free(text);
    }
    return list;
}

static json_t *streams_json(const struct rp_config *config)
{
    json_t *object = json_object();
    for (uint32_t i = 0; i < config->streams.count; i++) {
        char *keys = strdup(config->streams.streams[i].keys);
        if (keys)
            (void)rp_hide_in_value(keys);
        json_object_set_new(object, config->streams.streams[i].name,
                            rp_cmd_json_text(keys ? keys : ""));
        rp_free_secret(keys);
    }
    return object;
}

static json_t *value_json(const struct rp_config *config, size_t i)
{
    const struct rp_config_key *key = &rp_config_keys()[i];
    char value[RP_KEYS_VALUE_BYTES];
    if (!strcmp(key->name, SOURCES)) {
        json_t *list = json_array();
        for (uint32_t s = 0; s < config->source_count; s++)
            json_array_append_new(list, source_json(&config->sources[s]));
        return list;
    }
    if (!strcmp(key->name, STAGES))
        return stages_json(config);
    if (!strcmp(key->name, STREAMS) && config->streams.count)
        return streams_json(config);
    rp_keys_value(config, i, value, sizeof value);
    bool is_described = config->lines[i] == 0 && key->standard[0] == '(';
    return is_described ? json_null() : rp_cmd_json_text(value);
}

static void add_json(json_t *all, const struct rp_config *config, size_t i)
{
    const struct rp_config_key *key = &rp_config_keys()[i];
    char origin[RP_KEYS_VALUE_BYTES];
    write_origin(config, i, origin, sizeof origin);
    json_object_set_new(all, key->name,
                        json_pack("{s:o, s:o, s:b, s:s}", "value", value_json(config, i), "from",
                                  rp_cmd_json_text(origin), "given", config->lines[i] != 0,
                                  "at_resume", rp_keys_at_resume(key->name)));
}

/* ---- for people ------------------------------------------------------------------------------ */

static void print_source(const struct rp_config_source *source)
{
    char value[RP_KEYS_VALUE_BYTES];
    const char *lead = "  - ";
    for (const struct rp_config_key *key = rp_config_source_keys(); key->name; key++) {
        if (!strcmp(key->name, "path") || !source_value(source, key, value))
            continue;
        printf("%s%s: %s\n", lead, key->name, value);
        lead = "    ";
    }
}

static void print_stages(const struct rp_config *config)
{
    for (uint32_t i = 0; i < config->stages.count; i++) {
        char *text = rp_keys_stage(config, i);
        printf("  - %s\n", text ? text : "");
        free(text);
    }
}

static void print_key(const struct rp_config *config, size_t i)
{
    const struct rp_config_key *key = &rp_config_keys()[i];
    char value[RP_KEYS_VALUE_BYTES] = "", origin[RP_KEYS_VALUE_BYTES];
    bool is_sources = !strcmp(key->name, SOURCES);
    bool is_stages = config->stages.count && !strcmp(key->name, STAGES);
    write_origin(config, i, origin, sizeof origin);
    if (!is_sources && !is_stages)
        rp_keys_value(config, i, value, sizeof value);
    printf("%-22s %-18s %-12s %s\n", key->name, origin,
           is_sources ? "must stay" : rp_keys_at_resume(key->name), value);
    for (uint32_t s = 0; is_sources && s < config->source_count; s++)
        print_source(&config->sources[s]);
    if (is_stages)
        print_stages(config);
}

static int find_key(const char *word, size_t *index_out)
{
    struct rp_text_near near = {.word = word};
    const struct rp_config_key *keys = rp_config_keys();
    for (size_t i = 0; keys[i].name; i++) {
        if (!strcmp(keys[i].name, word)) {
            *index_out = i;
            return RP_EXIT_FINE;
        }
        rp_text_offer(&near, keys[i].name);
    }
    if (near.best)
        return rp_cmd_misuse("config", "show: there is no key `%s`; did you mean `%s`?", word,
                             near.best);
    return rp_cmd_misuse("config", "show: there is no key `%s`", word);
}

/* The bare value of one key, for scripts; empty without a value. */
static int print_value(const struct rp_config *config, size_t i)
{
    char value[RP_KEYS_VALUE_BYTES];
    if (!strcmp(rp_config_keys()[i].name, SOURCES)) {
        for (uint32_t s = 0; s < config->source_count; s++)
            print_source(&config->sources[s]);
        return RP_EXIT_FINE;
    }
    if (!strcmp(rp_config_keys()[i].name, STAGES)) {
        print_stages(config);
        return RP_EXIT_FINE;
    }
    rp_keys_value(config, i, value, sizeof value);
    if (config->lines[i] != 0 || value[0] != '(')
        printf("%s\n", value);
    return RP_EXIT_FINE;
}

static int show_all(const struct rp_keys_arguments *arguments, const struct rp_config *config)
{
    json_t *all = arguments->json ? json_object() : NULL;
    if (!all)
        printf("%-22s %-18s %-12s %s\n", "key", "from", "at a resume", "value");
    for (size_t i = 0; rp_config_keys()[i].name; i++) {
        if (all)
            add_json(all, config, i);
        else
            print_key(config, i);
    }
    if (all)
        rp_cmd_print_json(all);
    return RP_EXIT_FINE;
}

int rp_keys_show(const struct rp_keys_arguments *arguments, const struct rp_config *config)
{
    if (arguments->word_count == 0)
        return show_all(arguments, config);
    size_t index[RP_KEYS_WORDS_MAX];
    for (size_t i = 0; i < arguments->word_count; i++) {
        int status = find_key(arguments->words[i], &index[i]);
        if (status != RP_EXIT_FINE)
            return status;
    }
    if (!arguments->json && arguments->word_count == 1)
        return print_value(config, index[0]);
    json_t *some = arguments->json ? json_object() : NULL;
    for (size_t i = 0; i < arguments->word_count; i++) {
        if (some)
            add_json(some, config, index[i]);
        else
            print_key(config, index[i]);
    }
    if (some)
        rp_cmd_print_json(some);
    return RP_EXIT_FINE;
}
