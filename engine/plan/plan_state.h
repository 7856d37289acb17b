/* SPDX-License-Identifier: Apache-2.0 */
/* plan_state.h — the members of a plan: of version 1, or only v2. Private to engine/plan. */
#ifndef RP_PLAN_PLAN_STATE_H
#define RP_PLAN_PLAN_STATE_H

#include "plan/lane.h"
#include "plan/v2/facade.h"

struct rp_plan {
    void *owned; /* NULL: nothing */
    void (*free_owned)(void *owned);
    struct rp_plan_v2 *v2;        /* version 2: all that follows is 0. NULL: version 1 */
    struct rp_plan_config config; /* unused parameters are 0 */
    uint32_t source_count;
    struct rp_plan_source *sources;
    uint64_t *weights; /* by source: an array of their own, because mixing compares them often */
    struct rp_lane *lanes;
    struct rp_fragment *row_fragments; /* the last row's, unless it is an open row of best_fit */
    uint64_t next_row;
    struct rp_hash128 digest; /* plan digest of the rows before next_row; zero if not known */
    bool failed;              /* rp_plan_next failed in the middle of a row */
    struct rp_error failure;
};

/** The lane of `row`. */
static inline struct rp_lane *rp_plan_lane(const struct rp_plan *plan, uint64_t row)
{
    return &plan->lanes[plan->config.lanes == 1 ? 0 : row % plan->config.lanes];
}

/** Add a lane's counts to the sum over all lanes. */
static inline void rp_plan_counts_add(struct rp_plan_counts *sum, const struct rp_lane_counts *lane)
{
    sum->documents += lane->documents;
    sum->empty += lane->empty;
    sum->tokens_read += lane->tokens_read;
    sum->truncated += lane->truncated;
    sum->dropped += lane->dropped;
    sum->emitted += lane->emitted;
    sum->padding += lane->padding;
}

/** rp_plan_state_bytes_max for a configuration that was checked. */
uint64_t rp_state_bytes_max(const struct rp_plan_config *config, uint32_t source_count);

#endif
