/* SPDX-License-Identifier: Apache-2.0 */
/* trace.h — from a document to its place in the plan, and from a fragment to its epoch, for tools
 * that explain a stream. No call here changes a plan. */
#ifndef RP_PLAN_TRACE_H
#define RP_PLAN_TRACE_H

#include "plan/plan.h"

/* The reading of a document: its lane, and its position in an epoch of its source. */
struct rp_draw {
    uint64_t document, epoch, position;
    uint32_t source, lane, pass; /* pass: of version 2 */
};

/** Version 1 only. O(1): the order of an epoch can be inverted. */
struct rp_draw rp_plan_draw(const struct rp_plan *plan, uint32_t source, uint64_t document,
                            uint64_t epoch);
/** Find lane and position of a draw of either version, in a pass below rp_plan_passes. It is not
 * known whether the document is selected. Error: -RP_E_USAGE if the order of that epoch is not
 * known, or does not have the document. */
RP_MUST_CHECK int rp_plan_find_draw(const struct rp_plan *plan, struct rp_draw *draw,
                                    struct rp_error *error);
/** Passes of an epoch of a source; 1 in version 1. */
uint32_t rp_plan_passes(const struct rp_plan *plan, uint32_t source);
/** Whether the plan has read the document there, for a row before its next one, or for a row of the
 * deal window that it is in. */
bool rp_plan_has_drawn(const struct rp_plan *plan, const struct rp_draw *draw);
/** Whether the lane holds back a part of the document for later rows; in a deal window: for the
 * window's rows and later ones. */
bool rp_plan_holds(const struct rp_plan *plan, const struct rp_draw *draw);
/** Whether all rows that have a part of the document are before the next one. */
bool rp_plan_is_past(const struct rp_plan *plan, const struct rp_draw *draw);

/** The epoch of fragment `number` of the row that rp_plan_next has just returned. In version 1 it
 * is exact where a source has more documents than a lane holds back; of a smaller one, the parts of
 * one document in two epochs may be taken for each other. In version 2 it is exact. */
uint64_t rp_plan_epoch(const struct rp_plan *plan, const struct rp_row *row, uint32_t number);

/** The last epoch of a source that a lane has begun before the next row. */
uint64_t rp_plan_source_epoch(const struct rp_plan *plan, uint32_t source);

/** Whether the weights, or num_epochs after a source had ended, were changed at a row of this
 * stream before the next one. Then the rows before that cannot be planned with the weights of
 * today. In version 2: whether records before the next row are not known, with the same result. */
bool rp_plan_is_reweighted(const struct rp_plan *plan);

#endif
