/* SPDX-License-Identifier: Apache-2.0 */
/* Version 2 has one lane, and the places of a source's blocks in a pass of an epoch depend on the
 * number of its documents in that epoch. It is known of the present epoch; later ones are taken to
 * have the number that the calendar has for the next row. */
#include "plan/blocks.h"

#include <string.h>

#include "base/bits.h"
#include "base/hash.h"
#include "plan/plan_state.h"

/* Without a shuffle: blocks that are read ahead. */
#define PLAIN_WINDOW 4u

static struct rp_plan_blocks blocks_of(enum rp_shuffle shuffle, uint32_t block_documents,
                                       uint32_t window_blocks)
{
    if (shuffle == RP_SHUFFLE_BLOCK)
        return (struct rp_plan_blocks){.documents = block_documents, .window = window_blocks};
    if (shuffle == RP_SHUFFLE_NONE)
        return (struct rp_plan_blocks){
            .documents = RP_PLAIN_DOCUMENTS, .window = PLAIN_WINDOW, .are_shared = true};
    return (struct rp_plan_blocks){.documents = 0};
}

struct rp_plan_blocks rp_plan_blocks(const struct rp_plan *plan)
{
    const struct rp_plan_config *config = &plan->config;
    struct rp_plan_blocks blocks;
    if (plan->v2) {
        const struct rp_stream_fixed *fixed = &rp_calendar_spec(plan->v2->now.calendar)->fixed;
        blocks = blocks_of(fixed->shuffle, fixed->block_documents, fixed->window_blocks);
        blocks.lanes = 1;
        blocks.sources = plan->v2->spec.source_count;
        return blocks;
    }
    blocks = blocks_of(config->shuffle, config->block_documents, config->window_blocks);
    blocks.lanes = config->lanes;
    blocks.sources = plan->source_count;
    return blocks;
}

/* ---- version 2 ------------------------------------------------------------------------------- */

/* The state of a source of the config before the next row and its deal window. NULL: it has not
 * joined. */
static const struct rp_source_state *state_before_window(struct rp_plan_v2 *v2, uint32_t source)
{
    uint32_t number = v2->now.numbers[source];
    struct rp_stream_position at = rp_planner_position(v2->now.rows);
    if (number == RP_NO_NUMBER || at.window_first == at.window_end)
        return rp_v2_reached(v2, source);
    const struct rp_snapshot *state = rp_v2_state(v2);
    return state && number < state->source_count ? &state->sources[number] : NULL;
}

static bool v2_order(struct rp_plan_v2 *v2, uint32_t source, struct rp_block_order *order)
{
    const struct rp_source_state *state = rp_v2_reached(v2, source);
    const struct rp_stream_fixed *fixed = &rp_calendar_spec(v2->now.calendar)->fixed;
    const struct rp_stream_source *of = &v2->spec.sources[source];
    if (!state || state->documents == 0)
        return false;
    uint32_t number = v2->now.numbers[source];
    const struct rp_stage *stage = rp_calendar_at(v2->now.calendar, rp_planner_row(v2->now.rows));
    *order = (struct rp_block_order){
        .order = {.shuffle = fixed->shuffle, .source = source},
        .documents = state->documents,
        .rounds = (uint64_t)stage->limits[number].max_epochs * of->passes,
        .passes = of->passes,
        .group = fixed->group,
        .block_items = fixed->block_documents / fixed->group,
        .window_blocks = fixed->window_blocks,
        .seed = fixed->seed,
        .name_hash = rp_hash64(of->name, strlen(of->name)),
        .epoch = state->epoch,
        .documents_later = stage->documents[number],
        .documents_most = of->documents,
    };
    return true;
}

/* Documents of a round. */
static uint64_t documents_in(const struct rp_block_order *order, uint64_t round)
{
    if (order->passes == 0 || round / order->passes <= order->epoch)
        return order->documents;
    return order->documents_later;
}

static void enter(struct rp_block_order *order, uint64_t round)
{
    struct rp_order *items = &order->order;
    if (order->passes == 0) {
        rp_order_enter(items, round);
        return;
    }
    if (items->entered && items->epoch == round)
        return;
    uint32_t source = items->source;
    rp_order_init_items(items, items->shuffle, documents_in(order, round) / order->group,
                        order->block_items, order->window_blocks);
    items->source = source;
    rp_order_enter_key(items, round,
                       rp_pass_key_make(order->seed, order->name_hash,
                                        (uint32_t)(round / order->passes),
                                        (uint32_t)(round % order->passes)));
}

static uint64_t documents_in_block(const struct rp_block_order *order)
{
    if (order->order.shuffle != RP_SHUFFLE_BLOCK)
        return RP_PLAIN_DOCUMENTS;
    return order->passes ? (uint64_t)order->block_items * order->group
                         : order->order.unit_documents;
}

