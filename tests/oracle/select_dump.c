/* SPDX-License-Identifier: Apache-2.0 */
/* select_dump.c — counts and hash of selections by the engine, for test_select.py. Reads a JSON
 * object a line: name, first, group, select, repeat ([[count, expression]]), documents, length and
 * shard (one number a document), columns ({name: {kind, words (hexadecimal), roots ([[documents
 * before, root]])}}). Prints a line for each: {counts, passes, selection}, or {error}. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/v2/selection.h"

static uint64_t word_of(const json_t *list, uint64_t at)
{
    return strtoull(json_string_value(json_array_get(list, at)), NULL, 16);
}

static int take(const json_t *list, const uint64_t *documents, uint32_t count, uint64_t first,
                union rp_value *values)
{
    for (uint32_t i = 0; i < count; i++)
        values[i].word = word_of(list, first + documents[i]);
    return 0;
}

static uint64_t first_of(const json_t *spec)
{
    return (uint64_t)json_integer_value(json_object_get(spec, "first"));
}

static int lengths(const void *context, const uint64_t *documents, uint32_t count,
                   union rp_value *values, struct rp_error *error)
{
    (void)error;
    return take(json_object_get(context, "length"), documents, count, first_of(context), values);
}

static int shards(const void *context, const uint64_t *documents, uint32_t count,
                  union rp_value *values, struct rp_error *error)
{
    (void)error;
    return take(json_object_get(context, "shard"), documents, count, first_of(context), values);
}

static int find(const void *context, const char *name, const void **column_out,
                enum rp_value_kind *kind_out, struct rp_error *error)
{
    const json_t *column = json_object_get(json_object_get(context, "columns"), name);
    if (!column)
        return rp_fail(error, -RP_E_CONFIG, NULL, "no column `%s`", name);
    *column_out = column;
    *kind_out = (enum rp_value_kind)json_integer_value(json_object_get(column, "kind"));
    return 0;
}

static int values_of(const void *context, const void *column, const uint64_t *documents,
                     uint32_t count, union rp_value *values, struct rp_error *error)
{
    (void)error;
    return take(json_object_get(column, "words"), documents, count, first_of(context), values);
}

static bool root_of(const void *context, const void *column, uint32_t i, uint64_t *first_out,
                    struct rp_hash128 *root_out)
{
    (void)context;
    const json_t *root = json_array_get(json_object_get(column, "roots"), i);
    if (!root)
        return false;
    *first_out = (uint64_t)json_integer_value(json_array_get(root, 0));
    *root_out = (struct rp_hash128){word_of(root, 2), word_of(root, 1)};
    return true;
}

static json_t *answer(const json_t *spec, struct rp_selection *selection, struct rp_error *error)
{
    uint64_t documents = (uint64_t)json_integer_value(json_object_get(spec, "documents")), hash;
    uint64_t *numbers = calloc(documents + 1, sizeof *numbers);
    uint8_t *counts = calloc(documents + 1, 1);
    json_t *list = json_array(), *made = NULL;
    for (uint64_t d = 0; d < documents; d++)
        numbers[d] = d;
    const json_t *state = json_object_get(spec, "unseen"); /* [low, high], or null */
    bool is_given = json_is_array(state);
    const struct rp_hash128 unseen = {is_given ? word_of(state, 0) : 0,
                                      is_given ? word_of(state, 1) : 0};
    if (rp_selection_counts(selection, numbers, (uint32_t)documents, counts, error) == 0 &&
        rp_selection_hash(selection, documents, is_given ? &unseen : NULL, &hash, error) == 0) {
        char text[17];
        snprintf(text, sizeof text, "%016" PRIx64, hash);
        for (uint64_t d = 0; d < documents; d++)
            json_array_append_new(list, json_integer(counts[d]));
        made = json_pack("{s:O, s:i, s:s}", "counts", list, "passes",
                         rp_selection_passes(selection), "selection", text);
    }
    json_decref(list);
    free(numbers);
    free(counts);
    return made;
}

static json_t *run(const json_t *spec)
{
    const json_t *repeat = json_object_get(spec, "repeat");
    struct rp_selection_repeat repeats[256];
    struct rp_selection *selection;
    struct rp_error error = {0};
    uint32_t count = (uint32_t)json_array_size(repeat);
    for (uint32_t i = 0; i < count; i++) {
        const json_t *pair = json_array_get(repeat, i);
        repeats[i] = (struct rp_selection_repeat){
            (uint32_t)json_integer_value(json_array_get(pair, 0)),
            json_string_value(json_array_get(pair, 1))};
    }
    const struct rp_selection_spec made = {
        .select = json_string_value(json_object_get(spec, "select")),
        .repeats = repeats,
        .repeat_count = count,
        .source = {.name = "web",
                   .first = first_of(spec),
                   .group = (uint32_t)json_integer_value(json_object_get(spec, "group")),
                   .context = spec,
                   .lengths = lengths,
                   .shards = shards,
                   .column = find,
                   .values = values_of,
                   .root = root_of}};
    json_t *result = NULL;
    if (rp_selection_open(&selection, &made, &error) == 0) {
        result = answer(spec, selection, &error);
        rp_selection_close(selection);
    }
    return result ? result : json_pack("{s:s}", "error", error.message);
}

int main(void)
{
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, stdin) > 0) {
        json_t *spec = json_loads(line, 0, NULL);
        json_t *result = spec ? run(spec) : json_pack("{s:s}", "error", "no JSON");
        json_dumpf(result, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(result);
        json_decref(spec);
    }
    free(line);
    return 0;
}
