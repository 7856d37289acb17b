/* SPDX-License-Identifier: Apache-2.0 */
/* eviction.h — the chunks that all files of a directory keep, and which of them is needed last.
 *
 * The plan of a run says when each of its chunks is needed next, so the one that is needed last is
 * evicted: Belady's rule, by which the fewest bytes are fetched. The next use of a chunk is asked
 * for when room is needed, and not stored: it stays right when a run goes back, and there is
 * nothing to rebuild at a start. Up to 1024 chunks are all compared; of more, 512 are drawn at
 * random, and all chunks that one write evicts are the ones needed last of these 512.
 *
 * Of the chunks of other runs no plan is known here: those that were not used for an hour go first,
 * and the others are taken to be needed `usual_distance` ahead.
 *
 * Thread: the cache's own, under the lock of the directory. Files of other engines are found at
 * each scan. */
#ifndef RP_CACHE_EVICTION_H
#define RP_CACHE_EVICTION_H

#include "base/hash.h"
#include "cache/entry_file.h"
#include "cache/quota.h"

#define RP_EVICTION_EXACT_MAX 1024u
#define RP_EVICTION_DRAWS 512u

struct rp_eviction_file {
    struct rp_hash128 key;
    uint64_t bytes;                   /* of the object */
    uint32_t first_key, object_count; /* its objects of the run in by_key; 0: it is another run's */
    int64_t used_s;                   /* when it was last used, by any engine */
    bool is_stale;                    /* that is more than an hour ago */
};

struct rp_eviction_key {
    struct rp_hash128 key;
    uint32_t object;
    uint32_t file; /* 1 + its number in files, at the first of equal keys; 0: it has none */
};

struct rp_eviction_chunk {
    uint32_t file, chunk;
};

struct rp_eviction_pick {
    uint64_t distance;
    uint64_t at; /* in chunks, unless another was left out since */
    struct rp_eviction_chunk chunk;
};

struct rp_eviction {
    const struct rp_cache_options *options;
    struct rp_quota *quota;
    struct rp_eviction_key
        *by_key; /* [options->object_count], ascending: a source may be there twice */

    struct rp_eviction_file *files;
    uint64_t file_count, file_room;
    struct rp_eviction_chunk *chunks; /* in any order; some may be gone already */
    uint64_t chunk_count, chunk_room;
    uint64_t random;
    uint64_t scanned_ns, scan_took_ns;

    struct rp_eviction_pick picks[RP_EVICTION_EXACT_MAX]; /* the last needed first */
    uint32_t pick_count, pick_next;
    uint64_t evicted_bytes; /* since it was opened */
};

/** options and quota are borrowed. */
RP_MUST_CHECK int rp_eviction_open(struct rp_eviction *eviction,
                                   const struct rp_cache_options *options, struct rp_quota *quota);
void rp_eviction_close(struct rp_eviction *eviction);

/** Count what all files keep, into quota->kept_bytes, and list their chunks. -ENOMEM, or what
 * reading the directory says: the count is not lowered then. A file that is damaged is removed; one
 * that cannot be read counts with what it takes on the disk. */
RP_MUST_CHECK int rp_eviction_scan(struct rp_eviction *eviction);

/** The number of the file of an object of the run, which is there from now on; or -ENOMEM. */
RP_MUST_CHECK int64_t rp_eviction_file(struct rp_eviction *eviction, struct rp_hash128 key,
                                       uint64_t bytes);
/** How far away the next use of a chunk of a file is. */
uint64_t rp_eviction_distance(const struct rp_eviction *eviction, uint32_t file, uint64_t chunk);
/** A chunk begins to be kept. */
RP_MUST_CHECK int rp_eviction_add(struct rp_eviction *eviction, uint32_t file, uint64_t chunk);

/** A write begins: what was picked for the last one is forgotten. */
void rp_eviction_begin(struct rp_eviction *eviction);
/** Make room for `bytes` that are needed `distance` ahead, by evicting chunks that are needed
 * later. False: there are none. */
bool rp_eviction_make_room(struct rp_eviction *eviction, uint64_t bytes, uint64_t distance);

#endif
