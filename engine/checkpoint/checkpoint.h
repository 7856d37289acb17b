/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint.h — state that survives a crash: one file for each checkpoint. A directory keeps the
 * newest N positions whose files verify.
 *
 * A checkpoint holds a state token (critical: without it the file is worthless) and, if configured,
 * contents: tokens that were already read when the checkpoint was made. Contents are advisory:
 * if they are damaged or missing, the corpus is read again, and the rows are the same. The position
 * of a checkpoint is the first row that its state token plans. FORMAT.md describes the file byte by
 * byte.
 *
 * A checkpoint is saved in these steps: create a temporary file, reserve its space, write it, fsync
 * it, rename it, fsync the directory. Then the save is reported. After that the file is read back
 * past the page cache and compared; no older checkpoint is removed before. A failed fsync is never
 * retried on the same inode. There is no "latest" pointer: a start takes the newest
 * file that verifies, renames damaged ones to NAME.bad, and reports an error rather than start at
 * row 0 when every file is damaged. Threads: one directory handle belongs to one thread at a time.
 */
#ifndef RP_CHECKPOINT_CHECKPOINT_H
#define RP_CHECKPOINT_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/fail.h"
#include "base/hash.h"

enum rp_checkpoint_section_type {
    RP_CHECKPOINT_STATE = 1,    /* critical: the state token (engine/plan/STREAM.md section 8) */
    RP_CHECKPOINT_CONFIG = 2,   /* critical: text of the run's config, for people and for `show` */
    RP_CHECKPOINT_CONTENTS = 3, /* advisory: records of tokens already read (FORMAT.md) */
    RP_CHECKPOINT_CONTRACT = 4, /* advisory: the run's contract (base/contract.h) */
};
#define RP_CHECKPOINT_SECTIONS_MAX 64u

/* One record of a CONTENTS section: `count` tokens of row `row`, from token `offset` on. count *
 * width bytes follow, then zeros up to a multiple of 8. Records ascend by (row, offset). */
struct rp_content_record {
    uint64_t row;
    uint32_t offset, count;
    uint32_t width; /* bytes a token: 2 or 4 */
    uint32_t reserved;
};

/* The fields of the head that describe the run and the position. */
struct rp_checkpoint_info {
    uint64_t sequence; /* orders the checkpoints of a directory, ascending (clocks do not) */
    uint64_t next_row; /* the position: the first row that the state token plans */
    /* Rows [next_row, contents_end_row) have contents. The two are equal if no row has any, or
     * if the contents are damaged. */
    uint64_t contents_end_row;
    struct rp_hash128 identity; /* the stream's */
    uint32_t dp_world_size;     /* ranks of the run that saved */
    uint32_t batch_size;        /* rows of its batches; a run that resumes may have other numbers */
    char run[65];
    char version[32]; /* ringpack's */
};

/* A run of bytes in memory. A section is a list of pieces, so that contents need not be copied
 * together before they are written. */
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

/* A section that another thread fills while the saving thread already writes its first bytes. */
struct rp_growing_section;

/** A section of `bytes` bytes at `data`; no byte is final yet. NULL when out of memory. */
struct rp_growing_section *rp_growing_section_open(const void *data, size_t bytes);
/** The next `bytes` bytes are final: the saving thread may write them now. */
void rp_growing_section_add(struct rp_growing_section *growing, size_t bytes);
/** No more bytes will become final. If some are missing, a save that waits for them fails with
 * -RP_E_STOPPED. */
void rp_growing_section_end(struct rp_growing_section *growing);
void rp_growing_section_close(
    struct rp_growing_section *growing); /* after the save; NULL is fine */

/* ---- a directory of checkpoints -------------------------------------------------------------- */

struct rp_checkpoint_dir;
struct rp_storage;

struct rp_checkpoint_place {
    const char *path;
    const char *copy_path; /* the mirror; NULL = none */
    uint32_t keep;         /* 2 to 1000 positions */
    /* Only tests set these. */
    bool trials_in_turn; /* the call waits for each trial: all calls of storage are in order */
    struct rp_storage *storage; /* outlives the handle; NULL = the operating system */
    size_t buffer_bytes;        /* of writes, a multiple of 8192; 0 = RP_WRITER_BUFFER_BYTES */
};

/** Open a directory for writing: make it (0700), lock it (-RP_E_BUSY with the holder's pid), remove
 * temporary files that a killed run left, and begin a trial: a test file is written with all the
 * steps of a save, on a thread of its own, so that a read-only or full disk is an error at the
 * start and not at the first save. A forked child inherits the lock, so a child that may outlive
 * this process must be forked before the directory is opened. */
RP_MUST_CHECK int rp_checkpoint_dir_begin(struct rp_checkpoint_dir **dir_out,
                                          const struct rp_checkpoint_place *place,
                                          struct rp_error *error);
/** Wait for the trial, and return whether checkpoints can be saved, also in the mirror.
 * Call it before anything that writes into the directory. On failure the handle may only be closed.
 */
