/* SPDX-License-Identifier: Apache-2.0 */
/* facade_trace.h — the calls of plan/trace.h for a plan of version 2. Private to engine/plan. */
#ifndef RP_PLAN_V2_FACADE_TRACE_H
#define RP_PLAN_V2_FACADE_TRACE_H

#include "plan/trace.h"
#include "plan/v2/facade.h"

/** Find the position of draw->document in draw->epoch and draw->pass. */
RP_MUST_CHECK int rp_v2_draw(const struct rp_plan_v2 *v2, struct rp_draw *draw,
                             struct rp_error *error);
bool rp_v2_has_drawn(const struct rp_plan_v2 *v2, const struct rp_draw *draw);
bool rp_v2_holds(struct rp_plan_v2 *v2, const struct rp_draw *draw);
bool rp_v2_is_past(struct rp_plan_v2 *v2, const struct rp_draw *draw);

#endif
