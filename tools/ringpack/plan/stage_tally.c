/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/stage_tally.h"

#include <errno.h>

#include "base/mem.h"

/* ---- a source at a row ----------------------------------------------------------------------- */

static double epochs_of(const struct rp_stage_tally *tally, uint32_t source,
                        const struct rp_source_state *state)
{
    uint32_t number = rp_plan_number(tally->plan, source);
    const struct rp_stream_source *of = rp_calendar_source(tally->calendar, number);
    uint64_t whole = state->documents / rp_calendar_spec(tally->calendar)->fixed.group;
    double items = (double)whole;
    double passes = of && of->passes > 1 ? of->passes : 1;
    return state->epoch +
           ((double)state->pass * items + (double)state->position) / (passes * items);
}

static struct rp_stage_reach reach(const struct rp_stage_tally *tally, uint32_t source)
{
    const struct rp_source_state *state = rp_plan_reached(tally->plan, source);
    struct rp_stream_ledger ledger;
    if (!state)
        return (struct rp_stage_reach){0};
    rp_plan_source_ledger(tally->plan, source, &ledger);
    return (struct rp_stage_reach){.has_joined = true,
                                   .epochs = epochs_of(tally, source, state),
                                   .tokens = ledger.planned,
                                   .taken = ledger.taken,
                                   .waiting = ledger.waiting,
                                   .withheld = ledger.withheld};
}

/* ---- limits ---------------------------------------------------------------------------------- */

/* Limits that are reached after a row, or before the first one (RP_NO_ROW); a later stage may raise
 * one. */
static void find_limits(struct rp_stage_tally *tally, const struct rp_stage *stage, uint64_t row)
{
    for (uint32_t s = 0; s < tally->config->source_count; s++) {
        const struct rp_source_state *state = rp_plan_reached(tally->plan, s);
        struct rp_stage_source *source = &tally->sources[s];
        if (!state)
            continue;
        const struct rp_limits *limits = &stage->limits[rp_plan_number(tally->plan, s)];
        enum rp_limit_kind kind = RP_LIMIT_NONE;
        if (limits->max_epochs > 0 && state->epoch >= limits->max_epochs)
            kind = RP_LIMIT_EPOCHS;
        else if (limits->max_tokens > 0 && state->tokens >= limits->max_tokens)
            kind = RP_LIMIT_TOKENS;
        if (kind != source->limit)
            source->limit_row = row;
        source->limit = kind;
    }
}

/* ---- opening --------------------------------------------------------------------------------- */

static uint32_t count_stages(const struct rp_calendar *calendar)
{
    uint32_t count = 0;
    for (uint64_t row = 0; row != RP_NO_ROW; row = rp_calendar_next(calendar, row))
        count++;
    return count;
}

static int open_sources(struct rp_stage_tally *tally, const struct rp_corpus *corpus,
                        struct rp_error *error)
{
    int code = 0;
    for (uint32_t s = 0; s < tally->config->source_count && code >= 0; s++) {
        const struct rp_stream_source *of = &rp_calendar_spec(tally->calendar)->sources[s];
        tally->sources[s].before = reach(tally, s);
        code = rp_selected_make(&tally->sources[s].selection, &tally->config->sources[s],
                                rp_corpus_source(corpus, s), of, error);
    }
    return code;
}

int rp_stage_tally_open(struct rp_stage_tally *tally, const struct rp_config *config,
                        const struct rp_corpus *corpus, const struct rp_plan *plan,
                        struct rp_error *error)
{
    uint32_t sources = config->source_count;
    *tally = (struct rp_stage_tally){.config = config,
                                     .plan = plan,
                                     .calendar = rp_plan_calendar(plan),
                                     .first_row = rp_plan_row(plan)};
    if (!tally->calendar)
        return 0;
    tally->count = count_stages(tally->calendar);
    tally->stages = rp_calloc(tally->count, sizeof *tally->stages);
    tally->parts = rp_calloc((size_t)tally->count * sources, sizeof *tally->parts);
    tally->sources = rp_calloc(sources, sizeof *tally->sources);
    if (!tally->stages || !tally->parts || !tally->sources)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for the counts of the stages");
    uint64_t row = 0;
    for (uint32_t i = 0; i < tally->count; i++) {
        uint64_t end = rp_calendar_next(tally->calendar, row);
        tally->stages[i] = (struct rp_stage_rows){.stage = rp_calendar_at(tally->calendar, row),
                                                  .end = end,
                                                  .sources = tally->parts + (size_t)i * sources};
        row = end;
    }
    while (tally->stages[tally->current].end <= tally->first_row)
        tally->current++;
    find_limits(tally, tally->stages[tally->current].stage, RP_NO_ROW);
    int code = tally->first_row == 0 ? rp_gain_text(tally->gain, config, corpus, error) : 0;
    return code < 0 ? code : open_sources(tally, corpus, error);
}

void rp_stage_tally_close(struct rp_stage_tally *tally)
{
    for (uint32_t s = 0; tally->sources && s < tally->config->source_count; s++)
        rp_selected_free(&tally->sources[s].selection);
    free(tally->stages);
    free(tally->parts);
    free(tally->sources);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void end_stage(struct rp_stage_tally *tally)
{
    for (uint32_t s = 0; s < tally->config->source_count; s++)
        tally->stages[tally->current].sources[s].at_end = reach(tally, s);
}

void rp_stage_tally_begin(struct rp_stage_tally *tally)
{
    if (!tally->calendar || rp_plan_row(tally->plan) < tally->stages[tally->current].end)
        return;
    end_stage(tally);
    tally->current++;
}

void rp_stage_tally_add(struct rp_stage_tally *tally, const struct rp_row *row, uint32_t seq_len)
{
    if (!tally->calendar)
        return;
    struct rp_stage_rows *stage = &tally->stages[tally->current];
    stage->rows++;
    stage->places += seq_len;
    stage->tokens += row->tokens;
    stage->fragments += row->count;
    stage->withheld_rows += row->skipped;
    stage->padding += row->skipped ? 0 : seq_len - row->tokens;
    for (uint32_t i = 0; i < row->count; i++)
        stage->sources[row->fragments[i].source].tokens += row->fragments[i].length;
    find_limits(tally, stage->stage, row->row);
}

void rp_stage_tally_end(struct rp_stage_tally *tally, bool is_complete)
{
    tally->is_complete = is_complete;
    tally->next_row = rp_plan_row(tally->plan);
    if (tally->calendar)
        end_stage(tally);
}

double rp_stage_share(const struct rp_stage_tally *tally, const struct rp_stage *stage,
                      uint32_t source)
{
    uint32_t number = rp_plan_number(tally->plan, source);
    uint64_t sum = 0;
    for (uint32_t j = 0; j < rp_calendar_source_count(tally->calendar); j++)
        sum += stage->weights[j];
    return number == RP_PLAN_NO_NUMBER || sum == 0 ? 0 : stage->weights[number] / (double)sum;
}
