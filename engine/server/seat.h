/* SPDX-License-Identifier: Apache-2.0 */
/* seat.h — what is known of a seat, and of all of them. */
#ifndef RP_SERVER_SEAT_H
#define RP_SERVER_SEAT_H

#include "server/engine.h"

#define RP_SEAT_NAME_BYTES 40u

static inline bool rp_seat_is_attached(const struct rp_seat *seat)
{
    return rp_ring_is_taken(seat->ring, seat->replica);
}
/** The batch that its trainer gives back next; of a seat that nobody has taken, that it will get.
 */
static inline uint64_t rp_seat_position(const struct rp_seat *seat)
{
    return seat->ring->seats[seat->replica].release;
}

/** "rank 3", or where there are several "rank 3, replica 1". Returns text. */
const char *rp_seat_name(const struct rp_seat *seat, char text[RP_SEAT_NAME_BYTES]);
/** The process that has taken a seat, as it said; 0 if nobody has. */
int32_t rp_seat_pid(const struct rp_engine *engine, const struct rp_seat *seat);
/** Is a trainer attached to this ring (or, NULL, to any)? */
bool rp_engine_has_consumer(const struct rp_engine *engine, const struct rp_ring *ring);
/** Does somebody who is attached wait for his next batch? */
bool rp_engine_consumer_waits(const struct rp_engine *engine);
/** Is there no more room in its ring because of this seat? */
bool rp_seat_fills_ring(const struct rp_seat *seat);
/** Micro-batches below it have been consumed by every local rank. */
uint64_t rp_engine_consumed(const struct rp_engine *engine);

#endif
