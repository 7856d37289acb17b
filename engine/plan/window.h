/* SPDX-License-Identifier: Apache-2.0 */
/* window.h — up to 4096 things that are ordered twice: by arrival, and by (value, arrival).
 *
 * It is the FIFO of lookahead (value: length) and the open rows of best_fit (value: gap). A thing is a
 * slot number; the packing keeps what belongs to it in an array of its own.
 *
 * Invariants: value[] ascends; among equal values the things stand in order of arrival, or the other way
 * round when older_is_greater. So "the greatest value up to x, the oldest among equals" is one count.
 * value[] goes on for a group with RP_WINDOW_VALUE_PAD, so that counting needs no tail. */
#ifndef RP_PLAN_WINDOW_H
#define RP_PLAN_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#include "plan/plan.h"

#define RP_WINDOW_VALUE_MAX (RP_SEQ_LEN_MAX + 1)
#define RP_WINDOW_VALUE_PAD INT32_MAX
#define RP_WINDOW_NONE UINT32_MAX

struct rp_window_link {
    uint64_t arrival;
    uint32_t value;
    uint32_t older, newer; /* slots, or RP_WINDOW_NONE; a free slot uses `newer` for the free list */
};

struct rp_window {
    uint32_t capacity, count;
    uint32_t oldest, newest, free; /* slots */
    bool older_is_greater;         /* among equal values */
    uint64_t arrivals;
    int32_t *value; /* signed, because vector units before AVX-512 compare nothing else */
    uint16_t *slot; /* of value[i] */
    struct rp_window_link *link; /* by slot */
};

RP_MUST_CHECK int rp_window_open(struct rp_window *window, uint32_t capacity, bool older_is_greater,
                                 struct rp_error *error);
void rp_window_close(struct rp_window *window);
void rp_window_clear(struct rp_window *window);

/** Add the newest thing; returns its slot. There must be room. */
uint32_t rp_window_add(struct rp_window *window, uint32_t value);
void rp_window_remove(struct rp_window *window, uint32_t slot);
/** Remove value[index], which saves the search. */
void rp_window_remove_at(struct rp_window *window, uint32_t index);
/** Give a thing another value; its arrival stays. */
void rp_window_change(struct rp_window *window, uint32_t slot, uint32_t value);

/** How many things have a value below `value`: the index of the first that has not. */
uint32_t rp_window_count_below(const struct rp_window *window, uint32_t value);

static inline uint32_t rp_window_slot(const struct rp_window *window, uint32_t index)
{
    return window->slot[index];
}
static inline uint32_t rp_window_value(const struct rp_window *window, uint32_t index)
{
    return (uint32_t)window->value[index];
}

#endif
