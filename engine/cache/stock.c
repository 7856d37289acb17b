/* SPDX-License-Identifier: Apache-2.0 */
/* stock — see stock.h. */
#include "cache/stock.h"

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
/* Chunks that other engines have added are searched for at most this often, and in a small share of
 * the time. */
#define RESCAN_NS 10000000000u
#define RESCAN_SHARE 20u

static int compare_keys(const void *left, const void *right)
{
    const struct rp_stock_key *a = left, *b = right;
    if (a->key.high != b->key.high)
        return a->key.high < b->key.high ? -1 : 1;
    return (a->key.low > b->key.low) - (a->key.low < b->key.low);
}

int rp_stock_open(struct rp_stock *stock, const struct rp_cache_options *options,
                  struct rp_space *space)
{
    *stock = (struct rp_stock){.options = options, .space = space, .random = rp_now_ns() | 1};
    stock->by_key = rp_calloc(options->object_count, sizeof *stock->by_key);
    if (!stock->by_key)
        return -ENOMEM;
    for (uint32_t i = 0; i < options->object_count; i++)
        stock->by_key[i] = (struct rp_stock_key){.key = rp_kept_file_key(&options->objects[i]),
                                                 .object = i};
    qsort(stock->by_key, options->object_count, sizeof *stock->by_key, compare_keys);
    return 0;
}

void rp_stock_close(struct rp_stock *stock)
{
    free(stock->by_key);
    free(stock->files);
    free(stock->chunks);
    *stock = (struct rp_stock){0};
}

/* ---- what is there --------------------------------------------------------------------------- */

/* An array with memory for one more element, or NULL; it doubles. */
static void *make_room_in(void *array, uint64_t count, uint64_t *room, size_t size)
{
    if (count < *room)
        return array;
    uint64_t wanted = *room ? *room * 2 : 64;
    void *grown = reallocarray(array, wanted, size);
    *room = grown ? wanted : *room;
    return grown;
}

int rp_stock_add(struct rp_stock *stock, uint32_t file, uint64_t chunk)
{
    struct rp_stock_chunk *chunks = make_room_in(stock->chunks, stock->chunk_count,
                                                 &stock->chunk_room, sizeof *chunks);
    if (!chunks)
        return -ENOMEM;
    stock->chunks = chunks;
    stock->chunks[stock->chunk_count++] = (struct rp_stock_chunk){file, (uint32_t)chunk};
    return 0;
}

