/* SPDX-License-Identifier: Apache-2.0 */
/* window.h — up to 4096 things that are ordered twice: by arrival, and by (value, arrival).
 *
 * It is the FIFO of lookahead (value: length) and the open rows of best_fit (value: gap). A thing
 * is a slot number; the packing keeps what belongs to it in an array of its own.
 *
 * Both orders are linked lists over the slots. To enter the second one at a value, values fall into
 * buckets that widen with the value (exact below 256, then 1/128 of it), each bucket knows its
 * greatest thing, and a bitmap of two levels finds the next bucket that has one. So everything is
 * O(1) but for the few things that share a bucket.
 *
 * Invariants: going up, values ascend; among equal values the things stand in order of arrival, or
 * the other way round when older_is_greater. */
#ifndef RP_PLAN_WINDOW_H
#define RP_PLAN_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#include "plan/plan.h"

#define RP_WINDOW_VALUE_MAX RP_SEQ_LEN_MAX
#define RP_WINDOW_NONE UINT16_MAX
#define RP_WINDOW_BUCKETS 2560 /* 18 octaves of 128 behind the first 256 values */

struct rp_window_link {
    uint64_t arrival;
    uint32_t value;
    uint16_t older,
        newer; /* slots, or RP_WINDOW_NONE; a free slot uses `newer` for the free list */
    uint16_t lower, upper;
};

struct rp_window {
    uint32_t capacity, count;
    uint16_t oldest, newest, least, free; /* slots */
    bool older_is_greater;                /* among equal values */
    uint64_t arrivals;
    struct rp_window_link *link; /* by slot */
    uint64_t occupied_words;     /* which words of `occupied` are not 0 */
    uint64_t occupied[RP_WINDOW_BUCKETS / 64];
    uint16_t greatest[RP_WINDOW_BUCKETS]; /* slot, of an occupied bucket */
};

RP_MUST_CHECK int rp_window_open(struct rp_window *window, uint32_t capacity, bool older_is_greater,
                                 struct rp_error *error);
void rp_window_close(struct rp_window *window);
void rp_window_clear(struct rp_window *window);

/** Add the newest thing; returns its slot. There must be room. */
uint16_t rp_window_add(struct rp_window *window, uint32_t value);
void rp_window_remove(struct rp_window *window, uint16_t slot);
/** Give a thing another value; its arrival stays. */
void rp_window_change(struct rp_window *window, uint16_t slot, uint32_t value);

/** The topmost thing with a value up to `value`, or RP_WINDOW_NONE. */
uint16_t rp_window_floor(const struct rp_window *window, uint32_t value);
/** The lowest thing with a value of at least `value`, or RP_WINDOW_NONE. */
uint16_t rp_window_ceiling(const struct rp_window *window, uint32_t value);

static inline uint32_t rp_window_value(const struct rp_window *window, uint16_t slot)
{
    return window->link[slot].value;
}
/** The least value; the window must not be empty. */
static inline uint32_t rp_window_least(const struct rp_window *window)
{
    return window->link[window->least].value;
}

#endif
