/* SPDX-License-Identifier: Apache-2.0 */
/* page_cache.h — what the kernel's page cache holds of a file, and reading into it.
 *
 * Three ways to ask, the first that works is used:
 *
 *     counted  cachestat(2), Linux 6.5. It counts pages, also those that are still being read
 *     listed   mincore(2) of a mapping
 *     probed   preadv2(2) with RWF_NOWAIT of a byte here and there; it needs no permission
 *
 * A probe of a page that is not there may make newer kernels read it, and pages after it, ahead. So
 * of a file that can only be probed, the page cache slowly gets more than was asked for.
 *
 * To those who neither own the file nor may write to it, newer kernels refuse cachestat, and
 * mincore says that every page is there: so they are not asked by mincore. */
#ifndef RP_FLOW_PAGE_CACHE_H
#define RP_FLOW_PAGE_CACHE_H

#include <stdbool.h>
#include <stdint.h>

enum rp_page_cache_way {
    RP_PAGE_CACHE_SILENT, /* no way works: nothing is known */
    RP_PAGE_CACHE_COUNTED,
    RP_PAGE_CACHE_LISTED,
    RP_PAGE_CACHE_PROBED,
    RP_PAGE_CACHE_WHOLE /* the file system keeps its files in memory */
};

/* A file that is asked about. */
struct rp_page_cache_file {
    int fd;
    bool is_direct;     /* fd was opened with O_DIRECT: it cannot be probed */
    const uint8_t *map; /* the whole file */
    uint64_t bytes;
    enum rp_page_cache_way way;
};

/* The kernel, or a test in its place. */
struct rp_page_cache {
    /* How to ask about the file, of which all but `way` is set. */
    enum rp_page_cache_way (*find_way)(const struct rp_page_cache_file *file);
    /* How many bytes of [first, first + bytes) the page cache lacks: in whole pages, so it may be
     * more than `bytes` at the end of the file, or an estimate. */
    uint64_t (*missing)(const struct rp_page_cache_file *file, uint64_t first, uint64_t bytes);
    /* Begin to read them into the page cache. */
    void (*read_ahead)(const struct rp_page_cache_file *file, uint64_t first, uint64_t bytes);
    /* Wait until they are read, and enter them in the page tables of this process. */
    void (*settle)(const struct rp_page_cache_file *file, uint64_t first, uint64_t bytes);
    /* Bytes that this process can still take, as rp_memory_available. */
    uint64_t (*available)(void);
};
extern const struct rp_page_cache rp_page_cache_of_kernel;

#endif
