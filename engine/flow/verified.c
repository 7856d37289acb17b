/* SPDX-License-Identifier: Apache-2.0 */
#include "flow/verified.h"

#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem.h"

/* With the whole blocks around them. */
static uint64_t in_blocks(uint64_t bytes)
{
    return rp_align_up(bytes, RP_BLOCK_BYTES) + RP_BLOCK_BYTES;
}

uint64_t rp_verified_bytes(const struct rp_verified_sizes *sizes)
{
    return in_blocks(sizes->tokens_max) + sizes->sides * sizeof(struct rp_verified_block);
}

int rp_verified_open(struct rp_verified *verified, const struct rp_verified_sizes *sizes,
                     struct rp_error *error)
{
    uint64_t capacity = in_blocks(sizes->tokens_max);
    *verified = (struct rp_verified){
        .bytes = rp_take_pages(capacity),
        .hashes = rp_calloc(capacity / RP_BLOCK_BYTES, sizeof *verified->hashes),
        .capacity = capacity,
        .sides = rp_calloc(sizes->sides, sizeof *verified->sides),
        .side_hashes = rp_calloc(in_blocks(sizes->entries_max) / RP_BLOCK_BYTES,
                                 sizeof *verified->side_hashes)};
    if (verified->bytes && verified->hashes && verified->sides && verified->side_hashes)
        return 0;
    rp_verified_close(verified);
    return rp_fail(error, -ENOMEM, NULL, "out of memory for a packer");
}

void rp_verified_close(struct rp_verified *verified)
{
    rp_give_pages(verified->bytes, verified->capacity);
    free(verified->hashes);
    free(verified->sides);
    free(verified->side_hashes);
    *verified = (struct rp_verified){0};
}

/* Contiguous documents may share a block, which is not copied again: moves the held part of [first,
 * ...) of the file to the beginning of the copy, and returns its size in bytes. */
static uint64_t keep_shared(struct rp_verified *verified, uint32_t shard, uint64_t first)
{
    uint64_t end = verified->first + verified->held;
    verified->held = 0; /* until the rest is compared */
    if (verified->shard != shard || first < verified->first || first >= end)
        return 0;
    uint64_t skipped = first - verified->first, kept = end - first;
    memmove(verified->bytes, verified->bytes + skipped, kept);
    memmove(verified->hashes, verified->hashes + skipped / RP_BLOCK_BYTES,
            rp_div_up(kept, RP_BLOCK_BYTES) * sizeof *verified->hashes);
    return kept;
}

/* The hash of the copy. */
static uint64_t copy_block(uint8_t *to, const uint8_t *from, uint64_t bytes)
{
    memcpy(to, from, bytes);
    return rp_hash64(to, bytes);
}

const uint8_t *rp_verified_take(struct rp_verified *verified, const struct rp_files *files,
                                const struct rp_transfer *transfer, struct rp_error *error)
{
    uint32_t shard = transfer->mapped_shard - 1;
    struct rp_hashed_range blocks = rp_files_hashed_range(files, transfer);
    uint64_t bytes = blocks.end - blocks.first, all = 0;
    RP_ASSERT(blocks.first % RP_BLOCK_BYTES == 0 && blocks.first < blocks.end);
    uint64_t kept = keep_shared(verified, shard, blocks.first);
    RP_ASSERT(transfer->mapped_shard && bytes <= verified->capacity);
    for (uint64_t at = 0; at < bytes; at += RP_BLOCK_BYTES) {
        uint64_t *hash = &verified->hashes[at / RP_BLOCK_BYTES];
        if (at >= kept)
            *hash = copy_block(verified->bytes + at, files->files[shard].map + blocks.first + at,
                               rp_min_u64(RP_BLOCK_BYTES, bytes - at));
        all = rp_files_add_hash(all, *hash);
    }
    if (all != transfer->expected) {
        rp_files_explain(files, shard, blocks.first, verified->hashes, bytes, error);
        return NULL;
    }
    verified->shard = shard;
    verified->first = blocks.first;
    verified->held = rp_max_u64(bytes, kept);
    return verified->bytes + (transfer->data_offset - blocks.first);
}

/* ---- side columns ---------------------------------------------------------------------------- */

/* The hash of a block that the fragment shares with a neighbour. The copy is kept for that one. */
static uint64_t copy_shared(struct rp_verified_block *block, const uint8_t *from,
                            uint32_t mapped_shard, uint64_t first, uint64_t bytes)
{
    if (block->mapped_shard != mapped_shard || block->first != first) {
        block->mapped_shard = 0; /* until it is whole */
        block->hash = copy_block(block->bytes, from, bytes);
        block->mapped_shard = mapped_shard;
        block->first = first;
    }
    return block->hash;
}

int rp_verified_copy_side(struct rp_verified *verified, uint32_t c, const struct rp_files *files,
                          const struct rp_transfer *side, const struct rp_side_span *span,
                          struct rp_error *error)
{
    struct rp_verified_block *shared = &verified->sides[c];
    struct rp_hashed_range blocks = rp_files_hashed_range(files, side);
    const uint8_t *map = files->files[side->mapped_shard - 1].map;
    uint64_t first = side->data_offset + span->skip, end = first + span->bytes, all = 0;
    for (uint64_t at = blocks.first; at < blocks.end; at += RP_BLOCK_BYTES) {
        uint64_t bytes = rp_min_u64(RP_BLOCK_BYTES, blocks.end - at), hash;
        uint64_t own = rp_max_u64(at, first), own_end = rp_min_u64(at + bytes, end);
        if (own == at && own_end == at + bytes) {
            hash = copy_block(span->to + (at - first), map + at, bytes);
        } else {
            hash = copy_shared(shared, map + at, side->mapped_shard, at, bytes);
            if (own < own_end)
                memcpy(span->to + (own - first), shared->bytes + (own - at), own_end - own);
        }
        verified->side_hashes[(at - blocks.first) / RP_BLOCK_BYTES] = hash;
        all = rp_files_add_hash(all, hash);
    }
    if (all == side->expected)
        return 0;
    shared->mapped_shard = 0;
    return rp_files_explain(files, side->mapped_shard - 1, blocks.first, verified->side_hashes,
                            blocks.end - blocks.first, error);
}
