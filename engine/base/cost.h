/* SPDX-License-Identifier: Apache-2.0 */
/* cost.h — the cost of a row: the time that a model needs for it, up to a factor (plan/STREAM2.md
 * section 8). Deal, `batch.cost` and the reports of tools take it from here. Integer arithmetic, so
 * all nodes have equal costs. */
#ifndef RP_BASE_COST_H
#define RP_BASE_COST_H

#include <stdint.h>

/* The key `cost` of a config (config/cost.h); in a deal it is fixed with the stream. */
struct rp_cost {
    uint32_t k; /* K: tokens at which attention costs as much as all else; 1 … 2^24 - 1 */
    uint32_t w; /* h of b layers attend to the last w tokens only */
    uint8_t h, b;
};

/* K without the key `cost`: between the models of 1 and 8 billion parameters that were measured
 * (15,072 and 23,866). */
#define RP_COST_K_STANDARD 16384u

/** The cost of a fragment that occupies `places` places of its row. That of a row is the sum. */
static inline uint64_t rp_cost_of(const struct rp_cost *cost, uint32_t places)
{
    uint64_t l = places, w = cost->w;
    if (cost->h == 0) /* b is 1 then, so this is l·(K + l) */
        return cost->b * (cost->k + l) * l;
    uint64_t near = l <= w ? l * l : 2 * w * l - w * w;
    return (uint64_t)cost->b * cost->k * l + (uint64_t)(cost->b - cost->h) * l * l + cost->h * near;
}

#endif
