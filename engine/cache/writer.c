/* SPDX-License-Identifier: Apache-2.0 */
/* writer.c — runs the jobs of a cache.
 *
 * For each chunk: count its new pages → write them and their hashes → mark them present. A whole
 * job runs under the lock of the directory, so no page is written while another engine evicts its
 * chunk. After a failed write, the thread punches the chunk and marks it empty, pauses all writes
 * (backoff.h), and logs one line. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "cache/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/log.h"

#define LOCK_WAIT_MS 2000u
#define SAY_NS 60000000000u

/* Take the lock of the directory, with a valid count. Negative: not now. */
static int take_lock(struct rp_cache *cache, uint32_t wait_ms)
{
    int code = rp_quota_lock(&cache->quota, wait_ms);
    if (code == RP_QUOTA_UNKNOWN) {
        code = rp_eviction_scan(&cache->eviction);
        if (code < 0)
            rp_quota_leave(&cache->quota);
    }
    return code;
}

static void note_failure(struct rp_cache *cache, int code)
{
    uint64_t now = rp_now_ns();
    rp_a64_add_relaxed(&cache->failures, 1);
    rp_cache_backoff_grow(&cache->writes);
    if (cache->has_said || (cache->said_ns && now - cache->said_ns < SAY_NS))
        return;
    cache->said_ns = now;
    cache->has_said = true;
    rp_log(RP_LOG_WARNING,
           "%s: blocks of objects cannot be kept there for now: %s; they are read from their store "
           "instead",
           cache->directory, rp_strerror(code));
}

static void note_success(struct rp_cache *cache)
{
    rp_cache_backoff_end(&cache->writes);
    if (cache->has_said)
        rp_log(RP_LOG_INFO, "%s: blocks of objects are kept there again", cache->directory);
    cache->has_said = false;
}

/* ---- writing --------------------------------------------------------------------------------- */

static int open_or_make(struct rp_cache *cache, const struct rp_cache_object *object,
                        struct rp_entry_file *file)
{
    struct rp_hash128 key = rp_entry_file_key(object);
    int code = rp_entry_file_open(file, cache->quota.directory, key);
    return code == -ENOENT || code == -EBADMSG
               ? rp_entry_file_make(file, cache->quota.directory, key, object->bytes)
               : code;
}

/* Readers use the number of the descriptor without a lock, so the new file takes it over in one
 * step. Both files have the same layout, and a reader with bytes of one and hashes of the other
 * finds that they differ. */
static int replace(struct rp_entry_file *old, struct rp_entry_file *new)
{
    int code;
    do
        code = dup3(new->fd, old->fd, O_CLOEXEC) < 0 ? -errno : 0;
    while (code == -EINTR);
    rp_entry_file_close(new);
    return code;
}

/* Make the file of an object if it does not exist, or if the open one was removed or truncated. */
static int need_file(struct rp_cache *cache, struct rp_entry *entry)
{
    bool is_open = rp_a32_load_relaxed(&entry->is_open);
    if (is_open && rp_entry_file_is_whole(&entry->file))
        return 0;
    struct rp_entry_file file;
    int code = open_or_make(cache, &cache->objects[entry->object], &file);
    if (code < 0)
        return code;
    if (is_open)
        return replace(&entry->file, &file);
    entry->file = file;
    rp_a32_store_release(&entry->is_open, 1); /* PAIRS entry-open */
    return 0;
}

static uint64_t bytes_of(uint64_t mask)
{
    return (uint64_t)__builtin_popcountll(mask) * RP_CACHE_PAGE_BYTES;
}

/* The part of a job in one chunk: the bytes [first, last) of an object, which are the pages
 * `mask`. */
struct part {
    const struct rp_entry_file *file;
    uint64_t chunk, first, last, mask;
};

/* Empty a chunk after a failed write. */
static void give_up(struct rp_cache *cache, const struct part *part,
                    const struct rp_entry_words *words)
{
    const struct rp_entry_words none = {0, 0};
    uint64_t bytes = bytes_of(words->counted);
    if (rp_entry_file_punch(part->file, part->chunk) == 0 &&
        rp_entry_file_set_words(part->file, part->chunk, &none) == 0)
        cache->quota.kept_bytes -= rp_min_u64(bytes, cache->quota.kept_bytes);
}

