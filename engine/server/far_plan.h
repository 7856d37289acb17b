/* SPDX-License-Identifier: Apache-2.0 */
/* far_plan.h — planning to rows that are far from every state at hand, on a thread of its own.
 *
 * The engine's own thread plans at most RP_NEAR_ROWS rows at a time, because everybody waits for
 * it. A row that needs more is a `struct rp_far_row` of whoever wants it: a connection, or the
 * saver. One thread plans towards the wanted row that has the fewest rows left, in slices, and
 * keeps the state it has come to. So a row that somebody made up, which may be years away, holds up
 * no other; and whoever wanted it can leave at any time.
 *
 * Invariants: a far row belongs to the engine's thread; the planner has copies of what it needs.
 * `at` never decreases while the row stays the same, and `state` is the state of row `at`. Once the
 * row is near, what wanted it is simply tried again: the state is then one more that is at hand.
 *
 *     engine's thread                            planner's thread
 *     seek, schedule: copies in, start      ──►  slices, until near, ended or told to yield
 *     continue: join, copies out, schedule  ◄──  done_fd
 */
#ifndef RP_SERVER_FAR_PLAN_H
#define RP_SERVER_FAR_PLAN_H

#include <pthread.h>

#include "base/atomic.h"
#include "base/fail.h"
#include "plan/plan.h"

/* Rows planned in a millisecond or two. */
#ifdef RP_SIMULATION /* so few that short stories have far rows */
#define RP_NEAR_ROWS 8u
#else
#define RP_NEAR_ROWS 4096u
#endif

struct rp_far_row {
    bool is_wanted;
    bool is_near; /* the last slice is left to whoever wants the row, errors included */
    uint64_t row; /* that is wanted */
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
    struct rp_far_row *served; /* NULL: whoever wanted it has left */
    struct rp_a32 yield;       /* 1: end after this slice. Writer: the engine's thread */
    /* the thread's own while it is busy */
    struct rp_far_row work;
};

/** `row` is wanted, from where the plan stands, an earlier row, or from where planning towards it
 * has come already. */
RP_MUST_CHECK int rp_far_row_want(struct rp_far_row *far, uint64_t row, const struct rp_plan *from,
                                  struct rp_error *error);
/** Nothing is wanted any more; frees the state. */
void rp_far_row_forget(struct rp_far_planner *planner, struct rp_far_row *far);

/** Of two rows, the one to be planned first. Either may be NULL, or not wanted. */
struct rp_far_row *rp_far_row_sooner(struct rp_far_row *a, struct rp_far_row *b);
/** Plan towards this row (NULL: towards none), if need be after the slice under way. */
RP_MUST_CHECK int rp_far_planner_serve(struct rp_far_planner *planner, struct rp_far_row *far,
                                       struct rp_error *error);
/** done_fd was written: put the result where it belongs. */
void rp_far_planner_continue(struct rp_far_planner *planner);
/** End the thread, and close the plan. */
void rp_far_planner_close(struct rp_far_planner *planner);

#endif
