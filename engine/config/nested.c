/* SPDX-License-Identifier: Apache-2.0 */
/* nested.c — read the values of a config that are mappings or lists of mappings (stages.h), with
 * the place of each part. Names of sources are looked up later (finish_stages.c), because a source
 * may get its name from its first shard. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem.h"
#include "base/text.h"
#include "config/cost.h"
#include "config/yaml_reader.h"

#define STAGES_MAX 10000u
#define RANGES_MAX (1u << 20)
#define PAIRS_MAX (1u << 20)

static struct rp_config_place in_text(struct rp_key_place place)
{
    return (struct rp_config_place){place.line, place.column};
}

static int must_be(struct rp_yaml *reader, const yaml_node_t *node, yaml_node_type_t type,
                   const struct rp_key *key, const char *expected)
{
    const char *found = rp_yaml_word(node);
    if (node->type == type)
        return 0;
    if (node->type == YAML_SCALAR_NODE)
        return rp_key_expected(rp_yaml_place(reader, node), key, expected,
                               (const char *)node->data.scalar.value, reader->error);
    return rp_key_fail(rp_yaml_place(reader, node), key->name, NULL, reader->error,
                       "expected %s, found %s", expected, found);
}

/* ---- until ----------------------------------------------------------------------------------- */

static int read_until(struct rp_yaml *reader, const struct rp_key *key,
                      struct rp_config_until *until, const yaml_node_t *node)
{
    char number[32], word[16], more;
    const char *text;
    int code = rp_yaml_text(reader, node, key->name, &text);
    if (code < 0)
        return code;
    *until = (struct rp_config_until){RP_UNTIL_NONE, 0};
    if (sscanf(text, " row %31s %c", number, &more) == 1) {
        until->unit = RP_UNTIL_ROW;
    } else if (sscanf(text, " %31s %15s %c", number, word, &more) == 2) {
        if (!strcmp(word, "steps") || !strcmp(word, "step"))
            until->unit = RP_UNTIL_STEPS;
        else if (!strcmp(word, "tokens"))
            until->unit = RP_UNTIL_TOKENS;
    }
    if (until->unit == RP_UNTIL_NONE || !rp_text_count(number, &until->number) ||
        until->number == 0 || until->number > INT64_MAX)
        return rp_key_expected(rp_yaml_place(reader, node), key,
                               "`N steps`, `N tokens` or `row N`, such as 200k steps", text,
                               reader->error);
    return 0;
}

/* ---- deal ------------------------------------------------------------------------------------ */

/* Numbers that are given must fit each other. The job's are checked when a record is made of
 * them: a deal that is begun keeps its own. */
static int check_deal(const struct rp_config_deal *deal, struct rp_key_place place,
                      struct rp_error *error)
{
    const uint32_t parts[] = {deal->window, deal->step, deal->tier, deal->bundle};
    uint32_t given = 0; /* the place in `parts` of the last one that is given */
    for (uint32_t i = 1; i < RP_ARRAY_COUNT(parts); i++) {
        if (!(deal->sets & 1u << i))
            continue;
        if ((deal->sets & 1u << given) && parts[given] % parts[i] != 0)
            return rp_key_fail(place, "deal", NULL, error, "%s %u is no multiple of %s %u",
                               rp_deal_key_list.keys[given].name, parts[given],
                               rp_deal_key_list.keys[i].name, parts[i]);
        given = i;
    }
    if ((deal->sets & RP_DEAL_LAYERS) && !(deal->sets & RP_DEAL_COST))
        return rp_key_fail(place, "deal", "write them into the key `cost` of the config", error,
                           "windows of attention are given without `cost`");
    if (deal->window_layers > deal->layers)
        return rp_key_fail(place, "deal", NULL, error, "window_layers %u are more than layers %u",
                           deal->window_layers, deal->layers);
    return 0;
}

static int read_deal(struct rp_yaml *reader, const struct rp_key *key, struct rp_config_deal *deal,
                     const yaml_node_t *node)
{
    struct rp_key_place place = rp_yaml_place(reader, node);
    struct rp_config_place places[16] = {{0, 0}};
    RP_ASSERT(rp_deal_key_list.count <= RP_ARRAY_COUNT(places));
    *deal = (struct rp_config_deal){.mode = RP_DEAL_OFF, .place = in_text(place)};
    rp_key_set_standards(&rp_deal_key_list, deal);
    if (node->type == YAML_MAPPING_NODE) {
        deal->mode = RP_DEAL_GIVEN;
        int code = rp_yaml_mapping(reader, node, &rp_deal_key_list, deal, places);
        for (size_t i = 0; i < rp_deal_key_list.count; i++)
            deal->sets |= places[i].line ? 1u << i : 0;
        if (code == 0 && deal->sets == 0)
            code = rp_key_fail(place, key->name, "write `deal: auto`", reader->error,
                               "expected a key of a deal, found an empty mapping");
        return code < 0 ? code : check_deal(deal, place, reader->error);
    }
    const char *text = node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value : "";
    int word = rp_word_index(key->words, text);
    if (word < 0)
        return must_be(reader, node, YAML_MAPPING_NODE, key,
                       "off, auto, or a mapping of window, step, tier and cost");
    deal->mode = (enum rp_deal_mode)word;
    return 0;
}

