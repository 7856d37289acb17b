/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/layout_tally.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/bits.h"
#include "base/mem.h"
#include "plan/pipeline.h"
#include "plan/v2/deal.h"
#include "plan/v2/planner.h"

#define NUMBERS_MAX (UINT64_C(1) << 24) /* counts of rows by source that are kept */

/* A deal that has a cost of its own is compared by it. */
static struct rp_cost cost_of(const struct rp_config *config)
{
    const struct rp_config_deal *deal = &config->deal;
    if (deal->mode != RP_DEAL_GIVEN || deal->cost == 0)
        return config->cost.cost;
    return (struct rp_cost){deal->cost, deal->attention_window, (uint8_t)deal->window_layers,
                            (uint8_t)deal->layers};
}

__extension__ typedef unsigned __int128 wide;

static int check_costs(const struct rp_layout_tally *tally, struct rp_error *error)
{
    wide row = (wide)tally->config->seq_len * tally->cost.b *
               ((wide)tally->cost.k + tally->config->seq_len);
    if (row * tally->layout.step < (wide)1 << 63)
        return 0;
    return rp_fail(error, -RP_E_USAGE, "give a smaller --global-batch-size or fewer `layers`",
                   "--layout: costs of steps of %u rows of %u tokens are not below 2^63",
                   tally->layout.step, tally->config->seq_len);
}

int rp_layout_tally_open(struct rp_layout_tally *tally, const char *text,
                         const struct rp_config *config, struct rp_error *error)
{
    *tally = (struct rp_layout_tally){.config = config, .cost = cost_of(config)};
    if (!text)
        return 0;
    int code = rp_layout_read(&tally->layout, text, config, error);
    if (code >= 0)
        code = check_costs(tally, error);
    if (code < 0)
        return code;
    uint64_t step = tally->layout.step;
    uint64_t steps = rp_min_u64(NUMBERS_MAX / (step * (config->source_count + 4)),
                                RP_LAYOUT_STEPS_MAX);
    tally->capacity = (uint32_t)(rp_max_u64(steps, 1) * step);
    tally->rows = rp_calloc(tally->capacity, sizeof *tally->rows);
    tally->source_tokens = rp_calloc((size_t)tally->capacity,
                                     config->source_count * sizeof *tally->source_tokens);
    if (!tally->rows || !tally->source_tokens)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for the costs of %u rows",
                       tally->capacity);
    return 0;
}

void rp_layout_tally_close(struct rp_layout_tally *tally)
{
    free(tally->rows);
    free(tally->source_tokens);
    free(tally->step_list);
    rp_layout_close(&tally->layout);
    *tally = (struct rp_layout_tally){0};
}

void rp_layout_tally_add(struct rp_layout_tally *tally, const struct rp_row *row, uint32_t seq_len)
{
    if (tally->count == tally->capacity)
        return;
    struct rp_layout_row *own = &tally->rows[tally->count];
    uint32_t *by_source = tally->source_tokens +
                          (size_t)tally->count++ * tally->config->source_count;
    *own = (struct rp_layout_row){row->planned, 0, row->tokens, 0, row->count};
    for (uint32_t i = 0; i < row->count; i++) {
        const struct rp_fragment *fragment = &row->fragments[i];
        uint64_t align = rp_max_u64(row->align, 1);
        uint64_t places = rp_div_up(fragment->length, align) * align;
        own->cost += rp_cost_of(&tally->cost, (uint32_t)places);
        by_source[fragment->source] += fragment->length;
        if (fragment->length > seq_len / 2)
            own->long_tokens += fragment->length;
    }
}

/* ---- one choice ------------------------------------------------------------------------------ */

/* Memory of the comparison. */
struct scratch {
    const struct rp_plan *plan;
    uint32_t *by_plan; /* rows in the order of their planned numbers */
    uint64_t *cost;    /* in this order */
    uint32_t *order;   /* by place: number in this order */
    double *batches;   /* costs of a rank's micro-batches */
    struct rp_pipeline pipelines[2];
};

