/* SPDX-License-Identifier: Apache-2.0 */
/* planner.h — the rows of a stream of version 2 (STREAM2.md), in the order in which they are
 * delivered.
 *
 * The plan is a pure, sequential function of its calendar and the views of its sources. Any number
 * of plans may be open; each is used by one thread at a time. */
#ifndef RP_PLAN_V2_PLANNER_H
#define RP_PLAN_V2_PLANNER_H

#include "plan/v2/calendar.h"
#include "plan/v2/state.h"

struct rp_planner;

/* Row g. `fragments` (source: number in the stream) points into the plan, and stays valid until the
 * next call on it. */
struct rp_stream_row {
    uint64_t row, planned; /* g, q */
    uint32_t count;        /* fragments; 0: of a skipped row */
    uint32_t tokens;       /* sum of their lengths */
    bool skipped;
    uint64_t cost; /* section 8; 0 without deal */
    const struct rp_fragment *fragments;
    const uint32_t *epochs; /* by fragment */
};

/** Open a plan at row 0. The calendar is borrowed. All memory but deal windows is allocated
 * here. Errors: -ENOMEM, -RP_E_CONFIG. */
RP_MUST_CHECK int rp_planner_open(struct rp_planner **plan_out, const struct rp_calendar *calendar,
                                  struct rp_error *error);
void rp_planner_close(struct rp_planner *plan); /* NULL is fine */

/** The next row: 1 with *row set, or 0 at the end of the stream. Errors: -RP_E_CORRUPT (a damaged
 * index entry), -RP_E_EMPTY (a source selects nothing), a limit with `error` (-RP_E_EMPTY, too).
 * After an error every further call returns it again, and no row of its deal window is returned. */
RP_MUST_CHECK int rp_planner_next(struct rp_planner *plan, struct rp_stream_row *row,
                                  struct rp_error *error);
uint64_t rp_planner_row(const struct rp_planner *plan); /* g of the next row */

/* Where a state token of the next row stands (section 12.1). */
struct rp_stream_position {
    uint64_t next_row, window_first, window_end;
};
struct rp_stream_position rp_planner_position(const struct rp_planner *plan);

/** The state before planned row window_first. *snapshot is resized and filled. */
RP_MUST_CHECK int rp_planner_snapshot(const struct rp_planner *plan, struct rp_snapshot *snapshot,
                                      struct rp_error *error);

/** Continue from a snapshot at position->window_first whose values have been verified: if next_row
 * is inside its window, the window is planned again, with `limits` (by number; NULL: the
 * calendar's) in force up to window_end. -RP_E_MISMATCH if the window ends elsewhere. */
RP_MUST_CHECK int rp_planner_restore(struct rp_planner *plan, const struct rp_snapshot *snapshot,
                                     const struct rp_stream_position *position,
                                     const struct rp_limits *limits, uint32_t limits_count,
                                     struct rp_error *error);

const struct rp_calendar *rp_planner_calendar(const struct rp_planner *plan);
/** A source after all planned rows, a begun deal window included. NULL: it has not joined
 * by then. */
const struct rp_source_state *rp_planner_reached(const struct rp_planner *plan, uint32_t number);
/** Memory of planner_token.c that lives as long as the plan, which frees it with free(). NULL at
 * first; a new value frees the one before. */
void *rp_planner_carried(const struct rp_planner *plan);
void rp_planner_carry(struct rp_planner *plan, void *carried);

/* The ledger of one source at the next row (section 10.5): tokens. */
struct rp_stream_ledger {
    uint64_t planned, waiting, withheld, delivered;
    uint64_t taken; /* documents */
};
void rp_planner_ledger(const struct rp_planner *plan, uint32_t number,
                       struct rp_stream_ledger *ledger);

/** Memory of a deal window of `rows` rows that have that many fragments. */
uint64_t rp_planner_window_bytes(uint32_t rows, uint64_t fragments);

#endif
