/* SPDX-License-Identifier: Apache-2.0 */
#include "explain/steps.h"

#include <inttypes.h>

#include "base/bits.h"
#include "explain/walk.h"

int rp_steps_first(const struct rp_steps *steps, uint64_t step, uint64_t *row,
                   struct rp_error *error)
{
    if (!__builtin_mul_overflow(step, steps->rows, row) &&
        !__builtin_add_overflow(*row, steps->base_row, row) && *row <= UINT64_MAX - steps->rows)
        return 0;
    return rp_fail(error, -RP_E_USAGE, "`ringpack plan` counts the rows and steps of a stream",
                   "step %" PRIu64 ": no stream has so many rows", step);
}

struct rp_step_place rp_steps_place(const struct rp_steps *steps, uint64_t row)
{
    if (!steps->is_counted || row < steps->base_row)
        return (struct rp_step_place){.is_known = false};
    uint64_t in_run = row - steps->base_row, in_step = in_run % steps->rows;
    return (struct rp_step_place){
        .step = in_run / steps->rows,
        .micro_batch = in_step / steps->micro_rows,
        .rank = (uint32_t)(in_step % steps->micro_rows / steps->batch_rows),
        .is_known = true,
    };
}

static int fail_end(const struct rp_steps *steps, uint64_t end, const char *what, uint64_t number,
                    struct rp_error *error)
{
    uint64_t in_run = end > steps->base_row ? end - steps->base_row : 0;
    uint64_t count = steps->drop_last ? in_run / steps->rows : rp_div_up(in_run, steps->rows);
    return rp_fail(error, -RP_E_USAGE, "`ringpack plan` counts the rows and steps of a stream",
                   "%s %" PRIu64 ": the stream has %" PRIu64 " rows, which are %" PRIu64
                   " steps of %" PRIu64 " rows%s",
                   what, number, end, count, steps->rows, count ? "; the first is step 0" : "");
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
        code = rp_walk_reaches(walk, steps->drop_last ? steps->rows : 1, error);
    return code > 0 ? fail_end(steps, walk->end_row, "step", step, error) : code;
}
