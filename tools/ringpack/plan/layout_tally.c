/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/layout_tally.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/defect.h"
#include "base/mem.h"
#include "plan/pipeline.h"
#include "plan/v2/deal.h"

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
    if (row * tally->config->global_batch_size < (wide)1 << 63)
        return 0;
    return rp_fail(error, -RP_E_USAGE, "give a smaller --global-batch-size or fewer `layers`",
                   "--layout: costs of steps of %llu rows of %u tokens are not below 2^63",
                   (unsigned long long)tally->config->global_batch_size, tally->config->seq_len);
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
    uint64_t step = config->global_batch_size;
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
    uint32_t sources = tally->config->source_count, step = tally->layout.shape.step;
    double sum = 0, squares = 0;
    for (uint32_t z = 0; z < tally->steps; z++) {
        double part = 0, tokens = 0;
        for (uint32_t i = z * step; i < (z + 1) * step; i++) {
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
    const struct rp_balance_shape *shape = &tally->layout.shape;
    uint32_t tier = shape->ranks * shape->bundle;
    double time = 0, equal = 0, ideal = 0;
    for (uint32_t first = 0; first < tally->steps * shape->step; first += shape->step) {
        double total = 0, slowest = 0;
        for (uint32_t rank = 0; rank < shape->ranks; rank++) {
            for (uint32_t i = 0; i < tally->layout.batches; i++) {
                const uint32_t *own = scratch->order + first + i * tier + rank * shape->bundle;
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
        equal += rp_pipeline_time_of_equal(pipeline, total / tally->layout.batches);
    }
    return (struct rp_layout_time){equal > 0 ? time / equal : 1, ideal > 0 ? time / ideal : 1};
}

static uint64_t window_bytes(const struct rp_layout_tally *tally, const struct scratch *scratch,
                             uint32_t window)
{
    uint64_t most = 0;
    for (uint32_t first = 0; first < tally->steps * tally->layout.shape.step; first += window) {
        uint64_t fragments = 0, end = rp_min_u64(first + (uint64_t)window, tally->count);
        for (uint32_t i = first; i < end; i++)
            fragments += tally->rows[scratch->by_plan[i]].fragments;
        most = rp_max_u64(most, rp_balance_window_bytes(window, fragments));
    }
    return most;
}

static int arrange(const struct rp_layout_tally *tally, struct scratch *scratch, uint32_t steps,
                   enum rp_deal_order order)
{
    const struct rp_balance_shape *shape = &tally->layout.shape;
    uint32_t rows = tally->steps * shape->step;
    struct rp_deal deal = {.window = steps * shape->step,
                           .step = shape->step,
                           .tier = shape->ranks * shape->bundle,
                           .bundle = shape->bundle,
                           .order = order};
    if (steps > 0)
        return rp_balance_order(&deal, scratch->cost, rows, scratch->order);
    for (uint32_t i = 0; i < rows; i++)
        scratch->order[i] = i;
    return 0;
}

static int compare(struct rp_layout_tally *tally, struct scratch *scratch, uint32_t steps)
{
    const struct rp_balance_shape *shape = &tally->layout.shape;
    struct rp_layout_choice *choice = &tally->choices[tally->choice_count];
    struct rp_balance balance = {0};
    uint32_t sources = tally->config->source_count, orders = steps > 0 ? RP_DEAL_ORDERS : 1;
    for (uint32_t o = orders; o-- > 0;) { /* the last one that is made is `descending` */
        int code = arrange(tally, scratch, steps, (enum rp_deal_order)o);
        if (code < 0)
            return code;
        for (int kind = 0; kind < 2; kind++)
            if (scratch->pipelines[kind].stages)
                choice->times[o][kind] = time_of(tally, scratch, &scratch->pipelines[kind]);
    }
    rp_balance_add(&balance, shape, scratch->cost, scratch->order, tally->steps * shape->step);
    choice->steps = steps;
    choice->step = rp_balance_of_steps(&balance, shape);
    choice->micro_step = rp_balance_of_micro_steps(&balance, shape);
    choice->micro_batch = rp_balance_of_micro_batches(&balance, shape);
    choice->cost_spread = spread_of(tally, scratch, sources + 1);
    choice->long_spread = spread_of(tally, scratch, sources);
    for (uint32_t i = 0; i < sources; i++)
        choice->source_spread = fmax(choice->source_spread, spread_of(tally, scratch, i));
    if (steps > 0)
        choice->bytes = window_bytes(tally, scratch, steps * shape->step);
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
    if (!RP_DEFECT(compare_dealt_rows))
        qsort(scratch->by_plan, tally->count, sizeof *scratch->by_plan, compare_planned);
    for (uint32_t i = 0; i < tally->count; i++)
        scratch->cost[i] = tally->rows[scratch->by_plan[i]].cost;
    tally->long_share = tokens > 0 ? in_long / tokens : 0;
}

int rp_layout_tally_end(struct rp_layout_tally *tally, struct rp_error *error)
{
    static const uint32_t windows[RP_LAYOUT_CHOICES] = {0, 1, 2, 4, 8, 16};
    struct scratch scratch = {0};
    if (!tally->rows)
        return 0;
    uint32_t step = tally->layout.shape.step;
    tally->steps = tally->count / step;
    if (tally->steps == 0)
        return rp_fail(error, -RP_E_USAGE,
                       "plan more --rows, or give a smaller --global-batch-size",
                       "--layout: %u rows are no whole step of %u", tally->count, step);
    int code = open_scratch(&scratch, tally, error);
    if (code >= 0)
        sort_rows(tally, &scratch);
    for (uint32_t i = 0; i < RP_LAYOUT_CHOICES && code >= 0; i++)
        if (windows[i] <= tally->steps && windows[i] * (uint64_t)step <= 1u << 20) {
            code = compare(tally, &scratch, windows[i]);
            if (code < 0)
                code = rp_fail(error, code, NULL, "out of memory for a window of %u steps",
                               windows[i]);
        }
    free(scratch.by_plan);
    free(scratch.cost);
    free(scratch.order);
    free(scratch.batches);
    rp_pipeline_close(&scratch.pipelines[0]);
    rp_pipeline_close(&scratch.pipelines[1]);
    return code;
}
