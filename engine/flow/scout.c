/* SPDX-License-Identifier: Apache-2.0 */
/* scout — see scout.h. */
#include "flow/scout.h"

#include <stdlib.h>

#include "base/defect.h"
#include "base/mem.h"

struct step {
    uint64_t batch; /* its first micro-batch */
    uint64_t first_row, row_count, batch_rows;
};

/* ---- kept sums ------------------------------------------------------------------------------- */

struct rp_scout_sums *rp_scout_sums_make(void)
{
    struct rp_scout_sums *steps = rp_calloc(1, sizeof *steps);
    if (steps)
        pthread_mutex_init(&steps->lock, NULL);
    return steps;
}

void rp_scout_sums_free(struct rp_scout_sums *steps)
{
    if (!steps)
        return;
    pthread_mutex_destroy(&steps->lock);
    free(steps);
}

void rp_scout_sums_forget_from(struct rp_scout_sums *steps, uint64_t row)
{
    pthread_mutex_lock(&steps->lock);
    for (uint32_t i = 0; i < RP_SCOUT_STEPS_KEPT; i++)
        if (steps->kept[i].first_row >= row)
            steps->kept[i].row_count = 0;
    pthread_mutex_unlock(&steps->lock);
}

static struct rp_scout_kept *place_of(struct rp_scout_sums *steps, const struct step *step)
{
    return &steps->kept[step->first_row / step->row_count % RP_SCOUT_STEPS_KEPT];
}

static bool find_kept(struct rp_scout_sums *steps, const struct step *step,
                      struct rp_step_sums *sums)
{
    if (!steps)
        return false;
    pthread_mutex_lock(&steps->lock);
    const struct rp_scout_kept *kept = place_of(steps, step);
    bool is_kept = kept->row_count == step->row_count && kept->first_row == step->first_row;
    if (is_kept)
        *sums = kept->sums;
    pthread_mutex_unlock(&steps->lock);
    return is_kept;
}

static void keep(struct rp_scout_sums *steps, const struct step *step,
                 const struct rp_step_sums *sums)
{
    if (!steps || !sums->is_known)
        return;
    pthread_mutex_lock(&steps->lock);
    *place_of(steps, step) = (struct rp_scout_kept){step->first_row, step->row_count, *sums};
    pthread_mutex_unlock(&steps->lock);
}

/* ---- counting -------------------------------------------------------------------------------- */

/* Is the row delivered by the last rank? */
static bool is_of_last_rank(const struct rp_flow_options *o, const struct step *step, uint64_t row)
{
    return row / (step->batch_rows / o->world) % o->world == o->world - 1;
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
static int count_rows(const struct rp_scout *own, const struct step *step,
                      struct rp_step_sums *sums, struct rp_error *error)
{
    const struct rp_flow_options *o = own->options;
    struct rp_row row;
    *sums = (struct rp_step_sums){.is_whole = 1};
    for (uint64_t i = 0; i < step->row_count; i++) {
        if (rp_arena_stopping(own->arena))
            return -RP_E_STOPPED;
        int code = rp_plan_next(own->plan, &row, error);
        if (code == 0)
            sums->is_whole = 0;
        if (code == 0)
            break;
        if (code > 0 && !(RP_DEFECT(count_steps_without_a_rank) && is_of_last_rank(o, step, i)))
            code = add_row(sums, &row, own->masks, error);
        if (code < 0)
            return code;
    }
    sums->is_known = 1;
    return 0;
}

/* Move the scout to the first row of the step of `batch`. False: no state before it is known. */
static bool seek(const struct rp_scout *own, uint64_t batch, const struct step *step)
{
    struct rp_plan *plan = own->plan;
    size_t bytes;
    uint64_t next_row;
    if (rp_plan_row(plan) == step->first_row)
        return true;
    const void *state = batch == step->batch
                            ? rp_arena_state_at(own->arena, batch, &bytes, &next_row)
                            : NULL;
    if (state)
        return rp_plan_load(plan, state, bytes, false, NULL) >= 0;
    return rp_plan_row(plan) < step->first_row && rp_plan_seek(plan, step->first_row, NULL) >= 0;
}

int rp_scout_find(const struct rp_scout *own, uint64_t batch, struct rp_step_sums *sums,
                  struct rp_error *error)
{
    const struct rp_flow_options *o = own->options;
    const struct rp_numbering_part *part = rp_numbering_of_batch(own->numbering, batch);
    uint64_t first = batch - rp_numbering_micro_batch(own->numbering, batch);
    const struct step step = {first, rp_numbering_row(own->numbering, first), part->step_rows,
                              part->batch_rows};
    const struct rp_step_sums unknown = {.is_whole = 1};
    *sums = unknown;
    if (find_kept(o->steps, &step, sums) || !own->plan || !seek(own, batch, &step))
        return 0;
    int code = count_rows(own, &step, sums, error);
    if (code >= 0)
        keep(o->steps, &step, sums);
    if (code >= 0 || code == -RP_E_STOPPED || o->drop_last)
        return code;
    *sums = unknown; /* the plan meets the error in its place, after the batches before it */
    return 0;
}
