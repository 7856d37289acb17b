/* SPDX-License-Identifier: Apache-2.0 */
/* cache_kit.h — a cache in a directory of its own, objects whose content is known, and next uses
 * that a test sets. */
#ifndef RP_TESTS_CACHE_KIT_H
#define RP_TESTS_CACHE_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bits.h"
#include "cache/cache.h"
#include "cache/entry_file.h"

#define CHUNK RP_CACHE_CHUNK_BYTES
#define PAGE RP_CACHE_PAGE_BYTES

static char directory[64];

static inline int enter(void **state)
{
    (void)state;
    strcpy(directory, "/tmp/rp-test-cache-XXXXXX");
    return mkdtemp(directory) ? 0 : -1;
}

static inline int leave(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", directory);
    return system(command);
}

/* The content of an object of this name from an offset on, a multiple of 8. */
static inline void content(const char *name, uint64_t offset, uint8_t *data, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += 8) {
        uint64_t word = (offset + at + (uint8_t)name[0]) * 0x9e3779b97f4a7c15u;
        memcpy(data + at, &word, rp_min_u64(8, bytes - at));
    }
}

static uint64_t next_uses[256]; /* for the chunks of object 0 */

static inline uint64_t next_use(void *context, uint32_t object, uint64_t first, uint64_t last)
{
    (void)context;
    assert_true(first < last && last - first <= CHUNK);
    return object == 0 ? next_uses[first / CHUNK] : 1;
}

static inline uint64_t epoch_of(void *context)
{
    (void)context;
    return 0;
}

static inline struct rp_cache *open_cache(uint64_t bytes, const struct rp_cache_object *objects,
                                          uint32_t count)
{
    const struct rp_cache_options options = {.directory = directory,
                                             .bytes = bytes,
                                             .objects = objects,
                                             .object_count = count,
                                             .next_use = next_use,
                                             .epoch = epoch_of,
                                             .usual_distance = 100};
    struct rp_cache *cache;
    struct rp_error error = {0};
    if (rp_cache_open(&cache, &options, &error) < 0)
        fail_msg("%s", error.message);
    rp_cache_flush(cache); /* it has read its directory */
    return cache;
}

static uint8_t bytes_of_chunk[CHUNK];

/* Keep bytes of an object, and wait. */
static inline void keep(struct rp_cache *cache, struct rp_entry *kept, const char *name,
                        uint64_t offset, uint32_t bytes)
{
    assert_true(bytes <= CHUNK);
    content(name, offset, bytes_of_chunk, bytes);
    rp_entry_keep(kept, offset, bytes_of_chunk, bytes);
    rp_cache_flush(cache);
}

/* Is all of it there, with the kept bytes? Other bytes are a failure of the test. */
static inline bool holds(struct rp_entry *kept, const char *name, uint64_t offset, uint32_t bytes)
{
    static uint8_t read[CHUNK];
    if (rp_entry_view(kept, offset, bytes).head < bytes)
        return false;
    ssize_t got = pread(rp_entry_fd(kept), read, bytes,
                        (off_t)(rp_entry_data_offset(kept) + offset));
    assert_int_equal(got, bytes);
    if (!rp_entry_check(kept, offset, read, bytes))
        return false;
    content(name, offset, bytes_of_chunk, bytes);
    assert_memory_equal(read, bytes_of_chunk, bytes);
    return true;
}

/* The size of all files' data on the disk, without their headers. */
static inline uint64_t bytes_on_disk(void)
{
    char path[128];
    snprintf(path, sizeof path, "%s/blocks", directory);
    DIR *dir = opendir(path);
    uint64_t all = 0;
    for (struct dirent *entry; dir && (entry = readdir(dir)) != NULL;) {
        struct stat info;
        snprintf(path, sizeof path, "%s/blocks/%s", directory, entry->d_name);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (strstr(entry->d_name, ".blocks") && fd >= 0 && fstat(fd, &info) == 0)
            all += (uint64_t)info.st_blocks * 512;
        if (fd >= 0)
            close(fd);
    }
    if (dir)
        closedir(dir);
    return all;
}

static inline struct rp_cache_counts counts_of(struct rp_cache *cache)
{
    struct rp_cache_counts counts;
    rp_cache_counts(cache, &counts);
    return counts;
}

#endif
