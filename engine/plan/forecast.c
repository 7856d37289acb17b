/* SPDX-License-Identifier: Apache-2.0 */
/* forecast — see forecast.h. */
#include "plan/forecast.h"

#include <errno.h>

#include "base/atomic.h"
#include "base/mem.h"
#include "plan/plan_state.h"

/* Epochs that are searched: where lanes have their blocks on other nodes, a block may be used here
 * in one epoch of many. */
#define EPOCHS 4u
#define DISTANCE_MAX 9e18

struct source {
    struct rp_order order; /* lane 0's, in the epoch of the last query */
    struct rp_order fresh; /* the same, entered into none: it never changes */
    uint64_t documents;
    uint64_t blocks;     /* all lanes', in an epoch */
    double block_tokens; /* stream length from one block of a lane to its next one */
};

struct rp_forecast {
    struct rp_plan_blocks blocks;
    uint64_t num_epochs;
    struct source *sources;
    struct rp_a64 *position; /* [lane * sources + source]. Writer: who reads; relaxed: hints */
    struct rp_a32 *is_local; /* [lane]: 1 or 0; the same */
};

static uint64_t index_of(const struct rp_forecast *forecast, uint32_t lane, uint32_t source)
{
    RP_ASSERT(lane < forecast->blocks.lanes && source < forecast->blocks.sources);
    return (uint64_t)lane * forecast->blocks.sources + source;
}

static void set_source(struct rp_forecast *forecast, const struct rp_plan *plan, uint32_t number,
                       uint64_t tokens, double weights)
{
    struct source *source = &forecast->sources[number];
    uint64_t documents = plan->sources[number].documents;
    source->order = plan->lanes[0].piece_source.cursors[number].order;
    source->order.entered = false;
    source->fresh = source->order;
    source->documents = documents;
    source->blocks = rp_div_up(documents, forecast->blocks.documents);
    double share = (double)plan->weights[number] / weights;
    double lanes = forecast->blocks.are_shared ? 1 : forecast->blocks.lanes;
    source->block_tokens = (double)tokens / (double)source->blocks / share * lanes;
}

int rp_forecast_open(struct rp_forecast **forecast_out, const struct rp_plan *plan,
                     const uint64_t *tokens, struct rp_error *error)
{
    struct rp_forecast *forecast = rp_calloc(1, sizeof *forecast);
    *forecast_out = NULL;
    if (!forecast)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for a forecast");
    forecast->blocks = rp_plan_blocks(plan);
    forecast->num_epochs = plan->config.num_epochs;
    if (forecast->blocks.documents == 0) /* shuffled singly: a block is any run of documents */
        forecast->blocks.documents = RP_PLAIN_DOCUMENTS;
    uint32_t lanes = forecast->blocks.lanes, sources = forecast->blocks.sources;
    forecast->sources = rp_calloc(sources, sizeof *forecast->sources);
    forecast->position = rp_calloc((size_t)lanes * sources, sizeof *forecast->position);
    forecast->is_local = rp_calloc(lanes, sizeof *forecast->is_local);
    if (!forecast->sources || !forecast->position || !forecast->is_local) {
        rp_forecast_close(forecast);
        return rp_fail(error, -ENOMEM, NULL, "out of memory for a forecast");
    }
    double weights = 0;
    for (uint32_t s = 0; s < sources; s++)
        weights += (double)plan->weights[s];
    for (uint32_t s = 0; s < sources; s++)
        set_source(forecast, plan, s, tokens[s], weights);
    for (uint32_t lane = 0; lane < lanes; lane++)
        rp_forecast_set_local(forecast, lane, true);
    rp_forecast_set_all(forecast, plan);
    *forecast_out = forecast;
    return 0;
}

void rp_forecast_close(struct rp_forecast *forecast)
{
    if (!forecast)
        return;
    free(forecast->sources);
    free(forecast->position);
    free(forecast->is_local);
    free(forecast);
}

void rp_forecast_set(struct rp_forecast *forecast, uint32_t lane, uint32_t source,
                     uint64_t position)
{
    rp_a64_store_relaxed(&forecast->position[index_of(forecast, lane, source)], position);
}

