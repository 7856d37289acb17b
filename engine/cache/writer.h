/* SPDX-License-Identifier: Apache-2.0 */
/* writer.h — the thread of a cache: takes jobs in order, makes room, and writes. */
#ifndef RP_CACHE_WRITER_H
#define RP_CACHE_WRITER_H

#include "cache/cache_struct.h"

/** The thread: until the cache is closing and nothing is queued. */
void *rp_cache_writer_run(void *cache);
/** Take the lock of the directory, and know what is kept. Negative: not now. */
RP_MUST_CHECK int rp_cache_writer_lock(struct rp_cache *cache, uint32_t wait_ms);

#endif
