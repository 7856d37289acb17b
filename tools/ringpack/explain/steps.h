/* SPDX-License-Identifier: Apache-2.0 */
/* steps.h — from rows to steps, micro-batches and ranks, and back (STREAM.md section 6, STREAM2.md
 * section 10.2). */
#ifndef RP_TOOLS_STEPS_H
#define RP_TOOLS_STEPS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/fail.h"
#include "base/numbering.h"
#include "config/config.h"
#include "options.h"

struct rp_steps {
    uint64_t base_row;                       /* first row of step 0 */
    uint64_t rows;                           /* in a step of stage 0: global_batch_size */
    uint32_t batch_rows;                     /* in a micro-batch of one rank */
    const struct rp_config_batches *batches; /* the config's: sizes by stage */
    uint64_t sizes;                          /* a hash of them */
    uint32_t ranks;
    bool drop_last;
    bool is_counted; /* whether the first row of step 0 is known */
};

/** The config is finished, and outlives them. */
struct rp_steps rp_steps_of(const struct rp_config *config, uint64_t base_row);
/** Whether two have steps and batches of equal sizes at all rows. */
bool rp_steps_are_equal(const struct rp_steps *a, const struct rp_steps *b);
/** The first row of a step. */
RP_MUST_CHECK int rp_steps_first(const struct rp_steps *steps, uint64_t step, uint64_t *row,
                                 struct rp_error *error);

/* The delivery of a row. */
struct rp_step_place {
    uint64_t step, micro_batch; /* micro_batch: of the step */
    uint32_t rank;
    bool is_known; /* false: the row is before step 0, or steps are not counted */
};
struct rp_step_place rp_steps_place(const struct rp_steps *steps, uint64_t row);
/** The sizes of a row's step and batch, and the first row that has them. */
struct rp_numbering_part rp_steps_part(const struct rp_steps *steps, uint64_t row);
/** The first row after a row at which a stage begins that may have other sizes; UINT64_MAX: none.
 */
uint64_t rp_steps_part_end(const struct rp_steps *steps, uint64_t row);
/** Whether a step begins at a row; and the first row after the step of a row, which is known. */
bool rp_steps_begin(const struct rp_steps *steps, uint64_t row);
uint64_t rp_steps_end(const struct rp_steps *steps, uint64_t row);

/* A row, or the first row of a step, as a command line names it. */
struct rp_steps_wanted {
    uint64_t row, step;
    bool row_given, step_given;
};
#define RP_STEPS_OPTION(name_, type, member, help_)                                                \
    {                                                                                              \
        RP_COUNT(#name_, "N", type, member.name_), .given = offsetof(type, member.name_##_given),  \
                                                   .expected = "the number of a " #name_,          \
                                                   .help = help_                                   \
    }

struct rp_walk;
/** Go to a row that at least `rows` others follow, or to the first row of a step that is delivered.
 * -RP_E_USAGE, with the length of the stream, if it ends before. */
RP_MUST_CHECK int rp_walk_to_row(struct rp_walk *walk, const struct rp_steps *steps, uint64_t row,
                                 uint64_t rows, struct rp_error *error);
RP_MUST_CHECK int rp_walk_to_step(struct rp_walk *walk, const struct rp_steps *steps, uint64_t step,
                                  struct rp_error *error);

#endif
