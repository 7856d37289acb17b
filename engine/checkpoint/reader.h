/* SPDX-License-Identifier: Apache-2.0 */
/* reader.h — open checkpoints by name in a directory whose descriptor is open. */
#ifndef RP_CHECKPOINT_READER_H
#define RP_CHECKPOINT_READER_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/format.h"
#include "checkpoint/listing.h"

/** Read and verify the file `name` in `dir`. Symbolic links are not followed, and the head must
 * have the sequence of the name. `path`, of the directory, is for messages. Errors: as
 * rp_checkpoint_open. */
RP_MUST_CHECK int rp_reader_open(struct rp_checkpoint **out, int dir, const char *path,
                                 const struct rp_name *name, struct rp_error *error);

/** Read and verify only the head of a checkpoint. */
RP_MUST_CHECK int rp_reader_head(struct rp_checkpoint_head *head, int dir, const char *path,
                                 const struct rp_name *name, struct rp_error *error);

/** Read the first page of the state of a checkpoint, and nothing else but its head: the state is
 * not verified. *bytes_out: of the whole state. `page` begins at a multiple of its length. */
RP_MUST_CHECK int rp_reader_state(uint8_t page[RP_CHECKPOINT_PAGE_BYTES], uint64_t *bytes_out,
                                  int dir, const char *path, const struct rp_name *name,
                                  struct rp_error *error);

/** The position of a checkpoint. Reads only its head. */
RP_MUST_CHECK int rp_reader_row(uint64_t *row_out, int dir, const char *path,
                                const struct rp_name *name, struct rp_error *error);

/** The whole file as it was read. */
const void *rp_reader_bytes(const struct rp_checkpoint *checkpoint, uint64_t *bytes_out);

/** Whether a code of rp_reader_open, or of reading a file back, means that the file is damaged, so
 * that an older one should be used. False where the file is good, or may be (no permission, no
 * memory, a newer format). */
bool rp_reader_is_damage(int code);

#endif
