/* SPDX-License-Identifier: Apache-2.0 */
/* stage_report.c — the calendar as tables and as JSON; see stage_tally.h. */
#include <inttypes.h>
#include <stdio.h>

#include "base/bits.h"
#include "plan/balance.h"
#include "plan/v2/deal.h"
#include "plan/v2/planner.h"
#include "cmd.h"
#include "plan/stage_tally.h"

static const char *const outcomes[] = {[RP_EXHAUSTED_CONTINUE] = "the others continue",
                                       [RP_EXHAUSTED_STOP] = "the stream stops",
                                       [RP_EXHAUSTED_ERROR] = "its next document is an error"};
static const char *const limit_names[] = {
    [RP_LIMIT_EPOCHS] = "max_epochs", [RP_LIMIT_TOKENS] = "max_tokens"};

static double ratio(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

/* The declared stage that begins at a row, and its number; NULL: only a record does. */
static const struct rp_stage_spec *declared_at(const struct rp_stage_tally *tally, uint64_t row,
                                               uint32_t *number)
{
    const struct rp_stream_spec *spec = rp_calendar_spec(tally->calendar);
    for (*number = 0; *number < spec->stage_count; ++*number)
        if (spec->stages[*number].from == row)
            return &spec->stages[*number];
    return NULL;
}

static bool is_planned(const struct rp_stage_rows *rows)
{
    return rows->rows > 0;
}

/* The stage ended before the first planned row. */
static bool is_before(const struct rp_stage_tally *tally, const struct rp_stage_rows *rows)
{
    return rows->end <= tally->first_row;
}

/* ---- one stage ------------------------------------------------------------------------------- */

static void print_deal(const struct rp_deal *deal)
{
    if (deal->window == 0)
        printf("deal off");
    else
        printf("deal %" PRIu32 " rows, step %" PRIu32 ", tier %" PRIu32 ", bundle %" PRIu32
               ", order %s, cost %" PRIu32,
               deal->window, deal->step, deal->tier, deal->bundle, rp_deal_order_name(deal->order),
               deal->cost.k);
}

/* The origin of a deal that is a record, and the memory of a window by the mean row. */
static void print_deal_facts(const struct rp_stage_tally *tally, const struct rp_stage_rows *rows,
                             const struct rp_stage_spec *declared)
{
    const struct rp_config *config = tally->config;
    const struct rp_deal *deal = &rows->stage->deal;
    bool is_begun = tally->first_row > 0 &&
                    (rows->stage->from == 0 || rows->stage->from < tally->first_row);
    double fragments = (double)rows->fragments / (double)rows->rows * deal->window;
    char text[RP_CMD_TEXT_BYTES];
    if (deal->window == 0)
        return;
    if (declared && (declared->sets & RP_WANTS_DEAL) && is_begun)
        puts("     the deal is the run's record: the job that it began with");
    else if (declared && (declared->sets & RP_WANTS_DEAL))
        printf("     the deal follows from the job: dp_world_size %" PRIu32 ", batch_size %" PRIu32
               ", global_batch_size %" PRIu64 "\n",
               config->dp_world_size, config->batch_size, config->global_batch_size);
    printf("     a deal window needs %s of memory, in each of 4 plans of an engine\n",
           rp_cmd_bytes_text(rp_planner_window_bytes(deal->window, (uint64_t)fragments), text));
}

/* Parameters that differ from the stage before; of the first one, all. */
static void print_parameters(const struct rp_stage *now, const struct rp_stage *before)
{
    const char *comma = "";
#define PRINT_IF(is_other, ...)                                                                    \
    if (is_other) {                                                                                \
        printf("%s", *comma ? comma : "     ");                                                    \
        printf(__VA_ARGS__);                                                                       \
        comma = ", ";                                                                              \
    }
    PRINT_IF(!before || now->seq_len != before->seq_len, "seq_len %" PRIu32, now->seq_len)
    PRINT_IF(before ? now->align != before->align : now->align > 1, "align %" PRIu32, now->align)
    PRINT_IF(!before || now->packing != before->packing, "packing %s",
             rp_packing_name(now->packing))
    bool has_stores = now->packing != RP_PACKING_CONCAT;
    bool is_other_size = !before || now->window != before->window ||
                         now->packing != before->packing;
    PRINT_IF(has_stores && is_other_size, "%s %" PRIu32, rp_plan_window_name(now->packing),
             now->window)
    PRINT_IF(has_stores && (!before || now->row_gap != before->row_gap), "row_gap %s",
             rp_plan_row_gap_name(now->row_gap))
    PRINT_IF(has_stores && (!before || now->spread != before->spread), "spread %" PRIu32,
             now->spread)
    PRINT_IF(!before || now->max_docs_per_row != before->max_docs_per_row,
             "max_docs_per_row %" PRIu32, now->max_docs_per_row)
#undef PRINT_IF
    bool is_dealt = now->deal.window > 0, was_dealt = before && before->deal.window > 0;
    if (is_dealt != was_dealt || (is_dealt && now->deal.window != before->deal.window)) {
        printf("%s", *comma ? comma : "     ");
        print_deal(&now->deal);
        comma = ", ";
    }
    if (*comma)
        puts("");
}

/* The last entry of the config's sizes at or before a row. */
static const struct rp_batch_stage *sizes_at(const struct rp_stage_tally *tally, uint64_t row)
{
    const struct rp_config_batches *batches = &tally->config->batches;
    uint32_t i = batches->count - 1;
    while (batches->stages[i].from > row)
        i--;
    return &batches->stages[i];
}

static uint64_t batch_size_at(const struct rp_stage_tally *tally, uint64_t row)
{
    return sizes_at(tally, row)->batch_rows / tally->config->dp_world_size;
}

/* Sizes of steps and batches, of a stage that changes one. */
static void print_sizes(const struct rp_stage_tally *tally, const struct rp_stage *now,
                        const struct rp_stage *before)
{
    if (!before || sizes_at(tally, now->from) == sizes_at(tally, before->from))
        return;
    printf("     global_batch_size %" PRIu64 " (before %" PRIu64 "), batch_size %" PRIu64
           " (before %" PRIu64 ")\n",
           sizes_at(tally, now->from)->step_rows, sizes_at(tally, before->from)->step_rows,
           batch_size_at(tally, now->from), batch_size_at(tally, before->from));
}

/* Limits that differ from the stage before, of sources that had joined then. */
static void print_limits(const struct rp_stage_tally *tally, const struct rp_stage *now,
                         const struct rp_stage *before)
{
    static const char *const words[] = {"continue", "stop", "error"};
    for (uint32_t s = 0; before && s < tally->config->source_count; s++) {
        uint32_t number = rp_plan_number(tally->plan, s);
        if (number == RP_PLAN_NO_NUMBER || number >= before->joined)
            continue;
        const struct rp_limits *a = &before->limits[number], *b = &now->limits[number];
        if (a->max_epochs == b->max_epochs && a->max_tokens == b->max_tokens &&
            a->on_exhausted == b->on_exhausted)
            continue;
        printf("     limits of %s: max_epochs %" PRIu32 ", max_tokens %" PRIu64
               ", on_exhausted %s (0: none)\n",
               tally->config->sources[s].name, b->max_epochs, b->max_tokens,
               words[b->on_exhausted]);
    }
}

static void print_mixture(const struct rp_stage_tally *tally, const struct rp_stage_rows *rows)
{
    char tokens[RP_CMD_TEXT_BYTES];
    for (uint32_t s = 0; s < tally->config->source_count; s++) {
        const struct rp_stage_part *part = &rows->sources[s];
        double asked = rp_stage_share(tally, rows->stage, s);
        if (asked <= 0 && part->tokens == 0)
            continue;
        printf("     %-17.17s%7.3f %%%8.3f %% %14s%12.2f\n", tally->config->sources[s].name,
               100 * asked, 100 * ratio((double)part->tokens, (double)rows->tokens),
               rp_cmd_count_text(part->tokens, tokens), part->at_end.epochs);
    }
}

static void print_stage(const struct rp_stage_tally *tally, uint32_t i)
{
    const struct rp_stage_rows *rows = &tally->stages[i];
    char a[RP_CMD_TEXT_BYTES], b[RP_CMD_TEXT_BYTES], c[RP_CMD_TEXT_BYTES], d[RP_CMD_TEXT_BYTES];
    uint64_t from = rp_max_u64(rows->stage->from, tally->first_row), number_rows = rows->rows;
    uint32_t number;
    const struct rp_stage_spec *declared = declared_at(tally, rows->stage->from, &number);
    const struct rp_stage *before = i > 0 ? tally->stages[i - 1].stage : NULL;
    if (declared)
        printf("  stage %" PRIu32, number);
    else
        printf("  record");
    if (!is_planned(rows)) {
        printf(" from row %s: %s\n", rp_cmd_count_text(rows->stage->from, a),
               tally->is_complete ? "not reached, because the stream ends before it"
                                  : "not planned (--rows)");
        return;
    }
    printf(": rows %s to %s, %s steps, %s places\n", rp_cmd_count_text(from, a),
           rp_cmd_count_text(from + number_rows - 1, b),
           rp_cmd_count_text(rp_div_up(number_rows, sizes_at(tally, from)->step_rows), c),
           rp_cmd_count_text(rows->places, d));
    print_parameters(rows->stage, before);
    print_sizes(tally, rows->stage, before);
    if (declared && (declared->sets & RP_SETS_WEIGHTS) && declared->ramp > 0)
        printf("     ramp of %s rows from the shares before\n",
               rp_cmd_count_text(declared->ramp, a));
    print_deal_facts(tally, rows, declared);
    print_limits(tally, rows->stage, before);
    if (rows->withheld_rows)
        printf("     %s rows withheld (skip)\n", rp_cmd_count_text(rows->withheld_rows, a));
    print_mixture(tally, rows);
}

/* ---- sources --------------------------------------------------------------------------------- */

static const struct rp_limits *limits_of(const struct rp_stage_tally *tally, uint32_t source)
{
    const struct rp_stage *stage = tally->stages[tally->current].stage;
    return &stage->limits[rp_plan_number(tally->plan, source)];
}

static void print_limit(const struct rp_stage_tally *tally, uint32_t s,
                        const struct rp_stage_reach *end)
{
    const struct rp_stage_source *source = &tally->sources[s];
    const struct rp_limits *limits = limits_of(tally, s);
    char row[RP_CMD_TEXT_BYTES], tokens[RP_CMD_TEXT_BYTES], left[RP_CMD_TEXT_BYTES];
    if (source->limit) {
        bool is_before = source->limit_row == RP_NO_ROW;
        printf("    %s reached %s row %s: %s\n", limit_names[source->limit],
               is_before ? "before" : "at",
               rp_cmd_count_text(is_before ? tally->first_row : source->limit_row, row),
               outcomes[limits->on_exhausted]);
        return;
    }
    if (limits->max_epochs > 0)
        printf("    max_epochs %" PRIu32 ": %.2f left\n", limits->max_epochs,
               limits->max_epochs - end->epochs);
    if (limits->max_tokens > 0)
        printf("    max_tokens %s: %s left\n", rp_cmd_count_text(limits->max_tokens, tokens),
               rp_cmd_count_text(limits->max_tokens - end->tokens, left));
}

static void print_source(const struct rp_stage_tally *tally, uint32_t s)
{
    const struct rp_stage_source *source = &tally->sources[s];
    const struct rp_stage_reach *end = &tally->stages[tally->current].sources[s].at_end;
    char a[RP_CMD_TEXT_BYTES], b[RP_CMD_TEXT_BYTES], c[RP_CMD_TEXT_BYTES], d[RP_CMD_TEXT_BYTES];
    if (!end->has_joined) {
        printf("  %-20.20s  has not joined\n", tally->config->sources[s].name);
        return;
    }
    printf("  %-20.20s%12s%14s%14s%12s%12.2f\n", tally->config->sources[s].name,
           rp_cmd_count_text(end->taken, a), rp_cmd_count_text(end->tokens, b),
           rp_cmd_count_text(end->tokens - end->waiting - end->withheld, c),
           rp_cmd_count_text(end->withheld, d), end->epochs);
    rp_selected_print(&source->selection);
    if (tally->first_row > 0 && source->before.has_joined)
        printf("    at row %s: %.2f epochs, %s tokens\n", rp_cmd_count_text(tally->first_row, a),
               source->before.epochs, rp_cmd_count_text(source->before.tokens, b));
    print_limit(tally, s, end);
}

void rp_stage_tally_print(const struct rp_stage_tally *tally)
{
    printf("stages                   asked  realised         tokens epochs (end)\n");
    for (uint32_t i = 0; i < tally->count; i++)
        if (!is_before(tally, &tally->stages[i]))
            print_stage(tally, i);
    printf(
        "sources, since row 0   documents        tokens     delivered    withheld      epochs\n");
    for (uint32_t s = 0; s < tally->config->source_count; s++)
        print_source(tally, s);
    if (tally->gain[0])
        printf("  note: %s\n", tally->gain);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *stage_json(const struct rp_stage_tally *tally, const struct rp_stage_rows *rows)
{
    json_t *mixture = json_array();
    uint32_t number;
    const struct rp_stage *stage = rows->stage;
    const struct rp_stage_spec *declared = declared_at(tally, stage->from, &number);
    for (uint32_t s = 0; s < tally->config->source_count; s++) {
        const struct rp_stage_part *part = &rows->sources[s];
        json_array_append_new(mixture,
                              json_pack("{so sf sf sI sf}", "source",
                                        rp_cmd_json_text(tally->config->sources[s].name), "asked",
                                        rp_stage_share(tally, stage, s), "realised",
                                        ratio((double)part->tokens, (double)rows->tokens), "tokens",
                                        (json_int_t)part->tokens, "epochs", part->at_end.epochs));
    }
    json_t *value = json_pack(
        "{so sI sb sI sI sI sI ss sI ss sI sI sI so}", "stage",
        declared ? json_integer(number) : json_null(), "from", (json_int_t)stage->from, "reached",
        is_planned(rows), "rows", (json_int_t)rows->rows, "places", (json_int_t)rows->places,
        "rows_withheld", (json_int_t)rows->withheld_rows, "seq_len", (json_int_t)stage->seq_len,
        "packing", rp_packing_name(stage->packing), "window", (json_int_t)stage->window, "fill",
        rp_plan_row_gap_name(stage->row_gap), "spread", (json_int_t)stage->spread,
        "max_docs_per_row", (json_int_t)stage->max_docs_per_row, "ramp",
        (json_int_t)(declared ? declared->ramp : 0), "mixture", mixture);
    json_object_set_new(value, "global_batch_size",
                        json_integer((json_int_t)sizes_at(tally, stage->from)->step_rows));
    json_object_set_new(value, "batch_size",
                        json_integer((json_int_t)batch_size_at(tally, stage->from)));
    return value;
}

static json_t *source_json(const struct rp_stage_tally *tally, uint32_t s)
{
    const struct rp_stage_source *source = &tally->sources[s];
    const struct rp_stage_reach *end = &tally->stages[tally->current].sources[s].at_end;
    bool is_reached = source->limit != RP_LIMIT_NONE;
    return json_pack(
        "{so sb sI sI sI sI sI sf sf so so sI sI sI so}", "source",
        rp_cmd_json_text(tally->config->sources[s].name), "joined", end->has_joined, "taken",
        (json_int_t)end->taken, "planned", (json_int_t)end->tokens, "delivered",
        (json_int_t)(end->tokens - end->waiting - end->withheld), "waiting",
        (json_int_t)end->waiting, "withheld", (json_int_t)end->withheld, "epochs", end->epochs,
        "epochs_before", source->before.epochs, "limit",
        is_reached ? json_string(limit_names[source->limit]) : json_null(), "limit_row",
        is_reached && source->limit_row != RP_NO_ROW ? json_integer((json_int_t)source->limit_row)
                                                     : json_null(),
        "documents", (json_int_t)source->selection.documents, "selected",
        (json_int_t)source->selection.selected, "takes", (json_int_t)source->selection.takes,
        "columns", rp_selected_json(&source->selection));
}

void rp_stage_tally_json(const struct rp_stage_tally *tally, json_t *report)
{
    json_t *stages = json_array(), *sources = json_array();
    for (uint32_t i = 0; i < tally->count; i++)
        json_array_append_new(stages, stage_json(tally, &tally->stages[i]));
    for (uint32_t s = 0; tally->calendar && s < tally->config->source_count; s++)
        json_array_append_new(sources, source_json(tally, s));
    json_object_set_new(report, "stages", stages);
    json_object_set_new(report, "sources", sources);
    json_object_set_new(report, "deal_gain",
                        tally->gain[0] ? json_string(tally->gain) : json_null());
}