static const struct rp_layout_tally *sorted_tally; /* for qsort, which passes no context */

static int compare_planned(const void *a, const void *b)
{
    uint64_t x = sorted_tally->rows[*(const uint32_t *)a].planned;
    uint64_t y = sorted_tally->rows[*(const uint32_t *)b].planned;
    return x < y ? -1 : x > y;
}

static double deviation(double sum, double squares, double count)
{
    double mean = sum / count, variance = squares / count - mean * mean;
    return variance > 0 ? sqrt(variance) : 0;
}

/* The spread of a figure of steps: by `source`, or if it is source_count, of long documents, or if
 * it is more, of costs. */
static double spread_of(const struct rp_layout_tally *tally, const struct scratch *scratch,
                        uint32_t source)
{
    uint32_t sources = tally->config->source_count;
    double sum = 0, squares = 0;
    for (uint32_t z = 0; z < tally->steps; z++) {
        double part = 0, tokens = 0;
        const struct rp_layout_step *step = &tally->step_list[z];
        for (uint32_t i = step->first; i < step->first + step->part->shape.step; i++) {
            uint32_t row = scratch->by_plan[scratch->order[i]];
            const struct rp_layout_row *own = &tally->rows[row];
            tokens += own->tokens;
            part += source < sources    ? tally->source_tokens[(size_t)row * sources + source]
                    : source == sources ? own->long_tokens
                                        : (double)own->cost;
        }
        double figure = source > sources ? part : tokens > 0 ? part / tokens : 0;
        sum += figure;
        squares += figure * figure;
    }
    double found = deviation(sum, squares, tally->steps);
    return source > sources && sum > 0 ? found / (sum / tally->steps) : found;
}

/* Whole steps, with the tiers as `order` has them. */
static struct rp_layout_time time_of(const struct rp_layout_tally *tally,
                                     const struct scratch *scratch, struct rp_pipeline *pipeline)
{
    double time = 0, equal = 0, ideal = 0;
    for (uint32_t z = 0; z < tally->steps; z++) {
        const struct rp_layout_part *part = tally->step_list[z].part;
        const struct rp_balance_shape *shape = &part->shape;
        uint32_t tier = shape->ranks * shape->bundle;
        double total = 0, slowest = 0;
        pipeline->batches = part->batches; /* at most those that it was opened for */
        for (uint32_t rank = 0; rank < shape->ranks; rank++) {
            for (uint32_t i = 0; i < part->batches; i++) {
                const uint32_t *own = scratch->order + tally->step_list[z].first + i * tier +
                                      rank * shape->bundle;
                scratch->batches[i] = 0;
                for (uint32_t row = 0; row < shape->bundle; row++)
                    scratch->batches[i] += (double)scratch->cost[own[row]];
                total += scratch->batches[i];
            }
            slowest = fmax(slowest, rp_pipeline_time(pipeline, scratch->batches));
        }
        time += slowest;
        total /= shape->ranks;
        ideal += total;
        equal += rp_pipeline_time_of_equal(pipeline, total / part->batches);
    }
    return (struct rp_layout_time){equal > 0 ? time / equal : 1, ideal > 0 ? time / ideal : 1};
}

/* Deal all windows of that many steps, and find the memory of the largest one in a plan. 0 steps:
 * rows stay as they are planned. */
