/* SPDX-License-Identifier: Apache-2.0 */
/* selection.c — see selection.h. Documents are tested in batches whose values are on the stack. */
#include "plan/v2/selection.h"

#include <Random123/philox.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem.h"

/* The values of a batch: fewer documents at once if the columns are many. */
#define VALUES_MAX 2048u

enum column_kind { COLUMN_LENGTH, COLUMN_SHARD, COLUMN_DOCUMENT, COLUMN_FRACTION, COLUMN_OF_INDEX };
static const char *const built_in[] = {"length", "shard", "document", "fraction"};

struct column {
    const char *name; /* an expression's */
    enum column_kind kind;
    enum rp_value_kind values;
    const void *of_index;
};

struct repeat {
    uint8_t count;
    struct rp_expression *expression;
};

struct rp_selection {
    struct rp_selection_source source;
    struct rp_expression *select; /* NULL: all */
    struct repeat *repeats;       /* ascending */
    uint32_t repeat_count, column_count, column_capacity;
    struct column *columns; /* by name, ascending */
};

/* ---- open ------------------------------------------------------------------------------------ */

static enum column_kind kind_of(const char *name)
{
    unsigned kind = 0;
    while (kind < RP_ARRAY_COUNT(built_in) && strcmp(name, built_in[kind]) != 0)
        kind++;
    return (enum column_kind)kind;
}

bool rp_selection_is_built_in(const char *name)
{
    return kind_of(name) != COLUMN_OF_INDEX;
}

/* The place of a name among the columns: its own, or where it would be inserted. */
static uint32_t place_of(const struct rp_selection *selection, const char *name)
{
    uint32_t low = 0, high = selection->column_count;
    RP_PARTITION(low, high, middle, strcmp(selection->columns[middle].name, name) < 0)
    return low;
}

static int add_column(struct rp_selection *selection, const char *name, struct rp_error *error)
{
    const struct rp_selection_source *source = &selection->source;
    uint32_t at = place_of(selection, name);
    if (at < selection->column_count && !strcmp(selection->columns[at].name, name))
        return 0;
    if (selection->column_count == selection->column_capacity)
        return rp_fail(error, -RP_E_CONFIG, "keep a decision as a column of its own",
                       "expected at most %u columns, found more", RP_SELECTION_COLUMNS_MAX);
    struct column column = {name, kind_of(name), RP_VALUE_UNSIGNED, NULL};
    if (column.kind == COLUMN_FRACTION)
        column.values = RP_VALUE_FRACTION;
    int code = column.kind == COLUMN_OF_INDEX
                   ? source->column(source->context, name, &column.of_index, &column.values, error)
                   : 0;
    if (code < 0)
        return code;
    memmove(&selection->columns[at + 1], &selection->columns[at],
            (selection->column_count - at) * sizeof column);
    selection->columns[at] = column;
    selection->column_count++;
    return 0;
}

static int add_columns(struct rp_selection *selection, const struct rp_expression *expression,
                       struct rp_error *error)
{
    int code = 0;
    for (uint32_t i = 0; code == 0 && i < rp_expression_names(expression); i++)
        code = add_column(selection, rp_expression_name(expression, i), error);
    return code;
}

static int fail_in(const struct rp_selection *selection, const char *what, int code,
                   struct rp_error *error)
{
    return rp_fail_context(error, code, "source `%s`: %s", selection->source.name, what);
}

static int parse_repeat(struct rp_selection *selection, const struct rp_selection_repeat *repeat,
                        struct rp_error *error)
{
    struct repeat *last = selection->repeats + selection->repeat_count;
    char what[32];
    snprintf(what, sizeof what, "repeat: %" PRIu32, repeat->count);
    uint32_t least = selection->repeat_count ? last[-1].count + 1u : 2u;
    if (repeat->count < least || repeat->count > RP_SELECTION_COUNT_MAX)
        return fail_in(selection, what,
                       rp_fail(error, -RP_E_CONFIG, "counts are 2 to 255, each once",
                               "expected %" PRIu32 " to %u", least, RP_SELECTION_COUNT_MAX),
                       error);
    int code = rp_expression_parse(&last->expression, repeat->expression, error);
    if (code < 0)
        return fail_in(selection, what, code, error);
    last->count = (uint8_t)repeat->count;
    selection->repeat_count++;
    code = add_columns(selection, last->expression, error);
    return code < 0 ? fail_in(selection, what, code, error) : 0;
}

static int parse(struct rp_selection *selection, const struct rp_selection_spec *spec,
                 struct rp_error *error)
{
    int code = spec->select ? rp_expression_parse(&selection->select, spec->select, error) : 0;
    if (code == 0 && spec->select)
        code = add_columns(selection, selection->select, error);
    if (code < 0)
        return fail_in(selection, "select", code, error);
    for (uint32_t i = 0; code == 0 && i < spec->repeat_count; i++)
        code = parse_repeat(selection, &spec->repeats[i], error);
    return code;
}

