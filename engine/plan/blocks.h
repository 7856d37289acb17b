/* SPDX-License-Identifier: Apache-2.0 */
/* blocks.h — the blocks of documents that the plan will use next, so that a reader can fetch each
 * as a whole, long before the rows that use it are planned.
 *
 * With `block` shuffle these are the blocks of section 3 of STREAM.md or STREAM2.md: the documents
 * of a block are neighbours in the file and are all used within one window. Without a shuffle, a
 * block is a run of neighbouring documents. With `document` shuffle there are no blocks. Blocks are
 * hints: the plan does not depend on them. */
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
 * stream began. In version 2 each pass of an epoch is a round of its own. All rounds have as many
 * positions as one over all documents of the index: where a round has fewer documents, its last
 * positions have no block. */
uint64_t rp_plan_block_position(const struct rp_plan *plan, uint32_t lane, uint32_t source);
/** Position of the first block of the window that the lane takes documents from; in version 2, for
 * the next row and the later ones of its deal window. */
uint64_t rp_plan_block_window(const struct rp_plan *plan, uint32_t lane, uint32_t source);

struct rp_plan_block {
    uint32_t source;
    uint64_t number;       /* the block's, in its source */
    uint64_t epoch;        /* the epoch that uses the documents; in version 2, the round */
    uint64_t later_epochs; /* number that use them again; UINT64_MAX: endless */
    uint64_t first_document, documents; /* documents >= 1 */
};

/* The order of the blocks of a source, in any round. It may be copied by value. */
struct rp_block_order {
    struct rp_order
        order;          /* one lane's, of all lanes; version 2: items, in the round entered last */
    uint64_t documents; /* the source's; version 2: those of `epoch` and of epochs before it */
    uint64_t rounds;    /* 0: endless */
    /* Version 2 */
    uint32_t passes; /* in an epoch; 0: version 1 */
    uint32_t group, block_items, window_blocks;
    uint64_t seed, name_hash;
    uint64_t epoch, documents_later; /* in epochs after `epoch` */
    uint64_t documents_most;
};
/** The order of the blocks of a source as a plan has it now, by lane 0 of it. False: no row until
 * now could have a document of the source. */
bool rp_plan_block_order(const struct rp_plan *plan, uint32_t source, struct rp_block_order *order);

/** Positions of a lane in a round. */
uint64_t rp_blocks_in_round(const struct rp_block_order *order, uint32_t lane);
/** The block at a position of a lane. False past the last one. */
bool rp_blocks_at(struct rp_block_order *order, uint32_t lane, uint64_t position,
                  struct rp_plan_block *block);
/** The inverse: the lane of a block in a round, and its number among that lane's. False if the
 * round does not have it. */
bool rp_blocks_place(struct rp_block_order *order, uint64_t block, uint64_t round, uint32_t *lane,
                     uint64_t *place);

/** The block at a position of a lane in a source. False past the last one: after the last round
 * that num_epochs or max_epochs allows, and in version 2 at the end of some rounds. */
bool rp_plan_block_at(const struct rp_plan *plan, uint32_t lane, uint32_t source, uint64_t position,
                      struct rp_plan_block *block);

#endif
