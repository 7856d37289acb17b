/* SPDX-License-Identifier: Apache-2.0 */
/* planner_state.h — the members of a plan of version 2. Private to engine/plan/v2. */
#ifndef RP_PLAN_V2_PLANNER_STATE_H
#define RP_PLAN_V2_PLANNER_STATE_H

#include "plan/v2/deal.h"
#include "plan/v2/stores.h"
#include "plan/v2/planner.h"

struct rp_dealt_row {
    uint64_t first; /* its first fragment in the window */
    uint32_t count, tokens;
};

/* The rows of a deal window that is being delivered. */
struct rp_deal_window {
    uint32_t capacity, count; /* rows; 0: no window is begun */
    uint64_t first;
    struct rp_dealt_row *rows; /* by planned row */
    uint64_t *costs;
    uint32_t *order; /* by place: planned row, from 0 */
    void *scratch;
    uint64_t fragments_used, fragments_capacity;
    struct rp_fragment *fragments;
    uint32_t *epochs;              /* by fragment */
    struct rp_stores_saved before; /* the state before `first` */
};

struct rp_planner {
    const struct rp_calendar *calendar;
    struct rp_stores stores;  /* after all planned rows */
    uint64_t next_row;        /* g */
    uint64_t planned;         /* the planned row that comes next */
    struct rp_hash128 digest; /* plan digest of the rows before it */
    bool has_skips, is_over, failed;
    struct rp_error failure;
    struct rp_stores_saved undo; /* the state before a row that may be the end */
    struct rp_deal_window window;
    struct rp_limits *limits; /* limits of a token */
    void *carried;
};

#endif
