/* SPDX-License-Identifier: Apache-2.0 */
/* stages.h — calendar and sources of a plan of version 2, for tools that list them. Version 1 has
 * neither. */
#ifndef RP_PLAN_STAGES_H
#define RP_PLAN_STAGES_H

#include "plan/plan.h"
#include "plan/v2/calendar.h"
#include "plan/v2/planner.h"

#define RP_PLAN_NO_NUMBER UINT32_MAX

/** The calendar, which lives until the plan is started, loaded or closed. NULL: version 1. */
const struct rp_calendar *rp_plan_calendar(const struct rp_plan *plan);
/** The number that a source of the config has in the calendar; RP_PLAN_NO_NUMBER: no stage gives it
 * a weight. */
uint32_t rp_plan_number(const struct rp_plan *plan, uint32_t source);

/** The declared stage that has a row, counted from 0, and the places of the row; of version 1: 0,
 * and the places of every row. O(stages). */
uint32_t rp_plan_stage_of(const struct rp_plan *plan, uint64_t row);
uint32_t rp_plan_places_of(const struct rp_plan *plan, uint64_t row);
/** Places of the shortest and of the longest rows. */
void rp_plan_places_range(const struct rp_plan *plan, uint32_t *least, uint32_t *most);

/** A source of the config after all planned rows, a begun deal window included. NULL: it
 * has not joined. */
const struct rp_source_state *rp_plan_reached(const struct rp_plan *plan, uint32_t source);
/** Its ledger at the next row; zeros if it has not joined. O(waiting pieces). */
void rp_plan_source_ledger(const struct rp_plan *plan, uint32_t source,
                           struct rp_stream_ledger *ledger);

#endif
