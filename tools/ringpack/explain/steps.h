/* SPDX-License-Identifier: Apache-2.0 */
/* steps.h — from rows to steps, micro-batches and ranks, and back (STREAM.md section 6). */
#ifndef RP_TOOLS_STEPS_H
#define RP_TOOLS_STEPS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/fail.h"
#include "config/config.h"
#include "options.h"

struct rp_steps {
    uint64_t base_row;   /* first row of step 0 */
    uint64_t rows;       /* in a step: global_batch_size */
    uint64_t micro_rows; /* in a micro-batch, over all ranks */
    uint32_t batch_rows; /* in a micro-batch of one rank */
    uint32_t ranks;
    bool drop_last;
    bool is_counted; /* whether the first row of step 0 is known */
};

static inline struct rp_steps rp_steps_of(const struct rp_config *config, uint64_t base_row)
{
    return (struct rp_steps){.base_row = base_row,
                             .rows = config->global_batch_size,
                             .micro_rows = (uint64_t)config->batch_size * config->dp_world_size,
                             .batch_rows = config->batch_size,
                             .ranks = config->dp_world_size,
                             .drop_last = config->drop_last && config->num_epochs,
                             .is_counted = true};
}

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
