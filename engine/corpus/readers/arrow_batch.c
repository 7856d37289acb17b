/* SPDX-License-Identifier: Apache-2.0 */
/* arrow_batch.c — the rows of a record batch. A row of a list column is a run of its values:
 *
 *     first byte   body + values.offset + offsets[row] * width
 *     tokens       offsets[row + 1] - offsets[row]
 *
 * The first offset need not be 0, and the values may begin before it: a slice of a table may have
 * been written with the buffers of the whole table. A null row has no tokens, whatever its offsets
 * say. The attention mask of a padded row ends with zeros; those tokens are left out. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "corpus/readers/arrow.h"

/* Fields of RecordBatch in Message.fbs. */
enum { BATCH_LENGTH = 0, BATCH_NODES, BATCH_BUFFERS, BATCH_COMPRESSION, BATCH_VARIADIC_COUNTS };
#define NODE_BYTES 16u   /* i64 length, i64 null_count */
#define BUFFER_BYTES 16u /* i64 offset, i64 bytes */

struct extent {
    uint64_t first, bytes; /* in the file */
};

/* A list column in one batch. */
struct list {
    const struct rp_arrow_column *column;
    uint32_t value_bits;
    uint64_t rows, values;
    struct extent validity, offsets, data;
};

int rp_arrow_damaged(const struct rp_probe *probe, const char *what, uint64_t number,
                     struct rp_error *error)
{
    return rp_fail(
        error, -RP_E_CORRUPT, "the file is damaged or was cut short: copy or write it again",
        "%s: Arrow: %s %" PRIu64 " is damaged, or outside the file", probe->path, what, number);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* View `bytes` bytes at `at`: at most half a window, and all below `end`. */
static int peek(struct rp_arrow_window *window, uint64_t at, size_t bytes, uint64_t end,
                const uint8_t **out, struct rp_error *error)
{
    RP_ASSERT(bytes <= RP_ARROW_WINDOW_BYTES / 2 && at + bytes <= end);
    if (at < window->first || at + bytes > window->first + window->count) {
        size_t count = (size_t)rp_min_u64(RP_ARROW_WINDOW_BYTES, end - at);
        window->count = 0;
        int code = rp_file_read_at(window->probe->fd, window->probe->path, window->bytes, count, at,
                                   error);
        if (code < 0)
            return code;
        window->first = at;
        window->count = count;
    }
    *out = window->bytes + (at - window->first);
    return 0;
}

static bool get_bit(const uint8_t *bits, uint64_t i)
{
    return bits[i / 8] >> i % 8 & 1;
}

/* ---- the batch ------------------------------------------------------------------------------- */

static struct extent get_buffer(const struct rp_arrow_batch *batch, uint64_t number)
{
    struct rp_flat_vector buffers = rp_flat_vector(batch->flat, batch->table, BATCH_BUFFERS,
                                                   BUFFER_BYTES);
    struct extent extent = {0};
    if (number >= buffers.count) {
        batch->flat->is_damaged = true;
        return extent;
    }
    uint64_t at = buffers.at + BUFFER_BYTES * number;
    extent.first = rp_flat_number(batch->flat, at, 8);
    extent.bytes = rp_flat_number(batch->flat, at + 8, 8);
    batch->flat->is_damaged |= !rp_range_inside(extent.first, extent.bytes, batch->body_bytes);
    extent.first += batch->body;
    return extent;
}

struct node {
    uint64_t length, nulls;
};
static struct node get_node(const struct rp_arrow_batch *batch, uint64_t number)
{
    struct rp_flat_vector nodes = rp_flat_vector(batch->flat, batch->table, BATCH_NODES,
                                                 NODE_BYTES);
    if (number >= nodes.count) {
        batch->flat->is_damaged = true;
        return (struct node){0};
    }
    uint64_t at = nodes.at + NODE_BYTES * number;
    return (struct node){rp_flat_number(batch->flat, at, 8),
                         rp_flat_number(batch->flat, at + 8, 8)};
}

/* The number of a column's first buffer: buffers of views before it are counted in the batch. */
static uint64_t first_buffer(const struct rp_arrow_batch *batch,
                             const struct rp_arrow_column *column)
{
    struct rp_flat_vector counts = rp_flat_vector(batch->flat, batch->table, BATCH_VARIADIC_COUNTS,
                                                  8);
    uint64_t buffer = column->buffer;
    batch->flat->is_damaged |= column->views > counts.count;
    for (uint32_t i = 0; i < column->views && !batch->flat->is_damaged; i++) {
        uint64_t count = rp_flat_number(batch->flat, counts.at + 8 * (uint64_t)i, 8);
        batch->flat->is_damaged |= count > UINT32_MAX;
        buffer += count;
    }
    return buffer;
}

static int fail_nulls(const struct rp_arrow_batch *batch, uint64_t nulls, struct rp_error *error)
{
    const char *path = batch->windows->probe->path;
    return rp_fail(error, -RP_E_FORMAT, "write the file again without them: a token has no null",
                   "%s: %" PRIu64 " nulls among the tokens of rows %" PRIu64 " on (record batch "
                   "%" PRIu64 ")",
                   path, nulls, batch->first_row, batch->number);
}

static int open_list(const struct rp_arrow_batch *batch, const struct rp_arrow_column *column,
                     struct list *list, struct rp_error *error)
{
    bool fixed = column->list == RP_ARROW_FIXED_SIZE_LIST;
    uint64_t buffer = first_buffer(batch, column);
    struct node rows = get_node(batch, column->node), values = get_node(batch, column->node + 1);
    uint64_t entry = column->list == RP_ARROW_LARGE_LIST ? 8 : 4, bits, offset_bytes = 0;
    *list = (struct list){
        .column = column,
        .value_bits = column->type == RP_TOKEN_NONE ? 1 : 8 * rp_token_width(column->type),
        .rows = rows.length,
        .values = values.length,
        .data = get_buffer(batch, buffer + (fixed ? 2 : 3)),
    };
    if (rows.nulls != 0)
        list->validity = get_buffer(batch, buffer);
    if (!fixed && rows.length > 0)
        list->offsets = get_buffer(batch, buffer + 1);
    bool fits = rp_mul_u64(values.length, list->value_bits, &bits) &&
                rp_div_up(bits, 8) <= list->data.bytes;
    if (!fixed && rows.length > 0)
        fits &= rows.length < UINT64_MAX / 16 &&
                (offset_bytes = entry * (rows.length + 1)) <= list->offsets.bytes;
    if (fixed)
        fits &= column->list_size > 0 && rp_mul_u64(rows.length, column->list_size, &bits) &&
                bits <= values.length;
    if (rows.nulls != 0)
        fits &= rp_div_up(rows.length, 8) <= list->validity.bytes;
    if (batch->flat->is_damaged || !fits || rows.nulls > rows.length)
        return rp_arrow_damaged(batch->windows->probe, "record batch", batch->number, error);
    list->offsets.bytes = offset_bytes;
    if (values.nulls != 0)
        return fail_nulls(batch, values.nulls, error);
    return 0;
}

/* ---- rows ------------------------------------------------------------------------------------ */

struct row {
    uint64_t begin, end; /* range of its values */
};

static int get_row(const struct rp_arrow_batch *batch, struct rp_arrow_window *window,
                   const struct list *list, uint64_t number, struct row *row,
                   struct rp_error *error)
{
    const uint8_t *bytes;
    int code = 0;
    if (list->column->list == RP_ARROW_FIXED_SIZE_LIST) {
        row->begin = number * list->column->list_size;
        row->end = row->begin + list->column->list_size;
    } else {
        bool large = list->column->list == RP_ARROW_LARGE_LIST;
        size_t entry = large ? 8 : 4;
        code = peek(window, list->offsets.first + entry * number, 2 * entry,
                    list->offsets.first + list->offsets.bytes, &bytes, error);
        if (code < 0)
            return code;
        row->begin = large ? rp_load_u64(bytes) : rp_load_u32(bytes);
        row->end = large ? rp_load_u64(bytes + 8) : rp_load_u32(bytes + 4);
    }
    if (row->begin > row->end || row->end > list->values)
        return rp_arrow_damaged(window->probe, "row", batch->first_row + number, error);
    return 0;
}

/* Whether a row is null: it then has no tokens. */
static int is_null(struct rp_arrow_window *window, const struct list *list, uint64_t number,
                   bool *out, struct rp_error *error)
{
    const uint8_t *bits;
    *out = false;
    if (list->validity.bytes == 0)
        return 0;
    int code = peek(window, list->validity.first + number / 8, 1,
                    list->validity.first + list->validity.bytes, &bits, error);
    if (code == 0)
        *out = !get_bit(bits, number % 8);
    return code;
}

/* ---- padding --------------------------------------------------------------------------------- */

/* The entries of a row's attention mask so far: ones, then perhaps zeros. */
struct padding {
    uint64_t ones, zeros;
    bool has_hole, is_left;
};

static void add_attention(struct padding *padding, const uint8_t *bytes, uint64_t first_bit,
                          uint32_t value_bits, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        uint64_t value = 0;
        if (value_bits == 1)
            value = get_bit(bytes, first_bit + i);
        else
            memcpy(&value, bytes + i * (value_bits / 8), value_bits / 8);
        padding->has_hole |= value && padding->zeros;
        padding->is_left |= value && padding->zeros && padding->ones == 0;
        padding->ones += value != 0;
        padding->zeros += value == 0;
    }
}

