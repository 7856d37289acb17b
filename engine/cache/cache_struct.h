/* SPDX-License-Identifier: Apache-2.0 */
/* cache_struct.h — the state of a cache. Private to engine/cache: cache.c has the calls of
 * readers, writer.c the thread that writes. */
#ifndef RP_CACHE_CACHE_STRUCT_H
#define RP_CACHE_CACHE_STRUCT_H

#include <pthread.h>

#include "base/atomic.h"
#include "cache/cache.h"
#include "cache/entry_file.h"
#include "cache/backoff.h"
#include "cache/quota.h"
#include "cache/eviction.h"

/* An open object. `file` is opened or made by the first reader, or by the cache's thread; it is
 * valid from is_open until the last reference is released. */
struct rp_entry {
    struct rp_cache *cache;
    uint32_t object;
    uint32_t references; /* under the mutex */
    struct rp_entry_file file;
    struct rp_a32 is_open; /* set by rp_entry_open, before others see it, or later by the cache's
                              thread. PAIRS entry-open */
    struct rp_a64 touched_ns;
    struct rp_a32 doubts; /* queued jobs that check or remove pages */
};

/* A prefill (engine/README.md, Words). */
struct rp_cache_prefill {
    const struct rp_entry *entry; /* NULL: unused */
    uint64_t first, last;
};

/* Bytes to write; without data, pages to check or remove. */
struct rp_cache_job {
    struct rp_cache_job *next;
    struct rp_entry *entry;
    uint64_t offset;
    uint32_t bytes;
    bool has_data;
    bool is_wrong;   /* without data: remove the pages, whatever their hashes */
    bool is_prefill; /* number `prefill`, which ends with the job */
    uint32_t prefill;
    uint8_t data[];
};

/** Queue bytes to be written; false: they are declined. `prefill` may be NULL; it ends with the
 * job.
 */
bool rp_entry_queue(struct rp_entry *entry, uint64_t offset, const void *data, uint32_t bytes,
                    const uint32_t *prefill, bool is_wrong);
/** End a prefill: readers no longer wait for it. */
void rp_cache_prefill_over(struct rp_cache *cache, uint32_t prefill);

struct rp_cache {
    struct rp_cache_options options;
    struct rp_cache_object *objects; /* [object_count]; the cache owns their strings */
    char *directory;
    struct rp_entry **entries; /* [object_count], the open ones. Under the mutex */

    pthread_mutex_t mutex;
    pthread_cond_t work, idle;
    struct rp_cache_job *first, *last; /* under the mutex, as the three below */
    uint64_t queued_bytes;
    bool is_busy, is_closing;
    uint64_t epoch, epoch_fetched_bytes, last_epoch_fetched_bytes; /* under the mutex */
    struct rp_cache_prefill prefills[RP_CACHE_PREFILLS_MAX];       /* under the mutex */
    struct rp_a32 requests; /* requests of readers, at the server */
    pthread_t thread;

    /* the thread's own */
    struct rp_quota quota;
    struct rp_eviction eviction;
    uint64_t said_ns; /* when a failure was last logged */
    bool has_said;    /* since then, no write has succeeded */

    /* Set by the thread and by readers. While writes pause, no job is queued; while reads pause,
     * all bytes are requested from the server. */
    struct rp_cache_backoff writes, reads;

    struct rp_a64 hits, misses, hit_bytes, fetched_bytes;
    struct rp_a64 kept_bytes, evicted_bytes, declined_bytes, damaged_bytes, failures, filled_bytes;
};

#endif
