/* SPDX-License-Identifier: Apache-2.0 */
/* segment.c — the order matters: check for room (an over-committed machine does not refuse, it
 * kills), map, collapse, reserve the missing pages (ftruncate succeeds without them, and SIGBUS
 * comes later), touch, seal. */
#include "shm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/available.h"
#include "base/bits.h"
#include "base/mem.h"
#include "shm/layout.h"

#define RP_HUGE_BYTES (2u << 20)

/* Newer than the C library's headers may be. */
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define RP_HINT_LESS_MEMORY                                                                        \
    "no memory was taken; request smaller or fewer rings, or give the process more memory "        \
    "(`ringpack doctor`)"

static int open_memfd(const char *name, struct rp_error *error)
{
    int fd = rp_memfd(name);
    if (fd < 0)
        return rp_fail(error, fd, "if the limit of open files is reached, raise it (ulimit -n)",
                       "shared memory `%s`: memfd_create: %s", name, strerror(-fd));
    if (fchmod(fd, 0600) != 0) { /* it is born with 0777 */
        int code = -errno;
        close(fd);
        return rp_fail(error, code, NULL, "shared memory `%s`: fchmod: %s", name, strerror(-code));
    }
    return fd;
}

/* Refuse a size beyond the available memory, before the kernel kills a process for it. */
static int check_room(const char *name, uint64_t bytes, struct rp_error *error)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        bytes > limit.rlim_cur)
        return rp_fail(error, -RP_E_RESOURCE, "raise it with `ulimit -f unlimited`",
                       "shared memory `%s`: %" PRIu64
                       " bytes wanted, the limit of file sizes (RLIMIT_FSIZE) "
                       "is %" PRIu64 " bytes",
                       name, bytes, (uint64_t)limit.rlim_cur);
    struct rp_available available = rp_memory_available();
    if (bytes > available.bytes)
        return rp_fail(error, -RP_E_RESOURCE, RP_HINT_LESS_MEMORY,
                       "shared memory `%s`: %" PRIu64 " bytes wanted, %" PRIu64 " available (%s)",
                       name, bytes, available.bytes, available.limit);
    return 0;
}

static int reserve(int fd, const char *name, size_t bytes, struct rp_error *error)
{
    int code;
    do
        code = fallocate(fd, 0, 0, (off_t)bytes) == 0 ? 0 : -errno;
    while (code == -EINTR);
    if (code == 0)
        return 0;
    return rp_fail(error, -RP_E_RESOURCE, RP_HINT_LESS_MEMORY,
                   "shared memory `%s`: %zu bytes wanted, %" PRIu64 " available: fallocate: %s",
                   name, bytes, rp_memory_available().bytes, strerror(-code));
}

static int fail_map(const char *kind, const char *name, size_t bytes, struct rp_error *error)
{
    return rp_fail(error, -RP_E_RESOURCE, "raise the limit of address space (ulimit -v)",
                   "%s `%s`: mmap of %zu bytes: %s", kind, name, bytes, strerror(errno));
}

/* A mapping at a multiple of `alignment`, a power of two of at least a page: huge pages need that.
 */
static uint8_t *map_aligned(int fd, size_t bytes, int protection, int flags, size_t alignment)
{
    RP_ASSERT(rp_is_pow2(alignment) && alignment >= RP_PAGE_BYTES);
    size_t span;
    if (__builtin_add_overflow(bytes, alignment, &span))
        return MAP_FAILED;
    uint8_t *reserved = mmap(NULL, span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                             0);
    if (reserved == MAP_FAILED)
        return MAP_FAILED;
    uint8_t *start = (uint8_t *)rp_align_up((uintptr_t)reserved, alignment);
    uint8_t *data = mmap(start, bytes, protection, MAP_SHARED | MAP_FIXED | flags, fd, 0);
    if (data == MAP_FAILED) {
        munmap(reserved, span);
        return MAP_FAILED;
    }
    if (start > reserved)
        munmap(reserved, (size_t)(start - reserved));
    munmap(start + bytes, (size_t)(reserved + span - (start + bytes)));
    return data;
}