static int fail_attention(const struct rp_arrow_batch *batch, uint64_t row, const char *found,
                          struct rp_error *error)
{
    return rp_fail(error, -RP_E_FORMAT,
                   "save the rows without padding, or remove the column: remove_columns("
                   "\"attention_mask\") keeps all tokens of every row",
                   "%s: attention_mask of row %" PRIu64 ": expected ones, then zeros for padding "
                   "at the end; found %s",
                   batch->windows->probe->path, batch->first_row + row, found);
}

static int fail_too_long_at_start(const struct rp_probe *probe, struct rp_error *error)
{
    char hint[sizeof error->hint];
    snprintf(hint, sizeof hint, "run `ringpack index %s` once", RP_HINT_PATH(probe->path));
    return rp_fail(error, -RP_E_FORMAT, hint,
                   "%s: its masks are too long to be read at every start: expected a "
                   "sidecar, found none",
                   probe->path);
}

/* Leave out the padding at the end of a row. */
static int trim_row(const struct rp_arrow_batch *batch, const struct list *attention,
                    uint64_t number, struct row *row, struct rp_error *error)
{
    struct row entries;
    struct padding padding = {0};
    const uint32_t bits = attention->value_bits;
    int code = get_row(batch, &batch->windows[RP_ARROW_ATTENTION_OFFSETS], attention, number,
                       &entries, error);
    if (code < 0)
        return code;
    if (entries.end - entries.begin != row->end - row->begin)
        return fail_attention(batch, number, "another number of values than tokens", error);
    for (uint64_t at = entries.begin; at < entries.end;) {
        uint64_t count = rp_min_u64(entries.end - at, RP_ARROW_WINDOW_BYTES / 32);
        uint64_t first = attention->data.first + at * bits / 8, last_bit = (at + count) * bits;
        size_t bytes = (size_t)(attention->data.first + rp_div_up(last_bit, 8) - first);
        const uint8_t *values;
        if (*batch->mask_bytes_left < bytes)
            return fail_too_long_at_start(batch->windows->probe, error);
        *batch->mask_bytes_left -= bytes;
        code = peek(&batch->windows[RP_ARROW_ATTENTION], first, bytes,
                    attention->data.first + attention->data.bytes, &values, error);
        if (code < 0)
            return code;
        add_attention(&padding, values, at * bits % 8, bits, count);
        at += count;
    }
    if (padding.has_hole)
        return fail_attention(batch, number,
                              padding.is_left ? "padding at the beginning" : "ones after zeros",
                              error);
    row->end = row->begin + padding.ones;
    return 0;
}

