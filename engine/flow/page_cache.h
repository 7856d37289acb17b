/* SPDX-License-Identifier: Apache-2.0 */
/* page_cache.h — counts the cached pages of a file, and reads ranges into the page cache.
 *
 * Three ways to query the kernel, of which the first that works is used:
 *
 *     counted  cachestat(2), Linux 6.5. It counts pages, also those that are still being read
 *     listed   mincore(2) of a mapping
 *     probed   preadv2(2) with RWF_NOWAIT of a byte here and there; it needs no permission
 *
 * On newer kernels a probe of an uncached page may read that page and the pages after it, so the
 * cached part of a file that can only be probed grows slowly.
 *
 * If the process neither owns the file nor may write to it, newer kernels refuse cachestat, and
 * mincore reports every page as cached: mincore is not used then. */
#ifndef RP_FLOW_PAGE_CACHE_H
#define RP_FLOW_PAGE_CACHE_H

#include <stdbool.h>
#include <stdint.h>

enum rp_page_cache_way {
    RP_PAGE_CACHE_SILENT, /* no way works: cached pages are unknown */
    RP_PAGE_CACHE_COUNTED,
    RP_PAGE_CACHE_LISTED,
    RP_PAGE_CACHE_PROBED,
    RP_PAGE_CACHE_WHOLE /* the file system keeps its files in memory */
};

/* A file whose cached pages are queried. */
struct rp_page_cache_file {
    int fd;
    bool is_direct;     /* fd was opened with O_DIRECT: it cannot be probed */
    const uint8_t *map; /* the whole file */
    uint64_t bytes;
    enum rp_page_cache_way way;
};

/* The kernel, or a test in its place. */
struct rp_page_cache {
    /* Choose the way to query the file; all fields of it but `way` are set. */
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
