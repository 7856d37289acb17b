/* SPDX-License-Identifier: Apache-2.0 */
/* shard_table — see table.h. */
#include <errno.h>
#include <string.h>

#include "base/defect.h"
#include "base/mem.h"
#include "corpus/table.h"

#define DAMAGED "the page of the document table that has it differs from its hash"

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

int rp_table_over(struct rp_table *table, const struct rp_table_shape *shape, const uint8_t *image,
                  const uint64_t *page_hashes, struct rp_error *error)
{
    struct offsets at;
    bool fits = find_sections(shape, &at);
    RP_ASSERT(fits && (uintptr_t)image % 8 == 0);
    *table = (struct rp_table){
        .shape = *shape,
        .image = image,
        .image_bytes = at.end,
        .bytes = (const uint64_t *)(const void *)image,
        .lengths = (const uint32_t *)(const void *)(image + at.lengths),
        .page_hashes = page_hashes,
    };
    if (shape->has_spans)
        table->spans = (struct rp_spans){
            .ends = (const uint64_t *)(const void *)(image + at.span_ends),
            .table = (const struct rp_span *)(const void *)(image + at.spans),
            .documents = shape->documents,
            .count = shape->span_count,
        };
    if (!page_hashes)
        return 0;
    size_t words = (size_t)rp_div_up(rp_table_pages(at.end), 64);
    table->verified = rp_calloc(words, sizeof *table->verified);
    return table->verified || words == 0
               ? 0
               : rp_fail(error, -ENOMEM, NULL, "no memory for a document table");
}

int rp_table_over_tree(struct rp_table *table, const struct rp_table_shape *shape,
                       const struct rp_tree *tree, struct rp_error *error)
{
    int code = rp_table_over(table, shape, tree->data, NULL, error);
    RP_ASSERT(rp_div_up(table->image_bytes, RP_BLOCK_BYTES) <= tree->pages);
    table->tree = tree;
    table->verified = tree->verified;
    return code;
}

void rp_table_close(struct rp_table *table)
{
    free(table->verified);
    free(table->built);
    *table = (struct rp_table){0};
}

struct rp_hash128 rp_table_hash(const uint8_t *image, uint64_t bytes, uint64_t *hashes)
{
    struct rp_hasher root;
    rp_hasher_begin(&root);
    for (uint64_t at = 0; at < bytes; at += RP_BLOCK_BYTES) {
        uint64_t hash = rp_hash64(image + at, (size_t)rp_min_u64(RP_BLOCK_BYTES, bytes - at));
        rp_hasher_add(&root, &hash, sizeof hash);
        if (hashes)
            hashes[at / RP_BLOCK_BYTES] = hash;
    }
    return rp_hasher_finish(&root);
}

/* ---- use ------------------------------------------------------------------------------------- */

/* Two threads that verify a page at once find the same. */
bool rp_table_verify(const struct rp_table *table, uint64_t byte)
{
    if (!table->verified)
        return true;
    uint64_t page = byte / RP_BLOCK_BYTES, begin = page * RP_BLOCK_BYTES;
    uint64_t bit = 1ull << page % 64;
    struct rp_a64 *word = &table->verified[page / 64];
    RP_DASSERT(byte < table->image_bytes);
    if (rp_a64_load_relaxed(word) & bit)
        return true;
    if (table->tree)
        return rp_tree_verify(table->tree, byte);
    size_t bytes = (size_t)rp_min_u64(RP_BLOCK_BYTES, table->image_bytes - begin);
    if (rp_hash64(table->image + begin, bytes) != table->page_hashes[page] &&
        !RP_DEFECT(trust_table_pages))
        return false;
    rp_a64_or_relaxed(word, bit);
    return true;
}

static uint64_t offset_of(const struct rp_table *table, const void *entry)
{
    return (uint64_t)((const uint8_t *)entry - table->image);
}

bool rp_table_verify_ends(const struct rp_table *table, uint64_t document)
{
    const uint64_t *begin = table->spans.ends + document;
    return rp_table_verify(table, offset_of(table, begin)) &&
           rp_table_verify(table, offset_of(table, begin + 1));
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
        if (!rp_table_verify(table, at))
            return false;
    return rp_table_verify(table, last);
}

uint64_t rp_table_length(const struct rp_table *table, uint64_t document)
{
    const uint32_t *length = &table->lengths[document];
    return rp_table_verify(table, offset_of(table, length)) ? *length : UINT64_MAX;
}

const char *rp_table_locate(const struct rp_table *table, uint64_t document, uint32_t width,
                            uint64_t file_bytes, uint64_t *tokens, uint64_t *byte)
{
    const uint64_t *begin = &table->bytes[document];
    uint64_t length = rp_table_length(table, document);
    if (length == UINT64_MAX || !rp_table_verify(table, offset_of(table, begin)))
        return DAMAGED;
    if (!rp_range_inside(*begin, length * width, file_bytes))
        return "it lies outside the file";
    *tokens = length;
    *byte = *begin;
    return NULL;
}

uint64_t rp_table_learn(const struct rp_table *table, uint64_t first, uint64_t count)
{
    uint64_t documents = table->shape.documents;
    uint64_t last = first + rp_min_u64(count, documents - first);
    uint64_t d = first;
    while (d < last) {
        uint64_t offset = offset_of(table, &table->lengths[d]);
        if (!rp_table_verify(table, offset))
            break;
        d += (RP_BLOCK_BYTES - offset % RP_BLOCK_BYTES) / sizeof table->lengths[0];
    }
    return rp_min_u64(d, documents);
}
