/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/pipeline.h"

#include <errno.h>
#include <stdlib.h>

#include "base/bits.h"
#include "base/mem.h"

#define NOT_DONE (-1.0)

int rp_pipeline_open(struct rp_pipeline *pipeline, uint32_t stages, uint32_t batches,
                     uint32_t parts, struct rp_error *error)
{
    *pipeline = (struct rp_pipeline){.stages = stages, .batches = batches, .parts = parts};
    pipeline->done = rp_calloc(2 * (size_t)stages * parts, batches * sizeof(double));
    pipeline->free_at = rp_calloc(stages, sizeof *pipeline->free_at);
    pipeline->next = rp_calloc(stages, sizeof *pipeline->next);
    if (!pipeline->done || !pipeline->free_at || !pipeline->next)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for a pipeline of %u stages", stages);
    return 0;
}

void rp_pipeline_close(struct rp_pipeline *pipeline)
{
    free(pipeline->done);
    free(pipeline->free_at);
    free(pipeline->next);
    *pipeline = (struct rp_pipeline){0};
}

struct operation {
    bool is_backward;
    uint32_t batch, part; /* the part of the layers on this stage */
};

static struct operation operation_of(const struct rp_pipeline *pipeline, uint32_t stage, uint32_t i)
{
    uint32_t span = pipeline->stages * pipeline->parts, k;
    uint64_t all = (uint64_t)pipeline->batches * pipeline->parts;
    uint64_t ahead = pipeline->stages - 1 - stage;
    struct operation made = {0};
    if (pipeline->parts > 1)
        ahead = 2 * ahead + (uint64_t)(pipeline->parts - 1) * pipeline->stages;
    ahead = rp_min_u64(ahead, all);
    uint64_t turns = all - ahead; /* forwards that take turns with backwards */
    if (i < ahead) {
        k = i;
    } else if (i - ahead < 2 * turns) {
        made.is_backward = (i - ahead) % 2 == 1;
        k = (uint32_t)((i - ahead) / 2 + (made.is_backward ? 0 : ahead));
    } else {
        made.is_backward = true;
        k = (uint32_t)(i - ahead - turns);
    }
    made.batch = k / span * pipeline->stages + k % pipeline->stages;
    made.part = k % span / pipeline->stages;
    if (made.is_backward)
        made.part = pipeline->parts - 1 - made.part;
    return made;
}

/* The end of a forward or backward of one part on one stage: `place` counts parts by layers. */
static double *done_of(const struct rp_pipeline *pipeline, bool is_backward, uint32_t place,
                       uint32_t batch)
{
    uint32_t places = pipeline->stages * pipeline->parts;
    size_t row = (size_t)is_backward * places + place;
    return &pipeline->done[row * pipeline->batches + batch];
}

/* When its input is there; NOT_DONE: it is not yet known. */
static double ready_at(const struct rp_pipeline *pipeline, struct operation own, uint32_t place)
{
    uint32_t last = pipeline->stages * pipeline->parts - 1;
    if (!own.is_backward)
        return place == 0 ? 0 : *done_of(pipeline, false, place - 1, own.batch);
    return place == last ? *done_of(pipeline, false, last, own.batch)
                         : *done_of(pipeline, true, place + 1, own.batch);
}

/* Make the operations of a stage whose inputs are there. */
static void advance(struct rp_pipeline *pipeline, uint32_t stage, const double *cost)
{
    uint32_t all = 2 * pipeline->batches * pipeline->parts;
    for (; pipeline->next[stage] < all; pipeline->next[stage]++) {
        struct operation own = operation_of(pipeline, stage, pipeline->next[stage]);
        uint32_t place = own.part * pipeline->stages + stage;
        double ready = ready_at(pipeline, own, place), begin = pipeline->free_at[stage];
        if (ready == NOT_DONE)
            return;
        double takes = cost[own.batch] * (own.is_backward ? 2 : 1) / 3 / pipeline->parts;
        pipeline->free_at[stage] = (ready > begin ? ready : begin) + takes;
        *done_of(pipeline, own.is_backward, place, own.batch) = pipeline->free_at[stage];
    }
}

double rp_pipeline_time(struct rp_pipeline *pipeline, const double *cost)
{
    size_t count = 2 * (size_t)pipeline->stages * pipeline->parts * pipeline->batches;
    double end = 0;
    for (size_t i = 0; i < count; i++)
        pipeline->done[i] = NOT_DONE;
    for (uint32_t stage = 0; stage < pipeline->stages; stage++) {
        pipeline->next[stage] = 0;
        pipeline->free_at[stage] = 0;
    }
    /* The last operation of all is the last backward of the first stage. Each round makes one more
     * micro-batch at least. */
    while (pipeline->next[0] < 2 * pipeline->batches * pipeline->parts)
        for (uint32_t stage = 0; stage < pipeline->stages; stage++)
            advance(pipeline, stage, cost);
    for (uint32_t stage = 0; stage < pipeline->stages; stage++)
        end = pipeline->free_at[stage] > end ? pipeline->free_at[stage] : end;
    return end;
}

double rp_pipeline_time_of_equal(const struct rp_pipeline *pipeline, double cost)
{
    return cost * (pipeline->batches + (pipeline->stages - 1.0) / pipeline->parts);
}