static int arrange(const struct rp_layout_tally *tally, struct scratch *scratch, uint32_t steps,
                   enum rp_deal_order order, uint64_t *bytes)
{
    uint64_t first_row = tally->rows[scratch->by_plan[0]].planned;
    *bytes = 0;
    for (uint32_t i = 0; i < tally->count; i++)
        scratch->order[i] = i;
    for (uint32_t first = 0, end; first < tally->rows_compared && steps > 0; first = end) {
        uint64_t row = first_row + first, fragments = 0;
        const struct rp_balance_shape *shape = &rp_layout_at(&tally->layout, row)->shape;
        const struct rp_deal deal = {.window = steps * shape->step,
                                     .step = shape->step,
                                     .tier = shape->ranks * shape->bundle,
                                     .bundle = shape->bundle,
                                     .order = order};
        end = (uint32_t)rp_min_u64(first + (uint64_t)deal.window, tally->count);
        end = (uint32_t)rp_min_u64(end, rp_plan_next_boundary(scratch->plan, row) - first_row);
        int code = rp_deal_order(&deal, scratch->cost + first, end - first, scratch->order + first,
                                 NULL);
        if (code < 0)
            return code;
        for (uint32_t i = first; i < end; i++) {
            scratch->order[i] += first;
            fragments += tally->rows[scratch->by_plan[i]].fragments;
        }
        *bytes = rp_max_u64(*bytes, rp_planner_window_bytes(deal.window, fragments));
    }
    return 0;
}

/* Sums over steps that may have different sizes. */
static void count_waits(const struct rp_layout_tally *tally, const struct scratch *scratch,
                        struct rp_layout_choice *choice)
{
    double total = 0, step = 0, micro_step = 0, largest = 0, mean = 0;
    for (uint32_t z = 0; z < tally->steps; z++) {
        const struct rp_balance_shape *shape = &tally->step_list[z].part->shape;
        uint64_t bundles = shape->step / shape->bundle;
        struct rp_balance balance = {0};
        rp_balance_add(&balance, shape, scratch->cost, scratch->order + tally->step_list[z].first,
                       shape->step);
        total += (double)balance.total;
        step += (double)balance.step * shape->ranks;
        micro_step += (double)balance.micro_step * shape->ranks;
        largest += (double)balance.largest;
        mean += (double)balance.total / (double)bundles;
    }
    choice->step = total > 0 ? step / total : 1;
    choice->micro_step = total > 0 ? micro_step / total : 1;
    choice->micro_batch = mean > 0 ? largest / mean : 1;
}

