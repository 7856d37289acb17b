/* SPDX-License-Identifier: Apache-2.0 */
/* growing_section.h — the writer's side of a section that is filled while the file is written. The
 * other side is in checkpoint.h. */
#ifndef RP_CHECKPOINT_GROWING_SECTION_H
#define RP_CHECKPOINT_GROWING_SECTION_H

#include "checkpoint/checkpoint.h"

/** The memory of the whole section, whether its bytes are final or not. */
const struct rp_checkpoint_piece *rp_growing_section_piece(
    const struct rp_growing_section *growing);

/** Wait until the first `wanted` bytes are final. Returns how many bytes are, or -RP_E_STOPPED if
 * the section ended with fewer. */
RP_MUST_CHECK int64_t rp_growing_section_wait(struct rp_growing_section *growing, uint64_t wanted);

/** The hash of the section, once all of its bytes are final. */
struct rp_hash128 rp_growing_section_hash(const struct rp_growing_section *growing);

#endif
