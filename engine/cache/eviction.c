/* SPDX-License-Identifier: Apache-2.0 */
/* eviction.c — lists the chunks of a directory, and evicts those with the greatest distance. */
#include "cache/eviction.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/mem.h"

#define STALE_SECONDS 3600
#define WORDS_AT_ONCE 256u
/* A rescan for chunks of other engines: at most one in 10 s, and for at most a 20th of the time. */
#define RESCAN_NS 10000000000u
#define RESCAN_SHARE 20u

static int compare_keys(const void *left, const void *right)
{
    const struct rp_eviction_key *a = left, *b = right;
    if (a->key.high != b->key.high)
        return a->key.high < b->key.high ? -1 : 1;
    return (a->key.low > b->key.low) - (a->key.low < b->key.low);
}

int rp_eviction_open(struct rp_eviction *eviction, const struct rp_cache_options *options,
                     struct rp_quota *quota)
{
    *eviction = (struct rp_eviction){.options = options, .quota = quota, .random = rp_now_ns() | 1};
    eviction->by_key = rp_calloc(options->object_count, sizeof *eviction->by_key);
    if (!eviction->by_key)
        return -ENOMEM;
    for (uint32_t i = 0; i < options->object_count; i++)
        eviction->by_key[i] = (struct rp_eviction_key){
            .key = rp_entry_file_key(&options->objects[i]), .object = i};
    qsort(eviction->by_key, options->object_count, sizeof *eviction->by_key, compare_keys);
    return 0;
}

void rp_eviction_close(struct rp_eviction *eviction)
{
    free(eviction->by_key);
    free(eviction->files);
    free(eviction->chunks);
    *eviction = (struct rp_eviction){0};
}

/* ---- files and chunks ------------------------------------------------------------------------ */

int rp_eviction_add(struct rp_eviction *eviction, uint32_t file, uint64_t chunk)
{
    if (!RP_GROW(eviction->chunks, eviction->chunk_room, eviction->chunk_count + 1))
        return -ENOMEM;
    eviction->chunks[eviction->chunk_count++] = (struct rp_eviction_chunk){file, (uint32_t)chunk};
    return 0;
}

/* The index in by_key of the first key that is not less. */
static uint32_t find_key(const struct rp_eviction *eviction, struct rp_hash128 key)
{
    const struct rp_eviction_key wanted = {.key = key};
    uint32_t low = 0, high = eviction->options->object_count;
    RP_PARTITION(low, high, middle, compare_keys(&eviction->by_key[middle], &wanted) < 0)
    return low;
}

static int64_t add_file(struct rp_eviction *eviction, struct rp_hash128 key, uint64_t bytes,
                        int64_t used_s)
{
    if (!RP_GROW(eviction->files, eviction->file_room, eviction->file_count + 1))
        return -ENOMEM;
    uint32_t first = find_key(eviction, key), last = first;
    while (last < eviction->options->object_count &&
           rp_hash128_equal(eviction->by_key[last].key, key))
        last++;
    eviction->files[eviction->file_count] = (struct rp_eviction_file){
        .key = key,
        .bytes = bytes,
        .first_key = first,
        .object_count = last - first,
        .used_s = used_s,
        .is_stale = time(NULL) - used_s > STALE_SECONDS};
    if (last > first)
        eviction->by_key[first].file = (uint32_t)eviction->file_count + 1;
    return (int64_t)eviction->file_count++;
}

int64_t rp_eviction_file(struct rp_eviction *eviction, struct rp_hash128 key, uint64_t bytes)
{
    const struct rp_eviction_key *found = &eviction->by_key[find_key(eviction, key)];
    return found->file ? (int64_t)found->file - 1 : add_file(eviction, key, bytes, time(NULL));
}

static int count_file(struct rp_eviction *eviction, const struct rp_entry_file *file,
                      uint32_t number, uint64_t *pages)
{
    struct rp_entry_words words[WORDS_AT_ONCE];
    int code = 0;
    *pages = 0;
    for (uint64_t at = 0; at < file->chunks && code == 0; at += WORDS_AT_ONCE) {
        uint64_t count = rp_min_u64(WORDS_AT_ONCE, file->chunks - at);
        code = rp_entry_file_words(file, at, count, words);
        for (uint64_t i = 0; i < count && code == 0; i++) {
            *pages += (uint64_t)__builtin_popcountll(words[i].counted);
            if (words[i].counted)
                code = rp_eviction_add(eviction, number, at + i);
        }
    }
    return code;
}

