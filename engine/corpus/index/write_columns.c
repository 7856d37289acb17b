/* SPDX-License-Identifier: Apache-2.0 */
/* write_columns.c — columns that are appended to an index (write.h): their data, then one head. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/stop.h"
#include "corpus/index/write.h"

#define PART_VALUES (1u << 20) /* between two reports */

/* ---- one column ------------------------------------------------------------------------------ */

#define NARROW(id, type)                                                                           \
    case RP_INDEX_COLUMN_##id:                                                                     \
        for (uint64_t i = 0; i < count; i++) {                                                     \
            const type value = (type)words[i];                                                     \
            memcpy(to + i * sizeof value, &value, sizeof value);                                   \
        }                                                                                          \
        break;

static void put_values(enum rp_index_column_type type, const uint64_t *words, uint64_t count,
                       uint8_t *to)
{
    switch (type) {
        NARROW(U8, uint8_t)
        NARROW(U16, uint16_t)
        NARROW(U32, uint32_t)
        NARROW(I8, uint8_t) /* the low bytes of two's complement */
        NARROW(I16, uint16_t)
        NARROW(I32, uint32_t)
    case RP_INDEX_COLUMN_F32:
        for (uint64_t i = 0; i < count; i++) {
            double wide;
            memcpy(&wide, &words[i], sizeof wide);
            const float value = (float)wide;
            memcpy(to + i * sizeof value, &value, sizeof value);
        }
        break;
    case RP_INDEX_COLUMN_U64:
    case RP_INDEX_COLUMN_I64:
    case RP_INDEX_COLUMN_F64:
        memcpy(to, words, (size_t)count * 8);
        break;
    case RP_INDEX_COLUMN_NONE:
    case RP_INDEX_COLUMN_TYPE_COUNT:
        break;
    }
}

static uint64_t data_bytes(const struct rp_index_column *column)
{
    return rp_align_up(column->values * rp_index_column_width(column->type), 8);
}

static uint64_t page_count(const struct rp_index_column *column)
{
    return rp_div_up(data_bytes(column), RP_BLOCK_BYTES);
}

/* Fill the memory of a column, and hash it. */
static int write_values(struct rp_index_column *column, const uint64_t *words, uint8_t *data,
                        const struct rp_progress *progress, struct rp_error *error)
{
    uint32_t width = rp_index_column_width(column->type);
    uint64_t bytes = data_bytes(column);
    for (uint64_t at = 0; at < column->values; at += PART_VALUES) {
        put_values(column->type, words + at, rp_min_u64(PART_VALUES, column->values - at),
                   data + at * width);
        rp_progress_report(progress, at, column->values);
        int code = rp_stop_check(error);
        if (code < 0)
            return code;
    }
    uint64_t *hashes = (uint64_t *)(void *)(data + bytes);
    rp_tree_hash_pages(data, bytes, 0, page_count(column), hashes);
    column->tree.root = rp_tree_finish(page_count(column), hashes);
    return 0;
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* Set the offsets of the new columns. Returns the end of the last one. */
static uint64_t lay_out(struct rp_index_column *columns, uint32_t count, uint64_t begin)
{
    uint64_t end = begin;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t bytes = data_bytes(&columns[i]) + 8 * rp_tree_hash_count(page_count(&columns[i]));
        columns[i].offset = rp_index_align(end, bytes);
        end = columns[i].offset + bytes;
    }
    return end;
}

static int write_all(struct rp_index_writer *writer, struct rp_index *draft,
                     const struct rp_index_new_column *added, uint32_t count,
                     const struct rp_progress *progress, struct rp_error *error)
{
    struct rp_index_column *columns = draft->columns + (draft->column_count - count);
    uint64_t begin = writer->end;
    draft->end = lay_out(columns, count, begin);
    int code = rp_index_map_new(writer, begin, draft->end, error);
    for (uint32_t i = 0; code == 0 && i < count; i++)
        code = write_values(&columns[i], added[i].words,
                            writer->map + (columns[i].offset - writer->map_at), progress, error);
    return code < 0 ? code : rp_index_write_head(writer, draft, error);
}

static int check(const struct rp_index *index, const struct rp_index_new_column *new,
                 struct rp_error *error)
{
    bool fits = new->segment < index->segment_count &&
                index->segments[new->segment].shape.table.documents > 0 &&
                rp_index_column_width(new->type) > 0 && new->name[0] &&
                strlen(new->name) < RP_INDEX_COLUMN_NAME_BYTES;
    return fits ? 0
                : rp_fail(error, -RP_E_USAGE,
                          "name a segment with documents, and a column of at most 47 bytes",
                          "%s: column `%.60s` of segment %" PRIu32 ": it cannot be", index->path,
                          new->name, new->segment);
}

/* The older columns that are not replaced, then the new ones. */
static uint32_t list_columns(const struct rp_index *index, const struct rp_index_new_column *added,
                             uint32_t count, struct rp_index_column *columns)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < index->column_count; i++) {
        const struct rp_index_column *older = &index->columns[i];
        bool is_replaced = false;
        for (uint32_t k = 0; k < count && !is_replaced; k++)
            is_replaced = older->segment_at == index->segments[added[k].segment].offset &&
                          !strcmp(older->name, added[k].name);
        if (!is_replaced)
            columns[kept++] = *older;
    }
    for (uint32_t k = 0; k < count; k++) {
        struct rp_index_column *column = &columns[kept++];
        column->type = added[k].type;
        column->segment_at = index->segments[added[k].segment].offset;
        column->values = index->segments[added[k].segment].shape.table.documents;
        memcpy(column->name, added[k].name, strlen(added[k].name));
    }
    return kept;
}

int rp_index_append_columns(const struct rp_index *index, const struct rp_index_new_column *columns,
                            uint32_t count, const struct rp_progress *progress,
                            struct rp_error *error)
{
    struct rp_index draft = *index;
    struct rp_index_writer writer;
    for (uint32_t i = 0; i < count; i++) {
        int code = check(index, &columns[i], error);
        if (code < 0)
            return code;
    }
    draft.columns = rp_calloc((size_t)index->column_count + count, sizeof *draft.columns);
    if (!draft.columns)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for its columns", index->path);
    draft.column_count = list_columns(index, columns, count, draft.columns);
    draft.generation++;
    int code = rp_index_writer_append(&writer, index, error);
    if (code == 0)
        code = write_all(&writer, &draft, columns, count, progress, error);
    rp_index_writer_close(&writer);
    if (writer.fd >= 0)
        close(writer.fd);
    free(draft.columns);
    return code;
}
