/* SPDX-License-Identifier: Apache-2.0 */
/* fills.c — the active fills of a cache (cache.h). A fill lasts from the begin of its request until
 * its bytes are written, so a waiting reader then finds them in the file and sends no request. */
#include "base/bits.h"
#include "cache/cache_struct.h"

/* A fill leaves this share of the cache free, because readers are about to queue more bytes. */
#define ROOM_SHARE 16u

bool rp_cache_may_fill(struct rp_cache *cache, uint64_t bytes)
{
    /* While reads pause, readers bypass the cache and would fetch the filled bytes again. */
    if (rp_a32_load_relaxed(&cache->requests) > 0 || rp_cache_backoff_holds(&cache->writes) ||
        rp_cache_backoff_holds(&cache->reads))
        return false;
    uint64_t wanted = rp_quota_peek(&cache->quota) + bytes + cache->options.bytes / ROOM_SHARE;
    pthread_mutex_lock(&cache->mutex);
    wanted += cache->queued_bytes;
    for (uint32_t i = 0; i < RP_CACHE_FILLS_MAX; i++)
        wanted += cache->fills[i].last - cache->fills[i].first;
    pthread_mutex_unlock(&cache->mutex);
    return wanted <= cache->options.bytes;
}

int rp_entry_fill_begin(struct rp_entry *entry, uint64_t offset, uint32_t bytes)
{
    struct rp_cache *cache = entry->cache;
    int fill = -1;
    pthread_mutex_lock(&cache->mutex);
    for (uint32_t i = 0; i < RP_CACHE_FILLS_MAX && fill < 0; i++)
        if (!cache->fills[i].entry)
            fill = (int)i;
    if (fill >= 0)
        cache->fills[fill] = (struct rp_cache_fill){entry, offset, offset + bytes};
    pthread_mutex_unlock(&cache->mutex);
    return fill;
}

void rp_cache_fill_over(struct rp_cache *cache, uint32_t fill)
{
    pthread_mutex_lock(&cache->mutex);
    RP_ASSERT(cache->fills[fill].entry);
    cache->fills[fill] = (struct rp_cache_fill){0};
    pthread_mutex_unlock(&cache->mutex);
}

/* The range does not change until the fill ends, so its thread reads it without the lock. */
void rp_entry_fill_end(struct rp_entry *entry, uint32_t fill, const void *data)
{
    struct rp_cache *cache = entry->cache;
    const struct rp_cache_fill *it = &cache->fills[fill];
    uint32_t bytes = (uint32_t)(it->last - it->first);
    RP_ASSERT(it->entry == entry);
    if (data)
        rp_a64_add_relaxed(&cache->filled_bytes, bytes);
    if (!data || !rp_entry_queue(entry, it->first, data, bytes, &fill, false))
        rp_cache_fill_over(cache, fill);
}

bool rp_entry_is_filling(const struct rp_entry *entry, uint64_t offset, uint32_t bytes)
{
    struct rp_cache *cache = entry->cache;
    bool is_filling = false;
    pthread_mutex_lock(&cache->mutex);
    for (uint32_t i = 0; i < RP_CACHE_FILLS_MAX; i++)
        is_filling |= cache->fills[i].entry == entry && cache->fills[i].first < offset + bytes &&
                      offset < cache->fills[i].last;
    pthread_mutex_unlock(&cache->mutex);
    return is_filling;
}

void rp_entry_request_begins(struct rp_entry *entry)
{
    rp_a32_add_relaxed(&entry->cache->requests, 1);
}

void rp_entry_request_ends(struct rp_entry *entry)
{
    rp_a32_add_relaxed(&entry->cache->requests, UINT32_MAX);
}