static void bind(const struct rp_selection *selection, struct rp_expression *expression)
{
    struct rp_value_column columns[RP_EXPRESSION_COMPARISONS_MAX];
    for (uint32_t i = 0; i < rp_expression_names(expression); i++) {
        uint32_t at = place_of(selection, rp_expression_name(expression, i));
        columns[i] = (struct rp_value_column){at, selection->columns[at].values};
    }
    rp_expression_bind(expression, columns);
}

/* How many names the texts can have at most: a comparison takes three bytes. */
static uint32_t names_max(const struct rp_selection_spec *spec)
{
    uint64_t bytes = spec->select ? strlen(spec->select) : 0;
    for (uint32_t i = 0; i < spec->repeat_count; i++)
        bytes += strlen(spec->repeats[i].expression);
    return (uint32_t)rp_min_u64(RP_SELECTION_COLUMNS_MAX, bytes / 3 + 1);
}

int rp_selection_open(struct rp_selection **selection_out, const struct rp_selection_spec *spec,
                      struct rp_error *error)
{
    struct rp_selection *selection = rp_calloc(1, sizeof *selection);
    *selection_out = NULL;
    if (!selection)
        return rp_fail(error, -ENOMEM, NULL, "no memory for a selection");
    selection->source = spec->source;
    selection->column_capacity = names_max(spec);
    selection->columns = rp_calloc(selection->column_capacity + 1u, sizeof *selection->columns);
    selection->repeats = rp_calloc(spec->repeat_count, sizeof *selection->repeats);
    int code = selection->columns && selection->repeats
                   ? parse(selection, spec, error)
                   : rp_fail(error, -ENOMEM, NULL, "no memory for a selection");
    if (code < 0) {
        rp_selection_close(selection);
        return code;
    }
    if (selection->select)
        bind(selection, selection->select);
    for (uint32_t i = 0; i < selection->repeat_count; i++)
        bind(selection, selection->repeats[i].expression);
    *selection_out = selection;
    return 0;
}

void rp_selection_close(struct rp_selection *selection)
{
    if (!selection)
        return;
    rp_expression_free(selection->select);
    for (uint32_t i = 0; i < selection->repeat_count; i++)
        rp_expression_free(selection->repeats[i].expression);
    free(selection->repeats);
    free(selection->columns);
    free(selection);
}

uint8_t rp_selection_passes(const struct rp_selection *selection)
{
    return selection->repeat_count ? selection->repeats[selection->repeat_count - 1].count : 1;
}

/* ---- values ---------------------------------------------------------------------------------- */

static void take_documents(const struct rp_selection_source *source, const uint64_t *documents,
                           uint32_t count, union rp_value *values)
{
    for (uint32_t i = 0; i < count; i++)
        values[i].word = source->first + documents[i];
}

/* Word 0 of the generator; it depends on no seed. */
static void take_fractions(const struct rp_selection_source *source, const uint64_t *documents,
                           uint32_t count, union rp_value *values)
{
    const philox4x32_key_t key = {{0, 0}};
    for (uint32_t i = 0; i < count; i++) {
        uint64_t x = source->first + documents[i];
        if (source->group > 1)
            x /= source->group;
        philox4x32_ctr_t counter = {{(uint32_t)x, (uint32_t)(x >> 32), 0, 0}};
        values[i].word = philox4x32(counter, key).v[0];
    }
}

static int check_reals(const struct rp_selection *selection, const struct column *column,
                       const uint64_t *documents, uint32_t count, const union rp_value *values,
                       struct rp_error *error)
{
    bool is_good = true;
    for (uint32_t i = 0; i < count; i++)
        is_good &= values[i].real == values[i].real;
    for (uint32_t i = 0; !is_good && i < count; i++)
        if (values[i].real != values[i].real)
            return rp_fail(
                error, -RP_E_CORRUPT, "write the column again: `ringpack annotate` with --replace",
                "source `%s`: document %" PRIu64 ": column `%s`: expected a number, "
                "found NaN",
                selection->source.name, selection->source.first + documents[i], column->name);
    return 0;
}

static int take_values(const struct rp_selection *selection, const struct column *column,
                       const uint64_t *documents, uint32_t count, union rp_value *values,
                       struct rp_error *error)
{
    const struct rp_selection_source *source = &selection->source;
    int code = 0;
    switch (column->kind) {
    case COLUMN_LENGTH:
        return source->lengths(source->context, documents, count, values, error);
    case COLUMN_SHARD:
        return source->shards(source->context, documents, count, values, error);
    case COLUMN_DOCUMENT:
        take_documents(source, documents, count, values);
        return 0;
    case COLUMN_FRACTION:
        take_fractions(source, documents, count, values);
        return 0;
    case COLUMN_OF_INDEX:
        code = source->values(source->context, column->of_index, documents, count, values, error);
        break;
    }
    return code == 0 && column->values == RP_VALUE_REAL
               ? check_reals(selection, column, documents, count, values, error)
               : code;
}

