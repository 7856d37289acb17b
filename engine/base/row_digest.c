/* SPDX-License-Identifier: Apache-2.0 */
/* row_digest.c — tokens are hashed as u32: I32 directly, other types converted block by block. */
#include "base/row_digest.h"

#include "base/bits.h"
#include "base/fail.h"

#define RP_DIGEST_BLOCK 1024u
#define RP_DIGEST_NO_LABEL 0xffffff9cu /* -100 */
#define RP_DIGEST_CONTRADICTION 0xfffffffeu

static uint32_t token_at(const void *tokens, uint64_t i, enum rp_dtype dtype)
{
    return dtype == RP_DTYPE_U16   ? ((const uint16_t *)tokens)[i]
           : dtype == RP_DTYPE_I32 ? (uint32_t)((const int32_t *)tokens)[i]
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

/* Returns the number of tokens. */
static uint64_t add_row(struct rp_hasher *hasher, const int32_t *lengths, uint32_t fragments,
                        const void *tokens, enum rp_dtype dtype)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < fragments; i++)
        count += (uint32_t)lengths[i];
    rp_hasher_begin(hasher);
    rp_hasher_add(hasher, &fragments, sizeof fragments);
    rp_hasher_add(hasher, lengths, fragments * sizeof lengths[0]);
    add_tokens(hasher, tokens, count, dtype);
    return count;
}

struct rp_hash128 rp_row_hash(const int32_t *lengths, uint32_t fragments, const void *tokens,
                              enum rp_dtype dtype)
{
    struct rp_hasher hasher;
    add_row(&hasher, lengths, fragments, tokens, dtype);
    return rp_hasher_finish(&hasher);
}

/* ---- labels ---------------------------------------------------------------------------------- */

/* The label of token t of a fragment. The last entry of a fragment whose labels are shifted, and of
 * its loss mask, is about no token: it stands in for token 0, which has no label either, so that
 * every entry is in the hash. */
static uint32_t label_at(const void *tokens, enum rp_dtype dtype, const struct rp_row_labels *from,
                         uint64_t at, uint32_t length, uint32_t t)
{
    uint64_t before = at + (t > 0 ? t : length) - 1;
    uint32_t label = RP_DIGEST_NO_LABEL;
    if (from->labels)
        label = token_at(from->labels, from->shifted ? before : at + t, from->dtype);
    else if (from->loss_mask[before] != 0)
        label = token_at(tokens, at + t, dtype);
    bool is_masked = label == RP_DIGEST_NO_LABEL;
    bool agrees = !from->loss_mask || from->loss_mask[before] == (is_masked ? 0 : 1);
    return agrees ? label : RP_DIGEST_CONTRADICTION;
}

void rp_fragment_labels(const void *tokens, enum rp_dtype dtype, const struct rp_row_labels *labels,
                        uint64_t at, uint32_t length, uint32_t *out)
{
    for (uint32_t t = 0; t < length; t++)
        out[t] = label_at(tokens, dtype, labels, at, length, t);
}

struct rp_hash128 rp_row_labelled_hash(const int32_t *lengths, uint32_t fragments,
                                       const void *tokens, enum rp_dtype dtype,
                                       const struct rp_row_labels *labels)
{
    struct rp_hasher hasher;
    uint32_t block[RP_DIGEST_BLOCK], n = 0;
    uint64_t at = 0;
    add_row(&hasher, lengths, fragments, tokens, dtype);
    for (uint32_t i = 0; i < fragments; at += (uint32_t)lengths[i++]) {
        for (uint32_t t = 0; t < (uint32_t)lengths[i]; t++) {
            block[n++] = label_at(tokens, dtype, labels, at, (uint32_t)lengths[i], t);
            if (n == RP_DIGEST_BLOCK) {
                rp_hasher_add(&hasher, block, sizeof block);
                n = 0;
            }
        }
    }
    rp_hasher_add(&hasher, block, n * sizeof block[0]);
    return rp_hasher_finish(&hasher);
}

struct rp_hash128 rp_row_digest(uint64_t row, struct rp_hash128 row_hash)
{
    uint64_t words[3] = {row, row_hash.low, row_hash.high};
    return rp_hash128(words, sizeof words);
}
