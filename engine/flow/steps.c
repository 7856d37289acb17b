/* SPDX-License-Identifier: Apache-2.0 */
/* steps — see steps.h. */
#include "flow/steps.h"

#include <stdlib.h>

#include "base/defect.h"
#include "base/mem.h"

struct step {
    uint64_t batch; /* its first micro-batch */
    uint64_t first_row, row_count;
};

/* ---- kept sums ------------------------------------------------------------------------------- */

struct rp_steps *rp_steps_make(void)
{
    struct rp_steps *steps = rp_calloc(1, sizeof *steps);
    if (steps)
        pthread_mutex_init(&steps->lock, NULL);
    return steps;
}

void rp_steps_free(struct rp_steps *steps)
{
    if (!steps)
        return;
    pthread_mutex_destroy(&steps->lock);
    free(steps);
}

void rp_steps_forget_from(struct rp_steps *steps, uint64_t row)
{
    pthread_mutex_lock(&steps->lock);
    for (uint32_t i = 0; i < RP_STEPS_KEPT; i++)
        if (steps->kept[i].first_row >= row)
            steps->kept[i].row_count = 0;
    pthread_mutex_unlock(&steps->lock);
}

static struct rp_kept_step *place_of(struct rp_steps *steps, const struct step *step)
{
    return &steps->kept[step->first_row / step->row_count % RP_STEPS_KEPT];
}

static bool find_kept(struct rp_steps *steps, const struct step *step, struct rp_step_sums *sums)
{
    if (!steps)
        return false;
    pthread_mutex_lock(&steps->lock);
    const struct rp_kept_step *kept = place_of(steps, step);
    bool is_kept = kept->row_count == step->row_count && kept->first_row == step->first_row;
    if (is_kept)
        *sums = kept->sums;
    pthread_mutex_unlock(&steps->lock);
    return is_kept;
}

static void keep(struct rp_steps *steps, const struct step *step, const struct rp_step_sums *sums)
{
    if (!steps || !sums->is_known)
        return;
    pthread_mutex_lock(&steps->lock);
    *place_of(steps, step) = (struct rp_kept_step){step->first_row, step->row_count, *sums};
    pthread_mutex_unlock(&steps->lock);
}

/* ---- counting -------------------------------------------------------------------------------- */

/* Is the row delivered by the last rank? */
static bool is_of_last_rank(const struct rp_flow_options *o, uint64_t row_in_step)
{
    return row_in_step / o->rows % o->world == o->world - 1;
}

static int add_row(struct rp_step_sums *sums, const struct rp_row *row, struct rp_masks *masks,
                   struct rp_error *error)
{
    uint32_t labels = 0;
    int code = rp_masks_row_labels(masks, row, &labels, error);
    sums->rows += row->count > 0;
    sums->tokens += row->tokens;
    sums->labels += labels;
    return code;
}

/* Plan the rows of the step, which begins at the scout's row. Rows after the end are empty. */
static int count_rows(const struct rp_step_counter *counter, struct rp_step_sums *sums,
                      struct rp_error *error)
{
    const struct rp_flow_options *o = counter->options;
    struct rp_row row;
    *sums = (struct rp_step_sums){.is_whole = 1};
    for (uint64_t i = 0; i < o->global_batch_rows; i++) {
        if (rp_arena_stopping(counter->arena))
            return -RP_E_STOPPED;
        int code = rp_plan_next(counter->scout, &row, error);
        if (code == 0)
            sums->is_whole = 0;
        if (code == 0)
            break;
        if (code > 0 && !(RP_DEFECT(count_steps_without_a_rank) && is_of_last_rank(o, i)))
            code = add_row(sums, &row, counter->masks, error);
        if (code < 0)
            return code;
    }
    sums->is_known = 1;
    return 0;
}

/* Move the scout to the first row of the step of `batch`. False: no state before it is known. */
static bool seek(const struct rp_step_counter *counter, uint64_t batch, const struct step *step)
{
    struct rp_plan *scout = counter->scout;
    size_t bytes;
    uint64_t next_row;
    if (rp_plan_row(scout) == step->first_row)
        return true;
    const void *state = batch == step->batch
                            ? rp_arena_state_at(counter->arena, batch, &bytes, &next_row)
                            : NULL;
    if (state)
        return rp_plan_load(scout, state, bytes, false, NULL) >= 0;
    return rp_plan_row(scout) < step->first_row && rp_plan_seek(scout, step->first_row, NULL) >= 0;
}

int rp_step_find(const struct rp_step_counter *counter, uint64_t batch, struct rp_step_sums *sums,
                 struct rp_error *error)
{
    const struct rp_flow_options *o = counter->options;
    uint64_t batch_rows = (uint64_t)o->rows * o->world;
    uint64_t first = batch - batch % (o->global_batch_rows / batch_rows);
    const struct step step = {first, counter->base_row + first * batch_rows, o->global_batch_rows};
    const struct rp_step_sums unknown = {.is_whole = 1};
    *sums = unknown;
    if (find_kept(o->steps, &step, sums) || !counter->scout || !seek(counter, batch, &step))
        return 0;
    int code = count_rows(counter, sums, error);
    if (code >= 0)
        keep(o->steps, &step, sums);
    if (code >= 0 || code == -RP_E_STOPPED || o->drop_last)
        return code;
    *sums = unknown; /* the plan meets the error in its place, after the batches before it */
    return 0;
}
