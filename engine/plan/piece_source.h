/* SPDX-License-Identifier: Apache-2.0 */
/* piece_source.h — the next document of a lane (STREAM.md section 4).
 *
 * Mixing chooses the source, the cursor of the source gives the document, and long_doc decides how
 * much of it is used. Cursors read documents and lengths ahead for speed. The read-ahead is not
 * part of the state: after rp_piece_source_reset the same documents follow. */
#ifndef RP_PLAN_PIECE_SOURCE_H
#define RP_PLAN_PIECE_SOURCE_H

#include "plan/mixing.h"
#include "plan/order.h"
#include "plan/plan.h"

/* The part of a document that was delivered and is in no row yet. */
struct rp_piece {
    uint64_t document, offset, length;
    uint32_t source;
};

/* The counts of a lane, in the order of the state token. */
struct rp_lane_counts {
    uint64_t documents, empty, tokens_read, truncated, dropped, emitted, padding, placed;
};
RP_STATIC_ASSERT(sizeof(struct rp_lane_counts) == 64, "the state token holds these eight numbers");

/* A lane's place in a source. Only (epoch, position) and mixing.mixed of the source are state. */
struct rp_cursor {
    uint64_t epoch, position;
    struct rp_order order;
    uint32_t ahead_next, ahead_count; /* read, not yet delivered: [next, count) */
    uint64_t ahead_document[RP_ORDER_READ_MAX];
    uint64_t ahead_length[RP_ORDER_READ_MAX];
    /* The last answer of rp_piece_source_has_more, which may have searched far, and its position.
     */
    bool is_answered, has_more;
    uint64_t answer_epoch, answer_position;
};

struct rp_piece_source {
    const struct rp_plan_config *config;
    const struct rp_plan_source *sources;
    uint32_t source_count;
    struct rp_cursor *cursors; /* by source */
    struct rp_mixing mixing;
    uint8_t *finished; /* by source: its last epoch is over */
};

/** Open at the beginning of all sources, in a lane of the plan, whose config, sources and weights
 * are borrowed. */
RP_MUST_CHECK int rp_piece_source_open(struct rp_piece_source *piece_source,
                                       const struct rp_plan *plan, uint32_t lane,
                                       struct rp_error *error);
void rp_piece_source_close(struct rp_piece_source *piece_source);

/** Deliver the next piece and count it. Returns 1, 0 when all sources are finished, or the error of
 * rp_plan_next for a damaged index entry or a source without a token. */
RP_MUST_CHECK int rp_piece_source_next(struct rp_piece_source *piece_source, struct rp_piece *piece,
                                       struct rp_lane_counts *counts, struct rp_error *error);

/** Whether rp_piece_source_next would deliver a piece or fail. The state does not change. */
bool rp_piece_source_has_more(const struct rp_piece_source *piece_source);

/** Recompute the values derived from the state. Call it after (epoch, position) or mixed were
 * set. */
void rp_piece_source_reset(struct rp_piece_source *piece_source);

/** How many tokens of a document of `length` tokens are used, by long_doc. */
static inline uint64_t rp_length_kept(const struct rp_plan_config *config, uint64_t length)
{
    if (length <= config->seq_len || config->long_doc == RP_LONG_DOC_SPLIT)
        return length;
    return config->long_doc == RP_LONG_DOC_TRUNCATE ? config->seq_len : 0;
}

#endif