/* ---- trained tokens -------------------------------------------------------------------------- */

static int need_room(struct rp_arrow_window *window, size_t bytes, struct rp_error *error)
{
    if (bytes <= window->row_capacity)
        return 0;
    free(window->row);
    window->row = malloc(bytes);
    window->row_capacity = window->row ? bytes : 0;
    return window->row ? 0
                       : rp_fail(error, -ENOMEM, NULL, "%s: no memory for a row of %zu bytes",
                                 window->probe->path, bytes);
}

/* View the values of a row, from the byte that has the first one. */
static int get_values(const struct rp_arrow_batch *batch, struct rp_arrow_window *window,
                      const struct list *list, const struct row *row, const uint8_t **out,
                      struct rp_error *error)
{
    uint64_t first = list->data.first + row->begin * list->value_bits / 8;
    uint64_t end = list->data.first + rp_div_up(row->end * list->value_bits, 8);
    size_t bytes = row->end > row->begin ? (size_t)(end - first) : 0;
    *out = window->bytes;
    if (bytes == 0)
        return 0;
    if (*batch->mask_bytes_left < bytes)
        return fail_too_long_at_start(window->probe, error);
    *batch->mask_bytes_left -= bytes;
    if (bytes <= RP_ARROW_WINDOW_BYTES / 2)
        return peek(window, first, bytes, list->data.first + list->data.bytes, out, error);
    int code = need_room(window, bytes, error);
    *out = window->row;
    return code < 0 ? code
                    : rp_file_read_at(window->probe->fd, window->probe->path, window->row, bytes,
                                      first, error);
}

/* Replace *entries, `count` bits from bit `first` on, by bytes. */
static int widen_bits(struct rp_arrow_window *window, const uint8_t **entries, uint64_t first,
                      uint64_t count, struct rp_error *error)
{
    uint8_t *bits = window->row; /* *entries may point into it */
    window->row = NULL;
    window->row_capacity = 0;
    int code = need_room(window, (size_t)count + 1, error);
    for (uint64_t i = 0; code == 0 && i < count; i++)
        window->row[i] = get_bit(*entries, first + i);
    *entries = window->row;
    free(bits);
    return code;
}

