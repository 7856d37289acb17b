/* SPDX-License-Identifier: Apache-2.0 */
/* row_digest.c — tokens are hashed as u32: I32 directly, other types converted block by block. */
#include "base/row_digest.h"

#include <string.h>

#include "base/bits.h"
#include "base/fail.h"

#define RP_DIGEST_BLOCK 1024u
#define RP_DIGEST_NO_LABEL 0xffffff9cu /* -100 */
#define RP_DIGEST_CONTRADICTION 0xfffffffeu

/* Tokens [first, first + count) as u32: a loop for each type, which compilers vectorise. */
static void take_tokens(uint32_t *out, const void *tokens, uint64_t first, uint64_t count,
                        enum rp_dtype dtype)
{
    if (dtype == RP_DTYPE_U16)
        for (uint64_t i = 0; i < count; i++)
            out[i] = ((const uint16_t *)tokens)[first + i];
    else if (dtype == RP_DTYPE_I32)
        memcpy(out, (const int32_t *)tokens + first, count * sizeof *out);
    else
        for (uint64_t i = 0; i < count; i++)
            out[i] = (uint32_t)((const int64_t *)tokens)[first + i];
}

static void add_tokens(struct rp_hasher *hasher, const void *tokens, uint64_t first, uint64_t count,
                       enum rp_dtype dtype)
{
    if (dtype == RP_DTYPE_I32) {
        rp_hasher_add(hasher, (const int32_t *)tokens + first, count * sizeof(uint32_t));
        return;
    }
    uint32_t block[RP_DIGEST_BLOCK];
    for (uint64_t done = 0; done < count;) {
        uint64_t n = rp_min_u64(count - done, RP_DIGEST_BLOCK);
        take_tokens(block, tokens, first + done, n, dtype);
        rp_hasher_add(hasher, block, n * sizeof block[0]);
        done += n;
    }
}

static uint64_t places_of(const struct rp_row_tokens *row, uint32_t fragment)
{
    uint32_t length = (uint32_t)row->lengths[fragment], align = row->align;
    return align > 1 ? rp_div_up(length, align) * align : length;
}

static void add_row(struct rp_hasher *hasher, const struct rp_row_tokens *row)
{
    uint64_t at = 0, count = 0;
    rp_hasher_begin(hasher);
    rp_hasher_add(hasher, &row->fragments, sizeof row->fragments);
    rp_hasher_add(hasher, row->lengths, row->fragments * sizeof row->lengths[0]);
    for (uint32_t i = 0; i < row->fragments; i++) { /* tokens without padding between them */
        count += (uint32_t)row->lengths[i];
        if (i + 1 < row->fragments && places_of(row, i) == (uint32_t)row->lengths[i])
            continue;
        add_tokens(hasher, row->tokens, at, count, row->dtype);
        at += count - (uint32_t)row->lengths[i] + places_of(row, i);
        count = 0;
    }
}

struct rp_hash128 rp_row_hash(const struct rp_row_tokens *row)
{
    struct rp_hasher hasher;
    add_row(&hasher, row);
    return rp_hasher_finish(&hasher);
}

/* ---- labels ---------------------------------------------------------------------------------- */

/* A fragment of a row: tokens [at, at + length). */
struct labelled {
    const void *tokens;
    enum rp_dtype dtype;
    const struct rp_row_labels *from;
    uint64_t at;
    uint32_t length;
};

/* The labels of tokens [t, t + count) of the fragment, from entries [before, before + count) of
 * shifted labels and of the loss mask. A label that contradicts its mask is marked. */
static void take_entries(uint32_t *out, const struct labelled *fragment, uint64_t before,
                         uint64_t t, uint64_t count)
{
    const struct rp_row_labels *from = fragment->from;
    const void *source = from->labels ? from->labels : fragment->tokens;
    bool is_shifted = from->labels && from->mode != RP_LABELS_ALIGNED;
    take_tokens(out, source, is_shifted ? before : fragment->at + t, count,
                from->labels ? from->dtype : fragment->dtype);
    if (!from->loss_mask)
        return;
    const float *mask = from->loss_mask + before;
    for (uint64_t i = 0; i < count; i++) {
        if (!from->labels && mask[i] == 0)
            out[i] = RP_DIGEST_NO_LABEL;
        float expected = out[i] == RP_DIGEST_NO_LABEL ? 0 : 1;
        out[i] = mask[i] == expected ? out[i] : RP_DIGEST_CONTRADICTION;
    }
}

/* Number of a fragment's labels: of its tokens and, across cuts, of its end. */
static uint32_t label_count(const struct labelled *fragment)
{
    return fragment->length + (fragment->from->mode == RP_LABELS_ACROSS_CUTS);
}

/* The labels of tokens [t, t + count) of the fragment. The last entry of a fragment whose labels
 * are shifted, and of its loss mask, is about no token: it stands in for token 0, which has no
 * label either, so that every entry is in the hash. Across cuts it is the label of the end. */
static void take_labels(uint32_t *out, const struct labelled *fragment, uint32_t t, uint64_t count)
{
    if (t > 0 || count == 0) {
        take_entries(out, fragment, fragment->at + t - 1, t, count);
        return;
    }
    if (fragment->from->mode == RP_LABELS_ACROSS_CUTS)
        out[0] = RP_DIGEST_NO_LABEL;
    else
        take_entries(out, fragment, fragment->at + fragment->length - 1, 0, 1);
    take_entries(out + 1, fragment, fragment->at, 1, count - 1);
}

uint32_t rp_fragment_labels(const struct rp_row_tokens *row, const struct rp_row_labels *labels,
                            uint64_t at, uint32_t length, uint32_t *out)
{
    const struct labelled fragment = {row->tokens, row->dtype, labels, at, length};
    RP_ASSERT(labels->labels || labels->mode != RP_LABELS_ACROSS_CUTS);
    take_labels(out, &fragment, 0, label_count(&fragment));
    return label_count(&fragment);
}

struct rp_hash128 rp_row_labelled_hash(const struct rp_row_tokens *row,
                                       const struct rp_row_labels *labels)
{
    struct rp_hasher hasher;
    uint32_t block[RP_DIGEST_BLOCK];
    struct labelled fragment = {row->tokens, row->dtype, labels, 0, 0};
    RP_ASSERT(labels->labels || labels->mode != RP_LABELS_ACROSS_CUTS);
    add_row(&hasher, row);
    for (uint32_t i = 0; i < row->fragments; i++) {
        fragment.length = (uint32_t)row->lengths[i];
        for (uint32_t t = 0, count = label_count(&fragment); t < count; t += RP_DIGEST_BLOCK) {
            uint64_t n = rp_min_u64(count - t, RP_DIGEST_BLOCK);
            take_labels(block, &fragment, t, n);
            rp_hasher_add(&hasher, block, n * sizeof block[0]);
        }
        fragment.at += places_of(row, i);
    }
    return rp_hasher_finish(&hasher);
}

struct rp_hash128 rp_row_digest(uint64_t row, struct rp_hash128 row_hash)
{
    uint64_t words[3] = {row, row_hash.low, row_hash.high};
    return rp_hash128(words, sizeof words);
}
