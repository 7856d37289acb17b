/* SPDX-License-Identifier: Apache-2.0 */
/* cache.h — bytes of objects in files of a local disk, so that a second use needs no server.
 *
 * Each object has one file (entry_file.h), named by a hash of its name, its identity (ETag) and its
 * size: a changed object is another object, with another file. The file is sparse. Next to the
 * bytes it stores a hash of each page of 4 KiB, and two words for each chunk of 64 pages that mark
 * its present pages.
 *
 *     reader threads                      the cache's thread
 *     ── rp_entry_view: which pages        ◄── queue ── rp_entry_keep: bytes that arrived and were
 *        are present?                                  verified
 *     ── an ordinary read of the file         makes room (eviction.h), writes bytes, hashes, words
 *     ── rp_entry_check: do they match
 *        their hashes?
 *
 * Invariants:
 *  - Bytes read from a file count only if each of their pages matches its hash. So neither a crash
 *    at any moment, nor a failing disk, nor an eviction during the read can deliver bytes that
 *    differ from those that arrived.
 *  - The pages of all files of a directory, of all engines, are at most `bytes`: they are counted
 *    before they are written, under a lock that ends with its process (quota.h).
 *  - Readers never wait for a write: while 64 MiB of copies wait for the disk, further bytes are
 *    declined. Readers do read words, hashes and bytes from that disk.
 *  - No failure of the cache is one of the run: missing bytes are requested from the server. */
#ifndef RP_CACHE_CACHE_H
#define RP_CACHE_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/fail.h"

#define RP_CACHE_PAGE_BYTES 4096u
#define RP_CACHE_CHUNK_PAGES 64u
#define RP_CACHE_CHUNK_BYTES (RP_CACHE_PAGE_BYTES * RP_CACHE_CHUNK_PAGES)
#define RP_CACHE_NEVER UINT64_MAX
/* Limit of the copies that wait for the disk: readers may fill it while a disk stalls. */
#define RP_CACHE_QUEUE_BYTES (64u << 20)

/* An object of the run. */
struct rp_cache_object {
    const char *name; /* unique, and without secrets */
    const char *identity;
    uint64_t bytes;
};

struct rp_cache_options {
    /* The files are in DIRECTORY/blocks; NULL = rp_dir_of_caches (base/own_dir.h). */
    const char *directory;
    uint64_t bytes;                        /* limit of the pages of all engines */
    const struct rp_cache_object *objects; /* copied; later calls use their numbers */
    uint32_t object_count;
    /* Distance to the next use of bytes [first, last) of an object, in any unit, or
     * RP_CACHE_NEVER. The chunk with the greatest distance is evicted. Called by the cache's thread
     * only. */
    uint64_t (*next_use)(void *context, uint32_t object, uint64_t first, uint64_t last);
    void *context;
    /* The current epoch, to which fetched bytes are counted. Called by any thread. */
    uint64_t (*epoch)(void *context);
    uint64_t usual_distance; /* distance of chunks of other runs, whose next use is unknown */
};

struct rp_cache;
/** Make the directory if need be, and start the thread, which counts the pages if their count is
 * unknown. So opening takes no longer with more files. An unusable directory is an error, which the
 * caller may ignore. */
RP_MUST_CHECK int rp_cache_open(struct rp_cache **cache_out, const struct rp_cache_options *options,
                                struct rp_error *error);
/** Writes the queued bytes, but waits only a few seconds for the lock of other engines. */
void rp_cache_close(struct rp_cache *cache);
/** Wait until all bytes passed to rp_entry_keep are written or declined. */
void rp_cache_flush(struct rp_cache *cache);

/* ---- readers: any thread --------------------------------------------------------------------- */

struct rp_entry;
/** The entry of an object; its file is opened if it exists. The cache's thread makes the file
 * before its first write. NULL: out of memory. */
struct rp_entry *rp_entry_open(struct rp_cache *cache, uint32_t object);
void rp_entry_close(struct rp_entry *entry); /* NULL is fine */

int rp_entry_fd(const struct rp_entry *entry);
/** The offset in the file of byte 0 of the object. */
uint64_t rp_entry_data_offset(const struct rp_entry *entry);

/* The present bytes at the begin and at the end of a range; head + tail <= bytes. */
struct rp_cache_held {
    uint32_t head, tail;
};
/** Both are whole pages. `offset` is aligned to pages; `bytes` ends on a page or with the object.
 */
struct rp_cache_held rp_entry_view(const struct rp_entry *entry, uint64_t offset, uint32_t bytes);
/** Do these bytes, read from the file, match their hashes? If not, damaged pages are removed. */
bool rp_entry_check(struct rp_entry *entry, uint64_t offset, const void *data, uint32_t bytes);
/** A read of these bytes from the file failed: the cache's thread checks their pages, and removes
 * those that are unreadable or damaged. */
void rp_entry_doubt(struct rp_entry *entry, uint64_t offset, uint32_t bytes);
/** These bytes match their hashes, but are wrong: their pages are removed, so that new bytes can
 * replace them. */
void rp_entry_forget(struct rp_entry *entry, uint64_t offset, uint32_t bytes);
/** Copy and queue bytes that the server sent and the caller has verified as far as possible. Pages
 * that are present already are not written again. */
void rp_entry_keep(struct rp_entry *entry, uint64_t offset, const void *data, uint32_t bytes);

/** Count a read for stat: its bytes from the file, and its bytes from the server. */
void rp_entry_note(struct rp_entry *entry, uint64_t from_file, uint64_t from_server);

/* ---- prefills (engine/README.md, Words): one thread ------------------------------------------ */

#define RP_CACHE_PREFILLS_MAX 4u

/** May a prefill of this length begin? Not while a reader has a request at the server, not after a
 * recent failed write, and not if the cache would be nearly full: prefills evict no chunk. */
bool rp_cache_may_prefill(struct rp_cache *cache, uint64_t bytes);
/** Begin a prefill: readers of its bytes wait. Returns its number, or -1 if RP_CACHE_PREFILLS_MAX
 * prefills are active. */
RP_MUST_CHECK int rp_entry_prefill_begin(struct rp_entry *entry, uint64_t offset, uint32_t bytes);
/** The bytes have arrived, or will not (NULL). The prefill ends when they are written or declined.
 */
void rp_entry_prefill_end(struct rp_entry *entry, uint32_t prefill, const void *data);

/** Does an active prefill contain any of these bytes? Called by readers. */
bool rp_entry_is_prefilling(const struct rp_entry *entry, uint64_t offset, uint32_t bytes);
/** A reader's request is at the server, or no longer. */
void rp_entry_request_begins(struct rp_entry *entry);
void rp_entry_request_ends(struct rp_entry *entry);

struct rp_cache_counts {
    uint64_t hits, misses; /* reads with all of their bytes from the file; others */
    uint64_t hit_bytes, fetched_bytes;
    uint64_t epoch; /* the last read's */
    uint64_t epoch_fetched_bytes, last_epoch_fetched_bytes;
    uint64_t kept_bytes, evicted_bytes; /* by this engine */
    uint64_t declined_bytes; /* not written: needed later than all others, or no room to queue */
    uint64_t filled_bytes;   /* fetched by prefills; not in fetched_bytes */
    uint64_t damaged_bytes;  /* removed because a hash differed */
    uint64_t failures;       /* failed writes, as on a full disk */
    uint64_t held_bytes, bytes_max; /* by all engines; the limit */
};
void rp_cache_counts(struct rp_cache *cache, struct rp_cache_counts *counts);
/** The directory, for messages. */
const char *rp_cache_place(const struct rp_cache *cache);

#endif
