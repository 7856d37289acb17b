/* SPDX-License-Identifier: Apache-2.0 */
/* order.h — the order in which a lane uses the documents of a source in an epoch (STREAM.md section
 * 3).
 *
 * An order has no position of its own: the documents at any position are computed in O(1) from
 * sizes and cached keys, many at once if positions follow each other. It may be copied by value. */
#ifndef RP_PLAN_ORDER_H
#define RP_PLAN_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "plan/permutation.h"
#include "plan/plan.h"

#define RP_ORDER_READ_MAX 64u

struct rp_order {
    /* Fixed: one source under one lane. A unit is a document, or a block of `unit_documents`. */
    uint64_t seed;
    uint64_t units, lane_units;
    uint64_t unit_documents, last_unit_documents; /* the last unit of the source may be short */
    uint64_t window_units;
    uint32_t source, lane, lanes;
    enum rp_shuffle shuffle;

    /* The epoch that rp_order_enter was last called with. */
    bool entered;
    uint64_t epoch;
    struct rp_epoch_key epoch_key;
    struct rp_permutation unit_permutation;
    uint64_t documents;  /* this lane's, in this epoch */
    uint64_t short_unit; /* the lane's unit that is the short last one; UINT64_MAX = none is */

    /* `block` only: the window that was read last. */
    bool window_known;
    uint64_t window;
    struct rp_permutation window_permutation;

    /* Documents of the current epoch that were computed last, from position ready_from on. */
    uint64_t ready_from;
    uint32_t ready_count;
    uint64_t ready[RP_PERMUTE_MANY_MAX];
};

void rp_order_init(struct rp_order *order, const struct rp_plan_config *config, uint64_t documents,
                   uint32_t source, uint32_t lane);

/** The order of all items of a source (STREAM2.md section 3): one lane, and the caller makes the
 * keys of epochs. */
void rp_order_init_items(struct rp_order *order, enum rp_shuffle shuffle, uint64_t items,
                         uint32_t block_items, uint32_t window_blocks);

/** Number of units (documents or blocks) of a source. Units are distributed over the lanes. */
uint64_t rp_order_units(const struct rp_plan_config *config, uint64_t documents);

/** Fewest documents that this lane can have in an epoch. The most are lane_units * unit_documents.
 */
uint64_t rp_order_documents_min(const struct rp_order *order);

/** Make `epoch` the current one; afterwards order->documents is valid. */
void rp_order_enter(struct rp_order *order, uint64_t epoch);
/** As rp_order_enter, with a key of the caller's; `epoch` is its number for rp_order_enter. */
void rp_order_enter_key(struct rp_order *order, uint64_t epoch, struct rp_epoch_key key);

/** The documents of the current epoch from `position` < order->documents on. Returns how many, 1 to
 * RP_ORDER_READ_MAX: a read ends at the latest with the epoch, and with a window. */
uint32_t rp_order_read(struct rp_order *order, uint64_t position, uint64_t *documents);

/** The inverse, in O(1): the lane that uses a document of the source in the current epoch. Orders
 * of all lanes give the same answer. */
uint32_t rp_order_lane_of(const struct rp_order *order, uint64_t document);
/** And the position at which this lane, which uses the document in the current epoch, reads it. */
uint64_t rp_order_position_of(const struct rp_order *order, uint64_t document);

#endif
