/* SPDX-License-Identifier: Apache-2.0 */
/* open_file.c — token files, opened for the page cache or past it (O_DIRECT).
 *
 * O_DIRECT is switched on after the file is open and known to be a regular file. Its alignment
 * comes from statx; a trial read then verifies it, because some file systems accept the flag and
 * refuse every read. After any failure the file stays buffered: slower on cold data, but right.
 *
 * tmpfs accepts O_DIRECT and ignores it: its files are in memory, so they stay buffered. */
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/available.h"
#include "base/bits.h"
#include "base/file.h"
#include "base/mem.h"
#include "io/io.h"

#define ALIGNMENT_MAX 4096u
#define LONG_READ_BYTES (512u << 10)

/* Linux 6.1 returns the alignment in two words of struct statx that older headers do not name. */
#ifndef STATX_DIOALIGN
#define STATX_DIOALIGN 0x2000u
#endif
enum { STATX_DIO_MEMORY_AT = 0x98, STATX_DIO_OFFSET_AT = 0x9c };

bool rp_io_prefers_direct(uint64_t total_bytes)
{
    return total_bytes > rp_memory_available().bytes / 2;
}

bool rp_io_lies_in_memory(int fd)
{
    struct statfs info;
    if (fstatfs(fd, &info) < 0)
        return false;
    return info.f_type == TMPFS_MAGIC || info.f_type == RAMFS_MAGIC ||
           info.f_type == HUGETLBFS_MAGIC;
}

/* O_DIRECT's alignment of offsets, lengths and memory; 0 = O_DIRECT is not supported. */
static uint32_t direct_alignment(int fd)
{
    struct statx info = {0};
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) < 0 ||
        !(info.stx_mask & STATX_DIOALIGN))
        return ALIGNMENT_MAX;
    uint32_t memory = rp_load_u32((const uint8_t *)&info + STATX_DIO_MEMORY_AT);
    uint32_t offset = rp_load_u32((const uint8_t *)&info + STATX_DIO_OFFSET_AT);
    return memory && offset ? (uint32_t)rp_max_u64(memory, offset) : 0;
}

/* Try one read at the weakest allowed alignment: memory aligned to `alignment` and no more. */
static bool direct_read_works(int fd, uint32_t alignment)
{
    uint8_t *memory = rp_calloc_aligned(2 * ALIGNMENT_MAX, 4 * ALIGNMENT_MAX);
    bool works = memory && pread(fd, memory + alignment, alignment, 0) >= 0;
    free(memory);
    return works;
}

/* Returns the alignment, or 1 if the file stays buffered. `known` is the alignment of an earlier
 * descriptor of the file; it saves the trial read, which would read from the disk. */
static uint32_t switch_to_direct(int fd, uint32_t known)
{
    uint32_t alignment = known ? known : rp_io_lies_in_memory(fd) ? 0 : direct_alignment(fd);
    if (alignment == 1 || !rp_is_pow2(alignment) || alignment > ALIGNMENT_MAX)
        return 1;
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_DIRECT) < 0)
        return 1;
    if (known || direct_read_works(fd, alignment))
        return alignment;
    (void)fcntl(fd, F_SETFL, flags);
    return 1;
}

int rp_io_open_file(struct rp_io_object *object_out, const struct rp_io_place *place,
                    struct rp_error *error)
{
    int fd = rp_file_open_read(place->path, NULL, error);
    if (fd < 0)
        return fd;
    *object_out = (struct rp_io_object){
        .handle = fd, .fd = fd, .alignment = 1, .read_bytes = LONG_READ_BYTES};
    if (place->o_direct)
        object_out->alignment = switch_to_direct(fd, place->known_alignment);
    return 0;
}

void rp_io_close_file(const struct rp_io_object *object)
{
    close(object->fd);
}
