/* SPDX-License-Identifier: Apache-2.0 */
/* far_plan.h — plans, on a thread of its own, to rows that are far from every known state.
 *
 * The engine's own thread plans at most RP_NEAR_ROWS rows at a time, because all consumers
 * wait for it. A row that needs more is a far row: its owner, a connection or the saver, has a
 * `struct rp_far_row`. The planner's thread plans in slices, towards the far row that has the
 * fewest rows left, and keeps the state that it has reached. So a request for a row that does not
 * exist, and that would take years to plan to, delays no other; and an owner can forget its row at
 * any time.
 *
 * Invariants: a far row belongs to the engine's thread; the planner has its own copy of its row
 * and state. `at` never decreases while the row stays the same, and `state` is the state of
 * row `at`. Once the row is near, the owner's request is served again from the beginning: `state`
 * is then one of the states from which the probe may plan.
 *
 *     engine's thread                              planner's thread
 *     serve: copies the far row in, starts    ──►  plans slices, until near, ended or yielding
 *     continue: joins, copies the result out  ◄──  done_fd
 */
#ifndef RP_SERVER_FAR_PLAN_H
#define RP_SERVER_FAR_PLAN_H

#include <pthread.h>

#include "base/atomic.h"
#include "base/fail.h"
#include "plan/plan.h"

/* A row is near if at most this many rows have to be planned to reach it: a millisecond or two. */
#ifdef RP_SIMULATION /* so few that short stories have far rows */
#define RP_NEAR_ROWS 8u
#else
#define RP_NEAR_ROWS 4096u
#endif

/* Written by far_plan.c only. rp_far_row_forget leads to UNWANTED, rp_far_row_expire to EXPIRED.
 *
 *   UNWANTED  no row is wanted, and there is no state. want: OPEN
 *   OPEN      the planner is to plan to the row. want: OPEN, with the same or another row;
 *             continue, if at most RP_NEAR_ROWS are left or a slice has failed: NEAR
 *   NEAR      the owner plans the rest. want: OPEN
 *   EXPIRED   the stream has changed: the owner wants its row again, of the new one. want: OPEN */
enum rp_far_progress { RP_FAR_UNWANTED, RP_FAR_OPEN, RP_FAR_NEAR, RP_FAR_EXPIRED };

struct rp_far_row {
    enum rp_far_progress progress;
    uint64_t row; /* the wanted row */
    uint64_t at;  /* the row of `state` */
    void *state;  /* NULL: none yet */
    size_t bytes;
};

struct rp_far_planner {
    int done_fd; /* eventfd: the thread has ended */
    struct rp_plan *plan;
    bool accept_weights;
    pthread_t thread;
    bool is_busy;
    struct rp_far_row *served; /* NULL: none, or its owner has forgotten it */
    struct rp_a32 yield;       /* 1: end after this slice. Writer: the engine's thread */
    /* belongs to the planner's thread while is_busy */
    struct rp_far_row work;
};

/** Want `row`. Planning begins at the row of the plan `from`, which is below `row`; or at far->at,
 * if that is between the two rows. */
RP_MUST_CHECK int rp_far_row_want(struct rp_far_row *far, uint64_t row, const struct rp_plan *from,
                                  struct rp_error *error);
/** The owner gives up its far row: frees the state. */
void rp_far_row_forget(struct rp_far_planner *planner, struct rp_far_row *far);
/** The same, but the owner is to serve its request again, because the stream has changed. */
void rp_far_row_expire(struct rp_far_planner *planner, struct rp_far_row *far);
/** Is the owner to serve its request again? */
static inline bool rp_far_row_is_due(const struct rp_far_row *far)
{
    return far->progress == RP_FAR_NEAR || far->progress == RP_FAR_EXPIRED;
}

/** The one of two far rows to plan to first. Either may be NULL or not OPEN; NULL if both are. */
struct rp_far_row *rp_far_row_sooner(struct rp_far_row *a, struct rp_far_row *b);
/** Plan towards this row, or with NULL towards none. A slice under way is finished first. */
RP_MUST_CHECK int rp_far_planner_serve(struct rp_far_planner *planner, struct rp_far_row *far,
                                       struct rp_error *error);
/** done_fd was written: join the thread, and copy its result to the far row. */
void rp_far_planner_continue(struct rp_far_planner *planner);
/** End the thread, and close the plan. */
void rp_far_planner_close(struct rp_far_planner *planner);

#endif