RP_MUST_CHECK int rp_checkpoint_dir_finish_trial(struct rp_checkpoint_dir *dir,
                                                 struct rp_error *error);
/** Whether the directory did not exist, and rp_checkpoint_dir_begin made it. */
bool rp_checkpoint_dir_is_new(const struct rp_checkpoint_dir *dir);

/* The id of a directory: 32 random hexadecimal digits and a NUL (FORMAT.md). The directory keeps
 * its id when it is moved, and a copy of the directory has the same id. */
#define RP_DIRECTORY_ID_BYTES 33
bool rp_directory_id_is_valid(const char *id);
/** Read the id of the directory; "" = no id. */
RP_MUST_CHECK int rp_checkpoint_dir_id(const struct rp_checkpoint_dir *dir,
                                       char id[RP_DIRECTORY_ID_BYTES], struct rp_error *error);
/** The same, but a directory without an id gets one. */
RP_MUST_CHECK int rp_checkpoint_dir_make_id(struct rp_checkpoint_dir *dir,
                                            char id[RP_DIRECTORY_ID_BYTES], struct rp_error *error);
/** The number of the device that the directory is on; 0 if fstat fails. */
dev_t rp_checkpoint_dir_device(const struct rp_checkpoint_dir *dir);

/* The results of copying to the mirror since the directory was opened. */
struct rp_copy_counts {
    bool is_kept;    /* there is a mirror */
    bool is_at_work; /* a copy is being written or verified */
    uint64_t copies, failures;
    uint64_t skipped;            /* a newer checkpoint was there before their copy began */
    uint64_t row, bytes;         /* the newest copy that verified */
    uint64_t began_ns, ended_ns; /* times of that copy, CLOCK_MONOTONIC */
    bool has_failed;             /* the last copy did, for this reason: */
    char reason[sizeof(((struct rp_error *)0)->message)];
};
/** Any thread may call it. */
void rp_checkpoint_dir_copies(const struct rp_checkpoint_dir *dir, struct rp_copy_counts *counts);

/** Wait for the copy of the last save, then unlock and free. NULL is fine. */
void rp_checkpoint_dir_close(struct rp_checkpoint_dir *dir);

/** Save a checkpoint. The parts have ascending types, the state token is one of them, and their
 * memory must not change during the call (but for the bytes of a growing section that are not final
 * yet). The caller fills *info except for its sequence, which is set here, above every sequence
 * that was used in the directory before. On success the file *path_out (path_out may be NULL; the
 * caller frees) is durable; rp_checkpoint_read_back_save verifies it. On failure older checkpoints
 * are unharmed. There are up to three attempts, each with a new inode. With a mirror, a thread of
 * its own copies the file later; its failures are logged. */
RP_MUST_CHECK int rp_checkpoint_save(struct rp_checkpoint_dir *dir, struct rp_checkpoint_info *info,
                                     const struct rp_checkpoint_part *parts, size_t part_count,
                                     char **path_out, struct rp_error *error);

/** Read the last save back past the page cache, and compare it with the hashes of the data given to
 * rp_checkpoint_save. 0 also if no save is left to read back. On failure the file stays, and counts
 * as damaged from now on: no older file is removed for it. Call it once the save was reported. */
RP_MUST_CHECK int rp_checkpoint_read_back_save(struct rp_checkpoint_dir *dir,
                                               struct rp_error *error);

/** Read every checkpoint and copy that is kept once in `period_seconds` (0: never), on a thread of
 * its own at idle priority, until the directory is closed. A damaged one is logged by name and
 * no longer counts as kept; it stays until verified checkpoints take its place (FORMAT.md,
 * "Retention"). One that cannot be read this time is also logged, and counts as before. Call it
 * once, before the first save. */
RP_MUST_CHECK int rp_checkpoint_dir_scrub(struct rp_checkpoint_dir *dir, uint32_t period_seconds,
                                          struct rp_error *error);

/* The results of scrubbing since the directory was opened. */
struct rp_scrub_counts {
    uint64_t passes;   /* over all kept files */
    uint64_t files;    /* that verified in the last pass */
    uint64_t failures; /* that were damaged, or could not be read, in the last pass */
    uint64_t ended_ns; /* end of the last pass, CLOCK_MONOTONIC; 0 = none yet */
    char reason[sizeof(((struct rp_error *)0)->message)]; /* the last failure's; "" = none */
};
/** Any thread may call it. */
void rp_checkpoint_dir_scrubs(const struct rp_checkpoint_dir *dir, struct rp_scrub_counts *counts);

/* Durations of the steps of writing a file. */
struct rp_checkpoint_times {
    uint64_t write_ns;     /* create, reserve and write, with the waits for growing sections */
    uint64_t sync_ns;      /* fsync */
    uint64_t name_ns;      /* rename, and fsync of the directory */
    uint64_t read_back_ns; /* open, read and compare */
};
/** The times of the last save; read_back_ns is set once it was read back. */
struct rp_checkpoint_times rp_checkpoint_dir_times(const struct rp_checkpoint_dir *dir);

