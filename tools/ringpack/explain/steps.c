/* SPDX-License-Identifier: Apache-2.0 */
#include "explain/steps.h"

#include <inttypes.h>

#include "base/bits.h"
#include "base/hash.h"
#include "explain/walk.h"

struct rp_steps rp_steps_of(const struct rp_config *config, uint64_t base_row)
{
    const struct rp_config_batches *batches = &config->batches;
    return (struct rp_steps){
        .base_row = base_row,
        .rows = config->global_batch_size,
        .batch_rows = config->batch_size,
        .batches = batches,
        .sizes = rp_hash64(batches->stages, batches->count * sizeof *batches->stages),
        .ranks = config->dp_world_size,
        .drop_last = config->drop_last,
        .is_counted = true};
}

bool rp_steps_are_equal(const struct rp_steps *a, const struct rp_steps *b)
{
    return a->rows == b->rows && a->ranks == b->ranks && a->batch_rows == b->batch_rows &&
           a->sizes == b->sizes;
}

/* The part of the numbering (base/numbering.h) that has a step, or a row. The sizes of a stage hold
 * from the first step that begins at its row or later. */
static struct rp_numbering_part part_of(const struct rp_steps *steps, bool by_step, uint64_t value)
{
    const struct rp_batch_stage *stages = steps->batches->stages;
    struct rp_numbering_part part = {.row = steps->base_row};
    for (uint32_t i = 0; i < steps->batches->count; i++) {
        struct rp_numbering_part next = part;
        if (stages[i].from > part.row) {
            uint64_t count = rp_div_up(stages[i].from - part.row, part.step_rows);
            next.row += count * part.step_rows;
            next.step += count;
            next.batch += count * rp_numbering_step_batches(&part);
        }
        if ((by_step ? next.step : next.row) > value)
            break;
        part = next;
        part.batch_rows = stages[i].batch_rows;
        part.step_rows = stages[i].step_rows;
    }
    return part;
}

int rp_steps_first(const struct rp_steps *steps, uint64_t step, uint64_t *row,
                   struct rp_error *error)
{
    struct rp_numbering_part part = part_of(steps, true, step);
    if (rp_mul_u64(step - part.step, part.step_rows, row) && rp_add_u64(*row, part.row, row) &&
        *row <= UINT64_MAX - part.step_rows)
        return 0;
    return rp_fail(error, -RP_E_USAGE, "`ringpack plan` counts the rows and steps of a stream",
                   "step %" PRIu64 ": no stream has so many rows", step);
}

struct rp_step_place rp_steps_place(const struct rp_steps *steps, uint64_t row)
{
    if (!steps->is_counted || row < steps->base_row)
        return (struct rp_step_place){.is_known = false};
    struct rp_numbering_part part = part_of(steps, false, row);
    uint64_t in_part = row - part.row, in_step = in_part % part.step_rows;
    return (struct rp_step_place){
        .step = part.step + in_part / part.step_rows,
        .micro_batch = in_step / part.batch_rows,
        .rank = (uint32_t)(in_step % part.batch_rows / (part.batch_rows / steps->ranks)),
        .is_known = true,
    };
}

struct rp_numbering_part rp_steps_part(const struct rp_steps *steps, uint64_t row)
{
    return part_of(steps, false, row);
}

uint64_t rp_steps_part_end(const struct rp_steps *steps, uint64_t row)
{
    struct rp_numbering_part part = part_of(steps, false, row);
    for (uint32_t i = 0; i < steps->batches->count; i++) {
        uint64_t from = steps->batches->stages[i].from;
        if (from > part.row)
            return part.row + rp_div_up(from - part.row, part.step_rows) * part.step_rows;
    }
    return UINT64_MAX;
}

bool rp_steps_begin(const struct rp_steps *steps, uint64_t row)
{
    struct rp_numbering_part part = part_of(steps, false, row);
    return row >= part.row && (row - part.row) % part.step_rows == 0;
}

uint64_t rp_steps_end(const struct rp_steps *steps, uint64_t row)
{
    struct rp_numbering_part part = part_of(steps, false, row);
    return row - (row - part.row) % part.step_rows + part.step_rows;
}

static int fail_end(const struct rp_steps *steps, uint64_t end, const char *what, uint64_t number,
                    struct rp_error *error)
{
    struct rp_numbering_part part = part_of(steps, false, end);
    uint64_t rows = end > part.row ? end - part.row : 0;
    uint64_t count = part.step +
                     (steps->drop_last ? rows / part.step_rows : rp_div_up(rows, part.step_rows));
    return rp_fail(error, -RP_E_USAGE, "`ringpack plan` counts the rows and steps of a stream",
                   "%s %" PRIu64 ": the stream has %" PRIu64 " rows, which are %" PRIu64
                   " steps of %" PRIu64 " rows%s",
                   what, number, end, count, part.step_rows, count ? "; the first is step 0" : "");
}

int rp_walk_to_row(struct rp_walk *walk, const struct rp_steps *steps, uint64_t row, uint64_t rows,
                   struct rp_error *error)
{
    int code = rp_walk_to(walk, row, error);
    if (code == 0 && rows > 0)
        code = rp_walk_reaches(walk, rows, error);
    return code > 0 ? fail_end(steps, walk->end_row, "row", row, error) : code;
}

/* With drop_last a step that is not full is not delivered. */
int rp_walk_to_step(struct rp_walk *walk, const struct rp_steps *steps, uint64_t step,
                    struct rp_error *error)
{
    uint64_t row;
    int code = rp_steps_first(steps, step, &row, error);
    if (code == 0)
        code = rp_walk_to(walk, row, error);
    if (code == 0)
        code = rp_walk_reaches(walk, steps->drop_last ? rp_steps_end(steps, row) - row : 1, error);
    return code > 0 ? fail_end(steps, walk->end_row, "step", step, error) : code;
}
