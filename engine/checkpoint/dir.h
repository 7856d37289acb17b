/* SPDX-License-Identifier: Apache-2.0 */
/* dir.h — the directory handle of checkpoint.h over any storage: for tests. */
#ifndef RP_CHECKPOINT_DIR_H
#define RP_CHECKPOINT_DIR_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/storage.h"

/** rp_checkpoint_dir_open with `storage`, which outlives the handle, in place of the operating
 * system. buffer_bytes: how much is written at a time, a multiple of 8192; 0 = the usual. */
RP_MUST_CHECK int rp_checkpoint_dir_open_with(struct rp_checkpoint_dir **dir_out, const char *path,
                                              uint32_t keep, const char *copy_path,
                                              struct rp_storage *storage, size_t buffer_bytes,
                                              struct rp_error *error);

#endif