/** Whether the newest checkpoint of the directory verifies and has this very state token, so that
 * another save would be the same. *path_out is its path (the caller frees), or NULL. */
bool rp_checkpoint_is_saved(struct rp_checkpoint_dir *dir, const struct rp_checkpoint_info *info,
                            const void *state, size_t state_bytes, char **path_out);

/** Keep a history: the oldest checkpoint of every `rows` rows, in addition to the newest positions;
 * 0 = no history. Call it before the first save. */
void rp_checkpoint_keep_every(struct rp_checkpoint_dir *dir, uint64_t rows);

/** Remove the checkpoints that are no longer kept (FORMAT.md, "Retention"). It may read whole
 * files, so call it after a save has been reported to its waiting callers. */
void rp_checkpoint_prune(struct rp_checkpoint_dir *dir);

/* ---- reading --------------------------------------------------------------------------------- */

struct rp_checkpoint; /* an open, verified file, read into private memory */

/** Does the file at this path begin as a checkpoint does? */
bool rp_checkpoint_is_file(const char *path);

/** Read and verify one file. A damaged head, footer or critical section is -RP_E_CORRUPT with the
 * offset. If only the contents are damaged, the file is opened, and rp_checkpoint_section
 * returns NULL for them. */
RP_MUST_CHECK int rp_checkpoint_open(struct rp_checkpoint **out, const char *path,
                                     struct rp_error *error);
void rp_checkpoint_close(struct rp_checkpoint *checkpoint);
const struct rp_checkpoint_info *rp_checkpoint_info(const struct rp_checkpoint *checkpoint);
const char *rp_checkpoint_path(const struct rp_checkpoint *checkpoint);
/** The bytes of a section, or NULL (and 0) if the file has none of this type or it is damaged. */
const void *rp_checkpoint_section(const struct rp_checkpoint *checkpoint,
                                  enum rp_checkpoint_section_type type, size_t *bytes_out);
bool rp_checkpoint_contents_bad(const struct rp_checkpoint *checkpoint);
/** The type of another section that no run needs (the contract, or one of a type that this version
 * does not know) and that is damaged, or the padding after it: the first; 0 if all are whole. */
uint32_t rp_checkpoint_other_bad(const struct rp_checkpoint *checkpoint);

/** Iterate over the records of contents, beginning with *cursor = 0. Returns 1 with *record and its
 * tokens, 0 at the end, and -RP_E_CORRUPT for a malformed record. */
RP_MUST_CHECK int rp_content_next(const void *contents, size_t bytes, size_t *cursor,
                                  struct rp_content_record *record, const void **tokens);

/** Open the newest checkpoint of a directory that verifies. Damaged ones that are newer are logged
 * and, if rename_bad is set, renamed to NAME.bad. Returns 1 with *out; 0 if the directory does not
 * exist or never held a checkpoint; -RP_E_CORRUPT if it has checkpoints and none verifies. A file
 * that may be good but cannot be read here (permission, memory, -RP_E_VERSION) is an error: to take
 * an older one instead would silently repeat rows. */
RP_MUST_CHECK int rp_checkpoint_newest(struct rp_checkpoint **out, const char *directory,
                                       bool rename_bad, struct rp_error *error);

/** Copy the first bytes (at most 4096) of the state of the newest checkpoint of a directory whose
 * head is whole. The state is not verified. False if there is none, or it is shorter. */
bool rp_checkpoint_peek(void *state, size_t bytes, const char *directory);

enum rp_checkpoint_status {
    RP_CHECKPOINT_GOOD,
    RP_CHECKPOINT_BAD,
    RP_CHECKPOINT_SET_ASIDE, /* named NAME.bad */
    RP_CHECKPOINT_REWOUND,   /* named NAME.rewound */
};

/* One row of a listing. */
struct rp_checkpoint_entry {
    char *name; /* file name in the directory */
    uint64_t sequence, bytes;
    enum rp_checkpoint_status status;
    struct rp_checkpoint_info info; /* when it verifies */
    bool contents_bad;              /* when it verifies: the contents are damaged */
    uint32_t other_bad;             /* the same of rp_checkpoint_other_bad */
    char message[256]; /* why it does not verify; or, when SET_ASIDE, that it does; or "" */
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

/** For a run that starts at row 0 again: move all checkpoints of the directory into a new directory
 * set-aside-DATE-N inside it, where they are never pruned, and the copies in the mirror
 * likewise. Call it before the first save. Returns the number of checkpoints, without the copies.
 */
RP_MUST_CHECK int rp_checkpoint_set_aside_all(struct rp_checkpoint_dir *dir,
                                              struct rp_error *error);

/** Make the checkpoint `sequence` the newest: later ones are renamed to NAME.rewound, and can be
 * renamed back by hand. Copies of them in a mirror are renamed by the next
 * rp_checkpoint_dir_begin that has one. */
RP_MUST_CHECK int rp_checkpoint_rewind(const char *directory, uint64_t sequence,
                                       struct rp_error *error);

#endif
