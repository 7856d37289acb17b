/* SPDX-License-Identifier: Apache-2.0 */
#include "base/numbering.h"

#include <errno.h>
#include <stdlib.h>

#include "base/bits.h"
#include "base/mem.h"

/* The first row at or after `from` that is whole steps after `row`. */
static uint64_t next_step(uint64_t row, uint64_t step_rows, uint64_t from)
{
    return from <= row ? row : row + rp_div_up(from - row, step_rows) * step_rows;
}

void rp_numbering_begin(struct rp_numbering *numbering, uint64_t step_row)
{
    struct rp_numbering_part *parts = numbering->parts;
    const struct rp_batch_stage *stages = numbering->stages;
    /* the last stage that begins at the row or before it: the first one is from row 0 */
    uint32_t first = RP_COUNT_UP_TO(stages, numbering->count, from, step_row) - 1;
    parts[first].row = stages[first].from +
                       (step_row - stages[first].from) % stages[first].step_rows;
    for (uint32_t i = first; i-- > 0;)
        parts[i].row = stages[i].from + (parts[i + 1].row - stages[i].from) % stages[i].step_rows;
    for (uint32_t i = first + 1; i < numbering->count; i++)
        parts[i].row = next_step(parts[i - 1].row, stages[i - 1].step_rows, stages[i].from);
    for (uint32_t i = 0; i < numbering->count; i++) {
        const struct rp_numbering_part *before = i > 0 ? &parts[i - 1] : NULL;
        uint64_t rows = before ? parts[i].row - before->row : 0;
        parts[i].batch = before ? before->batch + rows / before->batch_rows : 0;
        parts[i].step = before ? before->step + rows / before->step_rows : 0;
        parts[i].batch_rows = stages[i].batch_rows;
        parts[i].step_rows = stages[i].step_rows;
    }
}

int rp_numbering_open(struct rp_numbering *numbering, const struct rp_batch_stage *stages,
                      uint32_t count, struct rp_error *error)
{
    RP_ASSERT(count > 0 && stages[0].from == 0);
    for (uint32_t i = 0; i < count; i++) {
        RP_ASSERT(stages[i].batch_rows > 0 && stages[i].step_rows % stages[i].batch_rows == 0);
        RP_ASSERT(i == 0 || stages[i].from > stages[i - 1].from);
    }
    *numbering = (struct rp_numbering){
        .stages = stages, .parts = rp_calloc(count, sizeof *numbering->parts), .count = count};
    if (!numbering->parts)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for %u stages", count);
    rp_numbering_begin(numbering, 0);
    return 0;
}

void rp_numbering_close(struct rp_numbering *numbering)
{
    free(numbering->parts);
    *numbering = (struct rp_numbering){.parts = NULL};
}

/* ---- look-up --------------------------------------------------------------------------------- */

/* The last part whose member is at most `value`; the first part without one. */
#define FIND(numbering, member, value)                                                             \
    find(numbering, RP_COUNT_UP_TO((numbering)->parts, (numbering)->count, member, value))
static const struct rp_numbering_part *find(const struct rp_numbering *numbering, uint32_t count)
{
    return &numbering->parts[count > 0 ? count - 1 : 0];
}

const struct rp_numbering_part *rp_numbering_of_row(const struct rp_numbering *numbering,
                                                    uint64_t row)
{
    return FIND(numbering, row, row);
}

const struct rp_numbering_part *rp_numbering_of_batch(const struct rp_numbering *numbering,
                                                      uint64_t batch)
{
    return FIND(numbering, batch, batch);
}

const struct rp_numbering_part *rp_numbering_of_step(const struct rp_numbering *numbering,
                                                     uint64_t step)
{
    return FIND(numbering, step, step);
}
