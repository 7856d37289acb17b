/* SPDX-License-Identifier: Apache-2.0 */
/* See seat.h. */
#include <inttypes.h>
#include <stdio.h>

#include "base/bits.h"
#include "base/defect.h"
#include "server/seat.h"

const char *rp_seat_name(const struct rp_seat *seat, char text[RP_SEAT_NAME_BYTES])
{
    const struct rp_ring *ring = seat->ring;
    if (ring->replicas == 1)
        snprintf(text, RP_SEAT_NAME_BYTES, "rank %" PRIu32, ring->geometry.rank);
    else
        snprintf(text, RP_SEAT_NAME_BYTES, "rank %" PRIu32 ", replica %" PRIu32,
                 ring->geometry.rank, seat->replica);
    return text;
}

int32_t rp_seat_pid(const struct rp_engine *engine, const struct rp_seat *seat)
{
    for (uint32_t i = 0; i < RP_CONNECTIONS_MAX; i++)
        if (engine->connections[i].fd >= 0 && engine->connections[i].seat == seat)
            return engine->connections[i].pid;
    return 0;
}

bool rp_engine_has_consumer(const struct rp_engine *engine, const struct rp_ring *ring)
{
    for (uint32_t s = 0; s < engine->seat_count; s++)
        if ((!ring || engine->seats[s].ring == ring) && rp_seat_is_attached(&engine->seats[s]))
            return true;
    return false;
}

bool rp_engine_consumer_waits(const struct rp_engine *engine)
{
    for (uint32_t s = 0; s < engine->seat_count && !engine->flow_ended; s++) {
        const struct rp_seat *seat = &engine->seats[s];
        bool has_none = rp_seat_position(seat) >= seat->ring->tail;
        if (rp_seat_is_attached(seat) &&
            (has_none || rp_ring_is_awaited(seat->ring, seat->replica)))
            return true;
    }
    return false;
}

bool rp_seat_fills_ring(const struct rp_seat *seat)
{
    return rp_seat_position(seat) + seat->ring->geometry.slots == seat->ring->tail;
}

/* fit into a core's cache: hashed while they are in it */

uint64_t rp_engine_consumed(const struct rp_engine *engine)
{
    uint64_t lowest = UINT64_MAX;
    for (uint32_t r = 0; r < engine->ring_count; r++)
        lowest = rp_min_u64(lowest, RP_DEFECT(count_published) ? engine->rings[r].tail
                                                               : engine->rings[r].release);
    return lowest;
}
