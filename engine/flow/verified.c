/* SPDX-License-Identifier: Apache-2.0 */
/* verified — see verified.h. */
#include "flow/verified.h"

#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "base/defect.h"
#include "base/mem.h"

int rp_verified_open(struct rp_verified *verified, uint64_t piece_bytes_max, struct rp_error *error)
{
    uint64_t capacity = rp_align_up(piece_bytes_max, RP_BLOCK_BYTES) + RP_BLOCK_BYTES;
    *verified = (struct rp_verified){.bytes = rp_take_pages(capacity), .capacity = capacity};
    return verified->bytes ? 0 : rp_fail(error, -ENOMEM, NULL, "out of memory for a packer");
}

void rp_verified_close(struct rp_verified *verified)
{
    rp_give_pages(verified->bytes, verified->capacity);
    *verified = (struct rp_verified){0};
}

/* Documents that lie end to end share a block: it is not copied again. Moves what is there of
 * [first, ...) of the file to the beginning of the copy, and returns how many bytes that is. */
static uint64_t keep_shared(struct rp_verified *verified, uint32_t shard, uint64_t first)
{
    uint64_t end = verified->first + verified->held;
    verified->held = 0; /* until the rest is compared */
    if (verified->shard != shard || first < verified->first || first >= end)
        return 0;
    memmove(verified->bytes, verified->bytes + (first - verified->first), end - first);
    return end - first;
}

/* The planted defect: a block that was compared once is trusted from then on. */
static bool is_trusted(uint64_t first)
{
    static struct rp_a32 seen[1u << 12];
    struct rp_a32 *word = &seen[first / RP_BLOCK_BYTES % RP_ARRAY_COUNT(seen)];
    return RP_DEFECT(trust_seen_blocks) && rp_a32_exchange_acquire(word, 1);
}

const uint8_t *rp_verified_take(struct rp_verified *verified, const struct rp_files *files,
                                const struct rp_piece *piece, struct rp_error *error)
{
    uint32_t shard = piece->mapped_shard - 1;
    uint64_t length = (uint64_t)piece->fragment.length * piece->width;
    uint64_t first = rp_align_down(piece->data_offset, RP_BLOCK_BYTES);
    uint64_t end = rp_min_u64(rp_align_up(piece->data_offset + length, RP_BLOCK_BYTES),
                              rp_corpus_shard(files->corpus, shard)->bytes);
    uint64_t kept = keep_shared(verified, shard, first);
    RP_ASSERT(piece->mapped_shard && end - first <= verified->capacity);
    if (first + kept < end) {
        uint8_t *copy = verified->bytes + kept;
        uint64_t bytes = end - first - kept;
        memcpy(copy, files->files[shard].map + first + kept, bytes);
        if (!is_trusted(first) &&
            rp_files_verify(files, shard, first + kept, copy, (uint32_t)bytes, error) < 0)
            return NULL;
    }
    verified->shard = shard;
    verified->first = first;
    verified->held = rp_max_u64(end - first, kept);
    return verified->bytes + (piece->data_offset - first);
}
