/* SPDX-License-Identifier: Apache-2.0 */
/* `block` uses two permutations: one of the blocks of the source, and one of the documents of each
 * window of the lane's blocks. Only the last block of a source can be short. The inverse
 * permutation gives its place in the epoch, so the start of every window is computed without
 * visiting the windows before it. */
#include "plan/order.h"

#include <string.h>

#include "base/bits.h"
#include "base/fail.h"

enum { STAGE_UNITS = 0, STAGE_WINDOW = 1 };
#define NO_UNIT UINT64_MAX

uint64_t rp_order_units(const struct rp_plan_config *config, uint64_t documents)
{
    return config->shuffle == RP_SHUFFLE_BLOCK ? rp_div_up(documents, config->block_documents)
                                               : documents;
}

void rp_order_init(struct rp_order *order, const struct rp_plan_config *config, uint64_t documents,
                   uint32_t source, uint32_t lane)
{
    bool blocks = config->shuffle == RP_SHUFFLE_BLOCK;
    uint64_t units = rp_order_units(config, documents);
    uint64_t unit_documents = blocks ? config->block_documents : 1;
    RP_ASSERT(units >= config->lanes && lane < config->lanes);
    *order = (struct rp_order){
        .seed = config->seed,
        .units = units,
        .lane_units = rp_div_up(units - lane, config->lanes),
        .unit_documents = unit_documents,
        .last_unit_documents = documents - (units - 1) * unit_documents,
        .window_units = blocks ? config->window_blocks : 0,
        .source = source,
        .lane = lane,
        .lanes = config->lanes,
        .shuffle = config->shuffle,
    };
}

void rp_order_init_items(struct rp_order *order, enum rp_shuffle shuffle, uint64_t items,
                         uint32_t block_items, uint32_t window_blocks)
{
    struct rp_plan_config config = {
        .shuffle = shuffle,
        .block_documents = block_items,
        .window_blocks = window_blocks,
        .lanes = 1,
    };
    rp_order_init(order, &config, items, 0, 0);
}

/* Documents that the last unit of the source has less than a full one. */
static uint64_t missing_documents(const struct rp_order *order)
{
    return order->unit_documents - order->last_unit_documents;
}

uint64_t rp_order_documents_min(const struct rp_order *order)
{
    return order->lane_units * order->unit_documents - missing_documents(order);
}

void rp_order_enter(struct rp_order *order, uint64_t epoch)
{
    if (!order->entered || order->epoch != epoch)
        rp_order_enter_key(order, epoch, rp_epoch_key_make(order->seed, order->source, epoch));
}

void rp_order_enter_key(struct rp_order *order, uint64_t epoch, struct rp_epoch_key key)
{
    order->entered = true;
    order->epoch = epoch;
    order->window_known = false;
    order->ready_count = 0;
    order->short_unit = NO_UNIT;
    if (order->shuffle != RP_SHUFFLE_NONE) {
        order->epoch_key = key;
        order->unit_permutation = rp_permutation_make(order->units, order->epoch_key, STAGE_UNITS,
                                                      0);
    }
    if (missing_documents(order) > 0) {
        uint64_t place = rp_permute_inverse(&order->unit_permutation, order->units - 1);
        if (place % order->lanes == order->lane)
            order->short_unit = place / order->lanes;
    }
    order->documents = order->lane_units * order->unit_documents;
    if (order->short_unit != NO_UNIT)
        order->documents -= missing_documents(order);
}

/* Replace the lane's unit numbers k by the units of the source. */
static void units_of_lane(const struct rp_order *order, uint64_t *k, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        k[i] = k[i] * order->lanes + order->lane;
    if (order->shuffle != RP_SHUFFLE_NONE)
        rp_permute_many(&order->unit_permutation, k, count);
}

/* A window of the lane's units, its first position in the epoch, and its number of documents. */
struct window {
    uint64_t number, start, documents;
};

/* Documents in the lane's units before unit k. */
static uint64_t documents_before(const struct rp_order *order, uint64_t k)
{
    return k * order->unit_documents - (k > order->short_unit ? missing_documents(order) : 0);
}

static struct window window_at(const struct rp_order *order, uint64_t position)
{
    uint64_t number = position / (order->window_units * order->unit_documents);
    /* Windows after the short unit begin earlier than this division says, by less than a unit. */
    uint64_t next = rp_min_u64((number + 1) * order->window_units, order->lane_units);
    if (position >= documents_before(order, next)) {
        number++;
        next = rp_min_u64(next + order->window_units, order->lane_units);
    }
    uint64_t start = documents_before(order, number * order->window_units);
    return (struct window){number, start, documents_before(order, next) - start};
}

