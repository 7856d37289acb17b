/* SPDX-License-Identifier: Apache-2.0 */
/* directory_id.h — the id of a checkpoint directory, in a file inside it. A start recognises
 * the directory by it. FORMAT.md describes the file. */
#ifndef RP_CHECKPOINT_DIRECTORY_ID_H
#define RP_CHECKPOINT_DIRECTORY_ID_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/locked_dir.h"

#define RP_DIRECTORY_ID_NAME ".directory-id"

/** The id of the directory; "" without an id file, or if that is damaged, which is logged. */
RP_MUST_CHECK int rp_directory_id_read(const struct rp_locked_dir *locked,
                                       char id[RP_DIRECTORY_ID_BYTES], struct rp_error *error);

/** Give the directory a new id. A damaged id file is replaced. */
RP_MUST_CHECK int rp_directory_id_make(struct rp_locked_dir *locked, char id[RP_DIRECTORY_ID_BYTES],
                                       struct rp_error *error);

#endif