/* The first of by_key that is not below the key. */
static uint32_t find_key(const struct rp_stock *stock, struct rp_hash128 key)
{
    const struct rp_stock_key wanted = {.key = key};
    uint32_t low = 0, high = stock->options->object_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (compare_keys(&stock->by_key[middle], &wanted) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int64_t add_file(struct rp_stock *stock, struct rp_hash128 key, uint64_t bytes,
                        int64_t used_s)
{
    struct rp_stock_file *files = make_room_in(stock->files, stock->file_count, &stock->file_room,
                                               sizeof *files);
    if (!files)
        return -ENOMEM;
    stock->files = files;
    uint32_t first = find_key(stock, key), last = first;
    while (last < stock->options->object_count && rp_hash128_equal(stock->by_key[last].key, key))
        last++;
    files[stock->file_count] = (struct rp_stock_file){.key = key,
                                                      .bytes = bytes,
                                                      .first_key = first,
                                                      .object_count = last - first,
                                                      .used_s = used_s,
                                                      .is_stale = time(NULL) - used_s >
                                                                  STALE_SECONDS};
    if (last > first)
        stock->by_key[first].file = (uint32_t)stock->file_count + 1;
    return (int64_t)stock->file_count++;
}

int64_t rp_stock_file(struct rp_stock *stock, struct rp_hash128 key, uint64_t bytes)
{
    const struct rp_stock_key *found = &stock->by_key[find_key(stock, key)];
    return found->file ? (int64_t)found->file - 1 : add_file(stock, key, bytes, time(NULL));
}

static int count_file(struct rp_stock *stock, const struct rp_kept_file *file, uint32_t number,
                      uint64_t *pages)
{
    struct rp_kept_words words[WORDS_AT_ONCE];
    int code = 0;
    *pages = 0;
    for (uint64_t at = 0; at < file->chunks && code == 0; at += WORDS_AT_ONCE) {
        uint64_t count = rp_min_u64(WORDS_AT_ONCE, file->chunks - at);
        code = rp_kept_file_words(file, at, count, words);
        for (uint64_t i = 0; i < count && code == 0; i++) {
            *pages += (uint64_t)__builtin_popcountll(words[i].counted);
            if (words[i].counted)
                code = rp_stock_add(stock, number, at + i);
        }
    }
    return code;
}

/* The disk space of a file that cannot be read, which is no less than its pages. */
static uint64_t bytes_on_disk(const struct rp_stock *stock, const char *name)
{
    struct stat info;
    bool is_file = fstatat(stock->space->directory, name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
                   S_ISREG(info.st_mode);
    return is_file ? (uint64_t)info.st_blocks * 512 : 0;
}

static int scan_file(struct rp_stock *stock, const char *name, struct rp_hash128 key)
{
    struct rp_kept_file file;
    struct stat info;
    uint64_t pages = 0;
    int code = rp_kept_file_open(&file, stock->space->directory, key);
    if (code == 0 && fstat(file.fd, &info) == 0) {
        int64_t number = add_file(stock, key, file.bytes, info.st_mtime);
        code = number < 0 ? (int)number : count_file(stock, &file, (uint32_t)number, &pages);
        if (code == 0 && pages == 0 && stock->files[number].is_stale &&
            stock->files[number].object_count == 0)
            code = -EBADMSG; /* nothing is in it, and nobody uses it */
    }
    rp_kept_file_close(&file);
    if (code == -ENOMEM)
        return code;
    if ((code == -EBADMSG || code == -ENODATA) && unlinkat(stock->space->directory, name, 0) == 0)
        return 0;
    stock->space->kept_bytes += code < 0 ? bytes_on_disk(stock, name) : pages * RP_CACHE_PAGE_BYTES;
    return 0; /* what cannot be read now is asked of the server */
}

static bool parse_name(const char *name, struct rp_hash128 *key)
{
    char again[RP_KEPT_NAME_BYTES];
    unsigned long long high, low;
    int end = 0;
    if (sscanf(name, "%16llx%16llx.blocks%n", &high, &low, &end) != 2 || name[end] || !end)
        return false;
    *key = (struct rp_hash128){.low = low, .high = high};
    rp_kept_file_name(*key, again);
    return !strcmp(name, again);
}

static int scan_directory(struct rp_stock *stock, DIR *dir)
{
    int code = 0;
    while (code == 0) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        struct rp_hash128 key;
        if (!entry)
            return -errno;
        if (parse_name(entry->d_name, &key))
            code = scan_file(stock, entry->d_name, key);
    }
    return code;
}

int rp_stock_scan(struct rp_stock *stock)
{
    uint64_t before = stock->space->kept_bytes;
    int fd = openat(stock->space->directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    int code = dir ? 0 : -errno;
    for (uint32_t i = 0; i < stock->options->object_count; i++)
        stock->by_key[i].file = 0;
    stock->file_count = 0;
    stock->chunk_count = 0;
    stock->pick_count = stock->pick_next = 0;
    stock->space->kept_bytes = 0;
    stock->scanned_ns = rp_now_ns();
    if (dir) {
        code = scan_directory(stock, dir);
        closedir(dir);
    } else if (fd >= 0) {
        close(fd);
    }
    if (code < 0) /* some may not have been seen */
        stock->space->kept_bytes = rp_max_u64(before, stock->space->kept_bytes);
    stock->scan_took_ns = rp_now_ns() - stock->scanned_ns;
    return code;
}

/* ---- what goes ------------------------------------------------------------------------------- */

uint64_t rp_stock_distance(const struct rp_stock *stock, uint32_t number, uint64_t chunk)
{
    const struct rp_stock_file *file = &stock->files[number];
    uint64_t first = rp_kept_chunk_first(chunk), nearest = RP_CACHE_NEVER;
    uint64_t last = rp_min_u64(file->bytes, rp_kept_chunk_first(chunk + 1));
    if (file->object_count == 0)
        return file->is_stale ? RP_CACHE_NEVER : stock->options->usual_distance;
    for (uint32_t i = 0; i < file->object_count; i++) {
        uint32_t object = stock->by_key[file->first_key + i].object;
        nearest = rp_min_u64(
            nearest, stock->options->next_use(stock->options->context, object, first, last));
    }
    return nearest;
}

static int compare_picks(const void *left, const void *right)
{
    const struct rp_stock_pick *a = left, *b = right;
    if (a->distance != b->distance)
        return a->distance < b->distance ? 1 : -1;
    if (a->chunk.file != b->chunk.file)
        return a->chunk.file < b->chunk.file ? -1 : 1;
    return (a->chunk.chunk > b->chunk.chunk) - (a->chunk.chunk < b->chunk.chunk);
}

static uint64_t draw(struct rp_stock *stock)
{
    stock->random ^= stock->random << 13; /* xorshift64 */
    stock->random ^= stock->random >> 7;
    stock->random ^= stock->random << 17;
    return stock->random;
}

static void pick_again(struct rp_stock *stock)
{
    uint64_t all = stock->chunk_count;
    uint32_t count = (uint32_t)(all <= RP_STOCK_EXACT_MAX ? all : RP_STOCK_DRAWS);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t at = all == count ? i : draw(stock) % all;
        struct rp_stock_chunk chunk = stock->chunks[at];
        stock->picks[i] = (struct rp_stock_pick){rp_stock_distance(stock, chunk.file, chunk.chunk),
                                                 at, chunk};
    }
    qsort(stock->picks, count, sizeof stock->picks[0], compare_picks);
    stock->pick_count = count;
    stock->pick_next = 0;
}

/* Leave it out of the list. If it is not where it was picked, because the last one was moved, it
 * stays for now: it is found to have no pages when it is picked again. */
static void leave_out(struct rp_stock *stock, const struct rp_stock_pick *pick)
{
    if (pick->at >= stock->chunk_count)
        return;
    struct rp_stock_chunk *chunk = &stock->chunks[pick->at];
    if (chunk->file == pick->chunk.file && chunk->chunk == pick->chunk.chunk)
        *chunk = stock->chunks[--stock->chunk_count];
}

/* An eviction from a file of another run does not make it one that is used. */
static void keep_time(const struct rp_kept_file *open, const struct rp_stock_file *file)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = file->used_s}};
    if (file->object_count == 0)
        (void)futimens(open->fd, times);
}

