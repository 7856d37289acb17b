/* SPDX-License-Identifier: Apache-2.0 */
/* lane.h — one lane: the source of its pieces, and the documents that its packing holds back
 * between two rows (STREAM.md section 5).
 *
 * All three packings use the same struct, and leave the members that they do not need empty. So the
 * state token has one layout, which is checked in one place. */
#ifndef RP_PLAN_LANE_H
#define RP_PLAN_LANE_H

#include "plan/piece_source.h"
#include "plan/window.h"

/* best_fit closes a row when RP_AGE_MAX_WINDOWS * window documents have been placed since it was
 * opened. So all open rows together have at most that many fragments, whatever max_docs_per_row is.
 */
#define RP_AGE_MAX_WINDOWS 64u

/* A row that best_fit keeps open. rp_open_fragments has its fragments. */
struct rp_open_row {
    uint64_t opened_at;
    uint32_t count, gap;
};

struct rp_lane {
    const struct rp_plan_config *config;
    struct rp_piece_source piece_source;
    struct rp_lane_counts counts;

    struct rp_window window;            /* lookahead: the FIFO; best_fit: the open rows */
    struct rp_piece *pieces;            /* lookahead, by slot */
    struct rp_piece pending;            /* length 0 = none; in lookahead longer than seq_len */
    struct rp_open_row *open_rows;      /* best_fit, by slot */
    struct rp_fragment *open_fragments; /* best_fit */

    uint64_t cuts, capped; /* counted since the plan was opened; not in the token */
};

/** Most fragments of an open row, including the one that may be added when it is closed. */
static inline size_t rp_open_fragments_max(const struct rp_plan_config *config)
{
    return rp_min_u64(config->max_docs_per_row, (uint64_t)RP_AGE_MAX_WINDOWS * config->window + 1);
}
static inline struct rp_fragment *rp_open_fragments(const struct rp_lane *lane, uint16_t slot)
{
    return lane->open_fragments + slot * rp_open_fragments_max(lane->config);
}

/** Open lane `number` of a plan, as rp_piece_source_open. */
RP_MUST_CHECK int rp_lane_open(struct rp_lane *lane, const struct rp_plan *plan, uint32_t number,
                               struct rp_error *error);
void rp_lane_close(struct rp_lane *lane);

/** Tokens that were read and are neither emitted nor truncated nor dropped. */
uint64_t rp_lane_buffered(const struct rp_lane *lane);

/** Whether the lane has ended: every further row would be without fragments. */
bool rp_lane_is_over(const struct rp_lane *lane);

/** Append a piece to the FIFO. */
void rp_lane_add_piece(struct rp_lane *lane, const struct rp_piece *piece);
/** Open a row and return its slot. The caller adds the fragments, which must leave `gap` > 0. */
uint16_t rp_lane_add_open_row(struct rp_lane *lane, uint64_t opened_at, uint32_t gap);

#endif
