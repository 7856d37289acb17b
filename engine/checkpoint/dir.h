/* SPDX-License-Identifier: Apache-2.0 */
/* dir.h — for tests and benchmarks: opens the directory handle of checkpoint.h in one call, or over
 * a storage that a test provides. */
#ifndef RP_CHECKPOINT_DIR_H
#define RP_CHECKPOINT_DIR_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/storage.h"

/** rp_checkpoint_dir_begin, and rp_checkpoint_dir_finish_trial. */
RP_MUST_CHECK int rp_checkpoint_dir_open(struct rp_checkpoint_dir **dir_out, const char *path,
                                         uint32_t keep, const char *copy_path /* NULL */,
                                         struct rp_error *error);
/** rp_checkpoint_dir_begin and rp_checkpoint_dir_open, with `storage` instead of the operating
 * system. `storage` must outlive the handle; the thread of the trial write also uses it.
 * buffer_bytes: size of the write buffer, a multiple of 8192; 0 = RP_WRITER_BUFFER_BYTES. */
RP_MUST_CHECK int rp_checkpoint_dir_begin_with(struct rp_checkpoint_dir **dir_out, const char *path,
                                               uint32_t keep, const char *copy_path,
                                               struct rp_storage *storage, size_t buffer_bytes,
                                               struct rp_error *error);
RP_MUST_CHECK int rp_checkpoint_dir_open_with(struct rp_checkpoint_dir **dir_out, const char *path,
                                              uint32_t keep, const char *copy_path,
                                              struct rp_storage *storage, size_t buffer_bytes,
                                              struct rp_error *error);

#endif
