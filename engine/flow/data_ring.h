/* SPDX-License-Identifier: Apache-2.0 */
/* data_ring.h — the data of the prefetch ring: bytes taken in order, in regions that become free in
 * order.
 *
 * A region holds the reads of one ticket, or one block read (block_reads.h), which later tickets
 * also use. The oldest region may be taken over as soon as the last ticket that uses it is retired.
 *
 * Invariants: positions only grow; position p is byte `p mod bytes` of the data; memory that is
 * handed out is contiguous; regions are in order of their positions. Thread: dispatch's own. */
#ifndef RP_FLOW_DATA_RING_H
#define RP_FLOW_DATA_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/fail.h"

struct rp_region {
    uint64_t end;         /* position after it */
    uint64_t last_ticket; /* the last planned ticket that uses it */
};

struct rp_data_ring {
    uint64_t bytes;
    uint64_t first, next;      /* positions [first, next) are taken */
    struct rp_region *regions; /* number n is at n mod capacity */
    uint64_t capacity;         /* a power of two */
    uint64_t region_first, region_next;
};

RP_MUST_CHECK int rp_data_ring_open(struct rp_data_ring *ring, uint64_t bytes, uint64_t regions,
                                    struct rp_error *error);
void rp_data_ring_close(struct rp_data_ring *ring);
/** Empty the ring. No read may be in flight. */
void rp_data_ring_reset(struct rp_data_ring *ring);

/** Take bytes at an offset that is a multiple of `alignment` (a power of two), as a new region, or,
 * with `grow`, as part of the youngest one. Tickets below `retired` are retired. Returns the
 * offset, or RP_DATA_RING_FULL if the bytes fit only after rp_data_ring_oldest_ticket is retired;
 * then no bytes were taken. */
#define RP_DATA_RING_FULL UINT64_MAX
uint64_t rp_data_ring_take(struct rp_data_ring *ring, uint64_t bytes, uint64_t alignment,
                           uint64_t ticket, bool grow, uint64_t retired);

/** Would rp_data_ring_take find room for these bytes? Takes none. After `true`, that call succeeds
 * if it is the next one. */
bool rp_data_ring_has_room(struct rp_data_ring *ring, uint64_t bytes, uint64_t alignment,
                           uint64_t retired);

/** Make the youngest region `bytes` longer, right after its end. False if there is no room. */
bool rp_data_ring_extend(struct rp_data_ring *ring, uint64_t bytes, uint64_t retired);

/** The region that was taken last. */
static inline uint64_t rp_data_ring_youngest(const struct rp_data_ring *ring)
{
    return ring->region_next - 1;
}

/** Does the region still exist? */
static inline bool rp_data_ring_has(const struct rp_data_ring *ring, uint64_t region)
{
    return region >= ring->region_first;
}

/** A ticket uses the bytes of a region that still exists: the region stays until that ticket is
 * retired. */
static inline void rp_data_ring_use(struct rp_data_ring *ring, uint64_t region, uint64_t ticket)
{
    RP_DASSERT(rp_data_ring_has(ring, region));
    ring->regions[region & (ring->capacity - 1)].last_ticket = ticket;
}

/** The ticket that keeps the oldest region. Only after a refusal: then there is one. */
static inline uint64_t rp_data_ring_oldest_ticket(const struct rp_data_ring *ring)
{
    RP_ASSERT(ring->region_first < ring->region_next);
    return ring->regions[ring->region_first & (ring->capacity - 1)].last_ticket;
}

#endif
