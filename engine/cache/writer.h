/* SPDX-License-Identifier: Apache-2.0 */
/* writer.h — the thread of a cache: runs jobs in order, makes room, and writes. */
#ifndef RP_CACHE_WRITER_H
#define RP_CACHE_WRITER_H

#include "cache/cache_struct.h"

/** Main function of the thread; returns when the cache is closing and its queue is empty. */
void *rp_cache_writer_run(void *cache);

#endif
