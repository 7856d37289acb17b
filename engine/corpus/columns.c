/* SPDX-License-Identifier: Apache-2.0 */
/* columns.c — values of many documents at once (corpus.h). The values of BATCH documents are
 * prefetched before the first is read. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "corpus/corpus_struct.h"

#define BATCH 64u

struct rp_column {
    const struct rp_source *source;
    enum rp_index_column_type type;
    char name[RP_INDEX_COLUMN_NAME_BYTES];
    const struct rp_index_column **segments; /* by segment; NULL: it has no used documents */
};

/* ---- open ------------------------------------------------------------------------------------ */

static int fail_index(const struct rp_source *source, const char *name, struct rp_error *error)
{
    return rp_fail(error, -RP_E_CONFIG,
                   "name an index in the configuration (`index: NAME.rpi`), run `ringpack index -c "
                   "CONFIG`, then `ringpack annotate`",
                   "source `%s`: column `%s`: columns are kept in the index of a corpus, and the "
                   "source has none",
                   source->name, name);
}

/* The column of the source whose name is nearest; NULL: none is near. */
static const char *near_name(const struct rp_source *source, const struct rp_index *index,
                             const char *name)
{
    struct rp_text_near near = {.word = name};
    for (uint32_t i = 0; i < index->column_count; i++)
        for (uint32_t g = 0; g < source->segment_count; g++)
            if (index->columns[i].segment_at == source->segments[g]->offset)
                rp_text_offer(&near, index->columns[i].name);
    return near.best;
}

static int fail_missing(const struct rp_source *source, const char *name, uint32_t segment,
                        bool is_nowhere, struct rp_error *error)
{
    const struct rp_index_segment *at = source->segments[segment];
    char hint[sizeof error->hint];
    if (!at->index)
        return fail_index(source, name, error);
    const char *near = is_nowhere ? near_name(source, at->index, name) : NULL;
    if (near)
        snprintf(hint, sizeof hint, "did you mean `%s`? `ringpack inspect` lists the columns",
                 near);
    else
        snprintf(hint, sizeof hint,
                 "run `ringpack annotate -c CONFIG --source %.63s --column %.47s=FILE`",
                 RP_TEXT_SHELL_WORD(source->name), RP_TEXT_SHELL_WORD(name));
    if (is_nowhere)
        return rp_fail(error, -RP_E_CONFIG, hint, "source `%s`: %s has no column `%s`",
                       source->name, at->index->path, name);
    return rp_fail(error, -RP_E_CONFIG, hint,
                   "source `%s`: column `%s`: %s has it for other documents, but not for documents "
                   "%" PRIu64 " to %" PRIu64 ", which were added later",
                   source->name, name, at->index->path, source->segment_begins[segment],
                   source->segment_begins[segment + 1] - 1);
}

static const struct rp_index_column *column_of(const struct rp_index_segment *segment,
                                               const char *name)
{
    return segment->index ? rp_index_find_column(segment->index, segment, name) : NULL;
}

static int find_segments(struct rp_column *column, struct rp_error *error)
{
    const struct rp_source *source = column->source;
    uint32_t missing = source->segment_count, found = 0;
    for (uint32_t g = 0; g < source->segment_count; g++) {
        const struct rp_index_column *of = column_of(source->segments[g], column->name);
        column->segments[g] = of;
        bool is_used = source->segment_begins[g] < source->segment_begins[g + 1] &&
                       source->segment_begins[g] < source->before_range + source->documents;
        if (!of && is_used && missing == source->segment_count)
            missing = g;
        if (of && column->type != RP_INDEX_COLUMN_NONE && column->type != of->type)
            return rp_fail(error, -RP_E_CONFIG,
                           "write the whole column again: `ringpack annotate` with --replace",
                           "source `%s`: column `%s`: expected one type, found %s, and %s from "
                           "document %" PRIu64 " on",
                           source->name, column->name, rp_index_column_type_name(column->type),
                           rp_index_column_type_name(of->type), source->segment_begins[g]);
        if (of)
            column->type = of->type;
        found += of != NULL;
    }
    return missing == source->segment_count
               ? 0
               : fail_missing(source, column->name, missing, found == 0, error);
}

int rp_column_open(struct rp_column **column_out, const struct rp_source *source, const char *name,
                   struct rp_error *error)
{
    *column_out = NULL;
    if (strlen(name) >= RP_INDEX_COLUMN_NAME_BYTES)
        return rp_fail(error, -RP_E_CONFIG, NULL,
                       "source `%s`: column `%.60s`: expected a name of at most 47 bytes",
                       source->name, name);
    struct rp_column *column = rp_calloc(1, sizeof *column);
    if (column)
        column->segments = rp_calloc(source->segment_count, sizeof *column->segments);
    if (!column || !column->segments) {
        rp_column_close(column);
        return rp_fail(error, -ENOMEM, NULL, "no memory for a column");
    }
    column->source = source;
    memcpy(column->name, name, strlen(name));
    int code = find_segments(column, error);
    if (code < 0)
        rp_column_close(column);
    else
        *column_out = column;
    return code;
}

void rp_column_close(struct rp_column *column)
{
    if (!column)
        return;
    free(column->segments);
    free(column);
}

enum rp_column_kind rp_column_kind(const struct rp_column *column)
{
    return rp_index_column_kind(column->type);
}

