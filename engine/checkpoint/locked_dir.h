/* SPDX-License-Identifier: Apache-2.0 */
/* locked_dir.h — a directory that is taken for writing checkpoints: locked, swept and proven to
 * work. The checkpoint directory is one, and so is the second location. One thread at a time. */
#ifndef RP_CHECKPOINT_LOCKED_DIR_H
#define RP_CHECKPOINT_LOCKED_DIR_H

#include "checkpoint/writer.h"

#define RP_LOCKED_DIR_KEEP_MIN 2u /* a single one could be the damaged one */
#define RP_LOCKED_DIR_KEEP_MAX 1000u

/* What this process has found out about a checkpoint, so that it need not read it again. */
struct rp_known {
    uint64_t sequence, row;
    bool is_verified; /* all of it; else its head */
};

struct rp_locked_dir {
    char *path;
    int dir;         /* file descriptors; -1 while not open */
    int lock;        /* held while it is open */
    bool is_watched; /* its path led to it when it was opened: see rp_locked_dir_check */
    bool is_new;     /* the directory did not exist before it was opened */
    struct rp_writer writer;
    uint64_t newest_sequence; /* of all names that are or were here, 0 = none */
    uint32_t keep;            /* positions */
    uint64_t keep_every_rows; /* and one checkpoint of every so many rows; 0 = no history */
    struct rp_known *known;   /* newest first */
    size_t known_count;
};

/** Take `path`, which is made if `make` is set. -RP_E_BUSY names the process that holds it. On
 * failure the place is closed. */
RP_MUST_CHECK int rp_locked_dir_open(struct rp_locked_dir *place, const char *path, uint32_t keep,
                                     bool make, struct rp_storage *storage, struct rp_error *error);
void rp_locked_dir_close(
    struct rp_locked_dir *place); /* fine on one that is half open or all zero but -1 */

/** Is it still ours, and does its path still lead to it? What is saved into a directory that was
 * moved, or that something was mounted over, is durable, and no restart looks for it there. */
RP_MUST_CHECK int rp_locked_dir_check(const struct rp_locked_dir *place, struct rp_error *error);

/** The checkpoint `sequence`, whose state stands at `row`, was read and is good. It is newer than
 * all that are known. */
void rp_locked_dir_note_verified(struct rp_locked_dir *place, uint64_t sequence, uint64_t row);

/** Remove what prune.c finds to be of no use any more, verifying what this process has not seen
 * yet. newest_copied: the last one that has a verified copy, UINT64_MAX where no copies are made.
 * Trouble is logged: a checkpoint too many is no reason to fail. */
void rp_locked_dir_prune(struct rp_locked_dir *place, uint64_t newest_copied);

/** Move all checkpoints into a new directory set-aside-DATE-N inside it (set_aside.c). */
RP_MUST_CHECK int rp_locked_dir_set_aside(const struct rp_locked_dir *place,
                                          struct rp_error *error);

/** The directories of that kind in `dir`; `path` is for messages. The caller frees the list, also
 * after a failure. */
RP_MUST_CHECK int rp_set_aside_list(int dir, const char *path, struct rp_set_aside **list_out,
                                    size_t *count_out, struct rp_error *error);

#endif
