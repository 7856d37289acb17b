/* SPDX-License-Identifier: Apache-2.0 */
/* row_digest — tokens are hashed as u32, so I32 goes in as it lies and the others a block at a
 * time. */
#include "base/row_digest.h"

#include "base/bits.h"
#include "base/fail.h"

#define RP_DIGEST_BLOCK 1024u

static uint32_t token_at(const void *tokens, uint64_t i, enum rp_dtype dtype)
{
    return dtype == RP_DTYPE_U16 ? ((const uint16_t *)tokens)[i]
                                 : (uint32_t)((const int64_t *)tokens)[i];
}

static void add_tokens(struct rp_hasher *hasher, const void *tokens, uint64_t count,
                       enum rp_dtype dtype)
{
    if (dtype == RP_DTYPE_I32) {
        rp_hasher_add(hasher, tokens, count * sizeof(uint32_t));
        return;
    }
    uint32_t block[RP_DIGEST_BLOCK];
    for (uint64_t done = 0; done < count;) {
        uint64_t n = rp_min_u64(count - done, RP_DIGEST_BLOCK);
        for (uint64_t i = 0; i < n; i++)
            block[i] = token_at(tokens, done + i, dtype);
        rp_hasher_add(hasher, block, n * sizeof block[0]);
        done += n;
    }
}

struct rp_hash128 rp_row_hash(const int32_t *lengths, uint32_t fragments, const void *tokens,
                              enum rp_dtype dtype)
{
    struct rp_hasher hasher;
    rp_hasher_begin(&hasher);
    uint64_t count = 0;
    for (uint32_t i = 0; i < fragments; i++)
        count += (uint32_t)lengths[i];
    rp_hasher_add(&hasher, &fragments, sizeof fragments);
    rp_hasher_add(&hasher, lengths, fragments * sizeof lengths[0]);
    add_tokens(&hasher, tokens, count, dtype);
    return rp_hasher_finish(&hasher);
}

struct rp_hash128 rp_row_digest(uint64_t row, struct rp_hash128 row_hash)
{
    uint64_t words[3] = {row, row_hash.low, row_hash.high};
    return rp_hash128(words, sizeof words);
}
