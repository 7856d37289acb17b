/* SPDX-License-Identifier: Apache-2.0 */
/* row_digest.h — the hash of a row, and its contribution to the digest of the stream
 * (engine/plan/STREAM.md, "Digest"), for the client library, the program and the tests. */
#ifndef RP_BASE_ROW_DIGEST_H
#define RP_BASE_ROW_DIGEST_H

#include <stdint.h>

#include "base/hash.h"
#include "ringpack/batch.h"

/* The tokens of a row: `fragments` of them, `lengths` long, in the places of the row. */
struct rp_row_tokens {
    const int32_t *lengths;
    uint32_t fragments;
    uint32_t align; /* each fragment occupies a multiple of it; 0 and 1: of 1 */
    const void *tokens;
    enum rp_dtype dtype; /* U16, I32 or I64; ids are below 2^32 */
};

/** Hash of a row: the lengths of its fragments, and their tokens. It does not depend on dtype and
 * align. */
struct rp_hash128 rp_row_hash(const struct rp_row_tokens *row);

/* The place of the labels of a row. */
struct rp_row_labels {
    const void *labels; /* NULL: the run has only a loss mask */
    enum rp_dtype dtype;
    enum rp_label_mode mode;
    const float *loss_mask; /* NULL: the run has only labels */
};

/** The same with labels: equal for shifted and aligned ones, and whichever of the two sections
 * there are. Where both are and contradict each other, it is equal to no right one. With labels
 * across cuts, the labels of the ends of fragments are also in it; then there must be labels. */
struct rp_hash128 rp_row_labelled_hash(const struct rp_row_tokens *row,
                                       const struct rp_row_labels *labels);

/** Write the labels of a fragment at place `at` of its row as that hash has them; returns their
 * number, `length` or, with labels across cuts, one more. */
uint32_t rp_fragment_labels(const struct rp_row_tokens *row, const struct rp_row_labels *labels,
                            uint64_t at, uint32_t length, uint32_t *out);

/** H(g) of STREAM.md: the contribution of row g to the digest of a set of rows; in version 2 of the
 * stream g is the planned number. */
struct rp_hash128 rp_row_digest(uint64_t row, struct rp_hash128 row_hash);

#endif
