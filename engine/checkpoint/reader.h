/* SPDX-License-Identifier: Apache-2.0 */
/* reader.h — open a checkpoint inside a directory that is held open. */
#ifndef RP_CHECKPOINT_READER_H
#define RP_CHECKPOINT_READER_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/listing.h"

/** Read and verify `name` in `dir`, never through a symbolic link; its header must carry the
 * sequence of its name. `path` of the directory is for messages. Errors: as rp_checkpoint_open. */
RP_MUST_CHECK int rp_reader_open(struct rp_checkpoint **out, int dir, const char *path,
                                 const struct rp_name *name, struct rp_error *error);

/** The row where its state stands, by its head alone, which is checked, but not the rest. */
RP_MUST_CHECK int rp_reader_row(uint64_t *row_out, int dir, const char *path,
                                const struct rp_name *name, struct rp_error *error);

/** The whole file as it was read. */
const void *rp_reader_bytes(const struct rp_checkpoint *checkpoint, uint64_t *bytes_out);

/** True if a code of rp_reader_open says that this file is no use to anybody, so that an older one
 * should be taken; false if it may be fine and the trouble lies elsewhere (no permission, no
 * memory, a newer format). */
bool rp_reader_is_damage(int code);

#endif
