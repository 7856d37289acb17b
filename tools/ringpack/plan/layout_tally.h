/* SPDX-License-Identifier: Apache-2.0 */
/* layout_tally.h — steps of a layout from only the lengths of documents: the time that ranks lose
 * by waiting, with rows as they are planned and with windows of steps dealt.
 *
 * Flow: rp_layout_tally_add for each planned row, then rp_layout_tally_end, then the reports. Only
 * the first steps are compared, LAYOUT_STEPS_MAX at most. All windows deal the same rows. Steps and
 * windows begin and end where the engine's do: sizes of a stage hold from its first whole step on
 * (base/numbering.h), and no window crosses a stage (engine/plan/STREAM2.md section 8). */
#ifndef RP_TOOLS_LAYOUT_TALLY_H
#define RP_TOOLS_LAYOUT_TALLY_H

#include <jansson.h>
#include <stdio.h>

#include "config/config.h"
#include "plan/layout.h"
#include "plan/plan.h"

#define RP_LAYOUT_STEPS_MAX 64u
#define RP_LAYOUT_CHOICES 6u /* as planned, and windows of 1, 2, 4, 8, 16 steps */

/* A time over another one. */
struct rp_layout_time {
    double equal; /* over equal micro-batches */
    double ideal; /* over that without a bubble */
};

struct rp_layout_choice {
    uint32_t steps; /* steps of the window; 0: rows as they are planned */
    double step, micro_step, micro_batch;
    double cost_spread;   /* standard deviation of the cost of steps, by their mean */
    double source_spread; /* spread of the share of a source in a step, the greatest of all */
    double long_spread;   /* spread of the share of long documents */
    uint64_t bytes;       /* memory of the largest window in a plan */
    /* by order of the tiers; [0]: 1F1B, [1]: interleaved. As planned: order 0 only */
    struct rp_layout_time times[RP_DEAL_ORDERS][2];
};

struct rp_layout_row {
    uint64_t planned, cost;
    uint32_t tokens, long_tokens; /* long: in fragments of more than half a row */
    uint32_t fragments;
};

/* A whole step, by the number of its first row in the order of planning. */
struct rp_layout_step {
    uint32_t first;
    const struct rp_layout_part *part;
};

struct rp_layout_tally {
    struct rp_job_layout layout;
    const struct rp_config *config;
    struct rp_cost cost;
    uint32_t capacity, count;   /* rows */
    struct rp_layout_row *rows; /* [capacity] */
    uint32_t *source_tokens;    /* [capacity * source_count] */
    /* after rp_layout_tally_end */
    uint32_t steps, choice_count;
    struct rp_layout_step *step_list; /* [steps] */
    uint32_t rows_compared;
    double long_share; /* share of the tokens */
    struct rp_layout_choice choices[RP_LAYOUT_CHOICES];
};

/** `text` is of --layout; NULL: nothing is compared, and no other call does anything. Errors: as
 * rp_layout_read; costs that are too great; -ENOMEM. */
RP_MUST_CHECK int rp_layout_tally_open(struct rp_layout_tally *tally, const char *text,
                                       const struct rp_config *config, struct rp_error *error);
void rp_layout_tally_close(struct rp_layout_tally *tally); /* also after a failure to open */

/** Count the next row, which has seq_len places. */
void rp_layout_tally_add(struct rp_layout_tally *tally, const struct rp_row *row, uint32_t seq_len);
/** Compare, with deal windows that end at the boundaries of the plan, which has planned the rows.
 * -EINVAL: there is no whole step. */
RP_MUST_CHECK int rp_layout_tally_end(struct rp_layout_tally *tally, const struct rp_plan *plan,
                                      struct rp_error *error);

void rp_layout_print(const struct rp_layout_tally *tally);
/** The same as a field of a JSON object. */
void rp_layout_json(const struct rp_layout_tally *tally, json_t *report);

#endif