/* ---- cost ------------------------------------------------------------------------------------ */

static int read_cost(struct rp_yaml *reader, const struct rp_key *key, struct rp_config_cost *cost,
                     const yaml_node_t *node)
{
    struct rp_key_place place = rp_yaml_place(reader, node);
    struct rp_config_place places[RP_COST_KEYS_MAX] = {{0, 0}};
    RP_ASSERT(rp_cost_key_list.count <= RP_ARRAY_COUNT(places));
    rp_key_set_standards(&rp_cost_key_list, cost);
    if (node->type == YAML_MAPPING_NODE) {
        int code = rp_yaml_mapping(reader, node, &rp_cost_key_list, cost, places);
        return code < 0 ? code : rp_config_cost_finish(cost, places, place, reader->error);
    }
    const struct rp_key own = {.name = key->name,
                               .kind = RP_KIND_COUNT,
                               .least = key->least,
                               .most = key->most,
                               .offset = offsetof(struct rp_config_cost, k),
                               .size = sizeof cost->k};
    const char *text;
    int code = rp_yaml_number(reader, node, key->name, &text);
    if (code == 0)
        code = rp_key_set(&own, cost, text, place, reader->error);
    if (code == 0)
        code = rp_key_check(&own, cost, place, reader->error);
    return code < 0 ? code : rp_config_cost_finish(cost, places, place, reader->error);
}

/* ---- skip ------------------------------------------------------------------------------------ */

/* `7`, or `7-9` without 9, as in `documents`. */
static int read_range(struct rp_yaml *reader, const char *name, struct rp_config_ranges *ranges,
                      const yaml_node_t *node)
{
    struct rp_key_place place = rp_yaml_place(reader, node);
    const char *text;
    char first[32];
    int code = rp_yaml_number(reader, node, name, &text);
    if (code < 0)
        return code;
    if (ranges->count == RANGES_MAX)
        return rp_key_fail(place, name, NULL, reader->error, "more than %u ranges", RANGES_MAX);
    struct rp_config_range *range = RP_APPEND(ranges->ranges, ranges->count);
    if (!range)
        return rp_key_no_memory(reader->error);
    range->place = in_text(place);
    size_t bytes = strcspn(text, "-");
    snprintf(first, sizeof first, "%.*s", (int)rp_min_u64(bytes, sizeof first - 1), text);
    bool is_read = bytes < sizeof first && rp_text_count(first, &range->first);
    if (is_read && text[bytes] == '-')
        is_read = rp_text_count(text + bytes + 1, &range->end);
    else
        range->end = range->first + 1;
    if (!is_read || range->first >= range->end || range->end > INT64_MAX)
        return rp_key_fail(place, name, NULL, reader->error,
                           "expected a number, or FIRST-END without END, such as 100-200; found "
                           "`%.120s`",
                           text);
    return 0;
}

static int read_ranges(struct rp_yaml *reader, const char *name, struct rp_config_ranges *ranges,
                       const yaml_node_t *node)
{
    if (node->type != YAML_SEQUENCE_NODE)
        return read_range(reader, name, ranges, node);
    int code = 0;
    for (yaml_node_item_t *item = node->data.sequence.items.start;
         code == 0 && item < node->data.sequence.items.top; item++)
        code = read_range(reader, name, ranges, rp_yaml_at(reader, *item));
    return code;
}

static int read_skip(struct rp_yaml *reader, const struct rp_key *key, struct rp_config_skip *skip,
                     const yaml_node_t *node)
{
    static const char expected[] = "a mapping of `rows` and `steps`";
    int code = must_be(reader, node, YAML_MAPPING_NODE, key, expected);
    for (yaml_node_pair_t *pair = node->data.mapping.pairs.start;
         code == 0 && pair < node->data.mapping.pairs.top; pair++) {
        const yaml_node_t *name_node = rp_yaml_at(reader, pair->key);
        const char *name = NULL;
        code = rp_yaml_text(reader, name_node, key->name, &name);
        bool is_rows = code == 0 && !strcmp(name, "rows");
        if (code == 0 && !is_rows && strcmp(name, "steps") != 0)
            code = rp_key_expected(rp_yaml_place(reader, name_node), key, expected, name,
                                   reader->error);
        if (code == 0)
            code = read_ranges(reader, name, is_rows ? &skip->rows : &skip->steps,
                               rp_yaml_at(reader, pair->value));
    }
    return code;
}

