/* SPDX-License-Identifier: Apache-2.0 */
/* run_record.h — what this machine knows of a run's checkpoint directory, in a file that lies
 * elsewhere: which directory it was (directory_id.h), and where its newest checkpoint stood. So a
 * start can tell a new directory from one whose file system is not mounted.
 *
 * There is one record for each host, run and canonical path of a checkpoint directory. FORMAT.md
 * has the file. */
#ifndef RP_CHECKPOINT_RUN_RECORD_H
#define RP_CHECKPOINT_RUN_RECORD_H

#include "checkpoint/checkpoint.h"

#define RP_RUN_RECORD_NONE "none" /* in place of a directory: keep no record */

struct rp_run_record {
    char id[RP_DIRECTORY_ID_BYTES]; /* of the directory */
    uint64_t row;                   /* of its newest checkpoint; 0 = it had none */
    uint64_t device;                /* it was on: for people, since numbers change at a reboot */
    char date[24];                  /* of the record, UTC: for people */
};

/** The directory of the records: `chosen`, or $XDG_STATE_HOME/ringpack, or
 * ~/.local/state/ringpack. NULL, with *why, where there is none. The caller frees it. */
char *rp_checkpoint_run_record_dir(const char *chosen, const char **why);

/** The file of the record in `record_dir`. `directory`: of the checkpoints, which exists. NULL when
 * out of memory, or where the path cannot be followed. The caller frees it. */
char *rp_checkpoint_run_record_path(const char *record_dir, const char *run, const char *directory);

/** 1, 0 if there is none, or a code: -RP_E_CORRUPT when it is not what
 * rp_checkpoint_run_record_write wrote.
 */
RP_MUST_CHECK int rp_checkpoint_run_record_read(struct rp_run_record *record, const char *path,
                                                struct rp_error *error);

/** Replace the record, durably. record->date is set to now. run and directory: for people. */
RP_MUST_CHECK int rp_checkpoint_run_record_write(struct rp_run_record *record, const char *path,
                                                 const char *run, const char *directory,
                                                 struct rp_error *error);

#endif
