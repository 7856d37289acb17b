/* SPDX-License-Identifier: Apache-2.0 */
#include "selector.h"

#include <errno.h>

#include "base/mem.h"

/* A column that was found; the list owns it. */
struct found {
    struct rp_column *column;
    struct found *next;
};

struct rp_selector {
    const struct rp_source *source;
    struct rp_selection *selection;
    struct found *columns;
};

static int lengths(const void *context, const uint64_t *documents, uint32_t count,
                   union rp_value *values, struct rp_error *error)
{
    const struct rp_selector *selection = context;
    return rp_source_own_lengths(selection->source, documents, count, &values->word, error);
}

static int shards(const void *context, const uint64_t *documents, uint32_t count,
                  union rp_value *values, struct rp_error *error)
{
    const struct rp_selector *selection = context;
    return rp_source_shard_numbers(selection->source, documents, count, &values->word, error);
}

static int find_column(const void *context, const char *name, const void **column_out,
                       enum rp_value_kind *kind_out, struct rp_error *error)
{
    static const enum rp_value_kind kinds[] = {[RP_COLUMN_UNSIGNED] = RP_VALUE_UNSIGNED,
                                               [RP_COLUMN_SIGNED] = RP_VALUE_SIGNED,
                                               [RP_COLUMN_REAL] = RP_VALUE_REAL};
    /* called only by rp_selector_open, whose memory it is */
    struct rp_selector *selection = (struct rp_selector *)(uintptr_t)context;
    struct found *found = rp_calloc(1, sizeof *found);
    if (!found)
        return rp_fail(error, -ENOMEM, NULL, "no memory for a column");
    int code = rp_column_open(&found->column, selection->source, name, error);
    if (code < 0) {
        free(found);
        return code;
    }
    found->next = selection->columns;
    selection->columns = found;
    *column_out = found->column;
    *kind_out = kinds[rp_column_kind(found->column)];
    return 0;
}

static int values_of(const void *context, const void *column, const uint64_t *documents,
                     uint32_t count, union rp_value *values, struct rp_error *error)
{
    (void)context;
    return rp_column_values(column, documents, count, values, error);
}

static bool root_of(const void *context, const void *column, uint32_t i, uint64_t *first_out,
                    struct rp_hash128 *root_out)
{
    (void)context;
    return rp_column_root(column, i, first_out, root_out);
}

int rp_selector_open(struct rp_selector **selection_out, const struct rp_source *source,
                     const struct rp_selector_spec *given, struct rp_error *error)
{
    struct rp_selector *selection = rp_calloc(1, sizeof *selection);
    *selection_out = NULL;
    if (!selection)
        return rp_fail(error, -ENOMEM, NULL, "no memory for a selection");
    selection->source = source;
    const struct rp_selection_spec spec = {.select = given->select,
                                           .repeats = given->repeats,
                                           .repeat_count = given->repeat_count,
                                           .source = {.name = rp_source_name(source),
                                                      .first = rp_source_first(source),
                                                      .group = given->group,
                                                      .context = selection,
                                                      .lengths = lengths,
                                                      .shards = shards,
                                                      .column = find_column,
                                                      .values = values_of,
                                                      .root = root_of}};
    int code = rp_selection_open(&selection->selection, &spec, error);
    if (code < 0)
        rp_selector_close(selection);
    else
        *selection_out = selection;
    return code;
}

void rp_selector_close(struct rp_selector *selection)
{
    if (!selection)
        return;
    rp_selection_close(selection->selection);
    for (struct found *found = selection->columns; found;) {
        struct found *next = found->next;
        rp_column_close(found->column);
        free(found);
        found = next;
    }
    free(selection);
}

const struct rp_selection *rp_selector_selection(const struct rp_selector *selection)
{
    return selection->selection;
}
