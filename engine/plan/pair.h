/* SPDX-License-Identifier: Apache-2.0 */
/* pair.h — the last two pieces of a row of lookahead, which are chosen together, by both versions
 * of the stream. */
#ifndef RP_PLAN_PAIR_H
#define RP_PLAN_PAIR_H

#include "plan/window.h"

enum { RP_PAIR_TRIES = 48 };

struct rp_pair {
    uint16_t a, b; /* slots; `a` goes first */
};

/** Find the best pair whose sum is in (sum of `taken` and `other`, gap]. `taken` is the floor of
 * `gap`, and `other` the floor of the rest without it, or none.
 *
 * The search ends when twice the size of `a` is not above the best sum: any better pair has a
 * member that is larger than `a`, and was seen with that member as `a`. If no `b` fits with `a`,
 * the sum is the size of `a`, which is at most the size of `taken`, so it is never taken for a
 * pair. The first try would be `taken` with `other`, if there is one. */
static inline bool rp_pair_find(const struct rp_window *window, uint32_t gap, uint16_t taken,
                                uint16_t other, struct rp_pair *pair)
{
    uint32_t least = rp_window_value(window, rp_window_least(window));
    uint32_t sum_min = rp_window_value(window, taken) + rp_window_value(window, other);
    uint32_t best = sum_min;
    uint16_t best_a = RP_WINDOW_NONE, best_b = RP_WINDOW_NONE;
    bool is_known = other != RP_WINDOW_NONE;
    uint16_t a = is_known ? rp_window_lower(window, taken) : rp_window_floor(window, gap - least);
    for (int tries = RP_PAIR_TRIES - is_known; tries > 0 && best < gap; tries--) {
        uint32_t size = rp_window_value(window, a);
        if (2 * size <= best)
            break;
        uint16_t b = rp_window_floor_but(window, gap - size, a);
        uint32_t sum = size + rp_window_value(window, b);
        bool is_better = sum > best;
        best = is_better ? sum : best;
        best_a = is_better ? a : best_a;
        best_b = is_better ? b : best_b;
        a = rp_window_lower(window, a);
    }
    *pair = (struct rp_pair){best_a, best_b};
    return best > sum_min;
}

#endif
