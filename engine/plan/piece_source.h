/* SPDX-License-Identifier: Apache-2.0 */
/* piece_source.h — the next document of a lane (STREAM.md section 4).
 *
 * Flow: mixing names the source, the source's cursor names the document, long_doc says what is left
 * of it. Cursors read ahead (documents and their lengths), which is speed and not state: after
 * rp_piece_source_place the same documents follow. */
#ifndef RP_PLAN_PIECE_SOURCE_H
#define RP_PLAN_PIECE_SOURCE_H

#include "plan/mixing.h"
#include "plan/order.h"
#include "plan/plan.h"

/* What is left of a document that the source delivered and no row has taken yet. */
struct rp_piece {
    uint64_t document, offset, length;
    uint32_t source;
};

/* Of one lane, in the order of the state token. */
struct rp_lane_counts {
    uint64_t documents, empty, tokens_read, truncated, dropped, emitted, padding, placed;
};
RP_STATIC_ASSERT(sizeof(struct rp_lane_counts) == 64, "the state token holds these eight numbers");

/* The state is (epoch, position) and the source's entry in mixing.mixed. */
struct rp_cursor {
    uint64_t epoch, position;
    struct rp_order order;
    uint32_t ahead_next, ahead_count; /* read, not yet delivered: [next, count) */
    uint64_t ahead_document[RP_ORDER_READ_MAX];
    uint64_t ahead_length[RP_ORDER_READ_MAX];
    /* What rp_piece_source_has_more found out here, and where that was: it may have had to look
     * far. */
    bool asked, has_more;
    uint64_t asked_epoch, asked_position;
};

struct rp_piece_source {
    const struct rp_plan_config *config;
    const struct rp_plan_source *sources;
    uint32_t source_count;
    struct rp_cursor *cursors; /* by source */
    struct rp_mixing mixing;
    uint8_t *finished; /* by source: derived from the epochs */
};

/** A source at its start. The plan is borrowed; weight[] likewise. */
RP_MUST_CHECK int rp_piece_source_open(struct rp_piece_source *piece_source,
                                       const struct rp_plan_config *config,
                                       const struct rp_plan_source *sources, const uint64_t *weight,
                                       uint32_t source_count, uint32_t lane,
                                       struct rp_error *error);
void rp_piece_source_close(struct rp_piece_source *piece_source);

/** Deliver the next piece and count it. Returns 1, 0 when all sources are finished, or what
 *  rp_plan_next returns for a bad index entry and for a source without a token. */
RP_MUST_CHECK int rp_piece_source_next(struct rp_piece_source *piece_source, struct rp_piece *piece,
                                       struct rp_lane_counts *counts, struct rp_error *error);

/** Would rp_piece_source_next deliver, or fail? Changes nothing that can be seen. */
bool rp_piece_source_has_more(const struct rp_piece_source *piece_source);

/** Call after cursors' (epoch, position) or mixed were set from outside. */
void rp_piece_source_place(struct rp_piece_source *piece_source);

/** Tokens of a document of `length` that long_doc lets through. */
static inline uint64_t rp_length_kept(const struct rp_plan_config *config, uint64_t length)
{
    if (length <= config->seq_len || config->long_doc == RP_LONG_DOC_SPLIT)
        return length;
    return config->long_doc == RP_LONG_DOC_TRUNCATE ? config->seq_len : 0;
}

#endif
