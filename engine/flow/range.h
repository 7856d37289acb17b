/* SPDX-License-Identifier: Apache-2.0 */
/* range.h — a wanted byte range of a file, rounded to the file's read alignment.
 *
 * A direct read (O_DIRECT) must begin and end at multiples of the file's alignment, so it extends
 * past the end of the file rather than having an unaligned length. */
#ifndef RP_FLOW_RANGE_H
#define RP_FLOW_RANGE_H

#include "base/bits.h"
#include "flow/files.h"

struct rp_file_range {
    uint32_t shard;
    uint32_t alignment;
    bool past_cache;      /* as in struct rp_read */
    uint64_t first, last; /* [first, last) in the file */
    uint64_t file_bytes;  /* size of the file */
    bool beyond_end;      /* a direct read: it may extend past the end */
    uint64_t wanted;      /* first byte of the transfer, before rounding */
};

/** The bytes [first, last) of a file of `file_bytes`. `past_cache`: by its second descriptor. */
static inline struct rp_file_range rp_file_range_of(const struct rp_file *file, uint32_t shard,
                                                    uint64_t file_bytes, bool past_cache,
                                                    uint64_t first, uint64_t last)
{
    uint32_t alignment = past_cache ? file->direct_alignment : file->alignment;
    struct rp_file_range range = {.shard = shard,
                                  .alignment = alignment,
                                  .past_cache = past_cache,
                                  .first = rp_align_down(first, alignment),
                                  .last = rp_align_up(last, alignment),
                                  .file_bytes = file_bytes,
                                  .beyond_end = past_cache || file->o_direct,
                                  .wanted = first};
    if (!range.beyond_end)
        range.last = rp_min_u64(range.last, file_bytes);
    return range;
}

/** Let a read that begins in the range end at `end`. */
static inline void rp_file_range_end_read(const struct rp_file_range *range, uint64_t end,
                                          struct rp_read *read)
{
    RP_ASSERT(read->offset < end && end - read->offset <= UINT32_MAX);
    RP_DASSERT(read->offset < range->file_bytes);
    uint64_t needed = rp_min_u64(end, range->file_bytes) - read->offset;
    read->bytes_needed = (uint32_t)needed;
    read->bytes = range->beyond_end ? (uint32_t)(end - read->offset) : (uint32_t)needed;
}

#endif
