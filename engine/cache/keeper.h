/* SPDX-License-Identifier: Apache-2.0 */
/* keeper.h — the thread of a cache: takes jobs in order, makes room, and writes. */
#ifndef RP_CACHE_KEEPER_H
#define RP_CACHE_KEEPER_H

#include "cache/cache_struct.h"

/** The thread: until the cache is closing and nothing is queued. */
void *rp_keeper_run(void *cache);
/** Take the lock of the directory, and know what is kept. Negative: not now. */
RP_MUST_CHECK int rp_keeper_lock(struct rp_cache *cache, uint32_t wait_ms);

#endif
