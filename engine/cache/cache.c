/* SPDX-License-Identifier: Apache-2.0 */
/* cache.c — opens, closes and counts a cache. */
#include "cache/cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/own_dir.h"
#include "base/thread.h"
#include "cache/cache_struct.h"
#include "cache/writer.h"

/* ---- opening --------------------------------------------------------------------------------- */

static int copy_objects(struct rp_cache *cache, const struct rp_cache_options *options)
{
    cache->objects = rp_calloc(options->object_count, sizeof *cache->objects);
    cache->entries = rp_calloc(options->object_count, sizeof(struct rp_entry *));
    if (!cache->objects || !cache->entries)
        return -ENOMEM;
    for (uint32_t i = 0; i < options->object_count; i++) {
        struct rp_cache_object *copy = &cache->objects[i];
        *copy = (struct rp_cache_object){.name = strdup(options->objects[i].name),
                                         .identity = strdup(options->objects[i].identity),
                                         .bytes = options->objects[i].bytes};
        if (!copy->name || !copy->identity)
            return -ENOMEM;
    }
    cache->options.objects = cache->objects;
    return 0;
}

static int open_memory(struct rp_cache *cache, const struct rp_cache_options *options,
                       struct rp_error *error)
{
    char *base = rp_dir_of_caches(options->directory);
    cache->directory = base ? rp_asprintf("%s/blocks", base) : NULL;
    free(base);
    if (!cache->directory || copy_objects(cache, options) < 0 ||
        rp_eviction_open(&cache->eviction, &cache->options, &cache->quota) < 0)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for a cache of %u objects",
                       options->object_count);
    return 0;
}

static void free_cache(struct rp_cache *cache)
{
    rp_eviction_close(&cache->eviction);
    rp_quota_close(&cache->quota);
    for (uint32_t i = 0; cache->objects && i < cache->options.object_count; i++) {
        free((void *)(uintptr_t)cache->objects[i].name);
        free((void *)(uintptr_t)cache->objects[i].identity);
    }
    free(cache->objects);
    free(cache->entries);
    free(cache->directory);
    pthread_mutex_destroy(&cache->mutex);
    pthread_cond_destroy(&cache->work);
    pthread_cond_destroy(&cache->idle);
    free(cache);
}

int rp_cache_open(struct rp_cache **cache_out, const struct rp_cache_options *options,
                  struct rp_error *error)
{
    *cache_out = NULL;
    struct rp_cache *cache = rp_calloc(1, sizeof *cache);
    if (!cache)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for a cache");
    cache->options = *options;
    cache->quota.fd = cache->quota.directory = -1;
    pthread_mutex_init(&cache->mutex, NULL);
    pthread_cond_init(&cache->work, NULL);
    pthread_cond_init(&cache->idle, NULL);
    int code = open_memory(cache, options, error);
    if (code == 0)
        code = rp_quota_open(&cache->quota, cache->directory, error);
    if (code == 0) {
        cache->is_busy = true; /* the thread first scans the directory */
        int failed = rp_thread_start(&cache->thread, rp_cache_writer_run, cache);
        code = failed ? rp_fail(error, -failed, NULL, "cannot start the thread of the cache") : 0;
    }
    if (code < 0)
        free_cache(cache);
    else
        *cache_out = cache;
    return code;
}

void rp_cache_flush(struct rp_cache *cache)
{
    pthread_mutex_lock(&cache->mutex);
    while (cache->first || cache->is_busy)
        pthread_cond_wait(&cache->idle, &cache->mutex);
    pthread_mutex_unlock(&cache->mutex);
}

void rp_cache_close(struct rp_cache *cache)
{
    if (!cache)
        return;
    pthread_mutex_lock(&cache->mutex);
    cache->is_closing = true;
    pthread_cond_signal(&cache->work);
    pthread_mutex_unlock(&cache->mutex);
    pthread_join(cache->thread, NULL);
    for (uint32_t i = 0; i < cache->options.object_count; i++)
        RP_ASSERT(!cache->entries[i]);
    free_cache(cache);
}

/* ---- counts ---------------------------------------------------------------------------------- */

void rp_cache_counts(struct rp_cache *cache, struct rp_cache_counts *counts)
{
    pthread_mutex_lock(&cache->mutex);
    *counts = (struct rp_cache_counts){
        .hits = rp_a64_load_relaxed(&cache->hits),
        .misses = rp_a64_load_relaxed(&cache->misses),
        .hit_bytes = rp_a64_load_relaxed(&cache->hit_bytes),
        .fetched_bytes = rp_a64_load_relaxed(&cache->fetched_bytes),
        .epoch = cache->epoch,
        .epoch_fetched_bytes = cache->epoch_fetched_bytes,
        .last_epoch_fetched_bytes = cache->last_epoch_fetched_bytes,
        .kept_bytes = rp_a64_load_relaxed(&cache->kept_bytes),
        .evicted_bytes = rp_a64_load_relaxed(&cache->evicted_bytes),
        .declined_bytes = rp_a64_load_relaxed(&cache->declined_bytes),
        .filled_bytes = rp_a64_load_relaxed(&cache->filled_bytes),
        .damaged_bytes = rp_a64_load_relaxed(&cache->damaged_bytes),
        .failures = rp_a64_load_relaxed(&cache->failures),
        .held_bytes = rp_quota_peek(&cache->quota),
        .bytes_max = cache->options.bytes};
    pthread_mutex_unlock(&cache->mutex);
}

const char *rp_cache_place(const struct rp_cache *cache)
{
    return cache->directory;
}
