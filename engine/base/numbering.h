/* SPDX-License-Identifier: Apache-2.0 */
/* numbering.h — the map between rows, batches and steps of a run. The engine and the tools use it.
 *
 * A *batch* is one micro-batch of all ranks, a *step* a global batch. The sizes of both may change
 * at stages (engine/plan/STREAM2.md section 10.2): a stage's sizes hold from the first step that
 * begins at its first row or later. A *part* is a run of steps of one size. All parts follow from
 * one row that begins a step; batch 0 and step 0 begin at the first row of the first part, which is
 * the first row of the stream that can begin a step.
 *
 * A numbering is changed only by rp_numbering_begin; between two calls threads may read it. */
#ifndef RP_NUMBERING_H
#define RP_NUMBERING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/fail.h"

/* Sizes from a row of the stream on. step_rows is a multiple of batch_rows. */
struct rp_batch_stage {
    uint64_t from, batch_rows, step_rows;
};

/* Its first row, batch and step, and its sizes. If several parts have one first row, only the last
 * has batches. */
struct rp_numbering_part {
    uint64_t row, batch, step;
    uint64_t batch_rows, step_rows;
};

struct rp_numbering {
    const struct rp_batch_stage *stages; /* not its own; the first is from row 0, rows ascend */
    struct rp_numbering_part *parts;     /* one for each stage */
    uint32_t count;
};

/** A numbering in which a step begins at row 0. Errors: -ENOMEM. */
RP_MUST_CHECK int rp_numbering_open(struct rp_numbering *numbering,
                                    const struct rp_batch_stage *stages, uint32_t count,
                                    struct rp_error *error);
void rp_numbering_close(struct rp_numbering *numbering);
/** Number batches so that a step begins at that row. */
void rp_numbering_begin(struct rp_numbering *numbering, uint64_t step_row);

/** The part of a batch, of a step, and of a row; the first part for a row before it. */
const struct rp_numbering_part *rp_numbering_of_batch(const struct rp_numbering *numbering,
                                                      uint64_t batch);
const struct rp_numbering_part *rp_numbering_of_step(const struct rp_numbering *numbering,
                                                     uint64_t step);
const struct rp_numbering_part *rp_numbering_of_row(const struct rp_numbering *numbering,
                                                    uint64_t row);

/** Micro-batches of a step. */
static inline uint64_t rp_numbering_step_batches(const struct rp_numbering_part *part)
{
    return part->step_rows / part->batch_rows;
}
/** The first row of batch 0. */
static inline uint64_t rp_numbering_base(const struct rp_numbering *numbering)
{
    return numbering->parts[0].row;
}
/** The first row of a batch. */
static inline uint64_t rp_numbering_row(const struct rp_numbering *numbering, uint64_t batch)
{
    const struct rp_numbering_part *part = rp_numbering_of_batch(numbering, batch);
    return part->row + (batch - part->batch) * part->batch_rows;
}
/** The batch that has a row, which is not before batch 0. */
static inline uint64_t rp_numbering_batch(const struct rp_numbering *numbering, uint64_t row)
{
    const struct rp_numbering_part *part = rp_numbering_of_row(numbering, row);
    return part->batch + (row - part->row) / part->batch_rows;
}
/** Whether a batch, or a step, begins at a row. */
static inline bool rp_numbering_has(const struct rp_numbering *numbering, uint64_t row)
{
    const struct rp_numbering_part *part = rp_numbering_of_row(numbering, row);
    return row >= part->row && (row - part->row) % part->batch_rows == 0;
}
static inline bool rp_numbering_begins_step(const struct rp_numbering *numbering, uint64_t row)
{
    const struct rp_numbering_part *part = rp_numbering_of_row(numbering, row);
    return row >= part->row && (row - part->row) % part->step_rows == 0;
}
/** The place of a batch in its step, from 0. */
static inline uint64_t rp_numbering_micro_batch(const struct rp_numbering *numbering,
                                                uint64_t batch)
{
    const struct rp_numbering_part *part = rp_numbering_of_batch(numbering, batch);
    return (batch - part->batch) % rp_numbering_step_batches(part);
}
/** The step of a batch, and the first batch of a step. */
static inline uint64_t rp_numbering_step(const struct rp_numbering *numbering, uint64_t batch)
{
    const struct rp_numbering_part *part = rp_numbering_of_batch(numbering, batch);
    return part->step + (batch - part->batch) / rp_numbering_step_batches(part);
}
static inline uint64_t rp_numbering_batch_of_step(const struct rp_numbering *numbering,
                                                  uint64_t step)
{
    const struct rp_numbering_part *part = rp_numbering_of_step(numbering, step);
    return part->batch + (step - part->step) * rp_numbering_step_batches(part);
}

#endif