/* ---- repeat ---------------------------------------------------------------------------------- */

static int add_repeat(struct rp_yaml *reader, const struct rp_key *key,
                      struct rp_config_repeats *repeats, const yaml_node_pair_t *pair)
{
    const yaml_node_t *node = rp_yaml_at(reader, pair->key);
    const yaml_node_t *value = rp_yaml_at(reader, pair->value);
    struct rp_key_place place = rp_yaml_place(reader, node);
    const char *text = NULL, *expression = NULL;
    uint64_t count = 0;
    int code = rp_yaml_text(reader, node, key->name, &text);
    if (code == 0 && (!rp_text_u64(text, &count) || count < 2 || count > 255))
        code = rp_key_expected(place, key, "a count of 2 … 255 before the colon", text,
                               reader->error);
    if (code == 0)
        code = rp_yaml_text(reader, value, key->name, &expression);
    if (code < 0)
        return code;
    struct rp_config_repeat added = {.count = (uint32_t)count,
                                     .expression = strdup(expression),
                                     .place = in_text(rp_yaml_place(reader, value))};
    if (!added.expression || !RP_APPEND(repeats->entries, repeats->count)) {
        free(added.expression);
        return rp_key_no_memory(reader->error);
    }
    uint32_t at = repeats->count - 1; /* ascending */
    for (; at > 0 && repeats->entries[at - 1].count >= added.count; at--)
        repeats->entries[at] = repeats->entries[at - 1];
    repeats->entries[at] = added;
    if (at + 1 < repeats->count && repeats->entries[at + 1].count == added.count)
        return rp_key_fail(place, key->name, "join the two by `or`", reader->error,
                           "the count %u is given twice", added.count);
    return 0;
}

static int read_repeat(struct rp_yaml *reader, const struct rp_key *key,
                       struct rp_config_repeats *repeats, const yaml_node_t *node)
{
    int code = must_be(reader, node, YAML_MAPPING_NODE, key,
                       "a mapping of counts to expressions, such as {2: \"score >= 4\"}");
    for (yaml_node_pair_t *pair = node->data.mapping.pairs.start;
         code == 0 && pair < node->data.mapping.pairs.top; pair++)
        code = add_repeat(reader, key, repeats, pair);
    return code;
}

/* ---- by source ------------------------------------------------------------------------------- */

static int read_weight(struct rp_yaml *reader, const struct rp_key *key, uint64_t *weight,
                       const yaml_node_t *node)
{
    const char *text;
    int code = rp_yaml_text(reader, node, key->name, &text);
    if (code == 0 && rp_text_decimal(text, 6, weight) != RP_DECIMAL_FINE)
        code = rp_key_expected(rp_yaml_place(reader, node), key,
                               "a number with at most 6 decimals, such as 2, 0.25 or 0", text,
                               reader->error);
    return code;
}

static int read_limits(struct rp_yaml *reader, const struct rp_key *key,
                       struct rp_config_limits *limits, const yaml_node_t *node)
{
    struct rp_config_place places[8] = {{0, 0}};
    RP_ASSERT(rp_limits_key_list.count <= RP_ARRAY_COUNT(places));
    int code = must_be(reader, node, YAML_MAPPING_NODE, key,
                       "a mapping of max_epochs, max_tokens and on_exhausted");
    if (code == 0)
        code = rp_yaml_mapping(reader, node, &rp_limits_key_list, limits, places);
    for (size_t i = 0; i < rp_limits_key_list.count; i++)
        limits->sets |= places[i].line ? 1u << i : 0;
    if (code == 0 && limits->sets == 0)
        code = rp_key_fail(rp_yaml_place(reader, node), key->name, "leave the source out",
                           reader->error, "expected a limit, found an empty mapping");
    return code;
}

/* The value of one pair, through the conversion of a key of that kind. */
static int read_own(struct rp_yaml *reader, const struct rp_key *key,
                    struct rp_config_of_source *pair, const yaml_node_t *node)
{
    bool is_path = key->kind == RP_KIND_FILES;
    const struct rp_key own = {
        .name = key->name,
        .kind = is_path ? RP_KIND_PATH : RP_KIND_COUNT,
        .least = 1,
        .most = INT64_MAX,
        .offset = is_path ? offsetof(struct rp_config_of_source, path)
                          : offsetof(struct rp_config_of_source, number),
        .size = sizeof pair->number,
    };
    struct rp_key_place place = rp_yaml_place(reader, node);
    const char *text;
    int code = is_path ? rp_yaml_text(reader, node, key->name, &text)
                       : rp_yaml_number(reader, node, key->name, &text);
    if (code == 0) {
        struct rp_key_place given = place;
        given.path = reader->directory ? reader->path : NULL; /* an option's: the working directory
                                                               */
        code = rp_key_set(&own, pair, text, is_path ? given : place, reader->error);
    }
    return code < 0 ? code : rp_key_check(&own, pair, place, reader->error);
}