static uint64_t v2_position(struct rp_plan_v2 *v2, uint32_t source, bool is_window)
{
    const struct rp_source_state *state = is_window ? state_before_window(v2, source)
                                                    : rp_v2_reached(v2, source);
    const struct rp_stream_fixed *fixed = &rp_calendar_spec(v2->now.calendar)->fixed;
    const struct rp_stream_source *of = &v2->spec.sources[source];
    bool is_block = fixed->shuffle == RP_SHUFFLE_BLOCK;
    uint64_t documents = is_block ? fixed->block_documents : RP_PLAIN_DOCUMENTS;
    if (!state)
        return 0;
    uint64_t in_round = state->position * fixed->group / documents;
    if (is_window && is_block)
        in_round -= in_round % fixed->window_blocks;
    uint64_t round = (uint64_t)state->epoch * of->passes + state->pass;
    return round * rp_div_up(of->documents, documents) + in_round;
}

/* ---- orders ---------------------------------------------------------------------------------- */

bool rp_plan_block_order(const struct rp_plan *plan, uint32_t source, struct rp_block_order *order)
{
    if (plan->v2)
        return v2_order(plan->v2, source, order);
    *order = (struct rp_block_order){.order = plan->lanes[0].piece_source.cursors[source].order,
                                     .documents = plan->sources[source].documents,
                                     .rounds = plan->config.num_epochs};
    return true;
}

uint64_t rp_blocks_in_round(const struct rp_block_order *order, uint32_t lane)
{
    if (order->passes)
        return rp_div_up(order->documents_most, documents_in_block(order));
    const struct rp_order *units = &order->order;
    return units->shuffle == RP_SHUFFLE_BLOCK ? rp_div_up(units->units - lane, units->lanes)
                                              : rp_div_up(units->units, RP_PLAIN_DOCUMENTS);
}

bool rp_blocks_at(struct rp_block_order *order, uint32_t lane, uint64_t position,
                  struct rp_plan_block *block)
{
    uint64_t count = rp_blocks_in_round(order, lane), each = documents_in_block(order);
    uint64_t round = position / count, number = position % count;
    uint64_t documents = documents_in(order, round);
    if ((order->rounds > 0 && round >= order->rounds) || number * each >= documents)
        return false;
    if (order->order.shuffle == RP_SHUFFLE_BLOCK) {
        enter(order, round);
        uint64_t lanes = order->passes ? 1 : order->order.lanes;
        number = rp_permute(&order->order.unit_permutation, number * lanes + lane);
    }
    *block = (struct rp_plan_block){.source = order->order.source,
                                    .number = number,
                                    .epoch = round,
                                    .later_epochs = order->rounds ? order->rounds - 1 - round
                                                                  : UINT64_MAX,
                                    .first_document = number * each,
                                    .documents = rp_min_u64(each, documents - number * each)};
    return true;
}

bool rp_blocks_place(struct rp_block_order *order, uint64_t block, uint64_t round, uint32_t *lane,
                     uint64_t *place)
{
    *lane = 0;
    *place = block;
    if (block * documents_in_block(order) >= documents_in(order, round))
        return false;
    if (order->order.shuffle != RP_SHUFFLE_BLOCK)
        return true;
    enter(order, round);
    uint64_t lanes = order->order.lanes;
    uint64_t at = rp_permute_inverse(&order->order.unit_permutation, block);
    *lane = (uint32_t)(at % lanes);
    *place = at / lanes;
    return true;
}

/* ---- a plan ---------------------------------------------------------------------------------- */

static uint64_t position_in_epoch(const struct rp_cursor *cursor)
{
    const struct rp_order *order = &cursor->order;
    return order->shuffle == RP_SHUFFLE_BLOCK
               ? cursor->position / order->unit_documents
               : cursor->position * order->lanes / RP_PLAIN_DOCUMENTS;
}

/* The position of a lane in a source at the beginning of the cursor's epoch. */
static uint64_t position_of_epoch(const struct rp_cursor *cursor, uint32_t lane)
{
    const struct rp_block_order order = {.order = cursor->order};
    return cursor->epoch * rp_blocks_in_round(&order, lane);
}

uint64_t rp_plan_block_position(const struct rp_plan *plan, uint32_t lane, uint32_t source)
{
    if (plan->v2)
        return v2_position(plan->v2, source, false);
    const struct rp_cursor *cursor = &plan->lanes[lane].piece_source.cursors[source];
    return position_of_epoch(cursor, lane) + position_in_epoch(cursor);
}

uint64_t rp_plan_block_window(const struct rp_plan *plan, uint32_t lane, uint32_t source)
{
    if (plan->v2)
        return v2_position(plan->v2, source, true);
    const struct rp_cursor *cursor = &plan->lanes[lane].piece_source.cursors[source];
    uint64_t in_epoch = position_in_epoch(cursor);
    if (cursor->order.shuffle == RP_SHUFFLE_BLOCK)
        in_epoch -= in_epoch % cursor->order.window_units;
    return position_of_epoch(cursor, lane) + in_epoch;
}

bool rp_plan_block_at(const struct rp_plan *plan, uint32_t lane, uint32_t source, uint64_t position,
                      struct rp_plan_block *block)
{
    struct rp_block_order order;
    if (!rp_plan_block_order(plan, source, &order))
        return false;
    if (!plan->v2) /* the epoch that the lane is in has been entered */
        order.order = plan->lanes[lane].piece_source.cursors[source].order;
    return rp_blocks_at(&order, lane, position, block);
}