static struct rp_permutation permutation_of(const struct rp_order *order,
                                            const struct window *window)
{
    return rp_permutation_make(window->documents, order->epoch_key, STAGE_WINDOW,
                               window->number * order->lanes + order->lane);
}

/* The number of documents of a window, at most `most`. */
static uint32_t read_window(struct rp_order *order, uint64_t position, uint32_t most,
                            uint64_t *documents)
{
    struct window window = window_at(order, position);
    if (!order->window_known || order->window != window.number) {
        order->window_known = true;
        order->window = window.number;
        order->window_permutation = permutation_of(order, &window);
    }
    uint64_t place = position - window.start;
    uint32_t count = (uint32_t)rp_min_u64(most, window.documents - place);
    for (uint32_t i = 0; i < count; i++)
        documents[i] = place + i;
    rp_permute_many(&order->window_permutation, documents, count);

    uint64_t unit[RP_PERMUTE_MANY_MAX], offset[RP_PERMUTE_MANY_MAX];
    for (uint32_t i = 0; i < count; i++) {
        uint64_t in_lane = window.start + documents[i];
        /* As if the short unit were full, so that a division gives unit and offset. */
        if (order->short_unit != NO_UNIT &&
            in_lane >= order->short_unit * order->unit_documents + order->last_unit_documents)
            in_lane += missing_documents(order);
        unit[i] = in_lane / order->unit_documents;
        offset[i] = in_lane % order->unit_documents;
        RP_DASSERT(unit[i] < order->lane_units);
    }
    units_of_lane(order, unit, count);
    for (uint32_t i = 0; i < count; i++)
        documents[i] = unit[i] * order->unit_documents + offset[i];
    return count;
}

static uint32_t read_units(const struct rp_order *order, uint64_t position, uint32_t most,
                           uint64_t *documents)
{
    uint32_t count = (uint32_t)rp_min_u64(most, order->documents - position);
    uint64_t unit = position * order->lanes + order->lane;
    for (uint32_t i = 0; i < count; i++, unit += order->lanes)
        documents[i] = unit;
    if (order->shuffle != RP_SHUFFLE_NONE)
        rp_permute_many(&order->unit_permutation, documents, count);
    return count;
}

/* Few documents at first, so that a start is fast; more where a reader continues. */
static void make_ready(struct rp_order *order, uint64_t position)
{
    bool goes_on = order->ready_count > 0 && position == order->ready_from + order->ready_count;
    uint32_t most = goes_on ? RP_PERMUTE_MANY_MAX : RP_ORDER_READ_MAX;
    order->ready_from = position;
    order->ready_count = order->shuffle == RP_SHUFFLE_BLOCK
                             ? read_window(order, position, most, order->ready)
                             : read_units(order, position, most, order->ready);
}

uint32_t rp_order_read(struct rp_order *order, uint64_t position, uint64_t *documents)
{
    RP_DASSERT(order->entered && position < order->documents);
    if (position - order->ready_from >= order->ready_count)
        make_ready(order, position);
    uint32_t first = (uint32_t)(position - order->ready_from);
    uint32_t count = (uint32_t)rp_min_u64(RP_ORDER_READ_MAX, order->ready_count - first);
    memcpy(documents, order->ready + first, count * sizeof *documents);
    return count;
}

/* The place of a document's unit among the units of all lanes, in the order of the epoch. */
static uint64_t place_of(const struct rp_order *order, uint64_t document)
{
    uint64_t unit = document / order->unit_documents;
    return order->shuffle == RP_SHUFFLE_NONE ? unit
                                             : rp_permute_inverse(&order->unit_permutation, unit);
}

uint32_t rp_order_lane_of(const struct rp_order *order, uint64_t document)
{
    RP_DASSERT(order->entered);
    return (uint32_t)(place_of(order, document) % order->lanes);
}

uint64_t rp_order_position_of(const struct rp_order *order, uint64_t document)
{
    RP_DASSERT(rp_order_lane_of(order, document) == order->lane);
    uint64_t k = place_of(order, document) / order->lanes;
    if (order->shuffle != RP_SHUFFLE_BLOCK)
        return k;
    uint64_t in_lane = documents_before(order, k) + document % order->unit_documents;
    struct window window = window_at(order, in_lane);
    struct rp_permutation permutation = permutation_of(order, &window);
    return window.start + rp_permute_inverse(&permutation, in_lane - window.start);
}
