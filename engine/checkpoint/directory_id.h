/* SPDX-License-Identifier: Apache-2.0 */
/* directory_id.h — a checkpoint directory's name for itself, in a file inside it: whether the
 * directory that a path leads to today is the one that it led to before. FORMAT.md has the file. */
#ifndef RP_CHECKPOINT_DIRECTORY_ID_H
#define RP_CHECKPOINT_DIRECTORY_ID_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/locked_dir.h"

#define RP_DIRECTORY_ID_NAME ".directory-id"

/** The id of the directory; "" if it has none, or if its file is damaged, which is logged. */
RP_MUST_CHECK int rp_directory_id_read(const struct rp_locked_dir *place,
                                       char id[RP_DIRECTORY_ID_BYTES], struct rp_error *error);

/** Give the directory a new id, in place of a damaged one. */
RP_MUST_CHECK int rp_directory_id_make(struct rp_locked_dir *place, char id[RP_DIRECTORY_ID_BYTES],
                                       struct rp_error *error);

#endif
