/* SPDX-License-Identifier: Apache-2.0 */
/* residency.h — the read mode of each stretch of the token files, which follows the page cache.
 *
 * A stretch is 2 MiB of a file. Its word says how dispatch reads the tokens in it:
 *
 *     mapped    the page cache holds the stretch: packers take the tokens from the mapping
 *     buffered  it does not, but memory has room for it, or direct reads are not allowed: reads go
 *               through the page cache
 *     direct    memory has no room for it: reads go past the page cache, which would only lose
 *               other stretches for it
 *
 * A thread, the watcher, polls which stretches the page cache holds (page_cache.h), and writes the
 * words. While no word changes the watcher is calm: it checks seldom, until a single document of a
 * new file is read. It reads a whole stretch into the page cache if reads of it are to be buffered
 * and a document of it is wanted: one long read replaces many short ones, and the stretch is then
 * mapped. If a whole block is read past the page cache, its stretches are wanted only if enough
 * epochs will use them later (LATER_EPOCHS in reads_blocks.c).
 *
 * The room for cached stretches of the corpus is a share of the memory that is available to the
 * engine (ROOM_SHARE). If a corpus is larger, a part is kept, and the rest is read past the page
 * cache; if direct reads are not allowed, a larger corpus is read through the page cache, and no
 * stretch of it is mapped or read in unless the page cache holds all of it. If stretches that were
 * read in are lost again soon, the room is halved, and grows again slowly. Files on tmpfs and the
 * like are in memory already: they are mapped for the whole run, not watched, and take no room.
 *
 * Invariant: a word is only advice. Whatever it says, the bytes are the same. A page may be lost
 * after its tokens were planned: the packer that touches it reads it again. If the word no longer
 * says `mapped` by then, the packer first starts readahead of all pages of the transfer
 * (rp_files_read_lost).
 * Threads: the watcher writes words; dispatch reads them, and marks wanted stretches; packers,
 * which may be processes, read them. */
#ifndef RP_FLOW_RESIDENCY_H
#define RP_FLOW_RESIDENCY_H

#include <pthread.h>

#include "base/atomic.h"
#include "base/fail.h"
#include "flow/page_cache.h"
#include "shm/wait.h"

#ifdef RP_SIMULATION /* so small that short files have several */
#define RP_STRETCH_BYTES (2u << 10)
#else
#define RP_STRETCH_BYTES (2u << 20)
#endif

/* A corpus counts as held if at most this share of it is missing. */
#define RP_MISSING_TO_KEEP 64u

enum rp_read_mode { RP_READ_BUFFERED, RP_READ_DIRECT, RP_READ_MAPPED };

struct rp_stretch {
    struct rp_a32 mode;   /* enum rp_read_mode. Writer: the watcher. All accesses are relaxed */
    struct rp_a32 wanted; /* 1: to be read in, if memory has room. The watcher clears it */
    /* Watcher only: bytes that the page cache held, and bytes claimed of the room. */
    uint32_t held, claimed;
    uint32_t read_in_at; /* second of the watcher when it was read in; 0: never, or lost since */
};

/* The watcher's record of one token file. */
struct rp_resident_file {
    struct rp_page_cache_file file; /* written by dispatch before is_open */
    struct rp_stretch *stretches;   /* [stretch_count] */
    uint32_t stretch_count;
    struct rp_a32 is_open; /* and to be watched. PAIRS resident-file */
};

struct rp_residency_options {
    const struct rp_page_cache *page_cache;
    uint64_t corpus_bytes; /* bytes of all files */
    bool is_held;          /* the page cache is known to hold the corpus now */
    bool may_buffer;       /* buffered reads are allowed */
    bool may_direct;       /* direct reads are allowed */
    /* Number of stretches of all files, if packers are processes: these are forked later, and share
     * the memory of the words. 0: packers are threads. */
    uint64_t shared_stretches;
};

/* How settled the words are. At the end of a pass CHANGING becomes SETTLING, and SETTLING becomes
 * CALM; a change leads to CHANGING at once.
 *
 *   SETTLING  no word has changed in this pass, but in the one before it, or this is the first
 *   CHANGING  in this pass a word has changed, or a file was added
 *   CALM      the last pass saw every file, and no word has changed since it began */
enum rp_watcher_state { RP_WATCHER_SETTLING, RP_WATCHER_CHANGING, RP_WATCHER_CALM };

struct rp_residency {
    struct rp_residency_options options;
    struct rp_resident_file *files; /* [file_count] */
    uint32_t file_count;
    struct rp_stretch *shared; /* [options.shared_stretches], or NULL */
    uint64_t shared_count;     /* number of them in use by files */

