/* SPDX-License-Identifier: Apache-2.0 */
#include "flow/page_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/available.h"
#include "base/bits.h"
#include "base/clock.h"
#include "io/io.h"

#ifndef SYS_cachestat
#define SYS_cachestat 451 /* the same number on every architecture */
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

#define PROBES 16u
#define PAGES_A_CALL 512u

/* As in <linux/mman.h> of Linux 6.5. */
struct range {
    uint64_t offset, bytes;
};
struct counts {
    uint64_t cached, dirty, writeback, evicted, recently_evicted;
};

static uint64_t page_bytes(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

static bool count_cached(int fd, uint64_t first, uint64_t bytes, uint64_t *pages)
{
    struct range range = {first, bytes};
    struct counts counts = {0};
    if (syscall(SYS_cachestat, fd, &range, &counts, 0) != 0)
        return false;
    *pages = counts.cached;
    return true;
}

/* Does mincore report cached pages of the file to this process? (page_cache.h) */
static bool may_use_mincore(int fd)
{
    struct stat info;
    return fstat(fd, &info) == 0 &&
           (info.st_uid == geteuid() || faccessat(fd, "", W_OK, AT_EMPTY_PATH | AT_EACCESS) == 0);
}

static bool probe(int fd, uint64_t at, bool *is_cached)
{
    uint8_t byte;
    struct iovec vector = {&byte, 1};
    ssize_t got = preadv2(fd, &vector, 1, (off_t)at, RWF_NOWAIT);
    *is_cached = got == 1;
    return got >= 0 || errno == EAGAIN; /* 0: the file is empty */
}

static enum rp_page_cache_way find_way(const struct rp_page_cache_file *file)
{
    uint64_t pages;
    bool is_cached;
    uint8_t listed;
    if (rp_io_lies_in_memory(file->fd))
        return RP_PAGE_CACHE_WHOLE;
    if (count_cached(file->fd, 0, 1, &pages))
        return RP_PAGE_CACHE_COUNTED;
    if (may_use_mincore(file->fd) && mincore((void *)(uintptr_t)file->map, 1, &listed) == 0)
        return RP_PAGE_CACHE_LISTED;
    if (!file->is_direct && probe(file->fd, 0, &is_cached))
        return RP_PAGE_CACHE_PROBED;
    return RP_PAGE_CACHE_SILENT;
}

static uint64_t missing_pages(const struct rp_page_cache_file *file, uint64_t first, uint64_t bytes)
{
    uint64_t page = page_bytes(), missing = 0;
    uint8_t listed[PAGES_A_CALL];
    for (uint64_t at = first; at < first + bytes; at += PAGES_A_CALL * page) {
        uint64_t length = rp_min_u64(PAGES_A_CALL * page, first + bytes - at);
        uint64_t pages = rp_div_up(length, page);
        if (mincore((void *)(uintptr_t)(file->map + at), length, listed) != 0)
            return bytes;
        for (uint64_t i = 0; i < pages; i++)
            missing += !(listed[i] & 1);
    }
    return missing * page;
}

/* Each call probes other places: a probe may make the kernel read the page (page_cache.h). */
static uint64_t missing_probes(const struct rp_page_cache_file *file, uint64_t first,
                               uint64_t bytes)
{
    uint64_t slice = rp_max_u64(bytes / PROBES, 1), missing = 0;
    uint64_t shift = rp_now_ns() % slice;
    for (uint64_t i = 0; i < PROBES; i++) {
        bool is_cached;
        (void)probe(file->fd, first + rp_min_u64(slice * i + shift, bytes - 1), &is_cached);
        missing += !is_cached;
    }
    return bytes * missing / PROBES;
}

static uint64_t missing(const struct rp_page_cache_file *file, uint64_t first, uint64_t bytes)
{
    uint64_t pages, page = page_bytes();
    switch (file->way) {
    case RP_PAGE_CACHE_COUNTED:
        if (!count_cached(file->fd, first, bytes, &pages))
            return bytes;
        return (rp_div_up(bytes, page) - rp_min_u64(pages, rp_div_up(bytes, page))) * page;
    case RP_PAGE_CACHE_LISTED:
        return missing_pages(file, first, bytes);
    case RP_PAGE_CACHE_PROBED:
        return missing_probes(file, first, bytes);
    case RP_PAGE_CACHE_WHOLE:
        return 0;
    case RP_PAGE_CACHE_SILENT:
        break;
    }
    return bytes;
}

/* By the mapping: packer processes have no descriptor of the file. */
static void read_ahead(const struct rp_page_cache_file *file, uint64_t first, uint64_t bytes)
{
    uint64_t aligned = rp_align_down(first, page_bytes());
    (void)madvise((void *)(uintptr_t)(file->map + aligned), first + bytes - aligned, MADV_WILLNEED);
}

/* Whatever goes wrong is met again, and named, by the packer that takes the tokens. */
static void settle(const struct rp_page_cache_file *file, uint64_t first, uint64_t bytes)
{
    (void)madvise((void *)(uintptr_t)(file->map + first), bytes, MADV_POPULATE_READ);
}

static uint64_t available(void)
{
    return rp_memory_available().bytes;
}

const struct rp_page_cache rp_page_cache_of_kernel = {.find_way = find_way,
                                                      .missing = missing,
                                                      .read_ahead = read_ahead,
                                                      .settle = settle,
                                                      .available = available};
