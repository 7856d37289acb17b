/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint.h — what survives a crash: one file per checkpoint, the last N positions that
 * verify.
 *
 * A checkpoint holds a state token (critical: without it the file is worthless) and, if asked,
 * contents: tokens that were already read when it was taken. Contents are advisory: damaged or lost
 * they cost re-reading, never exactness. FORMAT.md is the file, byte by byte.
 *
 * Saved means: temporary file, reserved, written, fsynced, read back past the page cache and
 * compared, renamed, directory fsynced. A failed fsync is never retried on the same inode. There is
 * no "latest" pointer: recovery takes the newest file that verifies, renames bad ones to NAME.bad,
 * and never silently starts from zero. Threads: one directory handle belongs to one thread at a
 * time. */
#ifndef RP_CHECKPOINT_CHECKPOINT_H
#define RP_CHECKPOINT_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"
#include "base/hash.h"

enum rp_checkpoint_section_type {
    RP_CHECKPOINT_STATE = 1,    /* critical: the state token (engine/plan/STREAM.md section 8) */
    RP_CHECKPOINT_CONFIG = 2,   /* critical: text of the run's config, for people and for `show` */
    RP_CHECKPOINT_CONTENTS = 3, /* advisory: records of tokens already read (FORMAT.md) */
    RP_CHECKPOINT_CONTRACT = 4, /* advisory: the run's contract (base/contract.h) */
};
#define RP_CHECKPOINT_SECTIONS_MAX 64u

/* One record of a CONTENTS section: `count` tokens that stand at token `offset` of row `row`; count
 * * width bytes follow, then zeros up to a multiple of 8. Records ascend by (row, offset). */
struct rp_content_record {
    uint64_t row;
    uint32_t offset, count;
    uint32_t width; /* bytes a token: 2 or 4 */
    uint32_t reserved;
};

/* What the header says about the run. */
struct rp_checkpoint_info {
    uint64_t sequence; /* orders the checkpoints of a directory, ascending (clocks do not) */
    uint64_t next_row; /* where the state stands */
    /* Rows [next_row, contents_end_row) have contents; = next_row: none have, or they are bad. */
    uint64_t contents_end_row;
    struct rp_hash128 identity; /* of the stream */
    uint32_t world, rows; /* ranks, and rows per batch, of the writing run: may change at resume */
    char run[65];
    char version[32]; /* of ringpack */
};

/* A piece of memory to be written; a section is a list of them, so contents need not be gathered
 * first. */
struct rp_checkpoint_piece {
    const void *data;
    size_t bytes;
};
struct rp_checkpoint_part {
    enum rp_checkpoint_section_type type;
    const struct rp_checkpoint_piece *pieces;
    size_t piece_count;
    struct rp_growing_section *growing; /* in place of pieces, or NULL */
};

/* A section whose bytes are made while those before them are written already, by another thread
 * than the one that saves. */
struct rp_growing_section;

/** `bytes` at `data`, none of which are there yet. NULL when out of memory. */
struct rp_growing_section *rp_growing_section_open(const void *data, size_t bytes);
/** The next so many are there, and do not change any more. */
void rp_growing_section_add(struct rp_growing_section *growing, size_t bytes);
/** No more will come. If some are missing, a save that waits for them fails with -RP_E_STOPPED. */
void rp_growing_section_end(struct rp_growing_section *growing);
void rp_growing_section_close(
    struct rp_growing_section *growing); /* after the save; NULL is fine */

/* ---- a directory of checkpoints -------------------------------------------------------------- */

struct rp_checkpoint_dir;

/** Take a directory for writing: makes it (0700), locks it (-RP_E_BUSY with the holder's pid),
 * removes temporary files that a killed run left, and proves at once that a save could work (write,
 * fsync, rename, fsync of the directory), so that a read-only or full disk is known at start and
 * not at the first save. keep: 2 to 1000 positions (rows). The lock is inherited by fork: a child
 * that lives on must be one that was forked before. */
RP_MUST_CHECK int rp_checkpoint_dir_open(struct rp_checkpoint_dir **dir_out, const char *path,
                                         uint32_t keep, const char *copy_path /* NULL */,
                                         struct rp_error *error);
/** Whether the directory did not exist, and rp_checkpoint_dir_open made it. */
bool rp_checkpoint_dir_is_new(const struct rp_checkpoint_dir *dir);

/** Waits for the copy of the last save. NULL is fine. */
void rp_checkpoint_dir_close(struct rp_checkpoint_dir *dir);

/** Save one: parts with ascending types, the state among them; they must not change meanwhile. The
 * caller fills *info; only its sequence is assigned, above all that were ever there. On success
 * *path_out (may be NULL, caller frees) is durable and verified. On failure nothing that was there
 * is lost; up to three attempts, each with a new inode. With a copy directory a thread makes and
 * verifies the copy afterwards; its failure is logged, not returned. */
RP_MUST_CHECK int rp_checkpoint_save(struct rp_checkpoint_dir *dir, struct rp_checkpoint_info *info,
                                     const struct rp_checkpoint_part *parts, size_t part_count,
                                     char **path_out, struct rp_error *error);

/** Whether the newest checkpoint of the directory verifies and is this very state: then a save
 * would only push another position out. *path_out is its path (the caller frees), or NULL. */