/* Every page present and writable now, so that no store of the data plane faults. */
static int touch(uint8_t *data, size_t bytes)
{
    int code;
    do
        code = madvise(data, bytes, MADV_POPULATE_WRITE) == 0 ? 0 : -errno;
    while (code == -EINTR || code == -EAGAIN);
    if (code != -EINVAL && code != -ENOSYS)
        return code;
    /* Before Linux 5.14. The pages are reserved or private, so this cannot raise SIGBUS; and others
     * may write there. */
    for (size_t i = 0; i < bytes; i += RP_PAGE_BYTES)
        __atomic_fetch_or(data + i, 0, __ATOMIC_RELAXED);
    return 0;
}

static int fail_touch(int code, const char *name, size_t bytes, struct rp_error *error)
{
    return rp_fail(error, -RP_E_RESOURCE, RP_HINT_LESS_MEMORY,
                   "shared memory `%s`: %zu bytes wanted, %" PRIu64 " available: madvise: %s", name,
                   bytes, rp_memory_available().bytes, strerror(-code));
}

/* Huge pages first, while the memory is still a hole: one small page is touched in each, and
 * collapsing makes the rest. The other way round every small page is zeroed, then copied: 180 ms
 * for 80 MiB against 15. */
static bool collapse_hole(struct rp_segment *segment)
{
    if (ftruncate(segment->fd, (off_t)segment->bytes) != 0)
        return false;
    for (size_t i = 0; i < segment->bytes; i += RP_HUGE_BYTES)
        if (madvise(segment->data + i, RP_PAGE_BYTES, MADV_POPULATE_WRITE) != 0)
            return false; /* missing pages are reserved and touched below, with their error */
    return madvise(segment->data, segment->bytes, MADV_COLLAPSE) == 0;
}

static int populate(struct rp_segment *segment, const char *name, bool huge, struct rp_error *error)
{
    size_t alignment = huge ? RP_HUGE_BYTES : RP_PAGE_BYTES;
    uint8_t *data = map_aligned(segment->fd, segment->bytes, PROT_READ | PROT_WRITE, 0, alignment);
    if (data == MAP_FAILED)
        return fail_map("shared memory", name, segment->bytes, error);
    segment->data = data;
    segment->huge = huge && collapse_hole(segment);
    int code = reserve(segment->fd, name, segment->bytes, error);
    if (code < 0)
        return code;
    code = touch(data, segment->bytes);
    return code < 0 ? fail_touch(code, name, segment->bytes, error) : 0;
}

/* Begin with an empty segment of whole pages, after a check that memory is available. */
static int begin(struct rp_segment *segment, const char *name, size_t bytes, bool huge,
                 struct rp_error *error)
{
    *segment = (struct rp_segment){.fd = -1};
    size_t alignment = huge ? RP_HUGE_BYTES : RP_PAGE_BYTES;
    if (bytes == 0 || bytes > (size_t)INT64_MAX - alignment)
        return rp_fail(error, -RP_E_RESOURCE, RP_HINT_LESS_MEMORY,
                       "shared memory `%s`: %zu bytes wanted, which no machine has", name, bytes);
    segment->bytes = rp_align_up(bytes, alignment);
    return check_room(name, segment->bytes, error);
}

int rp_segment_create(struct rp_segment *segment, const char *name, size_t bytes, bool huge,
                      struct rp_error *error)
{
    int code = begin(segment, name, bytes, huge, error);
    if (code < 0)
        return code;
    code = open_memfd(name, error);
    if (code < 0)
        return code;
    segment->fd = code;
    code = populate(segment, name, huge, error);
    if (code < 0)
        rp_segment_close(segment);
    return code;
}

int rp_segment_create_private(struct rp_segment *segment, const char *name, size_t bytes,
                              struct rp_error *error)
{
    int code = begin(segment, name, bytes, true, error);
    if (code < 0)
        return code;
    segment->data = rp_take_pages(segment->bytes);
    if (!segment->data)
        return fail_map("memory", name, segment->bytes, error);
    return 0;
}

