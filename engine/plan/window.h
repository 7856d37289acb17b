/* SPDX-License-Identifier: Apache-2.0 */
/* window.h — up to 4096 things that are ordered twice: by arrival, and by (value, arrival).
 *
 * It is the FIFO of lookahead (value: length) and the open rows of best_fit (value: gap). A thing is a
 * slot number; the packing keeps what belongs to it in an array of its own.
 *
 * Invariants: `key` is sorted, and key[i] = value << 39 | rank << 12 | slot, so one binary search finds
 * "the greatest value up to x, the oldest among equals". Rank grows with arrival, or falls when older
 * must be greater. Ranks have 27 bits; when they run out the things present are ranked anew, which
 * keeps every order and is therefore not visible. */
#ifndef RP_PLAN_WINDOW_H
#define RP_PLAN_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#include "plan/plan.h"

#define RP_WINDOW_SLOT_BITS 12
#define RP_WINDOW_RANK_BITS 27
#define RP_WINDOW_VALUE_MAX (RP_SEQ_LEN_MAX + 1) /* 25 bits */
#define RP_WINDOW_NONE UINT32_MAX
RP_STATIC_ASSERT(RP_WINDOW_MAX <= 1u << RP_WINDOW_SLOT_BITS, "a slot number must fit its field");

struct rp_window_link {
    uint64_t key;
    uint32_t older, newer; /* slots, or RP_WINDOW_NONE; a free slot uses `newer` for the free list */
};

struct rp_window {
    uint32_t capacity, count;
    uint32_t oldest, newest, free; /* slots */
    uint32_t arrivals;             /* rank of the next arrival, before turning round */
    bool older_is_greater;         /* among equal values */
    uint64_t *key;                 /* [count], ascending */
    struct rp_window_link *link;   /* by slot */
};

RP_MUST_CHECK int rp_window_open(struct rp_window *window, uint32_t capacity, bool older_is_greater,
                                 struct rp_error *error);
void rp_window_close(struct rp_window *window);
void rp_window_clear(struct rp_window *window);

/** Add the newest thing; returns its slot. There must be room. */
uint32_t rp_window_add(struct rp_window *window, uint32_t value);
void rp_window_remove(struct rp_window *window, uint32_t slot);
/** Give a thing another value; its arrival stays. */
void rp_window_change(struct rp_window *window, uint32_t slot, uint32_t value);

/** How many things have a value below `value`: the index in key[] of the first that has not. */
uint32_t rp_window_count_below(const struct rp_window *window, uint32_t value);

static inline uint32_t rp_window_slot(const struct rp_window *window, uint32_t index)
{
    return (uint32_t)window->key[index] & ((1u << RP_WINDOW_SLOT_BITS) - 1);
}
static inline uint32_t rp_window_value(const struct rp_window *window, uint32_t index)
{
    return (uint32_t)(window->key[index] >> (RP_WINDOW_RANK_BITS + RP_WINDOW_SLOT_BITS));
}

#endif