/* Its room is given back before it is said to be free. A reader that is reading it finds other
 * hashes. */
static void evict(struct rp_stock *stock, const struct rp_stock_pick *pick)
{
    struct rp_kept_file file;
    struct rp_kept_words words, none = {0, 0};
    leave_out(stock, pick);
    if (rp_kept_file_open(&file, stock->space->directory, stock->files[pick->chunk.file].key) < 0)
        return;
    if (rp_kept_file_words(&file, pick->chunk.chunk, 1, &words) == 0 && words.counted &&
        rp_kept_file_punch(&file, pick->chunk.chunk) == 0 &&
        rp_kept_file_set_words(&file, pick->chunk.chunk, &none) == 0) {
        uint64_t bytes = (uint64_t)__builtin_popcountll(words.counted) * RP_CACHE_PAGE_BYTES;
        stock->space->kept_bytes -= rp_min_u64(bytes, stock->space->kept_bytes);
        stock->evicted_bytes += bytes;
    }
    keep_time(&file, &stock->files[pick->chunk.file]);
    rp_kept_file_close(&file);
}

void rp_stock_begin(struct rp_stock *stock)
{
    stock->pick_count = stock->pick_next = 0;
}

/* There is nothing to pick that is worth less: has another engine brought something? */
static bool has_news(struct rp_stock *stock)
{
    uint64_t pause_ns = rp_max_u64(RESCAN_NS, RESCAN_SHARE * stock->scan_took_ns);
    bool is_due = stock->scanned_ns == 0 || rp_now_ns() - stock->scanned_ns > pause_ns;
    return is_due && rp_stock_scan(stock) == 0;
}

static bool is_needed_later(uint64_t distance, uint64_t than)
{
    return distance > than;
}

bool rp_stock_make_room(struct rp_stock *stock, uint64_t bytes, uint64_t distance)
{
    while (stock->space->kept_bytes + bytes > stock->options->bytes) {
        if (stock->pick_next == stock->pick_count)
            pick_again(stock);
        const struct rp_stock_pick *pick = &stock->picks[stock->pick_next];
        if (stock->pick_count && is_needed_later(pick->distance, distance)) {
            stock->pick_next++;
            evict(stock, pick);
        } else if (!has_news(stock)) {
            return false;
        }
    }
    return true;
}
