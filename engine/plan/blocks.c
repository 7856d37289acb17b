/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/blocks.h"

#include "base/bits.h"
#include "plan/plan_state.h"

/* Without a shuffle: blocks that are read ahead. */
#define PLAIN_WINDOW 4u

struct rp_plan_blocks rp_plan_blocks(const struct rp_plan *plan)
{
    const struct rp_plan_config *config = &plan->config;
    struct rp_plan_blocks blocks = {.lanes = config->lanes, .sources = plan->source_count};
    if (config->shuffle == RP_SHUFFLE_BLOCK) {
        blocks.documents = config->block_documents;
        blocks.window = config->window_blocks;
    } else if (config->shuffle == RP_SHUFFLE_NONE) {
        blocks.documents = RP_PLAIN_DOCUMENTS;
        blocks.window = PLAIN_WINDOW;
        blocks.are_shared = true;
    }
    return blocks;
}

uint64_t rp_blocks_in_epoch(const struct rp_order *order, uint32_t lane)
{
    return order->shuffle == RP_SHUFFLE_BLOCK ? rp_div_up(order->units - lane, order->lanes)
                                              : rp_div_up(order->units, RP_PLAIN_DOCUMENTS);
}

static uint64_t position_in_epoch(const struct rp_cursor *cursor)
{
    const struct rp_order *order = &cursor->order;
    return order->shuffle == RP_SHUFFLE_BLOCK
               ? cursor->position / order->unit_documents
               : cursor->position * order->lanes / RP_PLAIN_DOCUMENTS;
}

uint64_t rp_plan_block_position(const struct rp_plan *plan, uint32_t lane, uint32_t source)
{
    const struct rp_cursor *cursor = &plan->lanes[lane].piece_source.cursors[source];
    return cursor->epoch * rp_blocks_in_epoch(&cursor->order, lane) + position_in_epoch(cursor);
}

uint64_t rp_plan_block_window(const struct rp_plan *plan, uint32_t lane, uint32_t source)
{
    const struct rp_cursor *cursor = &plan->lanes[lane].piece_source.cursors[source];
    uint64_t in_epoch = position_in_epoch(cursor);
    if (cursor->order.shuffle == RP_SHUFFLE_BLOCK)
        in_epoch -= in_epoch % cursor->order.window_units;
    return cursor->epoch * rp_blocks_in_epoch(&cursor->order, lane) + in_epoch;
}

bool rp_plan_block_in_order(struct rp_order order, uint32_t lane, uint64_t num_epochs,
                            uint64_t documents, uint64_t position, struct rp_plan_block *block)
{
    uint64_t count = rp_blocks_in_epoch(&order, lane), each = RP_PLAIN_DOCUMENTS;
    uint64_t epoch = position / count, number = position % count;
    if (num_epochs > 0 && epoch >= num_epochs)
        return false;
    if (order.shuffle == RP_SHUFFLE_BLOCK) {
        each = order.unit_documents;
        rp_order_enter(&order, epoch);
        number = rp_permute(&order.unit_permutation, number * order.lanes + lane);
    }
    *block = (struct rp_plan_block){.source = order.source,
                                    .number = number,
                                    .epoch = epoch,
                                    .later_epochs = num_epochs ? num_epochs - 1 - epoch
                                                               : UINT64_MAX,
                                    .first_document = number * each,
                                    .documents = rp_min_u64(each, documents - number * each)};
    return true;
}

bool rp_plan_block_at(const struct rp_plan *plan, uint32_t lane, uint32_t source, uint64_t position,
                      struct rp_plan_block *block)
{
    return rp_plan_block_in_order(plan->lanes[lane].piece_source.cursors[source].order, lane,
                                  plan->config.num_epochs, plan->sources[source].documents,
                                  position, block);
}