static bool huge_pages_are_off(void)
{
    char setting[64] = "";
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
    if (!file)
        return false;
    (void)!fgets(setting, sizeof setting, file);
    fclose(file);
    return strstr(setting, "[never]") != NULL;
}

/* Huge page by huge page: another thread that maps memory waits for one page and not for all. */
int rp_segment_prefault(const struct rp_segment *segment, const char *name, struct rp_error *error)
{
    int code = 0;
    RP_ASSERT(segment->data && segment->bytes % RP_HUGE_BYTES == 0);
    for (size_t at = 0; at < segment->bytes && code == 0; at += RP_HUGE_BYTES)
        code = touch(segment->data + at, RP_HUGE_BYTES);
    if (code == 0 && huge_pages_are_off()) /* not automatic, but available by madvise */
        (void)madvise(segment->data, segment->bytes, MADV_COLLAPSE);
    return code < 0 ? fail_touch(code, name, segment->bytes, error) : 0;
}

static int seal(struct rp_segment *segment, int seals, struct rp_error *error)
{
    RP_ASSERT(segment->fd >= 0);
    if (fcntl(segment->fd, F_ADD_SEALS, seals | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        return 0;
    return rp_fail(error, -errno, NULL, "shared memory of %zu bytes: sealing it: %s",
                   segment->bytes, strerror(errno));
}

int rp_segment_seal_readers(struct rp_segment *segment, struct rp_error *error)
{
    return seal(segment, F_SEAL_FUTURE_WRITE, error);
}

int rp_segment_seal_size(struct rp_segment *segment, struct rp_error *error)
{
    return seal(segment, 0, error);
}

/* A segment that its owner can cut short would raise SIGBUS here, so it is not mapped at all. */
static int check_received(int fd, size_t bytes_min, size_t *bytes, struct rp_error *error)
{
    struct stat status;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK))
        return rp_fail(error, -RP_E_PROTOCOL, "both sides must be of the same version of ringpack",
                       "shared memory received: not a memfd sealed against shrinking");
    if (fstat(fd, &status) != 0)
        return rp_fail(error, -errno, NULL, "shared memory received: fstat: %s", strerror(errno));
    if (status.st_size <= 0 || (uint64_t)status.st_size < bytes_min)
        return rp_fail(error, -RP_E_PROTOCOL, "both sides must be of the same version of ringpack",
                       "shared memory received: at least %zu bytes expected, %" PRId64 " found",
                       bytes_min, (int64_t)status.st_size);
    *bytes = (size_t)status.st_size;
    return 0;
}

int rp_segment_attach(struct rp_segment *segment, int fd, bool writable, size_t bytes_min,
                      struct rp_error *error)
{
    *segment = (struct rp_segment){.fd = fd};
    int code = check_received(fd, bytes_min, &segment->bytes, error);
    if (code == 0) {
        int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
        size_t alignment = segment->bytes % RP_HUGE_BYTES == 0 ? RP_HUGE_BYTES : RP_PAGE_BYTES;
        /* POPULATE: the page tables are filled here and not one fault at a time in the training
         * loop. */
        uint8_t *data = map_aligned(fd, segment->bytes, protection, MAP_POPULATE, alignment);
        if (data == MAP_FAILED)
            code = rp_fail(error, -RP_E_RESOURCE, "raise the limit of address space (ulimit -v)",
                           "shared memory received: mmap of %zu bytes: %s", segment->bytes,
                           strerror(errno));
        else
            segment->data = data;
    }
    /* A forked child of the trainer must not read slots that its parent gives back. */
    if (code == 0 && madvise(segment->data, segment->bytes, MADV_DONTFORK) != 0)
        code = rp_fail(error, -errno, NULL, "shared memory received: madvise(MADV_DONTFORK): %s",
                       strerror(errno));
    if (code < 0)
        rp_segment_close(segment);
    return code;
}

void rp_segment_close(struct rp_segment *segment)
{
    if (segment->data)
        munmap(segment->data, segment->bytes);
    if (segment->fd >= 0)
        close(segment->fd);
    *segment = (struct rp_segment){.fd = -1};
}