/* The disk space of an unreadable file, which is no less than its pages. */
static uint64_t bytes_on_disk(const struct rp_eviction *eviction, const char *name)
{
    struct stat info;
    bool is_file = fstatat(eviction->quota->directory, name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
                   S_ISREG(info.st_mode);
    return is_file ? (uint64_t)info.st_blocks * 512 : 0;
}

static int scan_file(struct rp_eviction *eviction, const char *name, struct rp_hash128 key)
{
    struct rp_entry_file file;
    struct stat info;
    uint64_t pages = 0;
    int code = rp_entry_file_open(&file, eviction->quota->directory, key);
    if (code == 0 && fstat(file.fd, &info) == 0) {
        int64_t number = add_file(eviction, key, file.bytes, info.st_mtime);
        code = number < 0 ? (int)number : count_file(eviction, &file, (uint32_t)number, &pages);
        if (code == 0 && pages == 0 && eviction->files[number].is_stale &&
            eviction->files[number].object_count == 0)
            code = -EBADMSG; /* an empty file, unused for an hour */
    }
    rp_entry_file_close(&file);
    if (code == -ENOMEM)
        return code;
    if ((code == -EBADMSG || code == -RP_E_CHANGED) &&
        unlinkat(eviction->quota->directory, name, 0) == 0)
        return 0;
    eviction->quota->kept_bytes += code < 0 ? bytes_on_disk(eviction, name)
                                            : pages * RP_CACHE_PAGE_BYTES;
    return 0; /* bytes of an unreadable file are requested from the server */
}

static bool parse_name(const char *name, struct rp_hash128 *key)
{
    char hash[RP_HASH_HEX_BYTES], again[RP_ENTRY_NAME_BYTES];
    snprintf(hash, sizeof hash, "%s", name);
    if (!rp_hash128_parse(hash, key))
        return false;
    rp_entry_file_name(*key, again);
    return !strcmp(name, again);
}

static int scan_directory(struct rp_eviction *eviction, DIR *dir)
{
    int code = 0;
    while (code == 0) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        struct rp_hash128 key;
        if (!entry)
            return -errno;
        if (parse_name(entry->d_name, &key))
            code = scan_file(eviction, entry->d_name, key);
    }
    return code;
}

int rp_eviction_scan(struct rp_eviction *eviction)
{
    uint64_t before = eviction->quota->kept_bytes;
    int fd = openat(eviction->quota->directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    int code = dir ? 0 : -errno;
    for (uint32_t i = 0; i < eviction->options->object_count; i++)
        eviction->by_key[i].file = 0;
    eviction->file_count = 0;
    eviction->chunk_count = 0;
    eviction->pick_count = eviction->pick_next = 0;
    eviction->quota->kept_bytes = 0;
    eviction->scanned_ns = rp_now_ns();
    if (dir) {
        code = scan_directory(eviction, dir);
        closedir(dir);
    } else if (fd >= 0) {
        close(fd);
    }
    if (code < 0) /* some files may be missing */
        eviction->quota->kept_bytes = rp_max_u64(before, eviction->quota->kept_bytes);
    eviction->scan_took_ns = rp_now_ns() - eviction->scanned_ns;
    return code;
}

/* ---- eviction -------------------------------------------------------------------------------- */

uint64_t rp_eviction_distance(const struct rp_eviction *eviction, uint32_t number, uint64_t chunk)
{
    const struct rp_eviction_file *file = &eviction->files[number];
    uint64_t first = rp_entry_chunk_first(chunk), nearest = RP_CACHE_NEVER;
    uint64_t last = rp_min_u64(file->bytes, rp_entry_chunk_first(chunk + 1));
    if (file->object_count == 0)
        return file->is_stale ? RP_CACHE_NEVER : eviction->options->usual_distance;
    for (uint32_t i = 0; i < file->object_count; i++) {
        uint32_t object = eviction->by_key[file->first_key + i].object;
        nearest = rp_min_u64(
            nearest, eviction->options->next_use(eviction->options->context, object, first, last));
    }
    return nearest;
}

static int compare_picks(const void *left, const void *right)
{
    const struct rp_eviction_pick *a = left, *b = right;
    if (a->distance != b->distance)
        return a->distance < b->distance ? 1 : -1;
    if (a->chunk.file != b->chunk.file)
        return a->chunk.file < b->chunk.file ? -1 : 1;
    return (a->chunk.chunk > b->chunk.chunk) - (a->chunk.chunk < b->chunk.chunk);
}

static uint64_t draw(struct rp_eviction *eviction)
{
    eviction->random ^= eviction->random << 13; /* xorshift64 */
    eviction->random ^= eviction->random >> 7;
    eviction->random ^= eviction->random << 17;
    return eviction->random;
}

static void pick_again(struct rp_eviction *eviction)
{
    uint64_t all = eviction->chunk_count;
    uint32_t count = (uint32_t)(all <= RP_EVICTION_EXACT_MAX ? all : RP_EVICTION_DRAWS);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t at = all == count ? i : draw(eviction) % all;
        struct rp_eviction_chunk chunk = eviction->chunks[at];
        eviction->picks[i] = (struct rp_eviction_pick){
            rp_eviction_distance(eviction, chunk.file, chunk.chunk), at, chunk};
    }
    qsort(eviction->picks, count, sizeof eviction->picks[0], compare_picks);
    eviction->pick_count = count;
    eviction->pick_next = 0;
}

