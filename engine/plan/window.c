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
    RP_ASSERT(rp_window_bucket(RP_WINDOW_VALUE_MAX) < RP_WINDOW_BUCKETS &&
              rp_window_bucket(0) == RP_WINDOW_BUCKETS - 1);
    *window = (struct rp_window){
        .capacity = capacity,
        .older_is_greater = older_is_greater,
        .items = rp_calloc(capacity + 1, sizeof *window->items),
        .arrival = rp_calloc(capacity + 1, sizeof *window->arrival),
    };
    if (!window->items || !window->arrival) {
        rp_window_close(window);
        return rp_fail(error, -ENOMEM, "a smaller packing_buffer or open_bins needs less memory",
                       "no memory for a packing window of %" PRIu32, capacity);
    }
    rp_window_clear(window);
    return 0;
}

void rp_window_close(struct rp_window *window)
{
    free(window->items);
    free(window->arrival);
    *window = (struct rp_window){0};
}

void rp_window_clear(struct rp_window *window)
{
    window->count = 0;
    window->arrivals = 0;
    window->free = 1;
    for (uint32_t slot = 1; slot <= window->capacity; slot++)
        window->items[slot].newer = (uint16_t)(slot + 1); /* beyond the last slot: never used */
    window->items[NONE] = (struct rp_window_item){.bucket = (uint16_t)rp_window_bucket(0)};
    memset(window->occupied, 0, sizeof window->occupied);
    uint32_t last = rp_window_bucket(0);
    window->occupied[last / 64] = UINT64_C(1) << last % 64;
    window->occupied_words = UINT64_C(1) << last / 64;
    window->greatest[last] = NONE;
}

/* The item right below an item of this value and arrival. */
static uint16_t place_of(const struct rp_window *window, uint32_t value, uint64_t arrival)
{
    uint16_t slot = rp_window_floor(window, value);
    while (rp_window_value(window, slot) == value &&
           (window->arrival[slot] > arrival) != window->older_is_greater)
        slot = rp_window_lower(window, slot);
    return slot;
}

void rp_window_change(struct rp_window *window, uint16_t slot, uint32_t value)
{
    RP_DASSERT(value >= 1 && value <= RP_WINDOW_VALUE_MAX);
    rp_window_withdraw(window, slot);
    rp_window_insert(window, slot, value, rp_window_bucket(value),
                     place_of(window, value, window->arrival[slot]));
}
