/* SPDX-License-Identifier: Apache-2.0 */
/* prefills.c — the active prefills of a cache (cache.h). A prefill lasts from the begin of its
 * request until its bytes are written, so a waiting reader then finds them in the file and sends no
 * request. */
#include "base/bits.h"
#include "cache/cache_struct.h"

/* A prefill leaves this share of the cache free, because readers are about to queue more bytes. */
#define ROOM_SHARE 16u

bool rp_cache_may_prefill(struct rp_cache *cache, uint64_t bytes)
{
    /* While reads pause, readers bypass the cache and would fetch the filled bytes again. */
    if (rp_a32_load_relaxed(&cache->requests) > 0 || rp_cache_backoff_holds(&cache->writes) ||
        rp_cache_backoff_holds(&cache->reads))
        return false;
    uint64_t wanted = rp_quota_peek(&cache->quota) + bytes + cache->options.bytes / ROOM_SHARE;
    pthread_mutex_lock(&cache->mutex);
    wanted += cache->queued_bytes;
    for (uint32_t i = 0; i < RP_CACHE_PREFILLS_MAX; i++)
        wanted += cache->prefills[i].last - cache->prefills[i].first;
    pthread_mutex_unlock(&cache->mutex);
    return wanted <= cache->options.bytes;
}

int rp_entry_prefill_begin(struct rp_entry *entry, uint64_t offset, uint32_t bytes)
{
    struct rp_cache *cache = entry->cache;
    int prefill = -1;
    pthread_mutex_lock(&cache->mutex);
    for (uint32_t i = 0; i < RP_CACHE_PREFILLS_MAX && prefill < 0; i++)
        if (!cache->prefills[i].entry)
            prefill = (int)i;
    if (prefill >= 0)
        cache->prefills[prefill] = (struct rp_cache_prefill){entry, offset, offset + bytes};
    pthread_mutex_unlock(&cache->mutex);
    return prefill;
}

void rp_cache_prefill_over(struct rp_cache *cache, uint32_t prefill)
{
    pthread_mutex_lock(&cache->mutex);
    RP_ASSERT(cache->prefills[prefill].entry);
    cache->prefills[prefill] = (struct rp_cache_prefill){0};
    pthread_mutex_unlock(&cache->mutex);
}

/* The range does not change until the prefill ends, so its thread reads it without the lock. */
void rp_entry_prefill_end(struct rp_entry *entry, uint32_t prefill, const void *data)
{
    struct rp_cache *cache = entry->cache;
    const struct rp_cache_prefill *it = &cache->prefills[prefill];
    uint32_t bytes = (uint32_t)(it->last - it->first);
    RP_ASSERT(it->entry == entry);
    if (data)
        rp_a64_add_relaxed(&cache->filled_bytes, bytes);
    if (!data || !rp_entry_queue(entry, it->first, data, bytes, &prefill, false))
        rp_cache_prefill_over(cache, prefill);
}

bool rp_entry_is_prefilling(const struct rp_entry *entry, uint64_t offset, uint32_t bytes)
{
    struct rp_cache *cache = entry->cache;
    bool is_prefilling = false;
    pthread_mutex_lock(&cache->mutex);
    for (uint32_t i = 0; i < RP_CACHE_PREFILLS_MAX; i++)
        is_prefilling |= cache->prefills[i].entry == entry &&
                         cache->prefills[i].first < offset + bytes &&
                         offset < cache->prefills[i].last;
    pthread_mutex_unlock(&cache->mutex);
    return is_prefilling;
}

void rp_entry_request_begins(struct rp_entry *entry)
{
    rp_a32_add_relaxed(&entry->cache->requests, 1);
}

void rp_entry_request_ends(struct rp_entry *entry)
{
    rp_a32_add_relaxed(&entry->cache->requests, UINT32_MAX);
}
