/* SPDX-License-Identifier: Apache-2.0 */
/* writer.h — the thread of a cache: runs jobs in order, makes room, and writes. */
#ifndef RP_CACHE_WRITER_H
#define RP_CACHE_WRITER_H

#include "cache/cache_struct.h"

/** Main function of the thread; returns when the cache is closing and its queue is empty. */
void *rp_cache_writer_run(void *cache);
/** Take the lock of the directory, with a valid count. Negative: not now. */
RP_MUST_CHECK int rp_cache_writer_lock(struct rp_cache *cache, uint32_t wait_ms);

#endif