static int add_pair(struct rp_yaml *reader, const struct rp_key *key,
                    struct rp_config_by_source *map, const yaml_node_pair_t *pair)
{
    const yaml_node_t *node = rp_yaml_at(reader, pair->key);
    const yaml_node_t *value = rp_yaml_at(reader, pair->value);
    const char *name = NULL;
    int code = rp_yaml_text(reader, node, key->name, &name);
    if (code < 0)
        return code;
    if (++reader->pairs > PAIRS_MAX)
        return rp_key_fail(rp_yaml_place(reader, node), key->name, NULL, reader->error,
                           "the stages name sources more than %u times", PAIRS_MAX);
    struct rp_config_of_source *added = RP_APPEND(map->pairs, map->count);
    if (!added || !(added->name = strdup(name)))
        return rp_key_no_memory(reader->error);
    added->place = in_text(rp_yaml_place(reader, node));
    if (key->kind == RP_KIND_WEIGHTS)
        return read_weight(reader, key, &added->number, value);
    if (key->kind == RP_KIND_LIMITS)
        return read_limits(reader, key, &added->limits, value);
    return read_own(reader, key, added, value);
}

static int read_by_source(struct rp_yaml *reader, const struct rp_key *key,
                          struct rp_config_by_source *map, const yaml_node_t *node)
{
    int code = must_be(reader, node, YAML_MAPPING_NODE, key, "a mapping by the names of sources");
    for (yaml_node_pair_t *pair = node->data.mapping.pairs.start;
         code == 0 && pair < node->data.mapping.pairs.top; pair++)
        code = add_pair(reader, key, map, pair);
    return code;
}

/* ---- stages ---------------------------------------------------------------------------------- */

static int add_stage(struct rp_yaml *reader, const struct rp_key *key,
                     struct rp_config_stages *stages, const yaml_node_t *node)
{
    int code = must_be(reader, node, YAML_MAPPING_NODE, key, "a mapping: the keys of a stage");
    if (code < 0)
        return code;
    if (stages->count == STAGES_MAX)
        return rp_key_fail(rp_yaml_place(reader, node), key->name, NULL, reader->error,
                           "more than %u stages", STAGES_MAX);
    struct rp_config_stage *stage = RP_APPEND(stages->stages, stages->count);
    if (!stage)
        return rp_key_no_memory(reader->error);
    stage->place = in_text(rp_yaml_place(reader, node));
    return rp_yaml_mapping(reader, node, &rp_stage_key_list, stage, stage->places);
}

static int read_stages(struct rp_yaml *reader, const struct rp_key *key,
                       struct rp_config_stages *stages, const yaml_node_t *node)
{
    int code = must_be(reader, node, YAML_SEQUENCE_NODE, key, "a list of stages");
    if (code == 0 && node->data.sequence.items.start == node->data.sequence.items.top)
        code = rp_key_fail(rp_yaml_place(reader, node), key->name, "leave the key out",
                           reader->error, "expected a list of stages, found an empty one");
    for (yaml_node_item_t *item = node->data.sequence.items.start;
         code == 0 && item < node->data.sequence.items.top; item++)
        code = add_stage(reader, key, stages, rp_yaml_at(reader, *item));
    return code;
}

int rp_yaml_nested(struct rp_yaml *reader, const struct rp_key *key, void *object,
                   const yaml_node_t *node)
{
    void *field = (char *)object + key->offset;
    rp_key_free_nested(key, object);
    switch (key->kind) {
    case RP_KIND_UNTIL:
        return read_until(reader, key, field, node);
    case RP_KIND_DEAL:
        return read_deal(reader, key, field, node);
    case RP_KIND_COST:
        return read_cost(reader, key, field, node);
    case RP_KIND_SKIP:
        return read_skip(reader, key, field, node);
    case RP_KIND_REPEAT:
        return read_repeat(reader, key, field, node);
    case RP_KIND_STAGES:
        return read_stages(reader, key, field, node);
    case RP_KIND_STREAMS:
        return rp_yaml_streams(reader, key, field, node);
    default:
        return read_by_source(reader, key, field, node);
    }
}