    pthread_t thread;
    bool started;
    struct rp_a32 stop;
    struct rp_a32 has_new_file; /* 1: a new file was announced since the watcher cleared the word.
                                   PAIRS new-file */
    bool has_unannounced_file;  /* dispatch only: a file was added after the last announcement */
    struct rp_event wake;

    /* Watcher only. */
    uint32_t at_file, at_stretch; /* checked next */
    uint64_t held_bytes;          /* sum of `held` of all stretches */
    uint64_t claimed_bytes;       /* sum of `claimed` of all stretches */
    uint64_t room;                /* the most bytes that may be claimed */
    uint64_t began_ns, room_ns;   /* the start; the last check of memory */
    uint64_t halved_ns;           /* the last change of `halvings` */
    uint64_t lost_soon; /* bytes of stretches in this pass that were read in and lost again soon */
    uint64_t read_in;   /* bytes that were read into the page cache */
    uint64_t taken;     /* taken_bytes when it was read last */
    uint64_t page_bytes;
    uint32_t halvings; /* how often the room was halved */
    enum rp_watcher_state watcher_state;
    bool holds_all; /* at the end of the last pass the page cache held nearly all of the corpus */

    struct rp_a64 memory_bytes; /* bytes of files that are in memory (tmpfs). Writer: dispatch */
    const struct rp_a64 *taken_bytes; /* taken from files by dispatch: bounds the bytes read in */
    struct rp_a64 room_bytes, cached_bytes; /* copies of room and held_bytes, for stat */
};

RP_MUST_CHECK int rp_residency_open(struct rp_residency *residency,
                                    const struct rp_residency_options *options, uint32_t file_count,
                                    const struct rp_a64 *taken_bytes, struct rp_error *error);
void rp_residency_close(struct rp_residency *residency);

/** Watch the stretches of a file that is open and mapped; if its file system is in memory, they are
 * mapped for the whole run. NULL if the kernel does not report its cached pages, or memory is
 * short: such a file is read, and needs no mapping. Called by dispatch, or before it runs. */
struct rp_stretch *rp_residency_add(struct rp_residency *residency, uint32_t shard,
                                    const struct rp_page_cache_file *file);

/** Start and stop the watcher. If its thread cannot be created, words keep their values. */
void rp_residency_start(struct rp_residency *residency);
void rp_residency_stop(struct rp_residency *residency);

/** One pass of the watcher, for tests: checks every stretch once. */
void rp_residency_poll(struct rp_residency *residency);

/** Bytes of the files that need room to be in the page cache. Files that are in memory are known
 * once they are opened. Any thread may call this and the next function. */
static inline uint64_t rp_residency_watched_bytes(const struct rp_residency *residency)
{
    return residency->options.corpus_bytes - rp_a64_load_relaxed(&residency->memory_bytes);
}
/** Did the page cache hold nearly all of the corpus in the last pass? */
static inline bool rp_residency_holds_all(const struct rp_residency *residency)
{
    uint64_t watched = rp_residency_watched_bytes(residency);
    return rp_a64_load_relaxed(&residency->cached_bytes) >= watched - watched / RP_MISSING_TO_KEEP;
}

/** Announce files added since the last call, so that a calm watcher checks at once. Called by
 * dispatch when it reads a single document, after rp_residency_want; so it costs little without new
 * files. */
void rp_residency_announce(struct rp_residency *residency);

/** The present read mode of bytes [first, last) of a file with these stretches. */
static inline enum rp_read_mode rp_residency_mode(const struct rp_stretch *stretches,
                                                  uint64_t first, uint64_t last)
{
    uint32_t mode = RP_READ_MAPPED;
    for (uint64_t at = first / RP_STRETCH_BYTES; at * RP_STRETCH_BYTES < last; at++) {
        uint32_t its = rp_a32_load_relaxed(&stretches[at].mode);
        if (its != RP_READ_MAPPED && mode != RP_READ_DIRECT)
            mode = its;
    }
    return (enum rp_read_mode)mode;
}

/** Start readahead of bytes [first, last) of a file that has stretches. Called by any thread or
 * process that takes tokens from the file's mapping. */
void rp_residency_read_ahead(const struct rp_residency *residency, uint32_t shard, uint64_t first,
                             uint64_t last);

/** Mark the stretches of bytes [first, last) as wanted in the page cache, if memory has room. */
static inline void rp_residency_want(struct rp_stretch *stretches, uint64_t first, uint64_t last)
{
    for (uint64_t at = first / RP_STRETCH_BYTES; at * RP_STRETCH_BYTES < last; at++)
        rp_a32_store_relaxed(&stretches[at].wanted, 1);
}

#endif
