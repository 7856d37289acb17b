/* SPDX-License-Identifier: Apache-2.0 */
/* data_ring — see data_ring.h. */
#include "flow/data_ring.h"

#include <errno.h>

#include "base/bits.h"
#include "base/mem.h"

int rp_data_ring_open(struct rp_data_ring *space, uint64_t bytes, uint64_t regions,
                      struct rp_error *error)
{
    RP_ASSERT(bytes > 0 && rp_is_pow2(regions));
    *space = (struct rp_data_ring){.bytes = bytes, .capacity = regions};
    space->regions = rp_calloc(regions, sizeof *space->regions);
    return space->regions ? 0 : rp_fail(error, -ENOMEM, NULL, "out of memory for the pipeline");
}

void rp_data_ring_close(struct rp_data_ring *space)
{
    free(space->regions);
    *space = (struct rp_data_ring){0};
}

void rp_data_ring_reset(struct rp_data_ring *space)
{
    space->first = space->next = 0;
    space->region_first = space->region_next = 0;
}

static struct rp_region *region_at(const struct rp_data_ring *space, uint64_t region)
{
    return &space->regions[region & (space->capacity - 1)];
}

/* Forget regions from the oldest on, until positions [start, end) and one more region fit. */
static bool make_room(struct rp_data_ring *space, uint64_t start, uint64_t end, uint64_t retired)
{
    RP_DASSERT(start <= end && end - start <= space->bytes);
    for (;;) {
        if (space->region_first == space->region_next)
            space->first = start; /* whatever was skipped is free */
        else if (end - space->first > space->bytes ||
                 space->region_next - space->region_first == space->capacity) {
            const struct rp_region *oldest = region_at(space, space->region_first);
            if (oldest->last_ticket >= retired)
                return false;
            space->first = oldest->end;
            space->region_first++;
            continue;
        }
        return true;
    }
}

bool rp_data_ring_take(struct rp_data_ring *space, uint64_t bytes, uint64_t alignment,
                       uint64_t ticket, bool grow, uint64_t retired, uint64_t *offset)
{
    RP_ASSERT(bytes <= space->bytes && space->bytes % alignment == 0);
    RP_DASSERT(rp_is_pow2(alignment) && ticket >= retired);
    uint64_t start = rp_align_up(space->next, alignment);
    uint64_t in_lap = start % space->bytes;
    if (bytes > space->bytes - in_lap) /* contiguous: begin a new lap */
        start += space->bytes - in_lap;
    if (!make_room(space, start, start + bytes, retired))
        return false;
    if (!grow || space->region_first == space->region_next)
        space->region_next++;
    *region_at(space, rp_data_ring_youngest(space)) = (struct rp_region){start + bytes, ticket};
    space->next = start + bytes;
    *offset = start % space->bytes;
    return true;
}

bool rp_data_ring_extend(struct rp_data_ring *space, uint64_t bytes, uint64_t retired)
{
    struct rp_region *youngest = region_at(space, space->region_next - 1);
    RP_ASSERT(space->region_next > space->region_first && youngest->end == space->next);
    uint64_t in_lap = (space->next - 1) % space->bytes + 1; /* 1 .. bytes */
    if (bytes > space->bytes - in_lap ||
        !make_room(space, space->next, space->next + bytes, retired))
        return false;
    space->next += bytes;
    youngest->end = space->next;
    return true;
}
