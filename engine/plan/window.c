/* SPDX-License-Identifier: Apache-2.0 */
/* window — see window.h. A sorted array beats a tree here: 64 values are four cache lines, and are
 * counted without a branch. */
#include "plan/window.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"

enum { GROUP = 4, LINEAR_MAX = 16 }; /* GROUP values are counted at a time */

int rp_window_open(struct rp_window *window, uint32_t capacity, bool older_is_greater,
                   struct rp_error *error)
{
    RP_ASSERT(capacity >= 1 && capacity <= RP_WINDOW_MAX);
    *window = (struct rp_window){
        .capacity = capacity,
        .older_is_greater = older_is_greater,
        .value = rp_calloc((size_t)capacity + GROUP, sizeof *window->value),
        .slot = rp_calloc(capacity, sizeof *window->slot),
        .link = rp_calloc(capacity, sizeof *window->link),
    };
    if (!window->value || !window->slot || !window->link) {
        rp_window_close(window);
        return rp_fail(error, -ENOMEM, "a smaller window needs less memory",
                       "no memory for a packing window of %" PRIu32, capacity);
    }
    rp_window_clear(window);
    return 0;
}

void rp_window_close(struct rp_window *window)
{
    free(window->value);
    free(window->slot);
    free(window->link);
    *window = (struct rp_window){0};
}

void rp_window_clear(struct rp_window *window)
{
    window->count = window->free = 0;
    window->arrivals = 0;
    window->oldest = window->newest = RP_WINDOW_NONE;
    for (uint32_t slot = 0; slot < window->capacity; slot++)
        window->link[slot].newer = slot + 1 < window->capacity ? slot + 1 : RP_WINDOW_NONE;
    for (uint32_t i = 0; window->value && i < window->capacity + GROUP; i++)
        window->value[i] = RP_WINDOW_VALUE_PAD;
}

uint32_t rp_window_count_below(const struct rp_window *window, uint32_t value)
{
    const int32_t *from = window->value, bound = (int32_t)value;
    uint32_t left = window->count;
    while (left > LINEAR_MAX) { /* the answer lies in [from, from + left]; no branch to mispredict */
        uint32_t half = left / 2;
        from += half & -(uint32_t)(from[half - 1] < bound);
        left -= half;
    }
    int32_t below[GROUP] = {0};
    for (uint32_t i = 0; i < left; i += GROUP)
        for (uint32_t j = 0; j < GROUP; j++)
            below[j] += from[i + j] < bound;
    return (uint32_t)(from - window->value) + (uint32_t)(below[0] + below[1] + below[2] + below[3]);
}

/* Where a thing of this value and arrival stands, or would be put. Equal values are rare or all over, so
 * they are searched by halves. */
static uint32_t index_of(const struct rp_window *window, uint32_t value, uint64_t arrival)
{
    uint32_t low = rp_window_count_below(window, value);
    uint32_t high = low;
    if (low < window->count && rp_window_value(window, low) == value)
        high = rp_window_count_below(window, value + 1);
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        uint64_t there = window->link[window->slot[middle]].arrival;
        if (window->older_is_greater ? there > arrival : there < arrival)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Move [from, from + count) to `to`. */
static void shift(struct rp_window *window, uint32_t to, uint32_t from, uint32_t count)
{
    memmove(window->value + to, window->value + from, count * sizeof *window->value);
    memmove(window->slot + to, window->slot + from, count * sizeof *window->slot);
}

uint32_t rp_window_add(struct rp_window *window, uint32_t value)
{
    RP_DASSERT(window->count < window->capacity && value <= RP_WINDOW_VALUE_MAX);
    uint32_t slot = window->free;
    struct rp_window_link *link = &window->link[slot];
    window->free = link->newer;
    *link = (struct rp_window_link){window->arrivals++, value, window->newest, RP_WINDOW_NONE};
    *(window->newest != RP_WINDOW_NONE ? &window->link[window->newest].newer : &window->oldest) = slot;
    window->newest = slot;

    /* The newest stands at an end of its equals. */
    uint32_t to = rp_window_count_below(window, value + !window->older_is_greater);
    shift(window, to + 1, to, window->count - to);
    window->value[to] = (int32_t)value;
    window->slot[to] = (uint16_t)slot;
    window->count++;
    return slot;
}

/* Where a thing that is present stands. */
static uint32_t index_present(const struct rp_window *window, uint32_t slot)
{
    const struct rp_window_link *link = &window->link[slot];
    uint32_t index = rp_window_count_below(window, link->value);
    if (window->slot[index] != slot)
        index = index_of(window, link->value, link->arrival);
    RP_DASSERT(index < window->count && window->slot[index] == slot);
    return index;
}

void rp_window_remove_at(struct rp_window *window, uint32_t index)
{
    uint32_t slot = window->slot[index];
    struct rp_window_link *link = &window->link[slot];
    window->count--;
    shift(window, index, index + 1, window->count - index);
    window->value[window->count] = RP_WINDOW_VALUE_PAD;

    *(link->older != RP_WINDOW_NONE ? &window->link[link->older].newer : &window->oldest) = link->newer;
    *(link->newer != RP_WINDOW_NONE ? &window->link[link->newer].older : &window->newest) = link->older;
    link->newer = window->free;
    window->free = slot;
}

void rp_window_remove(struct rp_window *window, uint32_t slot)
{
    rp_window_remove_at(window, index_present(window, slot));
}

void rp_window_change(struct rp_window *window, uint32_t slot, uint32_t value)
{
    RP_DASSERT(value <= RP_WINDOW_VALUE_MAX);
    struct rp_window_link *link = &window->link[slot];
    uint32_t from = index_present(window, slot);
    uint32_t to = index_of(window, value, link->arrival);
    if (to > from) {
        to--; /* the thing itself was counted */
        shift(window, from, from + 1, to - from);
    } else {
        shift(window, to + 1, to, from - to);
    }
    window->value[to] = (int32_t)value;
    window->slot[to] = (uint16_t)slot;
    link->value = value;
}
