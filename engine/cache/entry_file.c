/* SPDX-License-Identifier: Apache-2.0 */
/* entry_file.c — reads and writes the file of one object. Codes are negative errno, without
 * messages, because no failure of a cache is one of the run. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "cache/entry_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/file.h"

#define MAGIC 0x3145484341435052u /* "RPCACHE1" */
#define HEADER_BYTES 4096u

struct header {
    uint64_t magic;
    uint32_t page_bytes, chunk_pages;
    uint64_t bytes;
    struct rp_hash128 key;
    uint64_t hash; /* hash of all members before it */
};
RP_STATIC_ASSERT(sizeof(struct rp_entry_words) == 16, "the words are an array of the file");

void rp_entry_file_name(struct rp_hash128 key, char name[RP_ENTRY_NAME_BYTES])
{
    char hex[RP_HASH_HEX_BYTES];
    snprintf(name, RP_ENTRY_NAME_BYTES, "%s.blocks", rp_hash128_hex(key, hex));
}

struct rp_hash128 rp_entry_file_key(const struct rp_cache_object *object)
{
    struct rp_hasher hasher;
    rp_hasher_begin(&hasher);
    rp_hasher_add(&hasher, object->name, strlen(object->name) + 1);
    rp_hasher_add(&hasher, object->identity, strlen(object->identity) + 1);
    rp_hasher_add(&hasher, &object->bytes, sizeof object->bytes);
    return rp_hasher_finish(&hasher);
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* Without a message: an error of a cache costs a request, and nothing else. */
static int read_at(int fd, void *data, uint64_t bytes, uint64_t offset)
{
    return rp_file_read_at(fd, "", data, (size_t)bytes, offset, NULL);
}

static int write_at(int fd, const void *data, uint64_t bytes, uint64_t offset)
{
    return rp_file_write_at(fd, "", data, (size_t)bytes, offset, NULL);
}

/* ---- files ----------------------------------------------------------------------------------- */

static void set_sizes(struct rp_entry_file *file, uint64_t bytes)
{
    file->bytes = bytes;
    file->chunks = rp_div_up(bytes, RP_CACHE_CHUNK_BYTES);
    uint64_t words = file->chunks * sizeof(struct rp_entry_words);
    uint64_t hashes = file->chunks * RP_CACHE_CHUNK_PAGES * sizeof(uint64_t);
    file->hashes_offset = HEADER_BYTES + rp_align_up(words, RP_CACHE_PAGE_BYTES);
    file->data_offset = file->hashes_offset + rp_align_up(hashes, RP_CACHE_PAGE_BYTES);
}

static struct header header_of(struct rp_hash128 key, uint64_t bytes)
{
    struct header header = {.magic = MAGIC,
                            .page_bytes = RP_CACHE_PAGE_BYTES,
                            .chunk_pages = RP_CACHE_CHUNK_PAGES,
                            .bytes = bytes,
                            .key = key};
    header.hash = rp_hash64(&header, offsetof(struct header, hash));
    return header;
}

int rp_entry_file_open(struct rp_entry_file *file, int directory, struct rp_hash128 key)
{
    char name[RP_ENTRY_NAME_BYTES];
    struct header header;
    struct stat info;
    rp_entry_file_name(key, name);
    *file = (struct rp_entry_file){.fd = -1, .key = key};
    int fd = openat(directory, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    int code = read_at(fd, &header, sizeof header, 0);
    if (code == -RP_E_CHANGED)
        code = -EBADMSG;
    if (code == 0) {
        struct header expected = header_of(key, header.bytes);
        set_sizes(file, header.bytes);
        if (memcmp(&header, &expected, sizeof header) != 0 || fstat(fd, &info) < 0 ||
            header.bytes >= 1ull << 62 || !S_ISREG(info.st_mode) ||
            (uint64_t)info.st_size != file->data_offset + file->bytes)
            code = -EBADMSG;
    }
    if (code < 0)
        close(fd);
    else
        file->fd = fd;
    return code;
}

/* No rename is needed: the next user of a partly made file replaces it. */
int rp_entry_file_make(struct rp_entry_file *file, int directory, struct rp_hash128 key,
                       uint64_t bytes)
{
    char name[RP_ENTRY_NAME_BYTES];
    struct header header = header_of(key, bytes);
    rp_entry_file_name(key, name);
    *file = (struct rp_entry_file){.fd = -1, .key = key};
    set_sizes(file, bytes);
    if (unlinkat(directory, name, 0) < 0 && errno != ENOENT)
        return -errno;
    int fd = openat(directory, name, O_RDWR | O_CLOEXEC | O_CREAT | O_EXCL, 0600);
    if (fd < 0)
        return -errno;
    int code = ftruncate(fd, (off_t)(file->data_offset + bytes)) < 0 ? -errno : 0;
    if (code == 0)
        code = write_at(fd, &header, sizeof header, 0);
    if (code < 0) {
        (void)unlinkat(directory, name, 0);
        close(fd);
    } else {
        file->fd = fd;
    }
    return code;
}

bool rp_entry_file_is_whole(const struct rp_entry_file *file)
{
    struct stat info;
    return fstat(file->fd, &info) == 0 && info.st_nlink > 0 &&
           (uint64_t)info.st_size == file->data_offset + file->bytes;
}

void rp_entry_file_close(struct rp_entry_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    file->fd = -1;
}

/* ---- words, hashes, data --------------------------------------------------------------------- */

int rp_entry_file_words(const struct rp_entry_file *file, uint64_t chunk, uint64_t count,
                        struct rp_entry_words *words)
{
    RP_ASSERT(rp_range_inside(chunk, count, file->chunks));
    int code = read_at(file->fd, words, count * sizeof *words,
                       HEADER_BYTES + chunk * sizeof *words);
    for (uint64_t i = 0; code == 0 && i < count; i++) { /* without a hash, any may be damaged */
        uint64_t bytes = rp_entry_chunk_last(file, chunk + i) - rp_entry_chunk_first(chunk + i);
        words[i].counted &= rp_entry_mask(0, (uint32_t)rp_div_up(bytes, RP_CACHE_PAGE_BYTES));
        words[i].there &= words[i].counted;
    }
    return code;
}

int rp_entry_file_set_words(const struct rp_entry_file *file, uint64_t chunk,
                            const struct rp_entry_words *words)
{
    RP_ASSERT(chunk < file->chunks && (words->there & ~words->counted) == 0);
    return write_at(file->fd, words, sizeof *words, HEADER_BYTES + chunk * sizeof *words);
}

int rp_entry_file_hashes(const struct rp_entry_file *file, uint64_t page, uint64_t count,
                         uint64_t *hashes)
{
    RP_ASSERT(rp_range_inside(page, count, file->chunks * RP_CACHE_CHUNK_PAGES));
    return read_at(file->fd, hashes, count * sizeof *hashes,
                   file->hashes_offset + page * sizeof *hashes);
}

int rp_entry_file_write(const struct rp_entry_file *file, uint64_t offset, const uint8_t *data,
                        uint32_t bytes)
{
    uint64_t hashes[RP_CACHE_CHUNK_PAGES];
    uint64_t count = rp_div_up(bytes, RP_CACHE_PAGE_BYTES), page = offset / RP_CACHE_PAGE_BYTES;
    RP_ASSERT(offset % RP_CACHE_PAGE_BYTES == 0 && rp_range_inside(offset, bytes, file->bytes));
    RP_ASSERT(count > 0 && page % RP_CACHE_CHUNK_PAGES + count <= RP_CACHE_CHUNK_PAGES);
    for (uint64_t i = 0, at = 0; i < count; i++, at += RP_CACHE_PAGE_BYTES)
        hashes[i] = rp_hash64(data + at, rp_min_u64(RP_CACHE_PAGE_BYTES, bytes - at));
    int code = write_at(file->fd, data, bytes, file->data_offset + offset);
    return code < 0 ? code
                    : write_at(file->fd, hashes, count * sizeof *hashes,
                               file->hashes_offset + page * sizeof *hashes);
}

int rp_entry_file_read(const struct rp_entry_file *file, uint64_t offset, uint8_t *data,
                       uint32_t bytes)
{
    RP_ASSERT(rp_range_inside(offset, bytes, file->bytes));
    return read_at(file->fd, data, bytes, file->data_offset + offset);
}

int rp_entry_file_punch(const struct rp_entry_file *file, uint64_t chunk)
{
    uint64_t first = rp_entry_chunk_first(chunk);
    int done = fallocate(file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                         (off_t)(file->data_offset + first), RP_CACHE_CHUNK_BYTES);
    return done < 0 ? -errno : 0;
}

uint64_t rp_entry_chunk_last(const struct rp_entry_file *file, uint64_t chunk)
{
    return rp_min_u64(file->bytes, rp_entry_chunk_first(chunk + 1));
}
