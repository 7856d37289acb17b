/* SPDX-License-Identifier: Apache-2.0 */
/* arrow_flat.h — the metadata of Arrow messages: flatbuffers, read from unchecked bytes.
 *
 * A buffer begins with the offset of its root table. A table begins with the distance back to its
 * vtable, which has the place of each field in the table, or 0 for a default value. Offsets to
 * tables, vectors and strings count forwards from their own place.
 *
 * Invariants: no byte outside the buffer is read. A function that meets an offset to the outside
 * marks the buffer as damaged and continues with defaults: a caller checks `is_damaged` at the end,
 * before it uses any value. Position 0 means "absent". */
#ifndef RP_CORPUS_READERS_ARROW_FLAT_H
#define RP_CORPUS_READERS_ARROW_FLAT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bits.h"

struct rp_flat {
    const uint8_t *bytes;
    uint64_t count;
    bool is_damaged;
};

struct rp_flat_vector {
    uint64_t at; /* its first entry's */
    uint32_t count;
};

static inline bool rp_flat_has(struct rp_flat *flat, uint64_t at, uint64_t bytes)
{
    bool inside = rp_range_inside(at, bytes, flat->count);
    flat->is_damaged |= !inside;
    return inside;
}

static inline uint64_t rp_flat_number(struct rp_flat *flat, uint64_t at, unsigned width)
{
    if (!rp_flat_has(flat, at, width))
        return 0;
    switch (width) {
    case 1:
        return flat->bytes[at];
    case 2:
        return rp_load_u16(flat->bytes + at);
    case 4:
        return rp_load_u32(flat->bytes + at);
    default:
        return rp_load_u64(flat->bytes + at);
    }
}

/* The target of the offset at `at`. */
static inline uint64_t rp_flat_follow(struct rp_flat *flat, uint64_t at)
{
    uint64_t offset = rp_flat_number(flat, at, 4);
    return offset > 0 && rp_flat_has(flat, at + offset, 4) ? at + offset : 0;
}

static inline uint64_t rp_flat_root(struct rp_flat *flat)
{
    uint64_t root = rp_flat_follow(flat, 0);
    flat->is_damaged |= root == 0;
    return root;
}

/* The position of a field of a table; 0: it has its default. */
static inline uint64_t rp_flat_field(struct rp_flat *flat, uint64_t table, unsigned slot)
{
    if (table == 0)
        return 0;
    int64_t vtable = (int64_t)table - (int32_t)rp_flat_number(flat, table, 4);
    if (vtable < 0 || !rp_flat_has(flat, (uint64_t)vtable, 4)) {
        flat->is_damaged = true;
        return 0;
    }
    if (4 + 2 * slot + 2 > rp_flat_number(flat, (uint64_t)vtable, 2))
        return 0;
    uint64_t offset = rp_flat_number(flat, (uint64_t)vtable + 4 + 2 * slot, 2);
    return offset ? table + offset : 0;
}

/* A number of `width` bytes in a field whose default is 0. */
static inline uint64_t rp_flat_value(struct rp_flat *flat, uint64_t table, unsigned slot,
                                     unsigned width)
{
    uint64_t at = rp_flat_field(flat, table, slot);
    return at ? rp_flat_number(flat, at, width) : 0;
}

/* The table that a field leads to; 0: none. */
static inline uint64_t rp_flat_table(struct rp_flat *flat, uint64_t table, unsigned slot)
{
    uint64_t at = rp_flat_field(flat, table, slot);
    return at ? rp_flat_follow(flat, at) : 0;
}

/* The vector in a field, whose entries have `entry_bytes` bytes. */
static inline struct rp_flat_vector rp_flat_vector(struct rp_flat *flat, uint64_t table,
                                                   unsigned slot, unsigned entry_bytes)
{
    uint64_t at = rp_flat_table(flat, table, slot);
    struct rp_flat_vector vector = {at + 4, at ? (uint32_t)rp_flat_number(flat, at, 4) : 0};
    if (vector.count && !rp_flat_has(flat, vector.at, (uint64_t)vector.count * entry_bytes))
        vector.count = 0;
    return vector;
}

#endif
