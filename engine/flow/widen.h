/* SPDX-License-Identifier: Apache-2.0 */
/* widen.h — the one pass over every token: copy it from its stored width to the batch's dtype, and
 * in the same pass write every section that has one entry per token.
 *
 * Tokens are stored in `width` bytes (1, 2, 4, 8; any address). The result is the largest of them
 * as unsigned numbers, so that range and vocabulary are checked in the same pass. */
#ifndef RP_FLOW_WIDEN_H
#define RP_FLOW_WIDEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shm/layout.h"

#define RP_LABEL_IGNORED (-100)

/* Where the tokens of one fragment go. NULL: the run does not have that section. */
struct rp_widen_target {
    void *ids;                /* U16, I32 or I64 */
    void *labels, *positions; /* I64 if ids are, else I32 */
    int32_t *segments;
    float *mask;
    int32_t segment;
    bool labels_shifted; /* enum rp_label_mode; read only if there are labels */
};

/** Write n >= 1 tokens and their per-token sections (batch.h defines them). `ahead` is the address
 * of tokens that are read some fragments later: memory for as many bytes as these tokens take is
 * prefetched from there while these are written. Any address will do. */
uint64_t rp_widen_fragment(const struct rp_widen_target *target, enum rp_dtype ids_dtype,
                           const void *source, uint32_t width, size_t n, const void *ahead);

/** The same with the baseline of the architecture: SSE2, NEON. */
uint64_t rp_widen_fragment_baseline(const struct rp_widen_target *target, enum rp_dtype ids_dtype,
                                    const void *source, uint32_t width, size_t n,
                                    const void *ahead);

/** Write n tokens as ids, without other sections. */
uint64_t rp_widen(void *ids, enum rp_dtype dtype, const void *source, uint32_t width, size_t n);

/** Token i of a stored run. */
uint64_t rp_widen_token_at(const void *source, uint32_t width, size_t i);

/** target[i] = first + i, and target[i] = value, for i < n, as I32 or I64 (fill: also U16). */
void rp_count_up(void *target, enum rp_dtype dtype, int64_t first, size_t n);
void rp_widen_fill(void *target, enum rp_dtype dtype, int64_t value, size_t n);

#endif
