/* SPDX-License-Identifier: Apache-2.0 */
/* layout.h — `ringpack plan --layout dp=8,pp=4,cp=2,mb=1`: how a job divides the rows of a step.
 *
 * The job may be another one than the config's: steps have global_batch_size rows, also in a
 * stage, and the rows of the stream do not depend on the rest. */
#ifndef RP_TOOLS_LAYOUT_H
#define RP_TOOLS_LAYOUT_H

#include "config/config.h"
#include "plan/balance.h"

/* The steps of the rows from `from` on, until their size changes. */
struct rp_layout_part {
    uint64_t from;
    uint32_t batches; /* micro-batches of a rank in a step */
    struct rp_balance_shape shape;
};

struct rp_job_layout {
    uint32_t dp;            /* ranks that get other rows */
    uint32_t pp;            /* stages of a pipeline */
    uint32_t cp;            /* ranks that share a row, head-tail: costs of rows are divided by it */
    uint32_t mb;            /* rows of a micro-batch; 0: as the stages have them */
    uint32_t vp;            /* parts of the layers on each stage; 1: interleaving is not shown */
    uint32_t batches, step; /* the most micro-batches of a rank in a step, and its most rows */
    uint32_t part_count;
    struct rp_layout_part *parts; /* by config->batches */
};

/** Parse the text of the option. Parts that it leaves out are of the config; `pp` and `cp` are 1,
 * `vp` is 2 if that divides. -EINVAL: refused by name; -ENOMEM. Close it in any case. */
RP_MUST_CHECK int rp_layout_read(struct rp_job_layout *layout, const char *text,
                                 const struct rp_config *config, struct rp_error *error);
void rp_layout_close(struct rp_job_layout *layout);
/** The part whose sizes are in force at a row. */
const struct rp_layout_part *rp_layout_at(const struct rp_job_layout *layout, uint64_t row);

#endif
