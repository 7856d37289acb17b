/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/v2/facade.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* ---- sources by number and by place ---------------------------------------------------------- */

/* Most fragments of a row; of rows of `seq_len` places, or of all (0). */
static uint32_t most_fragments(const struct rp_calendar *calendar, uint32_t seq_len)
{
    uint32_t most = 0;
    for (uint64_t row = 0; row != RP_NO_ROW; row = rp_calendar_next(calendar, row)) {
        const struct rp_stage *stage = rp_calendar_at(calendar, row);
        if (seq_len == 0 || stage->seq_len == seq_len)
            most = stage->max_docs_per_row > most ? stage->max_docs_per_row : most;
    }
    return most;
}

static void close_parts(struct rp_v2_parts *parts)
{
    rp_planner_close(parts->rows);
    rp_calendar_close(parts->calendar);
    free(parts->places);
    free(parts->numbers);
    free(parts->fragments);
    rp_v2_records_free(&parts->records);
}

/* Make the tables of calendar and rows, and replace the plan's. On failure the parts are
 * closed, and the plan is as it was. */
static int adopt(struct rp_plan_v2 *v2, struct rp_v2_parts *parts, struct rp_error *error)
{
    uint32_t count = rp_calendar_source_count(parts->calendar), sources = v2->spec.source_count;
    bool is_renumbered = false;
    size_t most = rp_planner_token_bytes_max(parts->calendar);
    if (most > RP_STREAM_TOKEN_BYTES_MAX) {
        close_parts(parts);
        return rp_fail(
            error, -RP_E_CONFIG, "lower packing_buffer or open_bins, or use fewer sources",
            "a state token of this stream may need %zu bytes, and at most %zu are allowed", most,
            RP_STREAM_TOKEN_BYTES_MAX);
    }
    parts->places = rp_calloc((size_t)count + 1, sizeof *parts->places);
    parts->numbers = rp_calloc((size_t)sources + 1, sizeof *parts->numbers);
    parts->fragments = rp_calloc((size_t)most_fragments(parts->calendar, 0) + 1,
                                 sizeof *parts->fragments);
    if (!parts->places || !parts->numbers || !parts->fragments) {
        close_parts(parts);
        return rp_fail(error, -ENOMEM, NULL, "no memory for a plan of %" PRIu32 " sources",
                       sources);
    }
    for (uint32_t s = 0; s < sources; s++)
        parts->numbers[s] = RP_NO_NUMBER;
    for (uint32_t j = 0; j < count; j++) {
        uint32_t place;
        if (!rp_calendar_place(parts->calendar, j, &place))
            place = RP_NO_NUMBER;
        parts->places[j] = place;
        is_renumbered |= place != j;
        if (place != RP_NO_NUMBER)
            parts->numbers[place] = j;
    }
    close_parts(&v2->now);
    v2->now = *parts;
    v2->number_count = count;
    v2->is_renumbered = is_renumbered;
    v2->stage = NULL;
    v2->has_state = v2->is_stand_in = false;
    return 0;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* A run begins: its rows have the present seq_len. */
static void begin_run(struct rp_plan_v2 *v2)
{
    bool is_known = rp_calendar_knows_records(v2->now.calendar);
    v2->known_from = is_known ? 0 : rp_planner_row(v2->now.rows);
    v2->seq_len = rp_v2_seq_len(v2);
    free(v2->contract);
    v2->contract = NULL;
}

int rp_v2_open(struct rp_plan_v2 **v2_out, const struct rp_stream_spec *spec,
               struct rp_error *error)
{
    struct rp_plan_v2 *v2 = rp_calloc(1, sizeof *v2);
    struct rp_v2_parts parts = {.calendar = NULL};
    const struct rp_calendar_position begin = {0};
    *v2_out = NULL;
    if (!v2)
        return rp_fail(error, -ENOMEM, NULL, "no memory for a plan");
    v2->spec = *spec;
    struct rp_stream_spec first = *spec;
    int code = rp_v2_stand_in(v2, &first, error);
    if (code == 0)
        code = rp_calendar_open(&parts.calendar, &first, &begin, error);
    if (code == 0)
        code = rp_planner_open(&parts.rows, parts.calendar, error);
    if (code < 0)
        close_parts(&parts);
    else
        code = adopt(v2, &parts, error);
    if (code < 0) {
        rp_v2_close(v2);
        return code;
    }
    begin_run(v2);
    for (uint32_t s = 0; s < spec->source_count; s++) /* the calendar may not need it */
        v2->is_stand_in |= spec->sources[s].is_absent && v2->now.numbers[s] != RP_NO_NUMBER;
    *v2_out = v2;
    return 0;
}

void rp_v2_close(struct rp_plan_v2 *v2)
{
    if (!v2)
        return;
    close_parts(&v2->now);
    rp_snapshot_free(&v2->state);
    free(v2->contract);
    free(v2->stand_ins);
    free(v2);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* The stage of a row. */
static const struct rp_stage *stage_at(struct rp_plan_v2 *v2, uint64_t row)
{
    if (!v2->stage || row < v2->stage->from || row >= v2->stage_end) {
        v2->stage = rp_calendar_at(v2->now.calendar, row);
        v2->stage_end = rp_calendar_next(v2->now.calendar, row);
    }
    return v2->stage;
}

static void count_row(struct rp_plan_v2 *v2, const struct rp_stage *stage,
                      const struct rp_stream_row *row)
{
    uint32_t group = rp_calendar_spec(v2->now.calendar)->fixed.group;
    for (uint32_t i = 0; i < row->count; i++)
        v2->cuts += row->fragments[i].offset > 0;
    v2->capped += row->tokens < stage->seq_len &&
                  row->count / group == stage->max_docs_per_row / group;
}

/* The row's fragments, with places in the config for numbers in the stream. */
static const struct rp_fragment *translate(struct rp_plan_v2 *v2, const struct rp_stream_row *row)
{
    if (!v2->is_renumbered)
        return row->fragments;
    for (uint32_t i = 0; i < row->count; i++) {
        v2->now.fragments[i] = row->fragments[i];
        v2->now.fragments[i].source = v2->now.places[row->fragments[i].source];
        RP_DASSERT(v2->now.fragments[i].source != RP_NO_NUMBER); /* no piece of it waits */
    }
    return v2->now.fragments;
}

int rp_v2_next(struct rp_plan_v2 *v2, struct rp_row *row, struct rp_error *error)
{
    uint64_t at = rp_planner_row(v2->now.rows);
    const struct rp_stage *stage = stage_at(v2, at);
    struct rp_stream_row planned;
    if (v2->is_stand_in)
        return rp_v2_fail_removed(v2, error);
    if (stage->seq_len != v2->seq_len && !v2->crosses)
        return 0;
    int code = rp_planner_next(v2->now.rows, &planned, error);
    if (code <= 0)
        return code;
    count_row(v2, stage, &planned);
    v2->epochs = planned.epochs;
    *row = (struct rp_row){.row = planned.row,
                           .count = planned.count,
                           .tokens = planned.tokens,
                           .fragments = translate(v2, &planned),
                           .planned = planned.planned,
                           .align = stage->align,
                           .skipped = planned.skipped,
                           .cost = planned.cost};
    return 1;
}

uint32_t rp_v2_seq_len(const struct rp_plan_v2 *v2)
{
    return rp_calendar_at(v2->now.calendar, rp_planner_row(v2->now.rows))->seq_len;
}

bool rp_v2_is_stage_end(const struct rp_plan_v2 *v2)
{
    return rp_v2_seq_len(v2) != v2->seq_len;
}

bool rp_v2_is_in_run(const struct rp_plan_v2 *v2)
{
    uint64_t row = rp_planner_row(v2->now.rows);
    return !rp_v2_is_stage_end(v2) ||
           (row > 0 && rp_calendar_at(v2->now.calendar, row - 1)->seq_len == v2->seq_len);
}

uint32_t rp_v2_stage_of(const struct rp_plan_v2 *v2, uint64_t row)
{
    uint32_t number = 0; /* the first stage begins at row 0 */
    for (uint64_t at = rp_calendar_next(v2->now.calendar, 0); at <= row && at != RP_NO_ROW;
         at = rp_calendar_next(v2->now.calendar, at))
        number += rp_calendar_at(v2->now.calendar, at)->is_declared;
    return number;
}

int rp_v2_check_steps(struct rp_plan_v2 *v2, const struct rp_numbering *numbering,
                      struct rp_error *error)
{
    for (uint64_t row = rp_calendar_next(v2->now.calendar, rp_planner_row(v2->now.rows));
         row != RP_NO_ROW; row = rp_calendar_next(v2->now.calendar, row)) {
        struct rp_row next;
        if (rp_calendar_at(v2->now.calendar, row)->seq_len == v2->seq_len)
            continue;
        const struct rp_numbering_part *part = rp_numbering_of_row(numbering, row);
        if (row < part->row || rp_numbering_begins_step(numbering, row) ||
            rp_v2_next(v2, &next, NULL) == 0)
            return 0;
        uint64_t step_rows = part->step_rows, before = row - (row - part->row) % step_rows;
        return rp_fail(error, -RP_E_CONFIG,
                       "the run is unchanged; end the stage before at one of these two rows "
                       "(`until: row N`), start at the first row of a step, or turn drop_last off",
                       "drop_last: the stage of another seq_len begins at row %" PRIu64
                       ", inside of a step, and the rows of that step before it would be lost: "
                       "steps of global_batch_size %" PRIu64 " begin at rows %" PRIu64
                       " and %" PRIu64,
                       row, step_rows, before, before + step_rows);
    }
    return 0;
}

struct rp_row_form rp_v2_row_form(const struct rp_plan_v2 *v2)
{
    const struct rp_stream_fixed *fixed = &rp_calendar_spec(v2->now.calendar)->fixed;
    bool has_bos = fixed->bos_id != RP_NO_TOKEN_ID, has_eos = fixed->eos_id != RP_NO_TOKEN_ID;
    return (struct rp_row_form){.has_bos = has_bos,
                                .has_eos = has_eos,
                                .bos_id = has_bos ? fixed->bos_id : 0,
                                .eos_id = has_eos ? fixed->eos_id : 0,
                                .label_across_cuts = fixed->label_across_cuts,
                                .has_row_plans = true};
}

uint32_t rp_v2_max_docs_per_row(const struct rp_plan_v2 *v2)
{
    return most_fragments(v2->now.calendar, v2->crosses ? 0 : v2->seq_len);
}

/* ---- state ----------------------------------------------------------------------------------- */

const struct rp_source_state *rp_v2_reached(const struct rp_plan_v2 *v2, uint32_t source)
{
    uint32_t number = v2->now.numbers[source];
    return number == RP_NO_NUMBER ? NULL : rp_planner_reached(v2->now.rows, number);
}

const struct rp_snapshot *rp_v2_state(struct rp_plan_v2 *v2)
{
    uint64_t row = rp_planner_position(v2->now.rows).window_first;
    if (!v2->has_state || v2->state.row != row)
        v2->has_state = rp_planner_snapshot(v2->now.rows, &v2->state, NULL) == 0;
    return v2->has_state ? &v2->state : NULL;
}

struct rp_plan_counts rp_v2_counts_of(const struct rp_stream_counts *of)
{
    return (struct rp_plan_counts){
        .documents = of->documents,
        .empty = of->empty,
        .passed_over = of->passed_over,
        .tokens_read = of->tokens_read,
        .truncated = of->truncated,
        .dropped = of->dropped,
        .left_out = of->left_out,
        .emitted = of->emitted,
        .padding = of->padding,
        .buffered = of->tokens_read - of->truncated - of->dropped - of->left_out - of->emitted,
    };
}

void rp_v2_counts(struct rp_plan_v2 *v2, struct rp_plan_counts *counts)
{
    const struct rp_snapshot *state = rp_v2_state(v2);
    *counts = state ? rp_v2_counts_of(&state->counts) : (struct rp_plan_counts){0};
    counts->cuts = v2->cuts;
    counts->capped = v2->capped;
}

/* ---- other rows, other runs ------------------------------------------------------------------ */

/* The calendar and the rows at a token; parts->records are those ahead of it. */
static int go_to(struct rp_plan_v2 *v2, struct rp_v2_parts *parts, const void *token, size_t bytes,
                 struct rp_error *error)
{
    const struct rp_stream_resume resume = {.begun_records = v2->contract, .keeps_limits = true};
    struct rp_stream_spec spec = v2->spec;
    spec.record_count = parts->records.count;
    spec.records = parts->records.list;
    int code = rp_planner_token_resume(&parts->calendar, &parts->rows, &spec, token, bytes, &resume,
                                       error);
    if (code == 0)
        return adopt(v2, parts, error);
    rp_v2_records_free(&parts->records);
    return code;
}

static int fail_unknown(const struct rp_plan_v2 *v2, uint64_t row, struct rp_error *error)
{
    return rp_fail(error, -RP_E_MISMATCH,
                   "the run is unchanged; start from a checkpoint, whose contract has them",
                   "the records of rows before row %" PRIu64
                   " are not known, so rows after row %" PRIu64 " cannot be planned",
                   v2->known_from, row);
}

int rp_v2_load(struct rp_plan_v2 *v2, const void *token, size_t bytes, struct rp_error *error)
{
    struct rp_v2_parts parts = {.calendar = NULL};
    struct rp_planner_token_info info;
    int code = rp_planner_token_info(token, bytes, &info, error);
    if (code == 0 && info.position.next_row < v2->known_from)
        code = fail_unknown(v2, info.position.next_row, error);
    if (code == 0)
        code = rp_v2_make_contract(v2, error);
    if (code == 0)
        code = rp_v2_records_ahead(v2, info.position.next_row, &parts.records, error);
    if (code < 0)
        return code;
    return go_to(v2, &parts, token, bytes, error);
}

int rp_v2_rewind(struct rp_plan_v2 *v2, struct rp_error *error)
{
    struct rp_v2_parts parts = {.calendar = NULL};
    struct rp_stream_spec spec = v2->spec;
    uint32_t count = rp_calendar_at(v2->now.calendar, 0)->joined;
    if (v2->known_from > 0)
        return fail_unknown(v2, 0, error);
    const char **names = rp_calloc((size_t)count + 1, sizeof *names);
    int code = names ? rp_v2_make_contract(v2, error)
                     : rp_fail(error, -ENOMEM, NULL, "no memory for the sources of a plan");
    if (code == 0)
        code = rp_v2_records_ahead(v2, 0, &parts.records, error);
    for (uint32_t j = 0; j < count && code == 0; j++)
        names[j] = rp_calendar_source_name(v2->now.calendar, j);
    const struct rp_calendar_position begin = {.known_count = count,
                                               .known_names = names,
                                               .begun_records = v2->contract,
                                               .is_resumed = true};
    spec.record_count = parts.records.count;
    spec.records = parts.records.list;
    if (code == 0)
        code = rp_calendar_open(&parts.calendar, &spec, &begin, error);
    if (code == 0)
        code = rp_planner_open(&parts.rows, parts.calendar, error);
    free(names);
    if (code == 0)
        return adopt(v2, &parts, error);
    close_parts(&parts);
    return code;
}

/* Rows from which on a record may still be appended, and the rule of ramps (section 6.1). */
static int check_record(const struct rp_plan_v2 *v2, const struct rp_plan_record *record,
                        struct rp_error *error)
{
    struct rp_stream_position at = rp_planner_position(v2->now.rows);
    uint64_t row = record->row;
    if (row < at.window_end || row == 0)
        return rp_fail(error, -RP_E_USAGE, "name a later step",
                       "row %" PRIu64 " is begun: a row of its deal window was delivered, and the "
                       "next window begins at row %" PRIu64,
                       row, at.window_end);
    if (!record->weights)
        return 0;
    uint64_t *shares = rp_calloc((size_t)v2->number_count + 1, sizeof *shares);
    if (!shares)
        return rp_fail(error, -ENOMEM, NULL, "no memory for %" PRIu32 " shares", v2->number_count);
    bool is_ramp = rp_calendar_shares(v2->now.calendar, row - 1, shares) != RP_NO_ROW &&
                   rp_calendar_shares(v2->now.calendar, row, shares) != RP_NO_ROW;
    free(shares);
    return !is_ramp
               ? 0
               : rp_fail(error, -RP_E_CONFIG, "name a step after the ramp",
                         "row %" PRIu64 " is inside a ramp, whose stage sets the weights", row);
}

int rp_v2_append_record(struct rp_plan_v2 *v2, const struct rp_plan_record *record,
                        struct rp_error *error)
{
    struct rp_v2_parts parts = {.calendar = NULL};
    bool is_equal = false;
    int code = rp_v2_make_contract(v2, error);
    if (code == 0 && rp_v2_record_at(v2, record, &is_equal))
        return is_equal ? 1
                        : rp_fail(error, -RP_E_CONFIG, "name another step",
                                  "row %" PRIu64 " has a record with other %s", record->row,
                                  record->weights ? "weights" : "documents");
    if (code == 0)
        code = check_record(v2, record, error);
    size_t bytes = 0;
    void *token = code < 0 ? NULL : rp_calloc(1, rp_planner_token_bytes_max(v2->now.calendar));
    if (code == 0 && !token)
        code = rp_fail(error, -ENOMEM, NULL, "no memory for a state token");
    if (code == 0)
        code = rp_planner_token_write(v2->now.rows, token, &bytes, error);
    if (code == 0)
        code = rp_v2_records_with(v2, rp_planner_row(v2->now.rows), record, &parts.records, error);
    if (code == 0)
        code = go_to(v2, &parts, token, bytes, error);
    free(token);
    if (code < 0)
        return code;
    free(v2->contract);
    v2->contract = NULL;
    return rp_v2_make_contract(v2, error);
}

int rp_v2_start(struct rp_plan_v2 *v2, const void *token, size_t bytes,
                const struct rp_plan_start *start, struct rp_error *error)
{
    struct rp_v2_parts parts = {.calendar = NULL};
    struct rp_planner_token_info info;
    char *begun = NULL;
    int code = rp_planner_token_info(token, bytes, &info, error);
    if (code == 0)
        code = rp_v2_records_kept(v2, start, &info.position, &parts.records, error);
    if (code < 0)
        return code;
    if (start->contract && !(begun = strndup(start->contract->text, start->contract->bytes))) {
        rp_v2_records_free(&parts.records);
        return rp_fail(error, -ENOMEM, NULL, "no memory for the records of a contract");
    }
    const struct rp_stream_resume resume = {.begun_records = begun,
                                            .weights = start->weights,
                                            .grow = start->grow && !start->keeps_records,
                                            .keeps_limits = start->keeps_records};
    struct rp_stream_spec spec = v2->spec;
    if (parts.records.count > 0) {
        spec.record_count = parts.records.count;
        spec.records = parts.records.list;
    }
    code = rp_planner_token_resume(&parts.calendar, &parts.rows, &spec, token, bytes, &resume,
                                   error);
    free(begun);
    if (code == 0 && start->contract)
        code = rp_v2_match_past_limits(parts.calendar, start->contract, info.stages_begun, error);
    if (code < 0)
        close_parts(&parts);
    else
        code = adopt(v2, &parts, error);
    if (code == 0)
        begin_run(v2);
    return code;
}
