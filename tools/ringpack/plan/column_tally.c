/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/column_tally.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem.h"
#include "cmd.h"
#include "plan/v2/selection.h"

#define BATCH 64u

/* ---- columns --------------------------------------------------------------------------------- */

static int add_column(struct rp_column_tally *tally, const struct rp_source *source,
                      const char *name, struct rp_error *error)
{
    struct rp_column_counts *counts = &tally->columns[tally->count];
    if (tally->count == RP_COLUMNS_COUNTED_MAX || rp_selection_is_built_in(name))
        return 0;
    for (uint32_t i = 0; i < tally->count; i++)
        if (strcmp(tally->columns[i].name, name) == 0)
            return 0;
    int code = rp_column_open(&counts->column, source, name, error);
    if (code < 0)
        return code;
    snprintf(counts->name, sizeof counts->name, "%s", name);
    tally->count++;
    if (rp_column_kind(counts->column) == RP_COLUMN_REAL)
        counts->count = RP_COLUMN_VALUES_MAX + 1;
    return 0;
}

static int add_columns(struct rp_column_tally *tally, const struct rp_source *source,
                       const char *text, struct rp_error *error)
{
    struct rp_expression *expression = NULL;
    int code = rp_expression_parse(&expression, text, error);
    for (uint32_t i = 0; code == 0 && i < rp_expression_names(expression); i++)
        code = add_column(tally, source, rp_expression_name(expression, i), error);
    rp_expression_free(expression);
    return code;
}

static int open_columns(struct rp_column_tally *tally, const struct rp_config_source *config,
                        const struct rp_source *source, struct rp_error *error)
{
    tally->columns = rp_calloc(RP_COLUMNS_COUNTED_MAX, sizeof *tally->columns);
    int code = tally->columns ? 0 : rp_fail(error, -ENOMEM, NULL, "no memory for counts by column");
    if (code == 0 && config->select)
        code = add_columns(tally, source, config->select, error);
    for (uint32_t i = 0; code == 0 && i < config->repeat.count; i++)
        code = add_columns(tally, source, config->repeat.entries[i].expression, error);
    return code;
}

void rp_column_tally_free(struct rp_column_tally *tally)
{
    for (uint32_t i = 0; i < tally->count; i++)
        rp_column_close(tally->columns[i].column);
    free(tally->columns);
    *tally = (struct rp_column_tally){0};
}

/* ---- documents ------------------------------------------------------------------------------- */

static void count_value(struct rp_column_counts *counts, uint64_t value, uint8_t takes)
{
    uint32_t i = 0;
    while (i < rp_min_u64(counts->count, RP_COLUMN_VALUES_MAX) && counts->values[i].value != value)
        i++;
    if (i == RP_COLUMN_VALUES_MAX)
        counts->count = RP_COLUMN_VALUES_MAX + 1;
    if (counts->count > RP_COLUMN_VALUES_MAX)
        return;
    if (i == counts->count)
        counts->values[counts->count++].value = value;
    counts->values[i].documents++;
    counts->values[i].selected += takes > 0;
    counts->values[i].takes += takes;
}

static int count_batch(struct rp_column_tally *tally, const uint64_t *documents, uint32_t count,
                       const uint8_t *takes, struct rp_error *error)
{
    union rp_value values[BATCH];
    for (uint32_t c = 0; c < tally->count; c++) {
        struct rp_column_counts *counts = &tally->columns[c];
        if (counts->count > RP_COLUMN_VALUES_MAX)
            continue;
        int code = rp_column_values(counts->column, documents, count, values, error);
        if (code < 0)
            return code;
        for (uint32_t i = 0; i < count; i++)
            count_value(counts, values[i].word, takes[i]);
    }
    for (uint32_t i = 0; i < count; i++) {
        tally->selected += takes[i] > 0;
        tally->takes += takes[i];
    }
    return 0;
}

static int by_value(const void *a, const void *b)
{
    const struct rp_column_value *left = a, *right = b;
    int64_t x = (int64_t)left->value, y = (int64_t)right->value;
    return x < y ? -1 : x > y;
}

int rp_column_tally_make(struct rp_column_tally *tally, const struct rp_config_source *config,
                         const struct rp_source *source, const struct rp_stream_source *stream,
                         struct rp_error *error)
{
    uint64_t documents[BATCH];
    uint8_t takes[BATCH];
    *tally = (struct rp_column_tally){.documents = stream->documents,
                                      .has_selection = stream->view.counts != NULL};
    if (!tally->has_selection)
        return 0;
    int code = open_columns(tally, config, source, error);
    for (uint64_t first = 0; code == 0 && first < stream->documents; first += BATCH) {
        uint32_t count = (uint32_t)rp_min_u64(BATCH, stream->documents - first);
        for (uint32_t i = 0; i < count; i++)
            documents[i] = first + i;
        code = stream->view.counts(stream->view.context, documents, count, takes, error);
        if (code >= 0)
            code = count_batch(tally, documents, count, takes, error);
    }
    for (uint32_t c = 0; code == 0 && c < tally->count; c++)
        if (tally->columns[c].count <= RP_COLUMN_VALUES_MAX)
            qsort(tally->columns[c].values, tally->columns[c].count,
                  sizeof *tally->columns[c].values, by_value);
    return code;
}

/* ---- report ---------------------------------------------------------------------------------- */

static void print_value(const struct rp_column_counts *counts, const struct rp_column_value *value)
{
    char a[RP_CMD_TEXT_BYTES], b[RP_CMD_TEXT_BYTES], c[RP_CMD_TEXT_BYTES];
    printf("      %s %" PRId64 ": %s of %s documents, taken %s times in an epoch\n", counts->name,
           (int64_t)value->value, rp_cmd_count_text(value->selected, a),
           rp_cmd_count_text(value->documents, b), rp_cmd_count_text(value->takes, c));
}

void rp_column_tally_print(const struct rp_column_tally *tally)
{
    char a[RP_CMD_TEXT_BYTES], b[RP_CMD_TEXT_BYTES], c[RP_CMD_TEXT_BYTES], d[RP_CMD_TEXT_BYTES];
    if (!tally->has_selection)
        return;
    printf("    selected %s of %s documents, taken %s times in an epoch; %s passed over\n",
           rp_cmd_count_text(tally->selected, a), rp_cmd_count_text(tally->documents, b),
           rp_cmd_count_text(tally->takes, c),
           rp_cmd_count_text(tally->documents - tally->selected, d));
    for (uint32_t i = 0; i < tally->count; i++)
        for (uint32_t k = 0;
             tally->columns[i].count <= RP_COLUMN_VALUES_MAX && k < tally->columns[i].count; k++)
            print_value(&tally->columns[i], &tally->columns[i].values[k]);
}

json_t *rp_column_tally_json(const struct rp_column_tally *tally)
{
    json_t *columns = json_object();
    for (uint32_t i = 0; i < tally->count; i++) {
        const struct rp_column_counts *counts = &tally->columns[i];
        json_t *values = json_array();
        for (uint32_t k = 0; counts->count <= RP_COLUMN_VALUES_MAX && k < counts->count; k++)
            json_array_append_new(
                values, json_pack("{sI sI sI sI}", "value", (json_int_t)counts->values[k].value,
                                  "documents", (json_int_t)counts->values[k].documents, "selected",
                                  (json_int_t)counts->values[k].selected, "takes",
                                  (json_int_t)counts->values[k].takes));
        json_object_set_new(columns, counts->name, values);
    }
    return columns;
}