/* Write the pages of a chunk with these words. */
static int write_pages(struct rp_cache *cache, const struct part *part,
                       struct rp_entry_words *words, const uint8_t *data)
{
    uint64_t more = bytes_of(part->mask & ~words->counted);
    words->counted |= part->mask;
    int code = rp_entry_file_set_words(part->file, part->chunk, words);
    if (code < 0)
        return code;
    cache->quota.kept_bytes += more;
    code = rp_entry_file_write(part->file, part->first, data, (uint32_t)(part->last - part->first));
    if (code == 0) {
        words->there |= part->mask;
        code = rp_entry_file_set_words(part->file, part->chunk, words);
    }
    if (code < 0)
        give_up(cache, part, words);
    else
        rp_a64_add_relaxed(&cache->kept_bytes, more);
    return code;
}

/* Make room for pages of a chunk: 1 with its words, or 0 if all other chunks are needed sooner.
 * This may evict the rest of the same chunk, and rescan all files, so words and file number are
 * read again. */
static int make_room(struct rp_cache *cache, const struct part *part, struct rp_entry_words *words)
{
    const struct rp_entry_file *file = part->file;
    uint64_t chunk = part->chunk, mask = part->mask;
    struct rp_eviction *eviction = &cache->eviction;
    int64_t number = rp_eviction_file(eviction, file->key, file->bytes);
    if (number < 0)
        return (int)number;
    uint64_t distance = rp_eviction_distance(eviction, (uint32_t)number, chunk);
    uint64_t before = eviction->evicted_bytes;
    bool has_room = rp_eviction_make_room(eviction, bytes_of(mask & ~words->counted), distance);
    rp_a64_add_relaxed(&cache->evicted_bytes, eviction->evicted_bytes - before);
    int code = rp_entry_file_words(file, chunk, 1, words);
    uint64_t wanted = cache->quota.kept_bytes + bytes_of(mask & ~words->counted);
    if (code < 0 || !has_room || wanted > cache->options.bytes)
        return code;
    number = rp_eviction_file(eviction, file->key, file->bytes);
    if (number >= 0 && !words->counted)
        code = rp_eviction_add(eviction, (uint32_t)number, chunk);
    return number < 0 ? (int)number : code < 0 ? code : 1;
}

/* Write the part of a job in one chunk. */
static int keep_chunk(struct rp_cache *cache, const struct rp_cache_job *job, uint64_t chunk)
{
    const struct rp_entry_file *file = &job->entry->file;
    struct rp_entry_words words;
    uint64_t first = rp_max_u64(job->offset, rp_entry_chunk_first(chunk));
    uint64_t last = rp_min_u64(job->offset + job->bytes, rp_entry_chunk_last(file, chunk));
    uint64_t begin = rp_entry_chunk_first(chunk);
    const struct part part = {
        file, chunk, first, last,
        rp_entry_mask((uint32_t)((first - begin) / RP_CACHE_PAGE_BYTES),
                      (uint32_t)rp_div_up(last - begin, RP_CACHE_PAGE_BYTES))};
    int code = rp_entry_file_words(file, chunk, 1, &words);
    if (code < 0 || (part.mask & ~words.there) == 0)
        return code;
    code = make_room(cache, &part, &words);
    if (code == 0)
        rp_a64_add_relaxed(&cache->declined_bytes, last - first);
    return code <= 0 ? code : write_pages(cache, &part, &words, job->data + (first - job->offset));
}

static int keep(struct rp_cache *cache, const struct rp_cache_job *job)
{
    int code = need_file(cache, job->entry);
    if (code < 0)
        return code;
    rp_eviction_begin(&cache->eviction);
    uint64_t last = (job->offset + job->bytes - 1) / RP_CACHE_CHUNK_BYTES;
    for (uint64_t chunk = job->offset / RP_CACHE_CHUNK_BYTES; chunk <= last && code == 0; chunk++)
        code = keep_chunk(cache, job, chunk);
    return code;
}

/* ---- damaged pages --------------------------------------------------------------------------- */

