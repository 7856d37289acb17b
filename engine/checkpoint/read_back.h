/* SPDX-License-Identifier: Apache-2.0 */
/* read_back.h — check that a file holds the bytes that were meant to be written. */
#ifndef RP_CHECKPOINT_READ_BACK_H
#define RP_CHECKPOINT_READ_BACK_H

#include "checkpoint/writer.h"

/** Read a file that was opened by storage->reopen, through the writer's buffer, and compare each
 * span with its hash. Returns 0, the code of a failed read, or -RP_E_CORRUPT; only then *bad_out is
 * not NULL: it is the first span that differs. */
RP_MUST_CHECK int rp_checkpoint_read_back(const struct rp_writer *writer, int fd,
                                          const struct rp_writer_file *file,
                                          const struct rp_writer_span **bad_out);

#endif
