/* SPDX-License-Identifier: Apache-2.0 */
/* locked_dir.h — a directory that is open for writing checkpoints: locked, freed of killed runs'
 * temporary files, and tested with a write. The checkpoint directory is one, the mirror
 * another. A handle belongs to one thread at a time, but for its list of damaged checkpoints. */
#ifndef RP_CHECKPOINT_LOCKED_DIR_H
#define RP_CHECKPOINT_LOCKED_DIR_H

#include <pthread.h>

#include "checkpoint/trial.h"
#include "checkpoint/writer.h"

#define RP_LOCKED_DIR_KEEP_MIN 2u /* a single one could be the damaged one */
#define RP_LOCKED_DIR_KEEP_MAX 1000u
#define RP_LOCKED_DIR_DAMAGED_MAX 64u

/* This process' knowledge of a checkpoint, which saves reading the file again. */
enum rp_known {
    RP_KNOWN_HEAD,     /* its row, but not whether the file verifies */
    RP_KNOWN_VERIFIED, /* the whole file, as the disk returned it */
    RP_KNOWN_DAMAGED,  /* at least once the disk returned other bytes than were written, or none */
};
struct rp_known_checkpoint {
    uint64_t sequence, row;
    enum rp_known known;
};

struct rp_locked_dir {
    char *path;
    int dir;  /* file descriptors; -1 while not open */
    int lock; /* held while it is open */
    /* rp_locked_dir_check compares inodes. False if none of several checks of a file that was
     * just opened by its name found the same inode, as on some network file systems. */
    bool is_watched;
    bool is_new; /* the directory did not exist before it was opened */
    struct rp_writer writer;
    struct rp_trial trial;
    uint64_t newest_sequence;          /* among all files that are or were here, 0 = none */
    uint32_t keep;                     /* positions */
    uint64_t keep_every_rows;          /* rows for each checkpoint of a history; 0 = no history */
    struct rp_known_checkpoint *known; /* newest first */
    size_t known_count;
    /* Checkpoints that another thread has found damaged; they are not removed from the list. */
    pthread_mutex_t damaged_mutex;
    uint64_t damaged[RP_LOCKED_DIR_DAMAGED_MAX];
    size_t damaged_count;
    uint64_t bad_sequence; /* the newest save, if the disk did not return it as written; else 0 */
};

/** Open and lock the directory of `place`, without its mirror; it is made first if `make` is set.
 * Begin the trial write: until it is finished, write no file, and neither move *locked nor use its
 * writer. -RP_E_BUSY names the process that holds the lock. On failure *locked is closed. */
RP_MUST_CHECK int rp_locked_dir_begin(struct rp_locked_dir *locked,
                                      const struct rp_checkpoint_place *place, bool make,
                                      struct rp_error *error);
/** Begin in a directory that exists, and finish the trial write. */
RP_MUST_CHECK int rp_locked_dir_open(struct rp_locked_dir *locked, const char *path,
                                     struct rp_error *error);
/** Also closes a handle whose opening failed half-way. */
void rp_locked_dir_close(struct rp_locked_dir *locked);
/** Remove a directory that was made for a trial, once it is closed. */
void rp_locked_dir_remove(const char *path);

/** Check that no other process has replaced the lock, and that the path still leads to this
 * directory. Otherwise a save would be durable in a place where no restart searches for it. */
RP_MUST_CHECK int rp_locked_dir_check(const struct rp_locked_dir *locked, struct rp_error *error);

/** Remember the checkpoint `sequence`, with position `row`, which is newer than all known ones. */
void rp_locked_dir_note(struct rp_locked_dir *locked, uint64_t sequence, uint64_t row,
                        enum rp_known known);
/** The entry of a checkpoint; NULL = unknown. The caller may change it. */
struct rp_known_checkpoint *rp_locked_dir_recall(const struct rp_locked_dir *locked,
                                                 uint64_t sequence);

/** Remember that a checkpoint is damaged: it does not count as kept until the directory is
 * closed. False if the damage was known. Any thread may call it. */
bool rp_locked_dir_add_damaged(struct rp_locked_dir *locked, uint64_t sequence);

/** Remember whether the disk has returned the newest save as it was written. If neither it nor the
 * save before it was, the older one is removed, so that a disk that stays bad is not filled. The
 * older one stays if a start could resume from it, and not from the newer one. */
void rp_locked_dir_judge(struct rp_locked_dir *locked, uint64_t sequence, bool is_good);

/** Verify the checkpoints that this process has not verified yet, and remove the checkpoints that
 * are no longer kept (prune.c). newest_copied: the newest sequence that has a verified copy,
 * UINT64_MAX if no copies are made. Failures are logged: one checkpoint too many does no harm.
 */
void rp_locked_dir_prune(struct rp_locked_dir *locked, uint64_t newest_copied);

/** Move all checkpoints into a new directory set-aside-DATE-N inside it (set_aside.c). Returns
 * their number. */
RP_MUST_CHECK int rp_locked_dir_set_aside(const struct rp_locked_dir *locked,
                                          struct rp_error *error);

/** Rename the copies in the mirror `copies` whose checkpoints were rewound since the last
 * start that had one (rewind.c). If there are markers, it waits for both trials. Call it before
 * a copy is examined. */
RP_MUST_CHECK int rp_locked_dir_rewind_copies(struct rp_locked_dir *locked,
                                              struct rp_locked_dir *copies, struct rp_error *error);

/** The directories set-aside-DATE-N in `dir`; `path` is for messages. The caller frees the list,
 * also after a failure. */
RP_MUST_CHECK int rp_set_aside_list(int dir, const char *path, struct rp_set_aside **list_out,
                                    size_t *count_out, struct rp_error *error);

#endif
