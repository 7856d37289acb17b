/* SPDX-License-Identifier: Apache-2.0 */
#include "flow/verified.h"

#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "base/defect.h"
#include "base/mem.h"

uint64_t rp_verified_bytes(uint64_t transfer_bytes_max)
{
    return rp_align_up(transfer_bytes_max, RP_BLOCK_BYTES) + RP_BLOCK_BYTES;
}

int rp_verified_open(struct rp_verified *verified, uint64_t transfer_bytes_max,
                     struct rp_error *error)
{
    uint64_t capacity = rp_verified_bytes(transfer_bytes_max);
    *verified = (struct rp_verified){.bytes = rp_take_pages(capacity),
                                     .hashes = rp_calloc(capacity / RP_BLOCK_BYTES, 8),
                                     .capacity = capacity};
    if (verified->bytes && verified->hashes)
        return 0;
    rp_verified_close(verified);
    return rp_fail(error, -ENOMEM, NULL, "out of memory for a packer");
}

void rp_verified_close(struct rp_verified *verified)
{
    rp_give_pages(verified->bytes, verified->capacity);
    free(verified->hashes);
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

/* The planted defect: a block that was compared once is trusted from then on. */
static bool is_trusted(uint64_t first)
{
    static struct rp_a32 seen[1u << 12];
    struct rp_a32 *word = &seen[first / RP_BLOCK_BYTES % RP_ARRAY_COUNT(seen)];
    return RP_DEFECT(trust_seen_blocks) && rp_a32_exchange_acquire(word, 1);
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
    if (kept < bytes)
        memcpy(verified->bytes + kept, files->files[shard].map + blocks.first + kept, bytes - kept);
    for (uint64_t at = 0; at < bytes; at += RP_BLOCK_BYTES) {
        uint64_t *hash = &verified->hashes[at / RP_BLOCK_BYTES];
        if (at >= kept)
            *hash = rp_hash64(verified->bytes + at, rp_min_u64(RP_BLOCK_BYTES, bytes - at));
        all = rp_files_add_hash(all, *hash);
    }
    bool is_good = is_trusted(blocks.first) || all == transfer->expected;
    if (!is_good && !RP_DEFECT(ignore_block_hash)) {
        rp_files_explain(files, shard, blocks.first, verified->bytes, bytes, error);
        return NULL;
    }
    verified->shard = shard;
    verified->first = blocks.first;
    verified->held = rp_max_u64(bytes, kept);
    return verified->bytes + (transfer->data_offset - blocks.first);
}
