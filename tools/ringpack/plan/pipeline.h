/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline.h — the time of a step of a pipeline, from the costs of its micro-batches.
 *
 * Stages take equal time, and a backward takes twice its forward. 1F1B: stage s of p makes
 * p - 1 - s forwards, then a forward and a backward by turns, then the remaining backwards.
 * Interleaved: each stage has `parts` parts of the layers, in the order of Megatron-LM. */
#ifndef RP_TOOLS_PIPELINE_H
#define RP_TOOLS_PIPELINE_H

#include <stdint.h>

#include "base/fail.h"

struct rp_pipeline {
    uint32_t stages, batches, parts; /* parts 1: 1F1B; above: batches are a multiple of stages */
    double *done;                    /* [2 * stages * parts * batches] end of each operation */
    double *free_at;                 /* [stages] */
    uint32_t *next;                  /* [stages] operations that a stage has made */
};

RP_MUST_CHECK int rp_pipeline_open(struct rp_pipeline *pipeline, uint32_t stages, uint32_t batches,
                                   uint32_t parts, struct rp_error *error);
void rp_pipeline_close(struct rp_pipeline *pipeline); /* also after a failure to open */

/** cost[i]: the time of one stage for micro-batch i, forward and backward. */
double rp_pipeline_time(struct rp_pipeline *pipeline, const double *cost);

/** The same for `batches` micro-batches of equal cost. */
double rp_pipeline_time_of_equal(const struct rp_pipeline *pipeline, double cost);

#endif
