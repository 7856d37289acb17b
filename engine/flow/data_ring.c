/* SPDX-License-Identifier: Apache-2.0 */
#include "flow/data_ring.h"

#include <errno.h>

#include "base/bits.h"
#include "base/mem.h"

int rp_data_ring_open(struct rp_data_ring *ring, uint64_t bytes, uint64_t regions,
                      struct rp_error *error)
{
    RP_ASSERT(bytes > 0 && rp_is_pow2(regions));
    *ring = (struct rp_data_ring){.bytes = bytes, .capacity = regions};
    ring->regions = rp_calloc(regions, sizeof *ring->regions);
    return ring->regions ? 0 : rp_fail(error, -ENOMEM, NULL, "out of memory for the pipeline");
}

void rp_data_ring_close(struct rp_data_ring *ring)
{
    free(ring->regions);
    *ring = (struct rp_data_ring){0};
}

void rp_data_ring_reset(struct rp_data_ring *ring)
{
    ring->first = ring->next = 0;
    ring->region_first = ring->region_next = 0;
}

static struct rp_region *region_at(const struct rp_data_ring *ring, uint64_t region)
{
    return &ring->regions[region & (ring->capacity - 1)];
}

/* Forget regions from the oldest on, until positions [start, end) and one more region fit. */
static bool make_room(struct rp_data_ring *ring, uint64_t start, uint64_t end, uint64_t retired)
{
    RP_DASSERT(start <= end && end - start <= ring->bytes);
    for (;;) {
        if (ring->region_first == ring->region_next)
            ring->first = start; /* whatever was skipped is free */
        else if (end - ring->first > ring->bytes ||
                 ring->region_next - ring->region_first == ring->capacity) {
            const struct rp_region *oldest = region_at(ring, ring->region_first);
            if (oldest->last_ticket >= retired)
                return false;
            ring->first = oldest->end;
            ring->region_first++;
            continue;
        }
        return true;
    }
}

/* The first aligned position, from `next` on, at which this many contiguous bytes fit. */
static uint64_t next_start(const struct rp_data_ring *ring, uint64_t bytes, uint64_t alignment)
{
    RP_ASSERT(bytes <= ring->bytes && ring->bytes % alignment == 0);
    uint64_t start = rp_align_up(ring->next, alignment);
    uint64_t in_lap = start % ring->bytes;
    return bytes > ring->bytes - in_lap ? start + ring->bytes - in_lap : start;
}

bool rp_data_ring_has_room(struct rp_data_ring *ring, uint64_t bytes, uint64_t alignment,
                           uint64_t retired)
{
    uint64_t start = next_start(ring, bytes, alignment);
    return make_room(ring, start, start + bytes, retired);
}

uint64_t rp_data_ring_take(struct rp_data_ring *ring, uint64_t bytes, uint64_t alignment,
                           uint64_t ticket, bool grow, uint64_t retired)
{
    RP_DASSERT(rp_is_pow2(alignment) && ticket >= retired);
    uint64_t start = next_start(ring, bytes, alignment);
    if (!make_room(ring, start, start + bytes, retired))
        return RP_DATA_RING_FULL;
    if (!grow || ring->region_first == ring->region_next)
        ring->region_next++;
    *region_at(ring, rp_data_ring_youngest(ring)) = (struct rp_region){start + bytes, ticket};
    ring->next = start + bytes;
    return start % ring->bytes;
}

bool rp_data_ring_extend(struct rp_data_ring *ring, uint64_t bytes, uint64_t retired)
{
    struct rp_region *youngest = region_at(ring, ring->region_next - 1);
    RP_ASSERT(ring->region_next > ring->region_first && youngest->end == ring->next);
    uint64_t in_lap = (ring->next - 1) % ring->bytes + 1; /* 1 .. bytes */
    if (bytes > ring->bytes - in_lap || !make_room(ring, ring->next, ring->next + bytes, retired))
        return false;
    ring->next += bytes;
    youngest->end = ring->next;
    return true;
}
