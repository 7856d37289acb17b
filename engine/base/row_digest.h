/* SPDX-License-Identifier: Apache-2.0 */
/* row_digest.h — the hash of a row, and its contribution to the digest of the stream
 * (engine/plan/STREAM.md, "Digest"), for the client library, the program and the tests. */
#ifndef RP_BASE_ROW_DIGEST_H
#define RP_BASE_ROW_DIGEST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "ringpack/batch.h"

/** Hash of a row: the lengths of its `fragments` fragments, and their tokens, which are stored as
 * `dtype` (U16, I32 or I64; ids are below 2^32). The hash does not depend on dtype. */
struct rp_hash128 rp_row_hash(const int32_t *lengths, uint32_t fragments, const void *tokens,
                              enum rp_dtype dtype);

/* The place of the labels of a row. */
struct rp_row_labels {
    const void *labels; /* NULL: the run has only a loss mask */
    enum rp_dtype dtype;
    bool shifted;           /* enum rp_label_mode */
    const float *loss_mask; /* NULL: the run has only labels */
};

/** The same with labels: equal for both label modes, and whichever of the two sections there are.
 * Where both are and contradict each other, it is equal to no right one. */
struct rp_hash128 rp_row_labelled_hash(const int32_t *lengths, uint32_t fragments,
                                       const void *tokens, enum rp_dtype dtype,
                                       const struct rp_row_labels *labels);

/** Write the labels of a fragment at token `at` of its row as that hash has them. */
void rp_fragment_labels(const void *tokens, enum rp_dtype dtype, const struct rp_row_labels *labels,
                        uint64_t at, uint32_t length, uint32_t *out);

/** H(g) of STREAM.md: the contribution of row g to the digest of a set of rows. */
struct rp_hash128 rp_row_digest(uint64_t row, struct rp_hash128 row_hash);

#endif