/* The columns of a batch; `attention` and `trained` only if the schema has them. */
struct columns {
    struct list ids, attention, trained;
};

/* The spans of a row `whole`, whose tokens from `end` on are padding. */
static int find_spans(const struct rp_arrow_batch *batch, const struct columns *columns,
                      uint64_t number, const struct row *whole, uint64_t end,
                      struct rp_error *error)
{
    const struct list *ids = &columns->ids, *trained = &columns->trained;
    const struct rp_mask_origin *origin = &batch->schema->origin;
    struct rp_arrow_window *window = &batch->windows[RP_ARROW_TRAINED];
    const char *path = window->probe->path;
    const struct row row = {whole->begin, end};
    struct row marks;
    struct rp_mask_document document = {.path = path,
                                        .number = batch->first_row + number,
                                        .token_type = ids->column->type,
                                        .entry_type = trained->column->type,
                                        .count = (uint32_t)(end - whole->begin)};
    int code = get_row(batch, &batch->windows[RP_ARROW_TRAINED_OFFSETS], trained, number, &marks,
                       error);
    if (code < 0)
        return code;
    if (marks.end - marks.begin != whole->end - whole->begin || end - whole->begin > UINT32_MAX)
        return rp_fail(error, -RP_E_FORMAT, "a mask has an entry for each token of its row",
                       "%s: row %" PRIu64 ": column %s: expected %" PRIu64 " entries, found "
                       "%" PRIu64,
                       path, document.number, origin->name, whole->end - whole->begin,
                       marks.end - marks.begin);
    marks.end = marks.begin + (end - whole->begin);
    code = get_values(batch, window, trained, &marks, &document.entries, error);
    if (code == 0 && trained->value_bits == 1) {
        document.entry_type = RP_TOKEN_U8;
        code = widen_bits(window, &document.entries, marks.begin % 8, marks.end - marks.begin,
                          error);
    }
    if (code == 0 && origin->rule.is_labels)
        code = get_values(batch, &batch->windows[RP_ARROW_TOKENS], ids, &row, &document.tokens,
                          error);
    return code < 0 ? code : rp_mask_spans(batch->spans, &origin->rule, &document, error);
}

static int open_columns(const struct rp_arrow_batch *batch, struct columns *columns,
                        struct rp_error *error)
{
    const struct rp_arrow_schema *schema = batch->schema;
    int code = open_list(batch, &schema->ids, &columns->ids, error);
    if (code < 0)
        return code;
    uint64_t rows = columns->ids.rows;
    columns->attention.rows = columns->trained.rows = rows;
    if (schema->has_attention)
        code = open_list(batch, &schema->attention, &columns->attention, error);
    if (code < 0)
        return code;
    if (schema->has_trained)
        code = open_list(batch, &schema->trained, &columns->trained, error);
    if (code < 0)
        return code;
    return columns->attention.rows == rows && columns->trained.rows == rows
               ? 0
               : rp_arrow_damaged(batch->windows->probe, "record batch", batch->number, error);
}

/* A null row is an empty document. */
static int emit_row(struct rp_arrow_batch *batch, const struct columns *columns, uint64_t number,
                    struct rp_sink *sink, struct rp_error *error)
{
    const struct list *ids = &columns->ids;
    struct rp_span_list *spans = batch->spans;
    struct row whole;
    bool null = false;
    spans->count = 0;
    int code = get_row(batch, &batch->windows[RP_ARROW_OFFSETS], ids, number, &whole, error);
    if (code < 0)
        return code;
    code = is_null(&batch->windows[RP_ARROW_VALIDITY], ids, number, &null, error);
    if (code < 0)
        return code;
    struct row row = {whole.begin, null ? whole.begin : whole.end};
    if (!null && batch->schema->has_attention)
        code = trim_row(batch, &columns->attention, number, &row, error);
    if (code < 0)
        return code;
    if (!null && batch->schema->has_trained)
        code = find_spans(batch, columns, number, &whole, row.end, error);
    if (code < 0)
        return code;
    return rp_sink_document(sink, ids->data.first + row.begin * (ids->value_bits / 8),
                            row.end - row.begin, spans->spans, spans->count, error);
}

int rp_arrow_emit_batch(struct rp_arrow_batch *batch, struct rp_sink *sink, uint64_t *rows_out,
                        struct rp_error *error)
{
    struct columns columns;
    if (rp_flat_table(batch->flat, batch->table, BATCH_COMPRESSION))
        return rp_readers_convert(batch->windows->probe,
                                  "Arrow with compressed buffers, which cannot be read in place",
                                  error);
    int code = open_columns(batch, &columns, error);
    for (uint64_t r = 0; code == 0 && r < columns.ids.rows; r++)
        code = emit_row(batch, &columns, r, sink, error);
    if (code == 0)
        *rows_out = columns.ids.rows;
    return code;
}