bool rp_checkpoint_is_saved(struct rp_checkpoint_dir *dir, const struct rp_checkpoint_info *info,
                            const void *state, size_t state_bytes, char **path_out);

/** Keep a history: of every so many rows the oldest checkpoint, beside the newest ones; 0 = none.
 * Before the first save. */
void rp_checkpoint_keep_every(struct rp_checkpoint_dir *dir, uint64_t rows);

/** Remove what is older than verified ones at `keep` positions, belongs to no history, and has been
 * copied, or a newer one has, where copies are made. After a save, when those who wait for it know:
 * it takes longer than the sync. */
void rp_checkpoint_prune(struct rp_checkpoint_dir *dir);

/* ---- reading --------------------------------------------------------------------------------- */

struct rp_checkpoint; /* an open, verified file, read into private memory */

/** Does the file at this path begin as a checkpoint does? */
bool rp_checkpoint_is_file(const char *path);

/** Read and verify one file. A damaged critical section or frame is -RP_E_CORRUPT with the offset;
 * damaged contents are left out by rp_checkpoint_section (rp_checkpoint_contents_bad says so). */
RP_MUST_CHECK int rp_checkpoint_open(struct rp_checkpoint **out, const char *path,
                                     struct rp_error *error);
void rp_checkpoint_close(struct rp_checkpoint *checkpoint);
const struct rp_checkpoint_info *rp_checkpoint_info(const struct rp_checkpoint *checkpoint);
const char *rp_checkpoint_path(const struct rp_checkpoint *checkpoint);
/** The bytes of a section, or NULL (and 0) if it is not there or was advisory and damaged. */
const void *rp_checkpoint_section(const struct rp_checkpoint *checkpoint,
                                  enum rp_checkpoint_section_type type, size_t *bytes_out);
bool rp_checkpoint_contents_bad(const struct rp_checkpoint *checkpoint);

/** Walk the records of contents: start with *cursor = 0; returns 1 with *record and its tokens, 0
 * at the end. The section has been verified and is re-checked record by record: -RP_E_CORRUPT on
 * nonsense. */
RP_MUST_CHECK int rp_content_next(const void *contents, size_t bytes, size_t *cursor,
                                  struct rp_content_record *record, const void **tokens);

/** The newest checkpoint of a directory that verifies. Bad ones met on the way are renamed to
 * NAME.bad when set_aside is true and an older one verifies, and named in the log. Returns 1 with
 * *out; 0 if the directory does not exist or never held a checkpoint; -RP_E_CORRUPT if there are
 * checkpoints and none verifies (the hint: --fresh). One that may be good but cannot be read here
 * (permission, memory, -RP_E_VERSION) is an error, not a step back. */
RP_MUST_CHECK int rp_checkpoint_newest(struct rp_checkpoint **out, const char *directory,
                                       bool set_aside, struct rp_error *error);

enum rp_checkpoint_status {
    RP_CHECKPOINT_GOOD,
    RP_CHECKPOINT_BAD,
    RP_CHECKPOINT_SET_ASIDE, /* NAME.bad */
    RP_CHECKPOINT_REWOUND,   /* NAME.rewound */
};

/* One row of a listing. */
struct rp_checkpoint_entry {
    char *name; /* file name in the directory */
    uint64_t sequence, bytes;
    enum rp_checkpoint_status status;
    struct rp_checkpoint_info info; /* when GOOD or REWOUND */
    bool contents_bad;              /* the same: damaged contents, which cost re-reading only */
    char message[256];              /* when BAD or SET_ASIDE: what is wrong */
};
/** All checkpoints of a directory, newest first; the caller frees with rp_checkpoint_list_free. */
RP_MUST_CHECK int rp_checkpoint_list(const char *directory,
                                     struct rp_checkpoint_entry **entries_out, size_t *count_out,
                                     struct rp_error *error);
void rp_checkpoint_list_free(struct rp_checkpoint_entry *entries, size_t count);

/* A directory of checkpoints that a fresh start has moved away. */
#define RP_SET_ASIDE_PREFIX "set-aside-"
#define RP_SET_ASIDE_NAME_BYTES 40
struct rp_set_aside {
    char name[RP_SET_ASIDE_NAME_BYTES]; /* in the directory: set-aside-20260131-1 */
    size_t count;
    uint64_t oldest_sequence, newest_sequence; /* when count > 0 */
};
/** All of a directory, in no order; the caller frees the list. */
RP_MUST_CHECK int rp_checkpoint_set_asides(const char *directory, struct rp_set_aside **list_out,
                                           size_t *count_out, struct rp_error *error);

/** Move all checkpoints of the directory, and of its copies, into a new directory set-aside-DATE-N
 * in it, where nothing prunes them: for a run that begins anew. Before the first save. */
RP_MUST_CHECK int rp_checkpoint_set_aside_all(struct rp_checkpoint_dir *dir,
                                              struct rp_error *error);

/** Make `sequence` the newest: later ones are renamed to NAME.rewound (and can be renamed back by
 * hand). */
RP_MUST_CHECK int rp_checkpoint_rewind(const char *directory, uint64_t sequence,
                                       struct rp_error *error);

#endif
