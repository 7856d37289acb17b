/* SPDX-License-Identifier: Apache-2.0 */
/* eviction.h — the chunks in all files of a directory, and the choice of the next one to evict.
 *
 * A run's plan says when each of its chunks is needed next, so the chunk with the greatest distance
 * is evicted: Belady's rule, which fetches the fewest bytes. Distances are computed when room is
 * needed, and not stored: so they stay right after a rollback, and a start rebuilds no table. Up to
 * 1024 chunks are all compared; of more, 512 are drawn at random, and all evictions of one write
 * take the greatest distances of these 512.
 *
 * Chunks of other runs have no known next use: if they were not used for an hour, they are evicted
 * first; the others have the distance `usual_distance`.
 *
 * Thread: the cache's own, under the lock of the directory. Each scan finds files of other
 * engines. */
#ifndef RP_CACHE_EVICTION_H
#define RP_CACHE_EVICTION_H

#include "base/hash.h"
#include "cache/entry_file.h"
#include "cache/quota.h"

#define RP_EVICTION_EXACT_MAX 1024u
#define RP_EVICTION_DRAWS 512u

struct rp_eviction_file {
    struct rp_hash128 key;
    uint64_t bytes;                   /* the object's */
    uint32_t first_key, object_count; /* range of its objects in by_key; 0: a file of another run */
    int64_t used_s;                   /* time of the last use, by any engine */
    bool is_stale;                    /* unused for more than an hour */
};

struct rp_eviction_key {
    struct rp_hash128 key;
    uint32_t object;
    uint32_t file; /* 1 + index in files, in the first of equal keys; 0: none */
};

struct rp_eviction_chunk {
    uint32_t file, chunk;
};

struct rp_eviction_pick {
    uint64_t distance;
    uint64_t at; /* index in chunks, unless a removal has moved the chunk */
    struct rp_eviction_chunk chunk;
};

struct rp_eviction {
    const struct rp_cache_options *options;
    struct rp_quota *quota;
    struct rp_eviction_key
        *by_key; /* [options->object_count], ascending; a source may occur twice */

    struct rp_eviction_file *files;
    uint64_t file_count, file_room;
    struct rp_eviction_chunk *chunks; /* unordered; some may be evicted already */
    uint64_t chunk_count, chunk_room;
    uint64_t random;
    uint64_t scanned_ns, scan_took_ns;

    struct rp_eviction_pick picks[RP_EVICTION_EXACT_MAX]; /* the greatest distance first */
    uint32_t pick_count, pick_next;
    uint64_t evicted_bytes; /* since it was opened */
};

/** Borrows options and quota. */
RP_MUST_CHECK int rp_eviction_open(struct rp_eviction *eviction,
                                   const struct rp_cache_options *options, struct rp_quota *quota);
void rp_eviction_close(struct rp_eviction *eviction);

/** Count the pages of all files into quota->kept_bytes, and list their chunks. On failure (-ENOMEM,
 * or an error of reading the directory) the count is not lowered. A damaged file is removed; an
 * unreadable one counts with its disk space. */
RP_MUST_CHECK int rp_eviction_scan(struct rp_eviction *eviction);

/** The number of the file of an object of the run, added if need be; or -ENOMEM. */
RP_MUST_CHECK int64_t rp_eviction_file(struct rp_eviction *eviction, struct rp_hash128 key,
                                       uint64_t bytes);
/** The distance of a chunk of a file. */
uint64_t rp_eviction_distance(const struct rp_eviction *eviction, uint32_t file, uint64_t chunk);
/** List a chunk that gets its first pages. */
RP_MUST_CHECK int rp_eviction_add(struct rp_eviction *eviction, uint32_t file, uint64_t chunk);

/** Begin a write: forget the picks of the last one. */
void rp_eviction_begin(struct rp_eviction *eviction);
/** Make room for `bytes` at this distance, by evicting chunks of greater distance. False: there is
 * no such chunk. */
bool rp_eviction_make_room(struct rp_eviction *eviction, uint64_t bytes, uint64_t distance);

#endif
