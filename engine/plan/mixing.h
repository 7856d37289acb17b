/* SPDX-License-Identifier: Apache-2.0 */
/* mixing.h — the source that is furthest behind its share of tokens (STREAM.md section 4, step 1).
 *
 * A binary heap of the unfinished sources, ordered by (mixed / weight, number), compared exactly.
 * The result is the minimum of a total order, so the shape of the heap is not part of the state:
 * the heap is rebuilt from `mixed` when a token is loaded. */
#ifndef RP_PLAN_MIXING_H
#define RP_PLAN_MIXING_H

#include <stdbool.h>
#include <stdint.h>

struct rp_mixing {
    uint32_t count; /* unfinished sources: heap[0 .. count) */
    uint32_t *heap;
    const uint64_t *weight; /* by source, 1 … 2^32-1 */
    uint64_t *mixed;        /* by source: tokens delivered since these weights apply */
};

/** Build the heap of the sources whose finished[] is 0. */
void rp_mixing_build(struct rp_mixing *mixing, const uint8_t *finished, uint32_t source_count);

/** The source to take from next; count must be > 0. */
static inline uint32_t rp_mixing_first(const struct rp_mixing *mixing)
{
    return mixing->heap[0];
}

/** Move heap[at] down until the heap is in order. */
void rp_mixing_sink(struct rp_mixing *mixing, uint32_t at);

/** Count tokens that the first source delivered. If it is finished now, remove it. */
static inline void rp_mixing_advance_first(struct rp_mixing *mixing, uint64_t tokens, bool finished)
{
    mixing->mixed[mixing->heap[0]] += tokens;
    if (finished)
        mixing->heap[0] = mixing->heap[--mixing->count];
    if (mixing->count > 1)
        rp_mixing_sink(mixing, 0);
}

#endif