/* ---- counts ---------------------------------------------------------------------------------- */

static int count_batch(const struct rp_selection *selection, const uint64_t *documents,
                       uint32_t count, uint8_t *counts, struct rp_error *error)
{
    union rp_value values[VALUES_MAX];
    uint64_t chosen = UINT64_MAX >> (RP_EXPRESSION_DOCUMENTS_MAX - count);
    int code = 0;
    for (uint32_t c = 0; code == 0 && c < selection->column_count; c++)
        code = take_values(selection, &selection->columns[c], documents, count,
                           values + (size_t)c * count, error);
    if (code < 0)
        return code;
    if (selection->select)
        chosen = rp_expression_test(selection->select, values, count, count);
    for (uint32_t i = 0; i < count; i++)
        counts[i] = chosen >> i & 1;
    for (uint32_t r = 0; chosen && r < selection->repeat_count; r++) {
        const struct repeat *repeat = &selection->repeats[r];
        uint64_t left = chosen & rp_expression_test(repeat->expression, values, count, count);
        for (; left; left &= left - 1)
            counts[__builtin_ctzll(left)] = repeat->count;
    }
    return 0;
}

int rp_selection_counts(const void *context, const uint64_t *documents, uint32_t count,
                        uint8_t *counts, struct rp_error *error)
{
    const struct rp_selection *selection = context;
    uint32_t columns = selection->column_count ? selection->column_count : 1;
    uint32_t size = (uint32_t)rp_min_u64(RP_EXPRESSION_DOCUMENTS_MAX, VALUES_MAX / columns);
    int code = 0;
    for (uint32_t at = 0; code == 0 && at < count; at += size)
        code = count_batch(selection, documents + at, (uint32_t)rp_min_u64(size, count - at),
                           counts + at, error);
    return code;
}

/* ---- the hash -------------------------------------------------------------------------------- */

/* A text that is measured first (`to` is NULL), then written. */
struct text {
    char *to;
    size_t bytes;
};

static void put(struct text *text, const char *words)
{
    size_t bytes = strlen(words);
    if (text->to)
        memcpy(text->to + text->bytes, words, bytes);
    text->bytes += bytes;
}

static void put_line(struct text *text, const char *head, const char *rest)
{
    put(text, head);
    put(text, rest);
    put(text, "\n");
}

/* `prefix`: documents of the index, from its first one on. */
static void put_column(const struct rp_selection *selection, const struct column *column,
                       uint64_t prefix, struct text *text)
{
    const struct rp_selection_source *source = &selection->source;
    char hex[RP_HASH_HEX_BYTES];
    struct rp_hash128 root;
    uint64_t first;
    put(text, "column ");
    put(text, column->name);
    put(text, " ");
    for (uint32_t i = 0;
         source->root(source->context, column->of_index, i, &first, &root) && first < prefix; i++)
        put(text, rp_hash128_hex(root, hex));
    put(text, "\n");
}

static void put_all(const struct rp_selection *selection, uint64_t prefix,
                    const struct rp_hash128 *unseen, struct text *text)
{
    char head[32], hash[2 * 16 + 1];
    if (selection->select)
        put_line(text, "select ", rp_expression_text(selection->select));
    for (uint32_t i = 0; i < selection->repeat_count; i++) {
        snprintf(head, sizeof head, "repeat %u ", selection->repeats[i].count);
        put_line(text, head, rp_expression_text(selection->repeats[i].expression));
    }
    for (uint32_t c = 0; c < selection->column_count; c++)
        if (selection->columns[c].kind == COLUMN_OF_INDEX)
            put_column(selection, &selection->columns[c], prefix, text);
    if (!unseen)
        return;
    snprintf(hash, sizeof hash, "%016" PRIx64 "%016" PRIx64, unseen->low, unseen->high);
    put_line(text, "unseen ", hash);
}

int rp_selection_hash(const struct rp_selection *selection, uint64_t documents,
                      const struct rp_hash128 *unseen, uint64_t *hash_out, struct rp_error *error)
{
    uint64_t prefix = selection->source.first + documents;
    struct text text = {0};
    *hash_out = 0;
    if (!selection->select && selection->repeat_count == 0 && !unseen)
        return 0;
    put_all(selection, prefix, unseen, &text);
    text.to = rp_calloc(text.bytes, 1);
    if (!text.to)
        return rp_fail(error, -ENOMEM, NULL, "no memory for the text of a selection");
    text.bytes = 0;
    put_all(selection, prefix, unseen, &text);
    *hash_out = rp_hash64(text.to, text.bytes);
    free(text.to);
    return 0;
}
