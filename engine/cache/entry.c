/* SPDX-License-Identifier: Apache-2.0 */
/* entry.c — an open object of a cache, for readers (cache.h): lookup of present pages, verification
 * of their hashes, and the queue of jobs (writer.h). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/mem.h"
#include "cache/cache_struct.h"

#define TOUCH_NS 60000000000u
#define WORDS_AT_ONCE 64u
#define HASHES_AT_ONCE 256u

struct rp_entry *rp_entry_open(struct rp_cache *cache, uint32_t object)
{
    RP_ASSERT(object < cache->options.object_count);
    struct rp_entry *made = rp_calloc(1, sizeof *made);
    if (!made)
        return NULL;
    *made = (struct rp_entry){.cache = cache, .object = object};
    bool is_open = rp_entry_file_open(&made->file, cache->quota.directory,
                                      rp_entry_file_key(&cache->objects[object])) == 0;
    rp_a32_store_release(&made->is_open, is_open); /* PAIRS entry-open */
    pthread_mutex_lock(&cache->mutex); /* only now: the file is read without the mutex, which others
                                          need to count */
    struct rp_entry *entry = cache->entries[object] ? cache->entries[object] : made;
    cache->entries[object] = entry;
    entry->references++;
    pthread_mutex_unlock(&cache->mutex);
    if (entry != made) {
        rp_entry_file_close(&made->file);
        free(made);
    }
    return entry;
}

void rp_entry_close(struct rp_entry *entry)
{
    if (!entry)
        return;
    struct rp_cache *cache = entry->cache;
    pthread_mutex_lock(&cache->mutex);
    bool is_last = --entry->references == 0;
    if (is_last)
        cache->entries[entry->object] = NULL;
    pthread_mutex_unlock(&cache->mutex);
    if (!is_last)
        return;
    rp_entry_file_close(&entry->file);
    free(entry);
}

static bool is_open(const struct rp_entry *entry)
{
    return entry && rp_a32_load_acquire(&entry->is_open); /* PAIRS entry-open */
}

int rp_entry_fd(const struct rp_entry *entry)
{
    return entry->file.fd;
}

uint64_t rp_entry_data_offset(const struct rp_entry *entry)
{
    return entry->file.data_offset;
}

/* ---- lookup ---------------------------------------------------------------------------------- */

/* The words of 64 chunks, around the page of the last lookup. */
struct words {
    uint64_t first;
    uint64_t count;
    struct rp_entry_words words[WORDS_AT_ONCE];
};

static bool is_there(const struct rp_entry *entry, struct words *words, uint64_t page)
{
    const struct rp_entry_file *file = &entry->file;
    uint64_t chunk = page / RP_CACHE_CHUNK_PAGES;
    if (words->count == 0 || chunk < words->first || chunk >= words->first + words->count) {
        words->first = rp_align_down(chunk, WORDS_AT_ONCE);
        words->count = rp_min_u64(WORDS_AT_ONCE, file->chunks - words->first);
        int code = rp_entry_file_words(file, words->first, words->count, words->words);
        if (code < 0)
            memset(words->words, 0, sizeof words->words);
        if (code == 0)
            rp_cache_backoff_end(&entry->cache->reads);
        else if (code != -RP_E_CHANGED) /* a truncated file is replaced later */
            rp_cache_backoff_grow(&entry->cache->reads);
    }
    return words->words[chunk - words->first].there >> (page % RP_CACHE_CHUNK_PAGES) & 1;
}

struct rp_cache_held rp_entry_view(const struct rp_entry *entry, uint64_t offset, uint32_t bytes)
{
    struct rp_cache_held held = {0, 0};
    if (!is_open(entry) || rp_cache_backoff_holds(&entry->cache->reads))
        return held;
    RP_ASSERT(offset % RP_CACHE_PAGE_BYTES == 0 &&
              rp_range_inside(offset, bytes, entry->file.bytes));
    struct words words = {.count = 0};
    uint64_t first = offset / RP_CACHE_PAGE_BYTES,
             end = first + rp_div_up(bytes, RP_CACHE_PAGE_BYTES);
    uint64_t head = first, tail = end;
    while (head < end && is_there(entry, &words, head))
        head++;
    while (tail > head && is_there(entry, &words, tail - 1))
        tail--;
    held.head = (uint32_t)rp_min_u64((head - first) * RP_CACHE_PAGE_BYTES, bytes);
    if (tail < end)
        held.tail = (uint32_t)(bytes - (tail - first) * RP_CACHE_PAGE_BYTES);
    return held;
}

/* Update the modification time, so that files of an engine that only reads do not look unused. */
static void touch(struct rp_entry *entry)
{
    uint64_t now = rp_now_ns();
    if (now - rp_a64_load_relaxed(&entry->touched_ns) < TOUCH_NS)
        return;
    rp_a64_store_relaxed(&entry->touched_ns, now);
    (void)futimens(entry->file.fd, NULL);
}

