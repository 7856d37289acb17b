/* SPDX-License-Identifier: Apache-2.0 */
/* place.h — a directory that is taken for writing checkpoints: locked, swept and proven to work.
 * The checkpoint directory is one, and so is the second location. One thread at a time. */
#ifndef RP_CHECKPOINT_PLACE_H
#define RP_CHECKPOINT_PLACE_H

#include "checkpoint/writer.h"

#define RP_PLACE_KEEP_MIN 2u /* a single one could be the damaged one */
#define RP_PLACE_KEEP_MAX 1000u

struct rp_place {
    char *path;
    int dir;         /* file descriptors; -1 while not open */
    int lock;        /* held while it is open */
    bool is_watched; /* its path led to it when it was opened: see rp_place_check */
    struct rp_writer writer;
    uint64_t newest_sequence; /* of all names that are or were here, 0 = none */
    uint32_t keep;
    uint64_t *verified; /* sequences that this process has found good, at most `keep` */
    uint32_t verified_count;
};

/** Take `path`, which is made if `make` is set. -RP_E_BUSY names the process that holds it. On
 * failure the place is closed. */
RP_MUST_CHECK int rp_place_open(struct rp_place *place, const char *path, uint32_t keep, bool make,
                                struct rp_storage *storage, struct rp_error *error);
void rp_place_close(struct rp_place *place); /* fine on one that is half open or all zero but -1 */

/** Is it still ours, and does its path still lead to it? What is saved into a directory that was
 * moved, or that something was mounted over, is durable, and no restart looks for it there. */
RP_MUST_CHECK int rp_place_check(const struct rp_place *place, struct rp_error *error);

/** The checkpoint `sequence` has just been written here and read back. */
void rp_place_note_verified(struct rp_place *place, uint64_t sequence);

/** Remove checkpoints that are older than `keep` verified ones, verifying those that this process
 * has not seen yet. Trouble is logged: a checkpoint too many is no reason to fail. */
void rp_place_prune(struct rp_place *place);

#endif
