/* SPDX-License-Identifier: Apache-2.0 */
/* queue.h — the rows of a step, planned before dispatch makes tickets of them, because a batch has
 * the sums of its whole step, over all rows of all ranks (STREAM2.md section 10.4, STREAM.md
 * section 6).
 *
 * At the first micro-batch of a step all of its rows are planned, added up, and queued with the
 * state of each micro-batch, so each document is planned once. Rows of other nodes are counted
 * only: every node has the sums without a message. No token is read: labels follow from lengths and
 * spans.
 *
 * Bounds. The queue has 24 bytes for each fragment of this node's rows, and 64 for each row of the
 * step. If it reaches options->step_bytes, or the states of rp_queue_states positions, at the end
 * of a micro-batch, the rest of the step is counted, and planned again, from that state, when the
 * queue is empty. A step's first batch waits until the step is planned.
 *
 * A flow that begins inside a step finds the step's sums among the kept ones (sums.h), or plans the
 * step from a state before it. A sum is known or it is not, and never wrong: without such a state,
 * or if an index entry in the step is damaged, the step has no sums.
 *
 * Thread: dispatch's own. */
#ifndef RP_FLOW_QUEUE_H
#define RP_FLOW_QUEUE_H

#include "flow/block_reads.h"
#include "flow/masks.h"
#include "flow/sums.h"

#define RP_QUEUE_BYTES_STANDARD (64ull << 20)

struct rp_queue {
    const struct rp_flow_options *options;
    const struct rp_arena *arena; /* has the states */
    struct rp_plan *plan;
    struct rp_masks *masks;
    const struct rp_block_reads *block_reads;
    const struct rp_numbering *numbering;
    void *before; /* a copy of the state of rp_queue_start, or NULL */
    size_t before_bytes;

    struct rp_step_sums sums;      /* of the step that is queued */
    uint64_t batch, end;           /* the next micro-batch to plan, and the end of its step */
    struct rp_row *rows;           /* [row_capacity] */
    struct rp_fragment *fragments; /* [fragment_capacity], of this node's rows */
    struct rp_block_at *block_at;  /* [block_capacity]: pairs of each micro-batch */
    uint64_t row_count, fragment_count, block_count;
    uint64_t row_capacity, fragment_capacity, block_capacity;
    uint64_t next_row, next_fragment, next_block; /* the next ones to give out */
    bool counts;                                  /* the sums are right so far */
    bool has_ended;                               /* no row follows the queued ones */
    int code; /* negative: follows the queued rows, with `error` */
    struct rp_error error;
};

/** Before each start of a flow: `parts` has the members down to `numbering`. `before`: a state at
 * or before the first row of the step that has the flow's first micro-batch; or NULL. */
RP_MUST_CHECK int rp_queue_start(struct rp_queue *own, const struct rp_queue *parts,
                                 const struct rp_flow_state *before, struct rp_error *error);
void rp_queue_free(struct rp_queue *own);

/** Plan the rest of the step of `batch`, whose first row is the plan's next one. The queue is
 * empty. Errors: -RP_E_STOPPED; with drop_last also errors of the plan, because it is not known
 * then whether the step exists. */
RP_MUST_CHECK int rp_queue_begin(struct rp_queue *own, uint64_t batch, struct rp_error *error);
/** Before the rows of each micro-batch: they are queued from here on. Moves block reads to them. */
void rp_queue_begin_batch(struct rp_queue *own, uint64_t batch, struct rp_block_reads *block_reads);
/** The next row, as rp_plan_next gives it; of rows of other nodes only the numbers. */
RP_MUST_CHECK int rp_queue_next(struct rp_queue *own, struct rp_row *row, struct rp_error *error);
/** Whether a row is left in the step. */
bool rp_queue_has_next(const struct rp_queue *own);
/** After the rows of `batch`: its end has a state, or the error that it met. */
RP_MUST_CHECK int rp_queue_end_batch(const struct rp_queue *own, uint64_t batch,
                                     struct rp_error *error);

/** The most positions of one step whose states are kept, and that the plan is ahead of dispatch. */
uint64_t rp_queue_states(const struct rp_flow_options *options);
/** Save the plan's state as the state of a position, unless the position has one: an earlier start
 * has saved it, and the engine may be reading it. */
RP_MUST_CHECK int rp_queue_save(const struct rp_arena *arena, const struct rp_plan *plan,
                                uint64_t position, struct rp_error *error);

#endif
