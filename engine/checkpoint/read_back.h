/* SPDX-License-Identifier: Apache-2.0 */
/* read_back.h — does a file hold the bytes that were to be written? */
#ifndef RP_CHECKPOINT_READ_BACK_H
#define RP_CHECKPOINT_READ_BACK_H

#include "checkpoint/writer.h"

/** Read a file that was opened by storage->reopen, through the writer's buffer, and compare each
 * span with its hash. Returns 0, a failed read's code, or -RP_E_CORRUPT: then *bad_out is the first
 * span that differs. */
RP_MUST_CHECK int rp_checkpoint_read_back(const struct rp_writer *writer, int fd,
                                          const struct rp_writer_file *file,
                                          const struct rp_writer_span **bad_out);

#endif