static bool are_same(const struct rp_entry_file *file, uint64_t offset, const uint8_t *data,
                     uint32_t bytes)
{
    uint64_t hashes[HASHES_AT_ONCE];
    uint64_t page = offset / RP_CACHE_PAGE_BYTES;
    for (uint64_t at = 0; at < bytes;) {
        uint64_t pages = rp_min_u64(HASHES_AT_ONCE, rp_div_up(bytes - at, RP_CACHE_PAGE_BYTES));
        if (rp_entry_file_hashes(file, page, pages, hashes) < 0)
            return false;
        for (uint64_t i = 0; i < pages; i++, at += RP_CACHE_PAGE_BYTES)
            if (rp_hash64(data + at, rp_min_u64(RP_CACHE_PAGE_BYTES, bytes - at)) != hashes[i])
                return false;
        page += pages;
    }
    return true;
}

/* ---- the queue ------------------------------------------------------------------------------- */

bool rp_entry_queue(struct rp_entry *entry, uint64_t offset, const void *data, uint32_t bytes,
                    const uint32_t *prefill, bool is_wrong)
{
    struct rp_cache *cache = entry->cache;
    pthread_mutex_lock(&cache->mutex);
    bool has_room = cache->queued_bytes + bytes <= RP_CACHE_QUEUE_BYTES;
    if (has_room && data)
        cache->queued_bytes += bytes;
    pthread_mutex_unlock(&cache->mutex);
    struct rp_cache_job *job = has_room || !data ? malloc(sizeof *job + (data ? bytes : 0)) : NULL;
    if (!job) {
        if (data)
            rp_a64_add_relaxed(&cache->declined_bytes, bytes);
        else
            rp_a32_add_relaxed(&entry->doubts, UINT32_MAX);
        pthread_mutex_lock(&cache->mutex);
        if (has_room && data)
            cache->queued_bytes -= bytes;
        pthread_mutex_unlock(&cache->mutex);
        return false;
    }
    *job = (struct rp_cache_job){.entry = entry,
                                 .offset = offset,
                                 .bytes = bytes,
                                 .has_data = data != NULL,
                                 .is_wrong = is_wrong,
                                 .is_prefill = prefill != NULL,
                                 .prefill = prefill ? *prefill : 0};
    if (data)
        memcpy(job->data, data, bytes);
    pthread_mutex_lock(&cache->mutex);
    entry->references++;
    *(cache->first ? &cache->last->next : &cache->first) = job;
    cache->last = job;
    pthread_cond_signal(&cache->work);
    pthread_mutex_unlock(&cache->mutex);
    return true;
}

void rp_entry_doubt(struct rp_entry *entry, uint64_t offset, uint32_t bytes)
{
    rp_a32_add_relaxed(&entry->doubts, 1);
    (void)rp_entry_queue(entry, offset, NULL, bytes, NULL, false);
}

void rp_entry_forget(struct rp_entry *entry, uint64_t offset, uint32_t bytes)
{
    rp_a32_add_relaxed(&entry->doubts, 1);
    (void)rp_entry_queue(entry, offset, NULL, bytes, NULL, true);
}

bool rp_entry_check(struct rp_entry *entry, uint64_t offset, const void *data, uint32_t bytes)
{
    touch(entry);
    if (are_same(&entry->file, offset, data, bytes))
        return true;
    rp_entry_doubt(entry, offset, bytes);
    return false;
}

void rp_entry_keep(struct rp_entry *entry, uint64_t offset, const void *data, uint32_t bytes)
{
    if (entry && rp_cache_backoff_holds(&entry->cache->writes)) {
        rp_a64_add_relaxed(&entry->cache->declined_bytes, bytes);
        return;
    }
    /* With doubts, the cache's thread is about to clear the bits of some of these pages. */
    if (entry &&
        (rp_a32_load_relaxed(&entry->doubts) || rp_entry_view(entry, offset, bytes).head < bytes))
        (void)rp_entry_queue(entry, offset, data, bytes, NULL, false);
}

void rp_entry_note(struct rp_entry *entry, uint64_t from_file, uint64_t from_server)
{
    struct rp_cache *cache = entry->cache;
    rp_a64_add_relaxed(from_server ? &cache->misses : &cache->hits, 1);
    rp_a64_add_relaxed(&cache->hit_bytes, from_file);
    rp_a64_add_relaxed(&cache->fetched_bytes, from_server);
    uint64_t epoch = cache->options.epoch(cache->options.context);
    pthread_mutex_lock(&cache->mutex);
    if (epoch != cache->epoch) {
        cache->last_epoch_fetched_bytes = epoch == cache->epoch + 1 ? cache->epoch_fetched_bytes
                                                                    : 0;
        cache->epoch_fetched_bytes = 0;
        cache->epoch = epoch;
    }
    cache->epoch_fetched_bytes += from_server;
    pthread_mutex_unlock(&cache->mutex);
}
