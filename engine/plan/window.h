/* SPDX-License-Identifier: Apache-2.0 */
/* window.h — up to 65,534 items in two orders: by arrival, and by (value, arrival).
 *
 * It is the FIFO of lookahead (value: length) and the open rows of best_fit (value: gap). An item
 * is a slot number; the packing keeps the data of a slot in an array of its own.
 *
 * Each order is a doubly linked ring. Slot 0 is in both rings as a sentinel: it is no item, its
 * value is 0, and it comes before the first and after the last item. To find an item by its value,
 * values are divided into buckets that widen with the value (one value each below 128, then about
 * 1/128 of the value). Each bucket knows its greatest item, and a bitmap of two levels finds the
 * next occupied bucket below. So every operation is O(1), except for a walk over the few items of
 * one bucket. The sentinel saves branches at the ends that a processor would mispredict, because
 * the order of items is random.
 *
 * Buckets are numbered from the greatest values down: the next occupied one below is the next bit
 * above, and to find the lowest bit takes one instruction on every x86-64 processor, the highest
 * bit takes eight.
 *
 * Invariants: `upper` leads to the same or a greater value; items of equal value are in order of
 * arrival, or in the reverse order when older_is_greater. The last bucket has slot 0, so it is
 * never empty. */
#ifndef RP_PLAN_WINDOW_H
#define RP_PLAN_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#include "plan/plan.h"

#define RP_WINDOW_VALUE_MAX RP_SEQ_LEN_MAX /* values begin with 1 */
#define RP_WINDOW_ITEMS_MAX (UINT16_MAX - 1u)
#define RP_WINDOW_NONE 0       /* slot */
#define RP_WINDOW_BUCKETS 2560 /* one for each value below 128, then 17 octaves of at most 128 */

struct rp_window_item {
    uint32_t value;
    uint16_t bucket;       /* rp_window_bucket(value) */
    uint16_t lower, upper; /* slots in the order of values */
    uint16_t older, newer; /* slots; `newer` of a free slot links the free list */
};

struct rp_window {
    uint32_t capacity, count;
    bool older_is_greater; /* among equal values */
    uint16_t free;         /* slot */
    uint64_t arrivals;
    struct rp_window_item *items; /* by slot */
    uint64_t *arrival;            /* by slot: the number of its arrival */
    uint64_t occupied_words;      /* which words of `occupied` are not 0 */
    uint64_t occupied[RP_WINDOW_BUCKETS / 64];
    uint16_t greatest[RP_WINDOW_BUCKETS]; /* slot, of an occupied bucket */
};

RP_MUST_CHECK int rp_window_open(struct rp_window *window, uint32_t capacity, bool older_is_greater,
                                 struct rp_error *error);
void rp_window_close(struct rp_window *window);
void rp_window_clear(struct rp_window *window);

/** The slot that rp_window_add will return next. */
static inline uint16_t rp_window_next_slot(const struct rp_window *window)
{
    return window->free;
}
/** Give an item another value; its order of arrival stays. */
void rp_window_change(struct rp_window *window, uint16_t slot, uint32_t value);

/* ---- the order of arrival -------------------------------------------------------------------- */

static inline uint16_t rp_window_oldest(const struct rp_window *window)
{
    return window->items[RP_WINDOW_NONE].newer;
}
static inline uint16_t rp_window_newer(const struct rp_window *window, uint16_t slot)
{
    return window->items[slot].newer;
}

/* ---- the order of values --------------------------------------------------------------------- */

static inline uint32_t rp_window_value(const struct rp_window *window, uint16_t slot)
{
    return window->items[slot].value;
}
static inline uint16_t rp_window_lower(const struct rp_window *window, uint16_t slot)
{
    return window->items[slot].lower;
}
static inline uint16_t rp_window_upper(const struct rp_window *window, uint16_t slot)
{
    return window->items[slot].upper;
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
    return RP_WINDOW_BUCKETS - 1 - (octave << 7) - (value >> octave);
}

