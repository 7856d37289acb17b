/* SPDX-License-Identifier: Apache-2.0 */
/* cache.h — bytes of objects in stores, kept in files of a local disk, so that a second use of them
 * asks no server.
 *
 * Each object has one file (entry_file.h), named by a hash of its name, its identity (ETag) and its
 * size: an object that changed is another object, with another file. The file is sparse. Beside the
 * bytes it has a hash of each page of 4 KiB, and two words for each chunk of 64 pages that say
 * which pages are there.
 *
 *     reader threads                      the cache's thread
 *     ── rp_entry_look: is it there?       ◄── queue ── rp_entry_keep: bytes that arrived and were
 *     ── an ordinary read of the file                  verified
 *     ── rp_entry_check: is it what           makes room (eviction.h), writes bytes, hashes, words
 *        was written?
 *
 * Invariants:
 *  - What is read from a file counts only if every page of it has its hash. So neither a crash at
 * any moment, nor a failing disk, nor an eviction during the read can give other bytes than
 * arrived.
 *  - The pages of all files of a directory, of all engines, are at most `bytes`: they are counted
 *    under a lock that ends with its process (quota.h), before they are written.
 *  - Readers never wait for a write: while 64 MiB of copies wait for the disk, further bytes are
 * not kept. They do read words, hashes and bytes from that disk.
 *  - No failure of the cache is one of the run: what it cannot give is asked of the server. */
#ifndef RP_CACHE_CACHE_H
#define RP_CACHE_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/fail.h"

#define RP_CACHE_PAGE_BYTES 4096u
#define RP_CACHE_CHUNK_PAGES 64u
#define RP_CACHE_CHUNK_BYTES (RP_CACHE_PAGE_BYTES * RP_CACHE_CHUNK_PAGES)
#define RP_CACHE_BYTES_MIN (8u << 20)
#define RP_CACHE_NEVER UINT64_MAX
/* Memory of copies that wait for the disk: as much is read while a disk takes a breath. */
#define RP_CACHE_QUEUE_BYTES (64u << 20)

/* An object of the run. */
struct rp_cache_object {
    const char *name; /* without secrets, and no other object's */
    const char *identity;
    uint64_t bytes;
};

struct rp_cache_options {
    /* The files lie in DIRECTORY/blocks; NULL = rp_dir_of_caches (base/own_dir.h). */
    const char *directory;
    uint64_t bytes; /* of pages that are kept at most, by all engines together */
    const struct rp_cache_object *objects; /* copied; known by their numbers from then on */
    uint32_t object_count;
    /* How far away the next use of bytes [first, last) of an object is, in any unit;
     * RP_CACHE_NEVER. The furthest chunk is evicted. Asked by the cache's thread only. */
    uint64_t (*next_use)(void *context, uint32_t object, uint64_t first, uint64_t last);
    void *context;
    /* The epoch that is read now; what is fetched is counted by it. Asked by any thread. */
    uint64_t (*epoch)(void *context);
    uint64_t usual_distance; /* of what another run keeps, whose plan is not known here */
};

struct rp_cache;
/** Make the directory if need be, and start the thread, which counts what is there if nobody knows.
 * So opening takes no longer with more files. A directory that cannot be used is an error, which
 * the caller may live with. */
RP_MUST_CHECK int rp_cache_open(struct rp_cache **cache_out, const struct rp_cache_options *options,
                                struct rp_error *error);
/** Writes what is queued, but waits no longer than a few seconds for other engines. */
void rp_cache_close(struct rp_cache *cache);
/** Wait until all that was given to rp_entry_keep is written or was dropped. */
void rp_cache_flush(struct rp_cache *cache);

/* ---- readers: any thread --------------------------------------------------------------------- */

struct rp_entry;
/** The object, whose file is opened if it exists. The cache's thread makes it when there is
 * something to keep. NULL: out of memory. */
