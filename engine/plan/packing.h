/* SPDX-License-Identifier: Apache-2.0 */
/* packing.h — how a lane makes its next row: one file for each packing. STREAM.md section 5 defines
 * them. */
#ifndef RP_PLAN_PACKING_H
#define RP_PLAN_PACKING_H

#include "plan/lane.h"

/* The row that is being made. In best_fit `fragments` points into an open row. */
struct rp_draft {
    struct rp_fragment *fragments;
    uint32_t count, gap;
};

static inline bool rp_draft_has_room(const struct rp_draft *draft, const struct rp_lane *lane)
{
    return draft->gap > 0 && draft->count < lane->config->max_docs_per_row;
}

/** Take `tokens` of a piece into the row, and count a cut if some of the piece is left. */
static inline void rp_draft_take(struct rp_draft *draft, struct rp_lane *lane,
                                 struct rp_piece *piece, uint32_t tokens)
{
    draft->fragments[draft->count++] = (struct rp_fragment){piece->document, piece->offset,
                                                            piece->source, tokens};
    draft->gap -= tokens;
    piece->offset += tokens;
    piece->length -= tokens;
    lane->cuts += piece->length > 0;
}

/* Fill an empty draft with the lane's next row. A row without fragments means that the lane has
 * ended. Errors: as rp_piece_source_next; after one the lane cannot be used any more. */
RP_MUST_CHECK int rp_lookahead_row(struct rp_lane *lane, struct rp_draft *row,
                                   struct rp_error *error);
RP_MUST_CHECK int rp_concat_row(struct rp_lane *lane, struct rp_draft *row, struct rp_error *error);
RP_MUST_CHECK int rp_best_fit_row(struct rp_lane *lane, struct rp_draft *row,
                                  struct rp_error *error);

#endif
