/* SPDX-License-Identifier: Apache-2.0 */
/* backoff.h — pauses after failures of a disk: 5 seconds at first, doubled by each further failure,
 * up to 10 minutes, until the disk works. So a disk that stays broken costs one attempt in 10
 * minutes, and one that was briefly full is soon used again.
 *
 * Threads: any. The values are hints and order no other memory. */
#ifndef RP_CACHE_BACKOFF_H
#define RP_CACHE_BACKOFF_H

#include <stdbool.h>

#include "base/atomic.h"
#include "base/bits.h"
#include "base/clock.h"

#define RP_CACHE_BACKOFF_NS_MIN 5000000000u
#define RP_CACHE_BACKOFF_NS_MAX 600000000000u

struct rp_cache_backoff {
    struct rp_a64 until_ns;  /* 0: no failure since the last success */
    struct rp_a64 length_ns; /* the last pause's */
};

static inline bool rp_cache_backoff_holds(const struct rp_cache_backoff *backoff)
{
    uint64_t until_ns = rp_a64_load_relaxed(&backoff->until_ns);
    return until_ns > 0 && rp_now_ns() < until_ns;
}

/* A call failed. Calls that began before the pause do not make it longer. */
static inline void rp_cache_backoff_grow(struct rp_cache_backoff *backoff)
{
    if (rp_cache_backoff_holds(backoff))
        return;
    uint64_t last_ns = rp_a64_load_relaxed(&backoff->length_ns);
    uint64_t length_ns = last_ns ? rp_min_u64(2 * last_ns, RP_CACHE_BACKOFF_NS_MAX)
                                 : RP_CACHE_BACKOFF_NS_MIN;
    rp_a64_store_relaxed(&backoff->length_ns, length_ns);
    rp_a64_store_relaxed(&backoff->until_ns, rp_now_ns() + length_ns);
}

/* Another process is in the way: pause once, without doubling. */
static inline void rp_cache_backoff_once(struct rp_cache_backoff *backoff)
{
    rp_a64_store_relaxed(&backoff->until_ns, rp_now_ns() + RP_CACHE_BACKOFF_NS_MIN);
}

/* A call succeeded. */
static inline void rp_cache_backoff_end(struct rp_cache_backoff *backoff)
{
    if (rp_a64_load_relaxed(&backoff->until_ns) == 0)
        return;
    rp_a64_store_relaxed(&backoff->until_ns, 0);
    rp_a64_store_relaxed(&backoff->length_ns, 0);
}

#endif
