/* SPDX-License-Identifier: Apache-2.0 */
/* print.c — the keys and their values as texts: for help, for messages, for `ringpack config`. */
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/text.h"
#include "config/cost.h"
#include "config/key.h"

static const char *type_text(const struct rp_key *key)
{
    /* none: one of the words of the key */
    static const char *const texts[] = {[RP_KIND_COUNT] = "number",
                                        [RP_KIND_LENGTH] = "number",
                                        [RP_KIND_SIGNED] = "number",
                                        [RP_KIND_WEIGHT] = "decimal number",
                                        [RP_KIND_BYTES] = "bytes",
                                        [RP_KIND_EPOCHS] = "number | endless",
                                        [RP_KIND_BOOL] = "true | false",
                                        [RP_KIND_TEXT] = "text",
                                        [RP_KIND_UNTIL] = "text",
                                        [RP_KIND_PATH] = "path",
                                        [RP_KIND_RANKS] = "range",
                                        [RP_KIND_SECTIONS] = "list",
                                        [RP_KIND_NAMES] = "list",
                                        [RP_KIND_COMMAND] = "list",
                                        [RP_KIND_SHARDS] = "list",
                                        [RP_KIND_SOURCES] = "list",
                                        [RP_KIND_STAGES] = "list of mappings",
                                        [RP_KIND_DEAL] = "off | auto | mapping",
                                        [RP_KIND_COST] = "number | mapping",
                                        [RP_KIND_SKIP] = "mapping of rows and steps",
                                        [RP_KIND_REPEAT] = "mapping of counts to expressions",
                                        [RP_KIND_WEIGHTS] = "mapping of sources to weights",
                                        [RP_KIND_LIMITS] = "mapping of sources to limits",
                                        [RP_KIND_FILES] = "mapping of sources to paths",
                                        [RP_KIND_NUMBERS] = "mapping of sources to numbers",
                                        [RP_KIND_STREAMS] = "mapping of streams to keys"};
    if (key->kind == RP_KIND_COUNT && key->words)
        return strcmp(key->words, "none") ? "number | auto" : "number | none";
    const char *text = texts[key->kind];
    return text ? text : key->words;
}

/* Threads may race here: all write the same values. */
static const struct rp_config_key *describe(const struct rp_key_list *list,
                                            struct rp_config_key *keys)
{
    for (size_t i = 0; i < list->count && !keys[i].name; i++) {
        const struct rp_key *key = &list->keys[i];
        keys[i] = (struct rp_config_key){key->name, type_text(key), key->standard, key->help};
    }
    return keys;
}

const struct rp_config_key *rp_config_keys(void)
{
    static struct rp_config_key keys[RP_KEY_COUNT + 1];
    return describe(&rp_config_key_list, keys);
}

const struct rp_config_key *rp_config_source_keys(void)
{
    static struct rp_config_key keys[RP_SOURCE_KEY_COUNT + 1];
    return describe(&rp_source_key_list, keys);
}

const struct rp_config_key *rp_config_stage_keys(void)
{
    static struct rp_config_key keys[RP_STAGE_KEY_COUNT + 1];
    return describe(&rp_stage_key_list, keys);
}

const struct rp_config_key *rp_config_deal_keys(void)
{
    static struct rp_config_key keys[16];
    RP_ASSERT(rp_deal_key_list.count < RP_ARRAY_COUNT(keys));
    return describe(&rp_deal_key_list, keys);
}

const struct rp_config_key *rp_config_cost_keys(void)
{
    static struct rp_config_key keys[RP_COST_KEYS_MAX + 1];
    RP_ASSERT(rp_cost_key_list.count < RP_ARRAY_COUNT(keys));
    return describe(&rp_cost_key_list, keys);
}

const struct rp_config_key *rp_config_limits_keys(void)
{
    static struct rp_config_key keys[8];
    RP_ASSERT(rp_limits_key_list.count < RP_ARRAY_COUNT(keys));
    return describe(&rp_limits_key_list, keys);
}

/* The place of a key that is there. */
static size_t known(const struct rp_key_list *list, const char *name)
{
    size_t i = rp_key_index(list, name);
    RP_ASSERT(i < list->count);
    return i;
}

static void print_named(const struct rp_key_list *list, const void *object, const char *name,
                        char *text, size_t bytes)
{
    const struct rp_key *key = &list->keys[known(list, name)];
    if (rp_key_is_nested(key))
        rp_key_print_nested(key, object, text, bytes);
    else
        rp_key_print(key, object, text, bytes);
}

bool rp_config_sections_doubt(const struct rp_config *config, char *text, size_t bytes)
{
    char added[256], dtype[RP_TEXT_WORD_MAX], labels[RP_TEXT_WORD_MAX];
    if (!config->sections_unlisted)
        return false;
    rp_key_print_sections(config->sections_unlisted, added, sizeof added);
    rp_config_value_text(config, "token_dtype", dtype, sizeof dtype);
    rp_config_value_text(config, "label_mode", labels, sizeof labels);
    snprintf(text, bytes,
             "sections: profile %s adds %s to the list; for the list alone, leave `profile` out, "
             "and give `token_dtype: %s` and `label_mode: %s`",
             config->profile, added, dtype, labels);
    return true;
}

void rp_config_value_text(const struct rp_config *config, const char *name, char *text,
                          size_t bytes)
{
    print_named(&rp_config_key_list, config, name, text, bytes);
}

void rp_config_source_value_text(const struct rp_config_source *source, const char *name,
                                 char *text, size_t bytes)
{
    bool is_set = source->places[RP_SOURCE_KEY_max_epochs].line != 0;
    text[0] = '\0';
    if (is_set || strcmp(name, rp_source_key_table[RP_SOURCE_KEY_max_epochs].name) != 0)
        print_named(&rp_source_key_list, source, name, text, bytes);
}

struct rp_config_place rp_config_source_key_place(const struct rp_config_source *source,
                                                  const char *key)
{
    return source->places[known(&rp_source_key_list, key)];
}

bool rp_config_stage_gives(const struct rp_config_stage *stage, const char *key)
{
    return stage->places[known(&rp_stage_key_list, key)].line != 0;
}
