/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/stages.h"

#include "plan/plan_state.h"

const struct rp_calendar *rp_plan_calendar(const struct rp_plan *plan)
{
    return plan->v2 ? plan->v2->now.calendar : NULL;
}

uint32_t rp_plan_number(const struct rp_plan *plan, uint32_t source)
{
    return plan->v2 ? plan->v2->now.numbers[source] : RP_PLAN_NO_NUMBER;
}

uint32_t rp_plan_stage_of(const struct rp_plan *plan, uint64_t row)
{
    return plan->v2 ? rp_v2_stage_of(plan->v2, row) : 0;
}

uint32_t rp_plan_places_of(const struct rp_plan *plan, uint64_t row)
{
    const struct rp_calendar *calendar = rp_plan_calendar(plan);
    return calendar ? rp_calendar_at(calendar, row)->seq_len : rp_plan_seq_len(plan);
}

void rp_plan_places_range(const struct rp_plan *plan, uint32_t *least, uint32_t *most)
{
    const struct rp_calendar *calendar = rp_plan_calendar(plan);
    *least = *most = rp_plan_places_of(plan, 0);
    for (uint64_t row = 0; calendar && row != RP_NO_ROW; row = rp_calendar_next(calendar, row)) {
        uint32_t places = rp_calendar_at(calendar, row)->seq_len;
        *least = (uint32_t)rp_min_u64(*least, places);
        *most = (uint32_t)rp_max_u64(*most, places);
    }
}

const struct rp_source_state *rp_plan_reached(const struct rp_plan *plan, uint32_t source)
{
    return plan->v2 ? rp_v2_reached(plan->v2, source) : NULL;
}

void rp_plan_source_ledger(const struct rp_plan *plan, uint32_t source,
                           struct rp_stream_ledger *ledger)
{
    uint32_t number = rp_plan_number(plan, source);
    *ledger = (struct rp_stream_ledger){0};
    if (number != RP_PLAN_NO_NUMBER)
        rp_planner_ledger(plan->v2->now.rows, number, ledger);
}
