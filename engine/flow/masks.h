/* SPDX-License-Identifier: Apache-2.0 */
/* masks.h — the masks of a ticket: which tokens of its transfers are trained.
 *
 * Dispatch copies the spans from the mapped tables of the corpus into the span ring. It does so
 * before the check after which the ticket is handed on (dispatch.c), so packers get the spans of
 * the version that was opened.
 *
 * The span ring holds the spans of all tickets, at the end of the prefetch ring's data. A transfer
 * whose tokens are all trained has no mask, and costs its packer no time. Thread: the dispatch
 * thread. */
#ifndef RP_FLOW_MASKS_H
#define RP_FLOW_MASKS_H

#include "corpus/spans.h"
#include "flow/data_ring.h"
#include "flow/flow.h"

struct rp_masks {
    struct rp_data_ring span_ring; /* 0 bytes: no source has a mask */
    uint8_t *data;                 /* the arena's data */
    uint64_t data_offset;          /* where the span ring begins in it */
    /* the spans of the transfer found last, and the number of its trained tokens with a label */
    struct rp_span *spans; /* [spans_max()] */
    uint32_t span_count, labels;
    const struct rp_flow_options *options;
    bool has_region; /* the ticket under construction has a region of the span ring */
};

/** The bytes of the arena's data, at its end, that are for spans: 0 where no source has a mask. */
uint64_t rp_masks_bytes(const struct rp_flow_options *options);

RP_MUST_CHECK int rp_masks_open(struct rp_masks *masks, const struct rp_flow_options *options,
                                const struct rp_arena *arena, struct rp_error *error);
void rp_masks_close(struct rp_masks *masks);

struct rp_masks_place {
    const struct rp_source *source;
    struct rp_ticket *ticket;
    uint64_t number, retired; /* the ticket's number; tickets below `retired` are retired */
};

/** Look up the mask of the ticket's next transfer, of a document of `length` tokens of its own, and
 * remove the label of its end from transfer->extra if the token after it is not trained. 1: it
 * needs no mask, or its spans have room. 0: they have room only after the ticket of the oldest
 * region is retired; no room was taken. Or a negative code. */
RP_MUST_CHECK int rp_masks_find(struct rp_masks *masks, const struct rp_masks_place *place,
                                struct rp_transfer *transfer, uint64_t length,
                                struct rp_error *error);
/** Give the ticket the mask that was found last, if the transfer needs one. To be called once the
 * transfer's tokens are placed. */
void rp_masks_add(struct rp_masks *masks, const struct rp_masks_place *place,
                  const struct rp_transfer *transfer, uint64_t length);

/** Count the labels of a planned row of any rank (STREAM2.md section 11). Reads lengths and spans
 * of the index only where a label depends on them. The mask that was found last is lost. */
RP_MUST_CHECK int rp_masks_row_labels(struct rp_masks *masks, const struct rp_row *row,
                                      uint32_t *labels, struct rp_error *error);

#endif
