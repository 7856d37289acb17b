/* SPDX-License-Identifier: Apache-2.0 */
/* queue.h — the rows of a step. All of them are planned before dispatch makes tickets of the first,
 * because a batch has the sums of its whole step, over all rows of all ranks (STREAM2.md section
 * 10.4, STREAM.md section 6).
 *
 * At the first micro-batch of a step its rows are planned, added up, and queued with the state of
 * each micro-batch, so each document is planned once. Rows of other nodes are queued without their
 * fragments, but counted: every node has the sums without a message. No token is read: labels
 * follow from lengths and spans.
 *
 * Bounds. The queue has 24 bytes for each fragment of this node's rows, and 64 for each row of the
 * step. If it reaches options->step_bytes, or the states of rp_queue_states positions, at the end
 * of a micro-batch, the rest of the step is only counted. It is planned again, from the state of
 * that micro-batch, when the queue is empty. A step's first batch waits until the step is planned.
 *
 * A flow that begins inside a step finds the step's sums among the kept ones (sums.h), or plans the
 * step from a state before it. Without such a state, or if an index entry in the step is damaged,
 * the step has no sums: sums are complete or unknown.
 *
 * Thread: the dispatch thread. */
#ifndef RP_FLOW_QUEUE_H
#define RP_FLOW_QUEUE_H

#include "flow/block_reads.h"
#include "flow/masks.h"

#define RP_QUEUE_BYTES_STANDARD (64ull << 20)

struct rp_queue {
    /* set by the caller of rp_queue_start, in `parts` */
    const struct rp_flow_options *options;
    const struct rp_arena *arena; /* keeps the states */
    struct rp_plan *plan;
    struct rp_masks *masks;
    const struct rp_block_reads *block_reads;
    const struct rp_numbering *numbering;

    void *before; /* a copy of the state given to rp_queue_start, or NULL */
    size_t before_bytes;
    struct rp_step_sums sums;      /* the sums of the step that is queued */
    uint64_t batch, end;           /* the next micro-batch to plan, and the end of its step */
    struct rp_row *rows;           /* [row_capacity] */
    struct rp_fragment *fragments; /* [fragment_capacity], of this node's rows */
    struct rp_block_at *block_at;  /* [block_capacity]: pairs of each micro-batch */
    uint64_t row_count, fragment_count, block_count;
    uint64_t row_capacity, fragment_capacity, block_capacity;
    uint64_t next_row, next_fragment, next_block; /* the next ones to give out */
    bool counts;                                  /* rows are added to the sums, which are right */
    bool has_ended;                               /* no row follows the queued ones */
    int code; /* negative: the error that planning met after the queued rows */
    struct rp_error error;
};

/** Before each start of a flow. The queue takes the members down to `numbering` from `parts`, and
 * copies `before`: a state at or before the first row of the step that has the flow's first
 * micro-batch; or NULL. */
RP_MUST_CHECK int rp_queue_start(struct rp_queue *queue, const struct rp_queue *parts,
                                 const struct rp_row_state *before, struct rp_error *error);
void rp_queue_free(struct rp_queue *queue);

/** Plan the rest of the step of `batch`, whose first row is the plan's next one. The queue is
 * empty. Errors: -RP_E_STOPPED; with drop_last also errors of the plan, because they leave open
 * whether the step exists. */
RP_MUST_CHECK int rp_queue_begin(struct rp_queue *queue, uint64_t batch, struct rp_error *error);
/** Before the rows of each micro-batch: make sure that they are queued, and move block reads to
 * them. */
void rp_queue_begin_batch(struct rp_queue *queue, uint64_t batch,
                          struct rp_block_reads *block_reads);
/** The next row, as rp_plan_next gives it; of rows of other nodes only the numbers. */
RP_MUST_CHECK int rp_queue_next(struct rp_queue *queue, struct rp_row *row, struct rp_error *error);
/** Whether a row is left in the step. */
bool rp_queue_has_next(const struct rp_queue *queue);
/** After the rows of `batch`: 0 if the state after it is kept, else the error that planning met. */
RP_MUST_CHECK int rp_queue_end_batch(const struct rp_queue *queue, uint64_t batch,
                                     struct rp_error *error);

/** The most positions of one step whose states are kept: the plan is ahead of dispatch by at most
 * that many. */
uint64_t rp_queue_states(const struct rp_flow_options *options);
/** Save the plan's state as the state of a position, unless the position has a state: that is the
 * same one, from an earlier start, and the engine may be reading it. */
RP_MUST_CHECK int rp_queue_save(const struct rp_arena *arena, const struct rp_plan *plan,
                                uint64_t position, struct rp_error *error);

#endif
