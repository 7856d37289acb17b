/* SPDX-License-Identifier: Apache-2.0 */
/* growing_section.h — what the writer sees of bytes that come while the file is written
 * (checkpoint.h). */
#ifndef RP_CHECKPOINT_GROWING_SECTION_H
#define RP_CHECKPOINT_GROWING_SECTION_H

#include "checkpoint/checkpoint.h"

/** All of them, there or not. */
const struct rp_checkpoint_piece *rp_growing_section_piece(
    const struct rp_growing_section *growing);

/** Wait until so many bytes are there. Returns how many are, or -RP_E_STOPPED: they will not come.
 */
RP_MUST_CHECK int64_t rp_growing_section_wait(struct rp_growing_section *growing, uint64_t wanted);

/** The hash of all of them, when all are there. */
struct rp_hash128 rp_growing_section_hash(const struct rp_growing_section *growing);

#endif
