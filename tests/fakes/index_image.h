/* SPDX-License-Identifier: Apache-2.0 */
/* index_image.h — the bytes of an index (engine/corpus/index/INDEX.md): where its entries are, and
 * its hashes made right again after edits. Offsets and sizes are as in that document. */
#ifndef RP_TESTS_INDEX_IMAGE_H
#define RP_TESTS_INDEX_IMAGE_H

#include <stdlib.h>

#include "base/bits.h"
#include "corpus/index/index.h"

enum { IMAGE_HEADER = 256, IMAGE_HEAD = 128, IMAGE_ENTRY = 128, IMAGE_RECORD = 320 };

static inline uint8_t *image_slot(uint8_t *bytes, unsigned generation)
{
    return bytes + 64 + 64 * (generation % 2);
}

static inline uint8_t *image_head(uint8_t *bytes, unsigned generation)
{
    return bytes + rp_load_u64(image_slot(bytes, generation) + 8);
}

static inline uint8_t *image_entry(uint8_t *head, uint64_t number)
{
    return head + IMAGE_HEAD + IMAGE_ENTRY * number;
}

/* The parts of an entry of a segment; false: they exceed that number of bytes. */
static inline bool image_parts(const uint8_t *entry, uint64_t count, struct rp_index_parts *parts)
{
    struct rp_index_segment segment = {.offset = 0};
    rp_index_decode_segment(entry, &segment);
    return segment.offset % 8 == 0 && rp_index_find_parts(&segment.shape, parts) &&
           rp_range_inside(segment.offset, rp_index_parts_bytes(parts), count);
}

static inline void image_mend_pages(uint8_t *data, uint64_t bytes, uint8_t *root_at)
{
    uint64_t pages = rp_div_up(bytes, RP_BLOCK_BYTES), hashes = rp_tree_hash_count(pages);
    uint64_t *list = calloc(hashes + 1, 8);
    if (!list)
        abort();
    rp_tree_hash_pages(data, bytes, 0, pages, list);
    struct rp_hash128 root = rp_tree_finish(pages, list);
    memcpy(data + bytes, list, 8 * hashes);
    memcpy(root_at, &root, sizeof root);
    free(list);
}

/* For an entry of a column: the bytes of its values, or 0: they are not inside of so many bytes. */
static inline uint64_t image_column_bytes(const uint8_t *entry, uint64_t count)
{
    struct rp_index_column column;
    uint64_t bytes;
    rp_index_decode_column(entry, &column);
    bool fits = rp_mul_u64(column.values, rp_index_column_width(column.type), &bytes) &&
                bytes > 0 && bytes <= count && column.offset % 8 == 0;
    bytes = fits ? rp_align_up(bytes, 8) : 0;
    uint64_t hashes = 8 * rp_tree_hash_count(rp_div_up(bytes, RP_BLOCK_BYTES));
    return fits && rp_range_inside(column.offset, bytes + hashes, count) ? bytes : 0;
}

/* The hashes of a slot, of its head, and of the pages of its segments and columns. */
static inline void image_mend_slot(uint8_t *bytes, uint64_t count, uint8_t *slot)
{
    uint64_t at = rp_load_u64(slot + 8), head_bytes = rp_load_u64(slot + 16);
    if (rp_load_u64(slot) == 0 || head_bytes < IMAGE_HEAD ||
        !rp_range_inside(at, head_bytes, count))
        return;
    uint8_t *head = bytes + at;
    uint64_t sources = rp_load_u32(head + 8), segments = rp_load_u32(head + 12);
    uint64_t columns = rp_load_u32(head + 16);
    for (uint64_t i = sources; i < sources + segments + columns; i++) {
        struct rp_index_parts parts;
        if (IMAGE_HEAD + IMAGE_ENTRY * (i + 1) > head_bytes)
            break;
        uint8_t *entry = image_entry(head, i);
        if (i < sources + segments && image_parts(entry, count, &parts))
            image_mend_pages(bytes + rp_load_u64(entry), parts.bytes, entry + 64);
        uint64_t values = i < sources + segments ? 0 : image_column_bytes(entry, count);
        if (values)
            image_mend_pages(bytes + rp_load_u64(entry + 8), values, entry + 80);
    }
    struct rp_hash128 hash = rp_hash128(head, head_bytes);
    memcpy(slot + 32, &hash, sizeof hash);
    hash = rp_hash128(slot, 48);
    memcpy(slot + 48, &hash, sizeof hash);
}

static inline void image_mend(uint8_t *bytes, uint64_t count)
{
    for (unsigned which = 0; which < 2 && count >= IMAGE_HEADER; which++)
        image_mend_slot(bytes, count, image_slot(bytes, which));
}

#endif
