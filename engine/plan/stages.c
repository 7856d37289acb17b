/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/stages.h"

#include "plan/plan_state.h"

const struct rp_calendar *rp_plan_calendar(const struct rp_plan *plan)
{
    return plan->v2 ? plan->v2->calendar : NULL;
}

uint32_t rp_plan_number(const struct rp_plan *plan, uint32_t source)
{
    return plan->v2 ? plan->v2->numbers[source] : RP_PLAN_NO_NUMBER;
}

const struct rp_source_state *rp_plan_reached(const struct rp_plan *plan, uint32_t source)
{
    uint32_t number = rp_plan_number(plan, source);
    return number == RP_PLAN_NO_NUMBER ? NULL : rp_stream_plan_reached(plan->v2->rows, number);
}

void rp_plan_source_ledger(const struct rp_plan *plan, uint32_t source,
                           struct rp_stream_ledger *ledger)
{
    uint32_t number = rp_plan_number(plan, source);
    *ledger = (struct rp_stream_ledger){0};
    if (number != RP_PLAN_NO_NUMBER)
        rp_stream_plan_ledger(plan->v2->rows, number, ledger);
}
