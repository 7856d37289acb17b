/* SPDX-License-Identifier: Apache-2.0 */
/* window — see window.h. A sorted array beats a tree here: at 64 things it is eight cache lines. */
#include "plan/window.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"

#define RANK_MAX ((1u << RP_WINDOW_RANK_BITS) - 1)
#define RANK_SHIFT RP_WINDOW_SLOT_BITS
#define VALUE_SHIFT (RP_WINDOW_RANK_BITS + RP_WINDOW_SLOT_BITS)
RP_STATIC_ASSERT((uint64_t)RP_WINDOW_VALUE_MAX << VALUE_SHIFT >> VALUE_SHIFT == RP_WINDOW_VALUE_MAX,
                 "a value must fit its field");

int rp_window_open(struct rp_window *window, uint32_t capacity, bool older_is_greater,
                   struct rp_error *error)
{
    RP_ASSERT(capacity >= 1 && capacity <= RP_WINDOW_MAX);
    *window = (struct rp_window){
        .capacity = capacity,
        .older_is_greater = older_is_greater,
        .key = rp_calloc(capacity, sizeof *window->key),
        .link = rp_calloc(capacity, sizeof *window->link),
    };
    if (!window->key || !window->link) {
        rp_window_close(window);
        return rp_fail(error, -ENOMEM, "a smaller window needs less memory",
                       "no memory for a packing window of %" PRIu32, capacity);
    }
    rp_window_clear(window);
    return 0;
}

void rp_window_close(struct rp_window *window)
{
    free(window->key);
    free(window->link);
    *window = (struct rp_window){0};
}

void rp_window_clear(struct rp_window *window)
{
    window->count = window->arrivals = window->free = 0;
    window->oldest = window->newest = RP_WINDOW_NONE;
    for (uint32_t slot = 0; slot < window->capacity; slot++)
        window->link[slot].newer = slot + 1 < window->capacity ? slot + 1 : RP_WINDOW_NONE;
}

static uint32_t count_keys_below(const struct rp_window *window, uint64_t bound)
{
    const uint64_t *base = window->key;
    uint32_t left = window->count;
    if (left == 0)
        return 0;
    while (left > 1) { /* the answer lies in [base, base + left]; no branch to mispredict */
        uint32_t half = left / 2;
        base += base[half - 1] < bound ? half : 0;
        left -= half;
    }
    return (uint32_t)(base - window->key) + (*base < bound);
}

uint32_t rp_window_count_below(const struct rp_window *window, uint32_t value)
{
    return count_keys_below(window, (uint64_t)value << VALUE_SHIFT);
}

static uint64_t ranked(const struct rp_window *window, uint32_t arrival)
{
    return (uint64_t)(window->older_is_greater ? RANK_MAX - arrival : arrival) << RANK_SHIFT;
}

static uint64_t with_rank(uint64_t key, uint64_t rank)
{
    return (key & ~((uint64_t)RANK_MAX << RANK_SHIFT)) | rank;
}

/* Rank the things present 0, 1, 2 … in order of arrival. No two change places, so key[] stays sorted. */
static void rank_anew(struct rp_window *window)
{
    window->arrivals = 0;
    for (uint32_t slot = window->oldest; slot != RP_WINDOW_NONE; slot = window->link[slot].newer)
        window->link[slot].key = with_rank(window->link[slot].key, ranked(window, window->arrivals++));
    for (uint32_t i = 0; i < window->count; i++)
        window->key[i] = window->link[rp_window_slot(window, i)].key;
}

/* Move key[from] to where `key` belongs, as `key`. One memmove, of what lies between. */
static void replace_key(struct rp_window *window, uint32_t from, uint64_t key)
{
    uint64_t *at = window->key;
    uint32_t to = count_keys_below(window, key);
    if (to > from) {
        to--; /* the old key was counted */
        memmove(at + from, at + from + 1, (to - from) * sizeof *at);
    } else {
        memmove(at + to + 1, at + to, (from - to) * sizeof *at);
    }
    at[to] = key;
}

uint32_t rp_window_add(struct rp_window *window, uint32_t value)
{
    RP_DASSERT(window->count < window->capacity && value <= RP_WINDOW_VALUE_MAX);
    if (window->arrivals > RANK_MAX)
        rank_anew(window);

    uint32_t slot = window->free;
    struct rp_window_link *link = &window->link[slot];
    window->free = link->newer;
    *link = (struct rp_window_link){
        .key = (uint64_t)value << VALUE_SHIFT | ranked(window, window->arrivals++) | slot,
        .older = window->newest,
        .newer = RP_WINDOW_NONE,
    };
    if (window->newest != RP_WINDOW_NONE)
        window->link[window->newest].newer = slot;
    else
        window->oldest = slot;
    window->newest = slot;

    uint32_t to = count_keys_below(window, link->key);
    memmove(window->key + to + 1, window->key + to, (window->count - to) * sizeof *window->key);
    window->key[to] = link->key;
    window->count++;
    return slot;
}

void rp_window_remove(struct rp_window *window, uint32_t slot)
{
    struct rp_window_link *link = &window->link[slot];
    uint32_t from = count_keys_below(window, link->key);
    RP_DASSERT(from < window->count && window->key[from] == link->key);
    window->count--;
    memmove(window->key + from, window->key + from + 1,
            (window->count - from) * sizeof *window->key);

    *(link->older != RP_WINDOW_NONE ? &window->link[link->older].newer : &window->oldest) = link->newer;
    *(link->newer != RP_WINDOW_NONE ? &window->link[link->newer].older : &window->newest) = link->older;
    link->newer = window->free;
    window->free = slot;
}

void rp_window_change(struct rp_window *window, uint32_t slot, uint32_t value)
{
    RP_DASSERT(value <= RP_WINDOW_VALUE_MAX);
    struct rp_window_link *link = &window->link[slot];
    uint32_t from = count_keys_below(window, link->key);
    RP_DASSERT(from < window->count && window->key[from] == link->key);
    uint64_t rank = link->key & ((uint64_t)RANK_MAX << RANK_SHIFT);
    link->key = (uint64_t)value << VALUE_SHIFT | rank | slot;
    replace_key(window, from, link->key);
}