struct rp_entry *rp_entry_open(struct rp_cache *cache, uint32_t object);
void rp_entry_close(struct rp_entry *entry); /* NULL is fine */

int rp_entry_fd(const struct rp_entry *entry);
/** Where byte 0 of the object lies in its file. */
uint64_t rp_entry_data_offset(const struct rp_entry *entry);

/* Of a range, the bytes from its begin and up to its end that are there; head + tail <= bytes. */
struct rp_cache_held {
    uint32_t head, tail;
};
/** Both are whole pages. `offset` is aligned to pages, `bytes` ends on a page or with the object.
 */
struct rp_cache_held rp_entry_look(const struct rp_entry *entry, uint64_t offset, uint32_t bytes);
/** Are these bytes, which were read from the file, those that were written to it? If not, the pages
 * are given up. */
bool rp_entry_check(struct rp_entry *entry, uint64_t offset, const void *data, uint32_t bytes);
/** These bytes could not be read from the file: the cache's thread checks their pages, and gives up
 * those that it cannot read either. */
void rp_entry_doubt(struct rp_entry *entry, uint64_t offset, uint32_t bytes);
/** These bytes are what was written, and are wrong: their pages are given up, and what is kept from
 * now on takes their place. */
void rp_entry_forget(struct rp_entry *entry, uint64_t offset, uint32_t bytes);
/** Keep bytes that the server sent, and that were compared with all there is to compare them with.
 * They are copied; those that are there already are left alone. */
void rp_entry_keep(struct rp_entry *entry, uint64_t offset, const void *data, uint32_t bytes);

/** For stat: a read of which so many bytes came from the file, and so many from the server. */
void rp_entry_note(struct rp_entry *entry, uint64_t from_file, uint64_t from_server);

/* ---- fills: what is fetched before a reader wants it. One thread ----------------------------- */

#define RP_CACHE_FILLS_MAX 4u

/** May so many bytes be fetched now? Not while a reader has a request at the server or a write has
 * failed lately, and not if the cache would be nearly full: nothing is evicted for a fill. */
bool rp_cache_may_fill(struct rp_cache *cache, uint64_t bytes);
/** Some bytes begin to be fetched: readers that want them wait. The number of the fill, or -1: as
 * many as may be are under way. */
RP_MUST_CHECK int rp_entry_fill_begin(struct rp_entry *entry, uint64_t offset, uint32_t bytes);
/** They have arrived, or NULL: they will not. The fill ends when they are written or dropped. */
void rp_entry_fill_end(struct rp_entry *entry, uint32_t fill, const void *data);

/** For readers: are any of these bytes being filled? */
bool rp_entry_is_filling(const struct rp_entry *entry, uint64_t offset, uint32_t bytes);
/** A reader's request is at the server, or no longer. */
void rp_entry_request_begins(struct rp_entry *entry);
void rp_entry_request_ends(struct rp_entry *entry);

struct rp_cache_counts {
    uint64_t hits, misses; /* reads: all of it from the file, or not */
    uint64_t hit_bytes, fetched_bytes;
    uint64_t epoch; /* in which the last read was, and what was fetched in it and in the last one */
    uint64_t epoch_fetched_bytes, last_epoch_fetched_bytes;
    uint64_t kept_bytes, evicted_bytes; /* by this engine */
    uint64_t declined_bytes; /* not kept: needed later than all that is there, or no time for it */
    uint64_t filled_bytes;   /* fetched before a reader wanted them; not in fetched_bytes */
    uint64_t damaged_bytes;  /* given up because a hash differed */
    uint64_t failures;       /* writes that failed, as on a full disk */
    uint64_t held_bytes, bytes_max; /* by all engines; the limit */
};
void rp_cache_counts(struct rp_cache *cache, struct rp_cache_counts *counts);
/** Its directory, for people. */
const char *rp_cache_place(const struct rp_cache *cache);

#endif