const char *rp_column_type(const struct rp_column *column)
{
    return rp_index_column_type_name(column->type);
}

bool rp_column_root(const struct rp_column *column, uint32_t i, uint64_t *first_out,
                    struct rp_hash128 *root_out)
{
    const struct rp_source *source = column->source;
    for (uint32_t g = 0; g < source->segment_count; g++) {
        if (source->segment_begins[g] == source->segment_begins[g + 1] || i-- > 0)
            continue;
        if (!column->segments[g])
            return false;
        *first_out = source->segment_begins[g];
        *root_out = column->segments[g]->tree.root;
        return true;
    }
    return false;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* The place of a value in the data of a column. */
struct place {
    const struct rp_index_column *column;
    uint64_t byte;
};

static void find_places(const struct rp_column *column, const uint64_t *documents, uint32_t count,
                        struct place *places)
{
    const struct rp_source *source = column->source;
    uint32_t width = rp_index_column_width(column->type);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t document = documents[i] + source->before_range;
        uint32_t g = rp_source_segment_number(source, document);
        places[i].column = column->segments[g];
        places[i].byte = (document - source->segment_begins[g]) * width;
        __builtin_prefetch(places[i].column->tree.data + places[i].byte);
        rp_source_mark_used(source, source->segments[g]);
    }
}

/* The same for a source of one segment. */
static void find_places_in_one(const struct rp_column *column, const uint64_t *documents,
                               uint32_t count, struct place *places)
{
    const struct rp_index_column *only = column->segments[0];
    const uint8_t *data = only->tree.data;
    uint64_t before_range = column->source->before_range;
    uint32_t width = rp_index_column_width(column->type);
    for (uint32_t i = 0; i < count; i++) {
        places[i].column = only;
        places[i].byte = (documents[i] + before_range) * width;
        __builtin_prefetch(data + places[i].byte);
    }
    rp_source_mark_used(column->source, column->source->segments[0]);
}

#define TAKE(id, type, wide)                                                                       \
    case RP_INDEX_COLUMN_##id:                                                                     \
        for (uint32_t i = 0; i < count; i++) {                                                     \
            type value;                                                                            \
            memcpy(&value, places[i].column->tree.data + places[i].byte, sizeof value);            \
            const wide widened = (wide)value;                                                      \
            memcpy(values + 8 * (size_t)i, &widened, 8);                                           \
        }                                                                                          \
        break;

static void take(enum rp_index_column_type type, const struct place *places, uint32_t count,
                 uint8_t *values)
{
    switch (type) {
        TAKE(U8, uint8_t, uint64_t)
        TAKE(U16, uint16_t, uint64_t)
        TAKE(U32, uint32_t, uint64_t)
        TAKE(U64, uint64_t, uint64_t)
        TAKE(I8, int8_t, int64_t)
        TAKE(I16, int16_t, int64_t)
        TAKE(I32, int32_t, int64_t)
        TAKE(I64, int64_t, int64_t)
        TAKE(F32, float, double)
        TAKE(F64, double, double)
    case RP_INDEX_COLUMN_NONE:
    case RP_INDEX_COLUMN_TYPE_COUNT:
        break;
    }
}

static int fail_value(const struct rp_column *column, uint64_t document, struct rp_error *error)
{
    const struct rp_source *source = column->source;
    const struct rp_index_segment *segment = rp_source_segment(source,
                                                               document + source->before_range);
    return rp_fail(error, -RP_E_CORRUPT,
                   "run `ringpack inspect --scan` on the index, and write the column again: "
                   "`ringpack annotate` with --replace",
                   "source `%s`, document %" PRIu64
                   ": column `%s`: its page of %s differs from its "
                   "hash",
                   source->name, document, column->name, segment->index->path);
}

int rp_column_values(const struct rp_column *column, const uint64_t *documents, uint32_t count,
                     void *values, struct rp_error *error)
{
    struct place places[BATCH];
    for (uint32_t at = 0; at < count; at += BATCH) {
        uint32_t some = (uint32_t)rp_min_u64(BATCH, count - at);
        if (column->source->segment_count == 1)
            find_places_in_one(column, documents + at, some, places);
        else
            find_places(column, documents + at, some, places);
        for (uint32_t i = 0; i < some; i++)
            if (!rp_tree_verify(&places[i].column->tree, places[i].byte))
                return fail_value(column, documents[at + i], error);
        take(column->type, places, some, (uint8_t *)values + 8 * (size_t)at);
    }
    return 0;
}

int rp_source_shard_numbers(const struct rp_source *source, const uint64_t *documents,
                            uint32_t count, uint64_t *numbers, struct rp_error *error)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t document = documents[i] + source->before_range;
        const struct rp_index_segment *segment = rp_source_segment(source, document);
        uint32_t own = segment->opened
                           ? 0
                           : rp_index_shard_of(segment, document - segment->first_document);
        if (own == UINT32_MAX)
            return rp_fail(error, -RP_E_CORRUPT,
                           "run `ringpack inspect --scan` on the index, and `ringpack index -c "
                           "CONFIG` to make it again",
                           "source `%s`, document %" PRIu64 ": the page of %s that has its shard "
                           "differs from its hash",
                           source->name, documents[i], segment->index->path);
        rp_source_mark_used(source, segment);
        numbers[i] = (uint64_t)segment->first_shard + own;
    }
    return 0;
}
