/* SPDX-License-Identifier: Apache-2.0 */
/* window — see window.h. */
#include "plan/window.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"

#define NONE RP_WINDOW_NONE
RP_STATIC_ASSERT(RP_WINDOW_MAX < NONE, "a slot number is never NONE");
RP_STATIC_ASSERT(RP_WINDOW_BUCKETS % 64 == 0 && RP_WINDOW_BUCKETS / 64 <= 64,
                 "two levels are enough");

/* 8 significant bits and their place: 0 … 255 as they are, then 128 buckets to the octave. */
static uint32_t bucket_of(uint32_t value)
{
    uint32_t octave = value < 256 ? 0 : 24 - (uint32_t)__builtin_clz(value);
    return (octave << 7) + (value >> octave);
}

int rp_window_open(struct rp_window *window, uint32_t capacity, bool older_is_greater,
                   struct rp_error *error)
{
    RP_ASSERT(capacity >= 1 && capacity <= RP_WINDOW_MAX);
    RP_ASSERT(bucket_of(RP_WINDOW_VALUE_MAX) < RP_WINDOW_BUCKETS);
    *window = (struct rp_window){
        .capacity = capacity,
        .older_is_greater = older_is_greater,
        .link = rp_calloc(capacity, sizeof *window->link),
    };
    if (!window->link)
        return rp_fail(error, -ENOMEM, "a smaller window needs less memory",
                       "no memory for a packing window of %" PRIu32, capacity);
    rp_window_clear(window);
    return 0;
}

void rp_window_close(struct rp_window *window)
{
    free(window->link);
    *window = (struct rp_window){0};
}

void rp_window_clear(struct rp_window *window)
{
    window->count = 0;
    window->arrivals = 0;
    window->oldest = window->newest = window->least = NONE;
    window->free = 0;
    for (uint32_t slot = 0; slot < window->capacity; slot++)
        window->link[slot].newer = slot + 1 < window->capacity ? (uint16_t)(slot + 1) : NONE;
    window->occupied_words = 0;
    memset(window->occupied, 0, sizeof window->occupied);
}

/* The topmost thing in the buckets below `bucket`. */
static uint16_t top_below(const struct rp_window *window, uint32_t bucket)
{
    uint32_t word = bucket / 64;
    uint64_t bits = window->occupied[word] & ((UINT64_C(1) << bucket % 64) - 1);
    if (bits == 0) {
        uint64_t words = window->occupied_words & ((UINT64_C(1) << word) - 1);
        if (words == 0)
            return NONE;
        word = 63 - (uint32_t)__builtin_clzll(words);
        bits = window->occupied[word];
    }
    return window->greatest[word * 64 + 63 - (uint32_t)__builtin_clzll(bits)];
}

static bool is_occupied(const struct rp_window *window, uint32_t bucket)
{
    return window->occupied[bucket / 64] >> bucket % 64 & 1;
}

uint16_t rp_window_floor(const struct rp_window *window, uint32_t value)
{
    uint32_t bucket = bucket_of(value);
    uint16_t slot = is_occupied(window, bucket) ? window->greatest[bucket]
                                                : top_below(window, bucket);
    while (slot != NONE && window->link[slot].value > value)
        slot = window->link[slot].lower;
    return slot;
}

uint16_t rp_window_ceiling(const struct rp_window *window, uint32_t value)
{
    uint16_t below = value > 0 ? rp_window_floor(window, value - 1) : NONE;
    return below != NONE ? window->link[below].upper : window->least;
}

/* The thing above which one of this value and arrival belongs. */
static uint16_t place_of(const struct rp_window *window, uint32_t value, uint64_t arrival)
{
    uint16_t slot = rp_window_floor(window, value);
    while (slot != NONE && window->link[slot].value == value &&
           (window->link[slot].arrival > arrival) != window->older_is_greater)
        slot = window->link[slot].lower;
    return slot;
}

/* Put a thing into the order of values, right above `lower`. */
static void insert(struct rp_window *window, uint16_t slot, uint16_t lower)
{
    struct rp_window_link *link = &window->link[slot];
    uint16_t upper = lower != NONE ? window->link[lower].upper : window->least;
    link->lower = lower;
    link->upper = upper;
    *(lower != NONE ? &window->link[lower].upper : &window->least) = slot;
    if (upper != NONE)
        window->link[upper].lower = slot;

    uint32_t bucket = bucket_of(link->value);
    if (upper == NONE || bucket_of(window->link[upper].value) != bucket)
        window->greatest[bucket] = slot;
    window->occupied[bucket / 64] |= UINT64_C(1) << bucket % 64;
    window->occupied_words |= UINT64_C(1) << bucket / 64;
}

/* Take a thing out of the order of values. */
static void withdraw(struct rp_window *window, uint16_t slot)
{
    const struct rp_window_link *link = &window->link[slot];
    *(link->lower != NONE ? &window->link[link->lower].upper : &window->least) = link->upper;
    if (link->upper != NONE)
        window->link[link->upper].lower = link->lower;

    uint32_t bucket = bucket_of(link->value);
    if (window->greatest[bucket] != slot)
        return;
    if (link->lower != NONE && bucket_of(window->link[link->lower].value) == bucket) {
        window->greatest[bucket] = link->lower;
        return;
    }
    window->occupied[bucket / 64] &= ~(UINT64_C(1) << bucket % 64);
    if (window->occupied[bucket / 64] == 0)
        window->occupied_words &= ~(UINT64_C(1) << bucket / 64);
}

uint16_t rp_window_add(struct rp_window *window, uint32_t value)
{
    RP_DASSERT(window->count < window->capacity && value <= RP_WINDOW_VALUE_MAX);
    uint16_t slot = window->free;
    struct rp_window_link *link = &window->link[slot];
    window->free = link->newer;
    *link = (struct rp_window_link){
        .arrival = window->arrivals++, .value = value, .older = window->newest, .newer = NONE};
    *(window->newest != NONE ? &window->link[window->newest].newer : &window->oldest) = slot;
    window->newest = slot;
    window->count++;

    /* The newest stands at an end of its equals. */
    uint32_t below = value - window->older_is_greater;
    insert(window, slot, below <= value ? rp_window_floor(window, below) : NONE);
    return slot;
}

void rp_window_remove(struct rp_window *window, uint16_t slot)
{
    struct rp_window_link *link = &window->link[slot];
    withdraw(window, slot);
    *(link->older != NONE ? &window->link[link->older].newer : &window->oldest) = link->newer;
    *(link->newer != NONE ? &window->link[link->newer].older : &window->newest) = link->older;
    link->newer = window->free;
    window->free = slot;
    window->count--;
}

void rp_window_change(struct rp_window *window, uint16_t slot, uint32_t value)
{
    RP_DASSERT(value <= RP_WINDOW_VALUE_MAX);
    struct rp_window_link *link = &window->link[slot];
    withdraw(window, slot);
    link->value = value;
    insert(window, slot, place_of(window, value, link->arrival));
}
