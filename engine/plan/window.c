/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/window.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"

#define NONE RP_WINDOW_NONE
RP_STATIC_ASSERT(RP_WINDOW_MAX <= RP_WINDOW_ITEMS_MAX, "a slot number takes 16 bits");
RP_STATIC_ASSERT(RP_WINDOW_BUCKETS % 64 == 0 && RP_WINDOW_BUCKETS / 64 <= 64,
                 "two levels are enough");

int rp_window_open(struct rp_window *window, uint32_t capacity, bool older_is_greater,
                   struct rp_error *error)
{
    RP_ASSERT(capacity >= 1 && capacity <= RP_WINDOW_ITEMS_MAX);
    RP_ASSERT(rp_window_bucket(RP_WINDOW_VALUE_MAX) < RP_WINDOW_BUCKETS);
    *window = (struct rp_window){
        .capacity = capacity,
        .older_is_greater = older_is_greater,
        .age = rp_calloc(capacity + 1, sizeof *window->age),
        .place = rp_calloc(capacity + 1, sizeof *window->place),
    };
    if (!window->age || !window->place) {
        rp_window_close(window);
        return rp_fail(error, -ENOMEM, "a smaller window needs less memory",
                       "no memory for a packing window of %" PRIu32, capacity);
    }
    rp_window_clear(window);
    return 0;
}

void rp_window_close(struct rp_window *window)
{
    free(window->age);
    free(window->place);
    *window = (struct rp_window){0};
}

void rp_window_clear(struct rp_window *window)
{
    window->count = 0;
    window->arrivals = 0;
    window->free = 1;
    for (uint32_t slot = 1; slot <= window->capacity; slot++)
        window->age[slot].newer = (uint16_t)(slot + 1); /* beyond the last slot: never used */
    window->age[NONE] = (struct rp_window_age){.older = NONE, .newer = NONE};
    window->place[NONE] = (struct rp_window_place){.value = 0, .lower = NONE, .upper = NONE};
    memset(window->occupied, 0, sizeof window->occupied);
    window->occupied_words = window->occupied[0] = 1;
    window->greatest[0] = NONE;
}

/* The item right below an item of this value and arrival. */
static uint16_t place_of(const struct rp_window *window, uint32_t value, uint64_t arrival)
{
    uint16_t slot = rp_window_floor(window, value);
    while (rp_window_value(window, slot) == value &&
           (window->age[slot].arrival > arrival) != window->older_is_greater)
        slot = rp_window_lower(window, slot);
    return slot;
}

/* Insert an item into the order of values, right above `lower`. */
static void insert(struct rp_window *window, uint16_t slot, uint32_t value, uint16_t lower)
{
    struct rp_window_place *place = window->place;
    uint16_t upper = place[lower].upper;
    uint32_t bucket = rp_window_bucket(value);
    place[slot] = (struct rp_window_place){value, (uint16_t)bucket, lower, upper};
    place[lower].upper = slot;
    place[upper].lower = slot;
    if (place[upper].bucket != bucket) /* nearly always true: few items share a bucket */
        window->greatest[bucket] = slot;
    window->occupied[bucket / 64] |= UINT64_C(1) << bucket % 64;
    window->occupied_words |= UINT64_C(1) << bucket / 64;
}

/* Remove an item from the order of values. */
static void withdraw(struct rp_window *window, uint16_t slot)
{
    struct rp_window_place *place = window->place;
    uint16_t lower = place[slot].lower, upper = place[slot].upper;
    uint32_t bucket = place[slot].bucket, word = bucket / 64;
    place[lower].upper = upper;
    place[upper].lower = lower;
    if (place[upper].bucket == bucket)
        return;
    window->greatest[bucket] = lower;
    if (place[lower].bucket != bucket) {
        uint64_t bits = window->occupied[word] & ~(UINT64_C(1) << bucket % 64);
        window->occupied[word] = bits;
        window->occupied_words &= ~((uint64_t)(bits == 0) << word);
    }
}

uint16_t rp_window_add(struct rp_window *window, uint32_t value)
{
    RP_DASSERT(window->count < window->capacity && value >= 1 && value <= RP_WINDOW_VALUE_MAX);
    struct rp_window_age *age = window->age;
    uint16_t slot = window->free, older = age[NONE].older;
    window->free = age[slot].newer;
    age[slot] = (struct rp_window_age){window->arrivals++, older, NONE};
    age[older].newer = slot;
    age[NONE].older = slot;
    window->count++;

    /* Among items of equal value the newest is the lowest or the topmost. */
    insert(window, slot, value, rp_window_floor(window, value - window->older_is_greater));
    return slot;
}

void rp_window_remove(struct rp_window *window, uint16_t slot)
{
    struct rp_window_age *age = window->age;
    withdraw(window, slot);
    age[age[slot].older].newer = age[slot].newer;
    age[age[slot].newer].older = age[slot].older;
    age[slot].newer = window->free;
    window->free = slot;
    window->count--;
}

void rp_window_change(struct rp_window *window, uint16_t slot, uint32_t value)
{
    RP_DASSERT(value >= 1 && value <= RP_WINDOW_VALUE_MAX);
    withdraw(window, slot);
    insert(window, slot, value, place_of(window, value, window->age[slot].arrival));
}