/** The topmost item with a value up to `value`, or RP_WINDOW_NONE. */
static inline uint16_t rp_window_floor(const struct rp_window *window, uint32_t value)
{
    enum { LAST_WORD = RP_WINDOW_BUCKETS / 64 - 1 };
    uint32_t bucket = rp_window_bucket(value), word = bucket / 64;
    uint64_t bits = window->occupied[word] & UINT64_MAX << bucket % 64;
    /* Both candidates are computed, because a branch would be mispredicted. */
    uint64_t words = (window->occupied_words & UINT64_MAX << 1 << word) | UINT64_C(1) << LAST_WORD;
    uint32_t lower = (uint32_t)__builtin_ctzll(words);
    uint64_t is_lower = -(uint64_t)(bits == 0);
    bits |= window->occupied[lower] & is_lower;
    word += (lower - word) & (uint32_t)is_lower;
    uint16_t slot = window->greatest[word * 64 + (uint32_t)__builtin_ctzll(bits)];
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

/* ---- changes --------------------------------------------------------------------------------- */

/* Insert an item into the order of values, right above `lower`. */
static inline void rp_window_insert(struct rp_window *window, uint16_t slot, uint32_t value,
                                    uint16_t lower)
{
    struct rp_window_item *items = window->items;
    uint16_t upper = items[lower].upper;
    uint32_t bucket = rp_window_bucket(value);
    items[slot].value = value;
    items[slot].bucket = (uint16_t)bucket;
    items[slot].lower = lower;
    items[slot].upper = upper;
    items[lower].upper = slot;
    items[upper].lower = slot;
    if (items[upper].bucket != bucket) /* nearly always true: few items share a bucket */
        window->greatest[bucket] = slot;
    window->occupied[bucket / 64] |= UINT64_C(1) << bucket % 64;
    window->occupied_words |= UINT64_C(1) << bucket / 64;
}

/* Remove an item from the order of values. */
static inline void rp_window_withdraw(struct rp_window *window, uint16_t slot)
{
    struct rp_window_item *items = window->items;
    uint16_t lower = items[slot].lower, upper = items[slot].upper;
    uint32_t bucket = items[slot].bucket, word = bucket / 64;
    items[lower].upper = upper;
    items[upper].lower = lower;
    if (items[upper].bucket == bucket)
        return;
    window->greatest[bucket] = lower;
    if (items[lower].bucket != bucket) {
        uint64_t bits = window->occupied[word] & ~(UINT64_C(1) << bucket % 64);
        window->occupied[word] = bits;
        window->occupied_words &= ~((uint64_t)(bits == 0) << word);
    }
}

/** Add an item, which is the newest. Returns its slot, 1 … capacity. count must be < capacity. */
static inline uint16_t rp_window_add(struct rp_window *window, uint32_t value)
{
    RP_DASSERT(window->count < window->capacity && value >= 1 && value <= RP_WINDOW_VALUE_MAX);
    struct rp_window_item *items = window->items;
    uint16_t slot = window->free, older = items[RP_WINDOW_NONE].older;
    window->free = items[slot].newer;
    window->arrival[slot] = window->arrivals++;
    items[slot].older = older;
    items[slot].newer = RP_WINDOW_NONE;
    items[older].newer = slot;
    items[RP_WINDOW_NONE].older = slot;
    window->count++;

    /* Among items of equal value the newest is the lowest or the topmost. */
    rp_window_insert(window, slot, value,
                     rp_window_floor(window, value - window->older_is_greater));
    return slot;
}

static inline void rp_window_remove(struct rp_window *window, uint16_t slot)
{
    struct rp_window_item *items = window->items;
    rp_window_withdraw(window, slot);
    uint16_t older = items[slot].older, newer = items[slot].newer;
    items[older].newer = newer;
    items[newer].older = older;
    items[slot].newer = window->free;
    window->free = slot;
    window->count--;
}

#endif
