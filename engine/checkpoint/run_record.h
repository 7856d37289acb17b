/* SPDX-License-Identifier: Apache-2.0 */
/* run_record.h — a file outside of the checkpoint directory that has the id of the directory
 * (directory_id.h) and the position of its newest checkpoint. With it a start can distinguish a
 * new directory from a mount point whose file system is not mounted.
 *
 * There is one record for each host, run and canonical path of a checkpoint directory. FORMAT.md
 * describes the file. */
#ifndef RP_CHECKPOINT_RUN_RECORD_H
#define RP_CHECKPOINT_RUN_RECORD_H

#include "checkpoint/checkpoint.h"

#define RP_RUN_RECORD_NONE "none" /* a value of mount_guard_dir: keep no record */

struct rp_run_record {
    char id[RP_DIRECTORY_ID_BYTES]; /* the directory's */
    uint64_t row;                   /* position of its newest checkpoint; 0 = it had none */
    uint64_t device;                /* for people only, because a reboot may change it */
    char date[24];                  /* when the record was written, UTC; for people only */
};

/** The directory of the records: `chosen`, or $XDG_STATE_HOME/ringpack, or ~/.local/state/ringpack.
 * If none can be used, NULL with the reason in *why. The caller frees it. */
char *rp_checkpoint_run_record_dir(const char *chosen, const char **why);

/** The path of the record in `record_dir`. `directory`, of the checkpoints, must exist. NULL when
 * out of memory, or if realpath fails. The caller frees it. */
char *rp_checkpoint_run_record_path(const char *record_dir, const char *run, const char *directory);

/** Returns 1, 0 if there is no record, or an error: -RP_E_CORRUPT if the file is not a record. */
RP_MUST_CHECK int rp_checkpoint_run_record_read(struct rp_run_record *record, const char *path,
                                                struct rp_error *error);

/** Write the record durably. record->date is set to now. run and directory are for people only. */
RP_MUST_CHECK int rp_checkpoint_run_record_write(struct rp_run_record *record, const char *path,
                                                 const char *run, const char *directory,
                                                 struct rp_error *error);

#endif