/* Remove a chunk from the list. If another chunk has taken its place, since removals move the last
 * one, it stays listed: when it is picked again, it has no pages. */
static void leave_out(struct rp_eviction *eviction, const struct rp_eviction_pick *pick)
{
    if (pick->at >= eviction->chunk_count)
        return;
    struct rp_eviction_chunk *chunk = &eviction->chunks[pick->at];
    if (chunk->file == pick->chunk.file && chunk->chunk == pick->chunk.chunk)
        *chunk = eviction->chunks[--eviction->chunk_count];
}

/* Restore the modification time of another run's file: an eviction is no use. */
static void keep_time(const struct rp_entry_file *open, const struct rp_eviction_file *file)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = file->used_s}};
    if (file->object_count == 0)
        (void)futimens(open->fd, times);
}

/* The disk space is freed before the words are cleared and the count is lowered. A reader of the
 * chunk finds hashes that differ. */
static void evict(struct rp_eviction *eviction, const struct rp_eviction_pick *pick)
{
    struct rp_entry_file file;
    struct rp_entry_words words, none = {0, 0};
    leave_out(eviction, pick);
    if (rp_entry_file_open(&file, eviction->quota->directory,
                           eviction->files[pick->chunk.file].key) < 0)
        return;
    if (rp_entry_file_words(&file, pick->chunk.chunk, 1, &words) == 0 && words.counted &&
        rp_entry_file_punch(&file, pick->chunk.chunk) == 0 &&
        rp_entry_file_set_words(&file, pick->chunk.chunk, &none) == 0) {
        uint64_t bytes = (uint64_t)__builtin_popcountll(words.counted) * RP_CACHE_PAGE_BYTES;
        eviction->quota->kept_bytes -= rp_min_u64(bytes, eviction->quota->kept_bytes);
        eviction->evicted_bytes += bytes;
    }
    keep_time(&file, &eviction->files[pick->chunk.file]);
    rp_entry_file_close(&file);
}

void rp_eviction_begin(struct rp_eviction *eviction)
{
    eviction->pick_count = eviction->pick_next = 0;
}

/* No listed chunk has a greater distance. Rescan if due: true if the scan succeeded. */
static bool has_news(struct rp_eviction *eviction)
{
    uint64_t pause_ns = rp_max_u64(RESCAN_NS, RESCAN_SHARE * eviction->scan_took_ns);
    bool is_due = eviction->scanned_ns == 0 || rp_now_ns() - eviction->scanned_ns > pause_ns;
    return is_due && rp_eviction_scan(eviction) == 0;
}

static bool is_needed_later(uint64_t distance, uint64_t than)
{
    return distance > than;
}

bool rp_eviction_make_room(struct rp_eviction *eviction, uint64_t bytes, uint64_t distance)
{
    while (eviction->quota->kept_bytes + bytes > eviction->options->bytes) {
        if (eviction->pick_next == eviction->pick_count)
            pick_again(eviction);
        const struct rp_eviction_pick *pick = &eviction->picks[eviction->pick_next];
        if (eviction->pick_count && is_needed_later(pick->distance, distance)) {
            eviction->pick_next++;
            evict(eviction, pick);
        } else if (!has_news(eviction)) {
            return false;
        }
    }
    return true;
}
