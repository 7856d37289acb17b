/* SPDX-License-Identifier: Apache-2.0 */

#include "corpus/table.h"

#define DAMAGED "the page of the index that has it differs from its hash"

struct offsets {
    uint64_t lengths, span_ends, spans, end;
};

/* Where each section begins. False if the image would have more bytes than there are numbers. */
static bool find_sections(const struct rp_table_shape *shape, struct offsets *at)
{
    uint64_t documents = shape->has_extents ? shape->documents : 0;
    uint64_t ends = shape->has_spans ? shape->documents + 1 : 0;
    uint64_t spans = shape->has_spans ? shape->span_count : 0;
    bool is_there = shape->has_extents || shape->has_spans;
    if ((is_there && shape->documents > UINT64_MAX / 64) || spans > UINT64_MAX / 64)
        return false;
    at->lengths = 8 * documents;
    at->span_ends = rp_align_up(at->lengths + 4 * documents, 8);
    at->spans = at->span_ends + 8 * ends;
    at->end = at->spans + sizeof(struct rp_span) * spans;
    return true;
}

bool rp_table_image_bytes(const struct rp_table_shape *shape, uint64_t *bytes)
{
    struct offsets at;
    bool fits = find_sections(shape, &at);
    *bytes = fits ? at.end : 0;
    return fits;
}

void rp_table_over(struct rp_table *table, const struct rp_table_shape *shape, const uint8_t *image,
                   const struct rp_tree *tree)
{
    struct offsets at;
    bool fits = find_sections(shape, &at);
    RP_ASSERT(fits && (uintptr_t)image % 8 == 0 && (!tree || at.end <= tree->bytes));
    *table = (struct rp_table){
        .shape = *shape,
        .image = image,
        .image_bytes = at.end,
        .bytes = (const uint64_t *)(const void *)image,
        .lengths = (const uint32_t *)(const void *)(image + at.lengths),
        .tree = tree,
    };
    if (shape->has_spans)
        table->spans = (struct rp_spans){
            .ends = (const uint64_t *)(const void *)(image + at.span_ends),
            .table = (const struct rp_span *)(const void *)(image + at.spans),
            .documents = shape->documents,
            .count = shape->span_count,
        };
}

void rp_table_close(struct rp_table *table)
{
    free(table->built);
    *table = (struct rp_table){0};
}

struct rp_hash128 rp_table_root(const struct rp_table *table)
{
    struct rp_hasher root;
    rp_hasher_begin(&root);
    for (uint64_t at = 0; at < table->image_bytes; at += RP_BLOCK_BYTES) {
        uint64_t hash = rp_hash64(table->image + at,
                                  (size_t)rp_min_u64(RP_BLOCK_BYTES, table->image_bytes - at));
        rp_hasher_add(&root, &hash, sizeof hash);
    }
    return rp_hasher_finish(&root);
}

/* ---- use ------------------------------------------------------------------------------------- */

static inline bool verify(const struct rp_table *table, uint64_t byte)
{
    RP_DASSERT(byte < table->image_bytes);
    return !table->tree || rp_tree_verify(table->tree, byte);
}

static uint64_t offset_of(const struct rp_table *table, const void *entry)
{
    return (uint64_t)((const uint8_t *)entry - table->image);
}

bool rp_table_verify_ends(const struct rp_table *table, uint64_t document)
{
    const uint64_t *begin = table->spans.ends + document;
    return verify(table, offset_of(table, begin)) && verify(table, offset_of(table, begin + 1));
}

bool rp_table_verify_spans(const struct rp_table *table, uint64_t document)
{
    if (!rp_table_verify_ends(table, document))
        return false;
    uint64_t first = table->spans.ends[document], end = table->spans.ends[document + 1];
    if (first >= end || end > table->spans.count)
        return true; /* no spans, or ends that rp_spans_cut refuses */
    uint64_t last = offset_of(table, &table->spans.table[end]) - 1;
    for (uint64_t at = offset_of(table, &table->spans.table[first]); at < last;
         at += RP_BLOCK_BYTES)
        if (!verify(table, at))
            return false;
    return verify(table, last);
}

uint64_t rp_table_length(const struct rp_table *table, uint64_t document)
{
    const uint32_t *length = &table->lengths[document];
    return verify(table, offset_of(table, length)) ? *length : UINT64_MAX;
}

const char *rp_table_locate(const struct rp_table *table, uint64_t document, uint32_t width,
                            uint64_t file_bytes, uint64_t *tokens, uint64_t *byte)
{
    const uint64_t *begin = &table->bytes[document];
    uint64_t length = rp_table_length(table, document);
    if (length == UINT64_MAX || !verify(table, offset_of(table, begin)))
        return DAMAGED;
    if (!rp_range_inside(*begin, length * width, file_bytes))
        return "it is outside the file";
    *tokens = length;
    *byte = *begin;
    return NULL;
}

uint64_t rp_table_check_ahead(const struct rp_table *table, uint64_t first, uint64_t count)
{
    uint64_t documents = table->shape.documents;
    uint64_t last = first + rp_min_u64(count, documents - first);
    uint64_t d = first;
    while (d < last) {
        uint64_t offset = offset_of(table, &table->lengths[d]);
        if (!verify(table, offset))
            break;
        d += (RP_BLOCK_BYTES - offset % RP_BLOCK_BYTES) / sizeof table->lengths[0];
    }
    return rp_min_u64(d, documents);
}
