/* SPDX-License-Identifier: Apache-2.0 */
/* nested_print.c — the nested values of a config (stages.h) as YAML on one line, which sets the
 * same value again. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/hide.h"
#include "base/mem.h"
#include "base/text.h"
#include "config/key.h"

#define NUMBER_BYTES 32

/* A text that is cut at the end of its buffer. */
struct line {
    char *text;
    size_t used, bytes;
};

static void put(struct line *line, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(struct line *line, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int more = vsnprintf(line->text + line->used, line->bytes - line->used, format, arguments);
    va_end(arguments);
    line->used = rp_min_u64(line->used + (size_t)more, line->bytes - 1);
}

/* Plain where YAML cannot take it for anything else, else in quotes. */
static void put_text(struct line *line, const char *text)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./";
    if (text[0] && strspn(text, plain) == strlen(text)) {
        put(line, "%s", text);
        return;
    }
    put(line, "\"");
    for (const unsigned char *c = (const unsigned char *)text; *c; c++)
        put(line, *c < ' ' ? "\\x%02x" : *c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
    put(line, "\"");
}

static void put_until(struct line *line, const struct rp_config_until *until)
{
    bool is_row = until->unit == RP_UNTIL_ROW;
    put(line, "%s%" PRIu64 "%s", is_row ? "row " : "", until->number,
        is_row                           ? ""
        : until->unit == RP_UNTIL_TOKENS ? " tokens"
                                         : " steps");
}

/* Fields of a mapping: the ones in `kept`, bits in the order of the list; and, if is_whole, the
 * others but those that have their defaults, or are 0 as they were not given. */
static void put_fields(struct line *line, const struct rp_key_list *list, uint32_t kept,
                       bool is_whole, const void *object)
{
    const char *lead = "{";
    for (size_t i = 0; i < list->count; i++) {
        char value[NUMBER_BYTES];
        rp_key_print(&list->keys[i], object, value, sizeof value);
        bool is_unset = list->keys[i].standard[0] == '(' && !strcmp(value, "0");
        if (!(kept >> i & 1) && (!is_whole || is_unset || !strcmp(value, list->keys[i].standard)))
            continue;
        put(line, "%s%s: %s", lead, list->keys[i].name, value);
        lead = ", ";
    }
    put(line, "%s}", lead[0] == '{' ? lead : "");
}

static void put_deal(struct line *line, const struct rp_key *key, const struct rp_config_deal *deal)
{
    bool is_declared = (deal->sets & RP_DEAL_DECLARED) == RP_DEAL_DECLARED;
    if (deal->mode == RP_DEAL_GIVEN)
        put_fields(line, &rp_deal_key_list, is_declared ? 0 : deal->sets, true, deal);
    else
        put(line, "%s", deal->mode == RP_DEAL_AUTO ? strchr(key->words, '|') + 1 : "off");
}

static void put_cost(struct line *line, const struct rp_config_cost *cost)
{
    if (cost->hidden || cost->attention_window)
        put_fields(line, &rp_cost_key_list, 0, true, cost);
    else
        put(line, "%" PRIu32, cost->cost.k);
}

static void put_by_source(struct line *line, const struct rp_key *key,
                          const struct rp_config_by_source *map)
{
    for (uint32_t i = 0; i < map->count; i++) {
        const struct rp_config_of_source *pair = &map->pairs[i];
        char number[NUMBER_BYTES];
        put(line, i ? ", " : "{");
        put_text(line, pair->name);
        put(line, ": ");
        if (key->kind == RP_KIND_FILES) {
            put_text(line, pair->path);
        } else if (key->kind == RP_KIND_LIMITS) {
            put_fields(line, &rp_limits_key_list, pair->limits.sets, false, &pair->limits);
        } else if (key->kind == RP_KIND_WEIGHTS) {
            rp_text_millionths(pair->number, number, sizeof number);
            put(line, "%s", number);
        } else {
            put(line, "%" PRIu64, pair->number);
        }
    }
    put(line, map->count ? "}" : "{}");
}

static void put_ranges(struct line *line, const char *name, const struct rp_config_ranges *ranges)
{
    for (uint32_t i = 0; i < ranges->count; i++) {
        const struct rp_config_range *range = &ranges->ranges[i];
        if (i == 0)
            put(line, "%s: [", name);
        put(line, "%s%" PRIu64, i ? ", " : "", range->first);
        if (range->end > range->first + 1)
            put(line, "-%" PRIu64, range->end);
    }
    put(line, ranges->count ? "]" : "");
}

static void put_skip(struct line *line, const struct rp_config_skip *skip)
{
    put(line, "{");
    put_ranges(line, "rows", &skip->rows);
    put(line, skip->rows.count && skip->steps.count ? ", " : "");
    put_ranges(line, "steps", &skip->steps);
    put(line, "}");
}

static void put_repeats(struct line *line, const struct rp_config_repeats *repeats)
{
    for (uint32_t i = 0; i < repeats->count; i++) {
        put(line, "%s%u: ", i ? ", " : "{", repeats->entries[i].count);
        put_text(line, repeats->entries[i].expression);
    }
    put(line, repeats->count ? "}" : "");
}

static void put_streams(struct line *line, const struct rp_config_streams *streams)
{
    for (uint32_t i = 0; i < streams->count; i++) {
        char *keys = strdup(streams->streams[i].keys);
        if (keys)
            (void)rp_hide_in_value(keys);
        put(line, "%s%s: %s", i ? ", " : "{", streams->streams[i].name, keys ? keys : "{}");
        rp_free_secret(keys);
    }
    put(line, streams->count ? "}" : "");
}

static void put_nested(struct line *line, const struct rp_key *key, const void *object);

static void put_stage(struct line *line, const struct rp_config_stage *stage)
{
    const char *lead = "{";
    for (size_t i = 0; i < RP_STAGE_KEY_COUNT; i++) {
        const struct rp_key *key = &rp_stage_key_table[i];
        char value[NUMBER_BYTES];
        if (stage->places[i].line == 0)
            continue;
        put(line, "%s%s: ", lead, key->name);
        lead = ", ";
        if (rp_key_is_nested(key)) {
            put_nested(line, key, stage);
        } else {
            rp_key_print(key, stage, value, sizeof value);
            put(line, "%s", value);
        }
    }
    put(line, "%s}", lead[0] == '{' ? lead : "");
}

static void put_stages(struct line *line, const struct rp_config_stages *stages)
{
    for (uint32_t i = 0; i < stages->count; i++) {
        put(line, i ? ", " : "[");
        put_stage(line, &stages->stages[i]);
    }
    put(line, stages->count ? "]" : "");
}

static void put_nested(struct line *line, const struct rp_key *key, const void *object)
{
    const void *field = (const char *)object + key->offset;
    switch (key->kind) {
    case RP_KIND_UNTIL:
        put_until(line, field);
        break;
    case RP_KIND_DEAL:
        put_deal(line, key, field);
        break;
    case RP_KIND_COST:
        put_cost(line, field);
        break;
    case RP_KIND_SKIP:
        put_skip(line, field);
        break;
    case RP_KIND_REPEAT:
        put_repeats(line, field);
        break;
    case RP_KIND_STAGES:
        put_stages(line, field);
        break;
    case RP_KIND_STREAMS:
        put_streams(line, field);
        break;
    default:
        put_by_source(line, key, field);
        break;
    }
}

void rp_key_print_nested(const struct rp_key *key, const void *object, char *text, size_t bytes)
{
    struct line line = {text, 0, bytes};
    text[0] = '\0';
    put_nested(&line, key, object);
}

void rp_config_stage_text(const struct rp_config *config, uint32_t stage, char *text, size_t bytes)
{
    struct line line = {text, 0, bytes};
    text[0] = '\0';
    put_stage(&line, &config->stages.stages[stage]);
}
