/* SPDX-License-Identifier: Apache-2.0 */
/* window.h — up to 65,534 items in two orders: by arrival, and by (value, arrival).
 *
 * It is the FIFO of lookahead (value: length) and the open rows of best_fit (value: gap). An item
 * is a slot number; the packing keeps the data of a slot in an array of its own.
 *
 * Each order is a doubly linked ring. Slot 0 is in both rings as a sentinel: it is no item, its
 * value is 0, and it comes before the first and after the last item. To find an item by its value,
 * values are divided into buckets that widen with the value (one value each below 256, then 1/128
 * of the value). Each bucket knows its greatest item, and a bitmap of two levels finds the next
 * occupied bucket below. So every operation is O(1), except for a walk over the few items of one
 * bucket. The sentinel saves branches at the ends that a processor would mispredict, because the
 * order of items is random.
 *
 * Invariants: `upper` leads to the same or a greater value; items of equal value are in order of
 * arrival, or in the reverse order when older_is_greater. Bucket 0 has slot 0, so it is never
 * empty. */
#ifndef RP_PLAN_WINDOW_H
#define RP_PLAN_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#include "plan/plan.h"

#define RP_WINDOW_VALUE_MAX RP_SEQ_LEN_MAX /* values begin with 1 */
#define RP_WINDOW_ITEMS_MAX (UINT16_MAX - 1u)
#define RP_WINDOW_NONE 0       /* slot */
#define RP_WINDOW_BUCKETS 2560 /* 18 octaves of 128 after the first 256 values */

struct rp_window_age {
    uint64_t arrival;
    uint16_t older, newer; /* slots; `newer` of a free slot links the free list */
};

struct rp_window_place {
    uint32_t value;
    uint16_t bucket;       /* rp_window_bucket(value) */
    uint16_t lower, upper; /* slots */
};

struct rp_window {
    uint32_t capacity, count;
    bool older_is_greater; /* among equal values */
    uint16_t free;         /* slot */
    uint64_t arrivals;
    struct rp_window_age *age;     /* by slot: the order of arrival */
    struct rp_window_place *place; /* by slot: the order of values */
    uint64_t occupied_words;       /* which words of `occupied` are not 0 */
    uint64_t occupied[RP_WINDOW_BUCKETS / 64];
    uint16_t greatest[RP_WINDOW_BUCKETS]; /* slot, of an occupied bucket */
};

RP_MUST_CHECK int rp_window_open(struct rp_window *window, uint32_t capacity, bool older_is_greater,
                                 struct rp_error *error);
void rp_window_close(struct rp_window *window);
void rp_window_clear(struct rp_window *window);

/** Add an item, which is the newest. Returns its slot, 1 … capacity. count must be < capacity. */
uint16_t rp_window_add(struct rp_window *window, uint32_t value);
/** The slot that rp_window_add will return next. */
static inline uint16_t rp_window_next_slot(const struct rp_window *window)
{
    return window->free;
}
void rp_window_remove(struct rp_window *window, uint16_t slot);
/** Give an item another value; its order of arrival stays. */
void rp_window_change(struct rp_window *window, uint16_t slot, uint32_t value);

/* ---- the order of arrival -------------------------------------------------------------------- */

static inline uint16_t rp_window_oldest(const struct rp_window *window)
{
    return window->age[RP_WINDOW_NONE].newer;
}
static inline uint16_t rp_window_newer(const struct rp_window *window, uint16_t slot)
{
    return window->age[slot].newer;
}

/* ---- the order of values --------------------------------------------------------------------- */

static inline uint32_t rp_window_value(const struct rp_window *window, uint16_t slot)
{
    return window->place[slot].value;
}
static inline uint16_t rp_window_lower(const struct rp_window *window, uint16_t slot)
{
    return window->place[slot].lower;
}
static inline uint16_t rp_window_upper(const struct rp_window *window, uint16_t slot)
{
    return window->place[slot].upper;
}
/** The item with the least value. */
static inline uint16_t rp_window_least(const struct rp_window *window)
{
    return rp_window_upper(window, RP_WINDOW_NONE);
}

/* The 8 leading bits of the value and their position: 0 … 255 have a bucket each, then each octave
 * has 128 buckets. */
static inline uint32_t rp_window_bucket(uint32_t value)
{
    uint32_t octave = 24 - (uint32_t)__builtin_clz(value | 128);
    return (octave << 7) + (value >> octave);
}

/** The topmost item with a value up to `value`, or RP_WINDOW_NONE. */
static inline uint16_t rp_window_floor(const struct rp_window *window, uint32_t value)
{
    uint32_t bucket = rp_window_bucket(value), word = bucket / 64;
    uint64_t bits = window->occupied[word] & UINT64_MAX >> (63 - bucket % 64);
    /* Both candidates are computed, because a branch would be mispredicted. Bucket 0 is occupied.
     */
    uint64_t words = (window->occupied_words & ((UINT64_C(1) << word) - 1)) | 1;
    uint32_t lower = 63 - (uint32_t)__builtin_clzll(words);
    uint64_t lower_bits = window->occupied[lower];
    word = bits != 0 ? word : lower;
    bits = bits != 0 ? bits : lower_bits;
    uint16_t slot = window->greatest[word * 64 + 63 - (uint32_t)__builtin_clzll(bits)];
    while (rp_window_value(window, slot) > value) /* only in the bucket of `value` */
        slot = rp_window_lower(window, slot);
    return slot;
}

/** rp_window_floor of all items but `slot`. */
static inline uint16_t rp_window_floor_but(const struct rp_window *window, uint32_t value,
                                           uint16_t slot)
{
    uint16_t floor = rp_window_floor(window, value);
    return floor == slot ? rp_window_lower(window, slot) : floor;
}

/** The lowest item with a value of at least `value` >= 1, or RP_WINDOW_NONE. */
static inline uint16_t rp_window_ceiling(const struct rp_window *window, uint32_t value)
{
    return rp_window_upper(window, rp_window_floor(window, value - 1));
}

#endif
