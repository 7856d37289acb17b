/* SPDX-License-Identifier: Apache-2.0 */
/* entry_file.h — the file of one object: KEY.blocks.
 *
 *     header   4 KiB: magic, sizes, key, and a hash of them
 *     words    of each chunk: its counted pages, and its present pages
 *     hashes   XXH3-64 of each page
 *     data     the bytes of the object; holes in the place of absent pages
 *
 * A page is counted before it is written, and present after its hash was written. So a writer that
 * dies in between leaves pages that are counted but not present; they are written again, or
 * evicted. The file is read and written by system calls, not through a mapping, so that a full or
 * failing disk is an error of a call and not a signal. Writers hold the lock of the directory
 * (quota.h). */
#ifndef RP_CACHE_ENTRY_FILE_H
#define RP_CACHE_ENTRY_FILE_H

#include "base/hash.h"
#include "cache/cache.h"

struct rp_entry_file {
    int fd; /* -1 = closed */
    struct rp_hash128 key;
    uint64_t bytes; /* the object's */
    uint64_t chunks;
    uint64_t hashes_offset, data_offset;
};

/* Bit p is page p of the chunk. */
struct rp_entry_words {
    uint64_t counted, there;
};

#define RP_ENTRY_NAME_BYTES 48u
void rp_entry_file_name(struct rp_hash128 key, char name[RP_ENTRY_NAME_BYTES]);
/** The key of an object. */
struct rp_hash128 rp_entry_file_key(const struct rp_cache_object *object);

/** Open the file of a key in a directory; -ENOENT, or -EBADMSG if it is not a whole file of that
 * key. */
RP_MUST_CHECK int rp_entry_file_open(struct rp_entry_file *file, int directory,
                                     struct rp_hash128 key);
/** Make it, under the lock. An existing file is replaced. */
RP_MUST_CHECK int rp_entry_file_make(struct rp_entry_file *file, int directory,
                                     struct rp_hash128 key, uint64_t bytes);
/** False: the open file was removed or truncated. */
bool rp_entry_file_is_whole(const struct rp_entry_file *file);
void rp_entry_file_close(struct rp_entry_file *file);

/** Words of `count` chunks from `chunk` on, and hashes of `count` pages from `page` on. Words are
 * masked: only pages of the object are counted, and only counted pages are present. */
RP_MUST_CHECK int rp_entry_file_words(const struct rp_entry_file *file, uint64_t chunk,
                                      uint64_t count, struct rp_entry_words *words);
RP_MUST_CHECK int rp_entry_file_set_words(const struct rp_entry_file *file, uint64_t chunk,
                                          const struct rp_entry_words *words);
RP_MUST_CHECK int rp_entry_file_hashes(const struct rp_entry_file *file, uint64_t page,
                                       uint64_t count, uint64_t *hashes);

/** Write pages of one chunk, with their hashes; `bytes` ends on a page or with the object. */
RP_MUST_CHECK int rp_entry_file_write(const struct rp_entry_file *file, uint64_t offset,
                                      const uint8_t *data, uint32_t bytes);
RP_MUST_CHECK int rp_entry_file_read(const struct rp_entry_file *file, uint64_t offset,
                                     uint8_t *data, uint32_t bytes);
/** Free the disk space of a chunk. */
RP_MUST_CHECK int rp_entry_file_punch(const struct rp_entry_file *file, uint64_t chunk);

/** Bytes [first, last) of a chunk. */
static inline uint64_t rp_entry_chunk_first(uint64_t chunk)
{
    return chunk * RP_CACHE_CHUNK_BYTES;
}
uint64_t rp_entry_chunk_last(const struct rp_entry_file *file, uint64_t chunk);
/** The bits of pages [first, last) of a chunk. */
static inline uint64_t rp_entry_mask(uint32_t first, uint32_t last)
{
    uint64_t below_last = last == 64 ? UINT64_MAX : (1ull << last) - 1;
    return first == 64 ? 0 : below_last & ~((1ull << first) - 1);
}

#endif