static int compare(struct rp_layout_tally *tally, struct scratch *scratch, uint32_t steps)
{
    struct rp_layout_choice *choice = &tally->choices[tally->choice_count];
    uint32_t sources = tally->config->source_count, orders = steps > 0 ? RP_DEAL_ORDERS : 1;
    for (uint32_t o = orders; o-- > 0;) { /* the last one that is made is `descending` */
        int code = arrange(tally, scratch, steps, (enum rp_deal_order)o, &choice->bytes);
        if (code < 0)
            return code;
        for (int kind = 0; kind < 2; kind++)
            if (scratch->pipelines[kind].stages)
                choice->times[o][kind] = time_of(tally, scratch, &scratch->pipelines[kind]);
    }
    count_waits(tally, scratch, choice);
    choice->steps = steps;
    choice->cost_spread = spread_of(tally, scratch, sources + 1);
    choice->long_spread = spread_of(tally, scratch, sources);
    for (uint32_t i = 0; i < sources; i++)
        choice->source_spread = fmax(choice->source_spread, spread_of(tally, scratch, i));
    tally->choice_count++;
    return 0;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static int open_scratch(struct scratch *scratch, const struct rp_layout_tally *tally,
                        struct rp_error *error)
{
    const struct rp_job_layout *layout = &tally->layout;
    int code = 0;
    scratch->by_plan = rp_calloc(tally->count, sizeof *scratch->by_plan);
    scratch->cost = rp_calloc(tally->count, sizeof *scratch->cost);
    scratch->order = rp_calloc(tally->count, sizeof *scratch->order);
    scratch->batches = rp_calloc(layout->batches, sizeof *scratch->batches);
    if (!scratch->by_plan || !scratch->cost || !scratch->order || !scratch->batches)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for a layout");
    if (layout->pp > 1)
        code = rp_pipeline_open(&scratch->pipelines[0], layout->pp, layout->batches, 1, error);
    if (code >= 0 && layout->vp > 1)
        code = rp_pipeline_open(&scratch->pipelines[1], layout->pp, layout->batches, layout->vp,
                                error);
    return code;
}

static void sort_rows(struct rp_layout_tally *tally, struct scratch *scratch)
{
    double tokens = 0, in_long = 0;
    for (uint32_t i = 0; i < tally->count; i++) {
        scratch->by_plan[i] = i;
        tokens += tally->rows[i].tokens;
        in_long += tally->rows[i].long_tokens;
    }
    sorted_tally = tally;
    qsort(scratch->by_plan, tally->count, sizeof *scratch->by_plan, compare_planned);
    for (uint32_t i = 0; i < tally->count; i++)
        scratch->cost[i] = tally->rows[scratch->by_plan[i]].cost;
    tally->long_share = tokens > 0 ? in_long / tokens : 0;
}

/* List the whole steps. The first planned row begins one. */
static int list_steps(struct rp_layout_tally *tally, uint64_t first_row, struct rp_error *error)
{
    const struct rp_config_batches *sizes = &tally->config->batches;
    struct rp_numbering numbering;
    int code = rp_numbering_open(&numbering, sizes->stages, sizes->count, error);
    tally->step_list = rp_calloc(tally->count, sizeof *tally->step_list);
    if (code >= 0 && !tally->step_list)
        code = rp_fail(error, -ENOMEM, NULL, "out of memory for a layout");
    if (code < 0)
        return code;
    rp_numbering_begin(&numbering, first_row);
    for (uint32_t at = 0; at < tally->count;) {
        const struct rp_numbering_part *part = rp_numbering_of_row(&numbering, first_row + at);
        if (tally->count - at < part->step_rows)
            break;
        tally->step_list[tally->steps++] = (struct rp_layout_step){
            at, &tally->layout.parts[part - numbering.parts]};
        at += (uint32_t)part->step_rows;
        tally->rows_compared = at;
    }
    rp_numbering_close(&numbering);
    if (tally->steps == 0)
        return rp_fail(error, -RP_E_USAGE,
                       "plan more --rows, or give a smaller --global-batch-size",
                       "--layout: %u rows are no whole step of %" PRIu32, tally->count,
                       rp_layout_at(&tally->layout, first_row)->shape.step);
    return 0;
}

static int compare_all(struct rp_layout_tally *tally, struct scratch *scratch,
                       struct rp_error *error)
{
    static const uint32_t windows[RP_LAYOUT_CHOICES] = {0, 1, 2, 4, 8, 16};
    for (uint32_t i = 0; i < RP_LAYOUT_CHOICES; i++) {
        if (windows[i] > tally->steps || windows[i] * (uint64_t)tally->layout.step > 1u << 20)
            continue;
        int code = compare(tally, scratch, windows[i]);
        if (code < 0)
            return rp_fail(error, code, NULL, "out of memory for a window of %u steps", windows[i]);
    }
    return 0;
}

int rp_layout_tally_end(struct rp_layout_tally *tally, const struct rp_plan *plan,
                        struct rp_error *error)
{
    struct scratch scratch = {.plan = plan};
    if (!tally->rows)
        return 0;
    int code = open_scratch(&scratch, tally, error);
    if (code >= 0)
        sort_rows(tally, &scratch);
    if (code >= 0)
        code = list_steps(tally, tally->count ? tally->rows[scratch.by_plan[0]].planned : 0, error);
    if (code >= 0)
        code = compare_all(tally, &scratch, error);
    free(scratch.by_plan);
    free(scratch.cost);
    free(scratch.order);
    free(scratch.batches);
    rp_pipeline_close(&scratch.pipelines[0]);
    rp_pipeline_close(&scratch.pipelines[1]);
    return code;
}