void rp_forecast_set_all(struct rp_forecast *forecast, const struct rp_plan *plan)
{
    for (uint32_t lane = 0; lane < forecast->blocks.lanes; lane++)
        for (uint32_t s = 0; s < forecast->blocks.sources; s++)
            rp_forecast_set(forecast, lane, s, rp_plan_block_window(plan, lane, s));
}

void rp_forecast_set_local(struct rp_forecast *forecast, uint32_t lane, bool is_local)
{
    rp_a32_store_relaxed(&forecast->is_local[lane], is_local);
}

uint64_t rp_forecast_documents(const struct rp_forecast *forecast)
{
    return forecast->blocks.documents;
}

uint64_t rp_forecast_position(const struct rp_forecast *forecast, uint32_t lane, uint32_t source)
{
    return rp_a64_load_relaxed(&forecast->position[index_of(forecast, lane, source)]);
}

/* The place of a block in an epoch: its lane, and its number among the blocks of that lane. */
struct place {
    uint32_t lane;
    uint64_t at;
};
static struct place place_of(struct source *source, uint64_t block, uint64_t epoch)
{
    if (source->order.shuffle != RP_SHUFFLE_BLOCK)
        return (struct place){0, block};
    rp_order_enter(&source->order, epoch);
    uint64_t place = rp_permute_inverse(&source->order.unit_permutation, block);
    return (struct place){(uint32_t)(place % source->order.lanes), place / source->order.lanes};
}

static uint64_t distance(const struct source *source, double blocks)
{
    double tokens = blocks * source->block_tokens;
    return tokens < DISTANCE_MAX ? (uint64_t)tokens : (uint64_t)DISTANCE_MAX;
}

uint64_t rp_forecast_distance(struct rp_forecast *forecast, uint32_t number, uint64_t block)
{
    struct source *source = &forecast->sources[number];
    RP_ASSERT(block < source->blocks);
    uint64_t first = rp_forecast_epoch(forecast, number);
    first -= first > 0; /* other lanes may not be as far */
    if (source->order.shuffle == RP_SHUFFLE_DOCUMENT)
        return distance(source, (double)source->blocks);
    for (uint64_t epoch = first; epoch < first + EPOCHS; epoch++) {
        if (forecast->num_epochs > 0 && epoch >= forecast->num_epochs)
            break;
        struct place place = place_of(source, block, epoch);
        uint64_t at = epoch * rp_blocks_in_epoch(&source->fresh, place.lane) + place.at;
        uint64_t now = rp_forecast_position(forecast, place.lane, number);
        if (rp_a32_load_relaxed(&forecast->is_local[place.lane]) && at >= now)
            return distance(source, (double)(at - now));
    }
    return RP_FORECAST_NEVER;
}

uint64_t rp_forecast_epoch(const struct rp_forecast *forecast, uint32_t source)
{
    return rp_forecast_position(forecast, 0, source) /
           rp_blocks_in_epoch(&forecast->sources[source].fresh, 0);
}

uint64_t rp_forecast_epoch_tokens(const struct rp_forecast *forecast, uint32_t source)
{
    uint64_t blocks = rp_blocks_in_epoch(&forecast->sources[source].fresh, 0);
    return rp_forecast_tokens(forecast, source, blocks);
}

bool rp_forecast_is_local(const struct rp_forecast *forecast, uint32_t lane)
{
    return rp_a32_load_relaxed(&forecast->is_local[lane]);
}

uint64_t rp_forecast_tokens(const struct rp_forecast *forecast, uint32_t source, uint64_t blocks)
{
    return distance(&forecast->sources[source], (double)blocks);
}

bool rp_forecast_block_at(const struct rp_forecast *forecast, uint32_t lane, uint32_t number,
                          uint64_t position, struct rp_plan_block *block)
{
    const struct source *source = &forecast->sources[number];
    return rp_plan_block_in_order(source->fresh, lane, forecast->num_epochs, source->documents,
                                  position, block);
}
