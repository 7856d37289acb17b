/* SPDX-License-Identifier: Apache-2.0 */
/* sides.c — which side columns are wanted, and the queue of lines (sides.h). */
#include "convert/sides.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem.h"
#include "convert/convert.h"

/* ---- the command line ------------------------------------------------------------------------ */

bool rp_convert_sides_option(const char *text, void *place)
{
    struct rp_wanted_sides *wanted = place;
    struct rp_column_wanted *column = &wanted->columns[wanted->count];
    if (wanted->count == RP_SIDES_MAX || !rp_wanted_take(column, text))
        return false;
    wanted->count++;
    rp_wanted_cut(column);
    return !column->detail || rp_wanted_dtype(column->detail);
}

json_t *rp_convert_sides_json(const struct rp_wanted_sides *wanted)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < wanted->count && list; i++) {
        const struct rp_column_wanted *column = &wanted->columns[i];
        json_t *one = json_pack("{s:s, s:s, s:s?}", "name", column->name, "field", column->place,
                                "type", column->detail);
        if (one && json_array_append_new(list, one) == 0)
            continue;
        json_decref(list);
        list = NULL;
    }
    return list;
}

int rp_convert_sides_check(const struct rp_wanted_sides *wanted, const struct rp_inputs *inputs,
                           struct rp_error *error)
{
    static const char *const forms[] = {"jsonl", "parquet", "arrow", "lance"};
    for (size_t i = 0; i < inputs->count && wanted->count > 0; i++) {
        const char *form = inputs->files[i].form->name;
        bool is_fine = false;
        for (size_t k = 0; k < RP_ARRAY_COUNT(forms); k++)
            is_fine |= !strcmp(form, forms[k]);
        if (!is_fine)
            return rp_fail(error, -RP_E_USAGE,
                           "convert it without --side-column; `ringpack column` takes the values "
                           "from another file",
                           "%s: side columns are read from jsonl, parquet, arrow and lance, and "
                           "this is %s",
                           inputs->files[i].path, form);
    }
    return 0;
}

/* ---- the queue ------------------------------------------------------------------------------- */

/* In the queue: a line, then struct rp_entries of each column, followed by its entries. */
struct line {
    const char *path; /* it lives as long as the lines of its file are queued */
    uint64_t number, bytes, documents;
};

static size_t whole_bytes(const struct rp_entries *entries)
{
    return sizeof *entries + (size_t)rp_align_up(entries->count * entries->type.bytes, 8);
}

/* NULL: no memory. */
static uint8_t *reserve(struct rp_side_queue *queue, size_t bytes)
{
    if (!RP_GROW(queue->bytes, queue->capacity, queue->end + bytes))
        return NULL;
    queue->end += bytes;
    return queue->bytes + queue->end - bytes;
}

static int fail_memory(const struct rp_convert *convert, struct rp_error *error)
{
    return rp_fail(error, -ENOMEM, NULL, "%s:%" PRIu64 ": no memory for its side columns",
                   convert->path, convert->line);
}

static int fail_number(struct rp_convert *convert, const char *field, uint32_t dtype,
                       const json_t *number, struct rp_error *error)
{
    char expected[128], found[64];
    snprintf(expected, sizeof expected, "values of %s in `%.60s`", rp_sidefile_dtype_name(dtype),
             field);
    if (json_is_integer(number))
        snprintf(found, sizeof found, "%" JSON_INTEGER_FORMAT, json_integer_value(number));
    else
        snprintf(found, sizeof found, "%.17g", json_number_value(number));
    return rp_convert_fail_line(convert, -RP_E_FORMAT, expected, found, error);
}

static int queue_value(struct rp_convert *convert, const struct rp_column_wanted *column,
                       json_t *value, struct rp_error *error)
{
    struct rp_entries entries = {.type.dtype = column->detail ? rp_wanted_dtype(column->detail)
                                                              : (uint32_t)RP_DTYPE_F32};
    bool has_real;
    char expected[160];
    if (!rp_convert_value_measure(value, &entries, &has_real)) {
        snprintf(expected, sizeof expected,
                 "a number, or a list of numbers or of lists of one length, in `%.60s`",
                 column->place);
        return rp_convert_fail_line(convert, -RP_E_FORMAT, expected,
                                    value ? rp_convert_json_kind(value) : "none", error);
    }
    uint8_t *at = reserve(&convert->queue, whole_bytes(&entries));
    if (!at)
        return fail_memory(convert, error);
    memcpy(at, &entries, sizeof entries);
    const json_t *wrong = rp_convert_value_store(value, &entries, has_real, at + sizeof entries);
    return wrong ? fail_number(convert, column->place, entries.type.dtype, wrong, error) : 0;
}

int rp_convert_sides_queue(struct rp_convert *convert, json_t *object, uint32_t documents,
                           struct rp_error *error)
{
    struct rp_side_queue *queue = &convert->queue;
    struct line line = {.path = convert->path, .number = convert->line, .documents = documents};
    if (convert->sides->count == 0)
        return 0;
    if (queue->begin == queue->end)
        queue->begin = queue->end = 0;
    size_t begin = queue->end;
    int code = reserve(queue, sizeof line) ? 0 : fail_memory(convert, error);
    for (uint32_t i = 0; i < convert->sides->count && code == 0; i++) {
        const struct rp_column_wanted *column = &convert->sides->columns[i];
        code = queue_value(convert, column, json_object_get(object, column->place), error);
    }
    line.bytes = queue->end - begin;
    if (code == 0)
        memcpy(queue->bytes + begin, &line, sizeof line);
    else
        queue->end = begin;
    return code;
}

/* Entries of padding are left out with its ids. */
static int check_lengths(const struct rp_convert *convert, const struct line *line,
                         struct rp_entries *entries, const struct rp_ids *document,
                         struct rp_error *error)
{
    size_t ids = document->count + document->padding;
    for (uint32_t i = 0; i < convert->sides->count; i++) {
        if (!entries[i].is_number && entries[i].count != ids)
            return rp_fail(error, -RP_E_FORMAT, RP_CONVERT_MEND,
                           "%s:%" PRIu64 ": `%s`: expected %zu values, as the document has ids, "
                           "found %" PRIu64,
                           line->path, line->number, convert->sides->columns[i].place, ids,
                           entries[i].count);
        if (!entries[i].is_number)
            entries[i].count = document->count;
    }
    return 0;
}

int rp_convert_sides_take(struct rp_convert *convert, const struct rp_ids *ids,
                          struct rp_entries entries[RP_SIDES_MAX], struct rp_error *error)
{
    struct rp_side_queue *queue = &convert->queue;
    struct line line;
    if (convert->sides->count == 0)
        return 0;
    if (ids->sides) { /* the worker has compared them */
        memcpy(entries, ids->sides, convert->sides->count * sizeof *entries);
        return 0;
    }
    if (queue->begin == queue->end)
        return rp_fail(error, -RP_E_PROTOCOL, NULL, "%s: documents without their side columns",
                       convert->path);
    uint8_t *at = queue->bytes + queue->begin;
    memcpy(&line, at, sizeof line);
    line.documents--;
    memcpy(at, &line, sizeof line);
    queue->begin += line.documents == 0 ? line.bytes : 0;
    at += sizeof line;
    for (uint32_t i = 0; i < convert->sides->count; i++) {
        memcpy(&entries[i], at, sizeof *entries);
        entries[i].at = at + sizeof *entries;
        at += whole_bytes(&entries[i]);
    }
    return check_lengths(convert, &line, entries, ids, error);
}
