/* SPDX-License-Identifier: Apache-2.0 */
/* blocks.h — the blocks of documents that the plan will use next, so that a reader can fetch each
 * as a whole, long before the rows that use it are planned.
 *
 * With `block` shuffle these are the blocks of STREAM.md section 3: the documents of a block are
 * neighbours in the file and are all used within one window. Without a shuffle, a block is a run of
 * neighbouring documents. With `document` shuffle there are no blocks. Blocks are hints: the plan
 * does not depend on them. */
#ifndef RP_PLAN_BLOCKS_H
#define RP_PLAN_BLOCKS_H

#include "plan/order.h"
#include "plan/plan.h"

#define RP_PLAIN_DOCUMENTS 256u /* in a block without `block` shuffle */

struct rp_plan_blocks {
    uint64_t documents; /* in a block; 0 = the order has no blocks */
    uint32_t window;    /* blocks that are in use at the same time */
    uint32_t lanes, sources;
    bool are_shared; /* all lanes draw from the same blocks; otherwise each lane has its own */
};
struct rp_plan_blocks rp_plan_blocks(const struct rp_plan *plan);

/** Position in blocks: how many whole blocks of documents a lane has taken from a source since the
 * stream began. */
uint64_t rp_plan_block_position(const struct rp_plan *plan, uint32_t lane, uint32_t source);
/** Position of the first block of the window that the lane takes documents from. */
uint64_t rp_plan_block_window(const struct rp_plan *plan, uint32_t lane, uint32_t source);

struct rp_plan_block {
    uint32_t source;
    uint64_t number;                    /* the block's, in its source */
    uint64_t epoch;                     /* the epoch that uses the documents */
    uint64_t later_epochs;              /* number that use them again; UINT64_MAX: endless */
    uint64_t first_document, documents; /* documents >= 1 */
};

/** Blocks that a lane uses in an epoch, by the order of one of the lanes. */
uint64_t rp_blocks_in_epoch(const struct rp_order *order, uint32_t lane);
/** The block at a position of a lane in a source of `documents` documents, by the order of one of
 * the lanes. False after the last of num_epochs (0: endless). */
bool rp_plan_block_in_order(struct rp_order order, uint32_t lane, uint64_t num_epochs,
                            uint64_t documents, uint64_t position, struct rp_plan_block *block);
/** The same for a plan. */
bool rp_plan_block_at(const struct rp_plan *plan, uint32_t lane, uint32_t source, uint64_t position,
                      struct rp_plan_block *block);

#endif
