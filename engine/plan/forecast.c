/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/forecast.h"

#include <errno.h>

#include "base/atomic.h"
#include "base/mem.h"
#include "plan/plan_state.h"

/* Epochs, or passes of them, that are searched: where lanes have their blocks on other nodes, a
 * block may be used here in one epoch of many. */
#define ROUNDS 4u
#define DISTANCE_MAX 9e18

struct source {
    struct rp_block_order order; /* in the round of the last query */
    struct rp_block_order fresh; /* the same, entered into none: it never changes */
    uint64_t blocks;     /* all lanes', in a round of all documents; 0: it is not used yet */
    double block_tokens; /* stream length from one block of a lane to its next one */
};

struct rp_forecast {
    struct rp_plan_blocks blocks;
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
                       uint64_t tokens, double share)
{
    struct source *source = &forecast->sources[number];
    if (!rp_plan_block_order(plan, number, &source->order))
        return;
    source->order.order.entered = false;
    source->fresh = source->order;
    uint64_t documents = plan->v2 ? source->order.documents_most : source->order.documents;
    source->blocks = rp_div_up(documents, forecast->blocks.documents);
    double lanes = forecast->blocks.are_shared ? 1 : forecast->blocks.lanes;
    source->block_tokens = (double)tokens / (double)source->blocks / share * lanes;
}

/* The shares of the sources of version 2 at the next row, of 2^32. */
static int set_shares(struct rp_forecast *forecast, const struct rp_plan *plan,
                      const uint64_t *tokens, struct rp_error *error)
{
    const struct rp_plan_v2 *v2 = plan->v2;
    uint64_t *shares = rp_calloc((size_t)v2->number_count + 1, sizeof *shares);
    if (!shares)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for a forecast");
    (void)rp_calendar_shares(v2->now.calendar, rp_plan_row(plan), shares);
    for (uint32_t s = 0; s < v2->spec.source_count; s++)
        if (v2->now.numbers[s] != RP_NO_NUMBER)
            set_source(forecast, plan, s, tokens[s], (double)shares[v2->now.numbers[s]] / 0x1p32);
    free(shares);
    return 0;
}

static int set_sources(struct rp_forecast *forecast, const struct rp_plan *plan,
                       const uint64_t *tokens, struct rp_error *error)
{
    double weights = 0;
    if (plan->v2)
        return set_shares(forecast, plan, tokens, error);
    for (uint32_t s = 0; s < plan->source_count; s++)
        weights += (double)plan->weights[s];
    for (uint32_t s = 0; s < plan->source_count; s++)
        set_source(forecast, plan, s, tokens[s], (double)plan->weights[s] / weights);
    return 0;
}

int rp_forecast_open(struct rp_forecast **forecast_out, const struct rp_plan *plan,
                     const uint64_t *tokens, struct rp_error *error)
{
    struct rp_forecast *forecast = rp_calloc(1, sizeof *forecast);
    *forecast_out = NULL;
    if (!forecast)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for a forecast");
    forecast->blocks = rp_plan_blocks(plan);
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
    int code = set_sources(forecast, plan, tokens, error);
    if (code < 0) {
        rp_forecast_close(forecast);
        return code;
    }
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

static uint64_t distance(const struct source *source, double blocks)
{
    double tokens = blocks * source->block_tokens;
    return tokens < DISTANCE_MAX ? (uint64_t)tokens : (uint64_t)DISTANCE_MAX;
}

/* The first lane's round of a source that is used. */
static uint64_t round_of(const struct rp_forecast *forecast, uint32_t source)
{
    const struct source *of = &forecast->sources[source];
    return of->blocks == 0
               ? 0
               : rp_forecast_position(forecast, 0, source) / rp_blocks_in_round(&of->fresh, 0);
}

uint64_t rp_forecast_distance(struct rp_forecast *forecast, uint32_t number, uint64_t block)
{
    struct source *source = &forecast->sources[number];
    if (source->blocks == 0)
        return RP_FORECAST_NEVER;
    RP_ASSERT(block < source->blocks);
    uint64_t first = round_of(forecast, number), rounds = source->fresh.rounds;
    first -= first > 0; /* other lanes may not be as far */
    if (source->order.order.shuffle == RP_SHUFFLE_DOCUMENT)
        return distance(source, (double)source->blocks);
    for (uint64_t round = first; round < first + ROUNDS; round++) {
        uint32_t lane;
        uint64_t place;
        if (rounds > 0 && round >= rounds)
            break;
        if (!rp_blocks_place(&source->order, block, round, &lane, &place))
            continue;
        uint64_t at = round * rp_blocks_in_round(&source->fresh, lane) + place;
        uint64_t now = rp_forecast_position(forecast, lane, number);
        if (rp_a32_load_relaxed(&forecast->is_local[lane]) && at >= now)
            return distance(source, (double)(at - now));
    }
    return RP_FORECAST_NEVER;
}

uint64_t rp_forecast_epoch(const struct rp_forecast *forecast, uint32_t source)
{
    uint32_t passes = forecast->sources[source].fresh.passes;
    return round_of(forecast, source) / (passes ? passes : 1);
}

uint64_t rp_forecast_epoch_tokens(const struct rp_forecast *forecast, uint32_t source)
{
    if (forecast->sources[source].blocks == 0)
        return 0;
    uint64_t blocks = rp_blocks_in_round(&forecast->sources[source].fresh, 0);
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
    struct rp_block_order order = forecast->sources[number].fresh;
    return forecast->sources[number].blocks > 0 && rp_blocks_at(&order, lane, position, block);
}