/* Pages with a byte in [wrong, wrong_end) are removed even if they match their hashes. */
static int check_chunk(struct rp_cache *cache, const struct rp_entry_file *file, uint64_t chunk,
                       uint64_t wrong, uint64_t wrong_end, uint8_t *bytes)
{
    struct rp_entry_words words;
    uint64_t hashes[RP_CACHE_CHUNK_PAGES], bad = 0, begin = rp_entry_chunk_first(chunk);
    int code = rp_entry_file_words(file, chunk, 1, &words);
    if (code < 0)
        return code;
    bool has_hashes = rp_entry_file_hashes(file, chunk * RP_CACHE_CHUNK_PAGES, RP_CACHE_CHUNK_PAGES,
                                           hashes) == 0;
    for (uint32_t p = 0; p < RP_CACHE_CHUNK_PAGES; p++) {
        uint64_t at = begin + (uint64_t)p * RP_CACHE_PAGE_BYTES;
        if (!(words.there >> p & 1))
            continue;
        uint32_t length = (uint32_t)rp_min_u64(RP_CACHE_PAGE_BYTES, file->bytes - at);
        bool is_wrong = at < wrong_end && at + RP_CACHE_PAGE_BYTES > wrong;
        if (is_wrong || !has_hashes || rp_entry_file_read(file, at, bytes, length) < 0 ||
            rp_hash64(bytes, length) != hashes[p])
            bad |= 1ull << p;
    }
    rp_a64_add_relaxed(&cache->damaged_bytes, bytes_of(bad));
    words.there &= ~bad;
    return bad ? rp_entry_file_set_words(file, chunk, &words) : 0;
}

static int check_pages(struct rp_cache *cache, const struct rp_cache_job *job)
{
    uint8_t bytes[RP_CACHE_PAGE_BYTES];
    uint64_t last = (job->offset + job->bytes - 1) / RP_CACHE_CHUNK_BYTES;
    int code = need_file(cache, job->entry);
    for (uint64_t chunk = job->offset / RP_CACHE_CHUNK_BYTES; chunk <= last && code == 0; chunk++)
        code = check_chunk(cache, &job->entry->file, chunk, job->is_wrong ? job->offset : 0,
                           job->is_wrong ? job->offset + job->bytes : 0, bytes);
    return code;
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void do_job(struct rp_cache *cache, const struct rp_cache_job *job)
{
    uint64_t entry = rp_a64_load_relaxed(&cache->kept_bytes);
    if (rp_cache_backoff_holds(&cache->writes)) {
        if (!job->has_data) /* its pages cannot be removed, so stop reading them for a while */
            rp_cache_backoff_grow(&cache->reads);
        rp_a64_add_relaxed(&cache->declined_bytes, job->bytes);
        return;
    }
    int code = take_lock(cache, LOCK_WAIT_MS);
    if (code == -EWOULDBLOCK) { /* the holder may be stopped: do not wait for each job */
        rp_a64_add_relaxed(&cache->declined_bytes, job->bytes);
        rp_cache_backoff_once(&cache->writes);
        return;
    }
    if (code >= 0) {
        code = job->has_data ? keep(cache, job) : check_pages(cache, job);
        rp_quota_unlock(&cache->quota);
    }
    if (code < 0)
        note_failure(cache, code);
    else if (rp_a64_load_relaxed(&cache->kept_bytes) > entry)
        note_success(cache);
}

/* Each start counts the pages, because a power cut may lose the count or the pages, independently;
 * and it makes room, because the last run may have had a larger limit. */
static void begin(struct rp_cache *cache)
{
    int code = take_lock(cache, LOCK_WAIT_MS);
    if (code < 0)
        return;
    if (rp_eviction_scan(&cache->eviction) == 0)
        (void)rp_eviction_make_room(&cache->eviction, 0, 0);
    rp_quota_unlock(&cache->quota);
}

static struct rp_cache_job *next_job(struct rp_cache *cache)
{
    pthread_mutex_lock(&cache->mutex);
    cache->is_busy = false;
    while (!cache->first && !cache->is_closing) {
        pthread_cond_broadcast(&cache->idle);
        pthread_cond_wait(&cache->work, &cache->mutex);
    }
    struct rp_cache_job *job = cache->first;
    if (job) {
        cache->first = job->next;
        cache->is_busy = true;
    }
    pthread_mutex_unlock(&cache->mutex);
    return job;
}

void *rp_cache_writer_run(void *argument)
{
    struct rp_cache *cache = argument;
    struct rp_cache_job *job;
    prctl(PR_SET_NAME, "keep");
    begin(cache);
    while ((job = next_job(cache)) != NULL) {
        do_job(cache, job);
        pthread_mutex_lock(&cache->mutex);
        cache->queued_bytes -= job->has_data ? job->bytes : 0;
        pthread_mutex_unlock(&cache->mutex);
        if (!job->has_data)
            rp_a32_add_relaxed(&job->entry->doubts, UINT32_MAX);
        if (job->is_prefill)
            rp_cache_prefill_over(cache, job->prefill);
        rp_entry_close(job->entry);
        free(job);
    }
    return NULL;
}
