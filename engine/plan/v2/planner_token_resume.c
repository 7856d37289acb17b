/* SPDX-License-Identifier: Apache-2.0 */
/* planner_token_resume.c — the calendar and the plan at the row of a token (STREAM2.md section
 * 12.4). */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/mem.h"
#include "plan/v2/planner_token_format.h"

/* The spec of the calendar: the caller's, and one record more at row e. */
struct extended {
    struct rp_stream_spec spec;
    struct rp_stage_spec *records;
    struct rp_source_count *documents;
    struct rp_limits_change *limits;
};

static void free_extended(struct extended *extended)
{
    free(extended->records);
    free(extended->documents);
    free(extended->limits);
}

/* ---- the calendar ---------------------------------------------------------------------------- */

/* Values in force for a calendar that does not get all records. */
struct held {
    struct rp_calendar_held values;
    uint64_t *documents;
    uint32_t *weights;
};

static int make_held(const struct rp_token2_resume *resume, struct held *held)
{
    const struct rp_token2_header *header = &resume->token.header;
    held->documents = rp_calloc(header->source_count, sizeof *held->documents);
    held->weights = rp_calloc(header->source_count, sizeof *held->weights);
    if (!held->documents || !held->weights)
        return rp_fail(resume->error, -ENOMEM, NULL, "no memory for the sources of a state token");
    for (uint32_t j = 0; j < header->source_count; j++) {
        held->documents[j] = resume->token.sources[j].documents_next;
        held->weights[j] = resume->token.sources[j].weight;
    }
    held->values = (struct rp_calendar_held){
        .records = header->records,
        .documents = held->documents,
        .weights = held->weights,
        .max_docs_per_row = header->max_docs_per_row,
        .deal = rp_token2_deal_of(&header->deal),
    };
    return 0;
}

/* A calendar at the token's position, with the records of a text. */
static int open_with(const struct rp_token2_resume *resume, const struct rp_stream_spec *spec,
                     const char *records, struct rp_calendar **calendar_out, struct rp_error *error)
{
    struct held held = {0};
    const struct rp_calendar_position position = {
        .next_row = resume->token.header.next_row,
        .known_count = resume->token.header.source_count,
        .known_names = resume->names,
        .begun_records = records,
        .is_resumed = true,
        .held = &held.values,
    };
    int code = make_held(resume, &held);
    if (code == 0)
        code = rp_calendar_open(calendar_out, spec, &position, error);
    free(held.documents);
    free(held.weights);
    return code;
}

/* The records as a new stream would make them of the token's documents, as in a run without
 * growth and commands. */
static int make_anew(const struct rp_token2_resume *resume, char **text_out)
{
    struct rp_record_writer writer = {0};
    struct rp_stream_spec spec = *resume->spec;
    struct rp_stream_source *sources = rp_calloc(spec.source_count, sizeof *sources);
    struct rp_calendar *calendar = NULL;
    struct rp_error ignored = {0};
    if (!sources)
        return rp_fail(resume->error, -ENOMEM, NULL, "no memory for the sources of a state token");
    memcpy(sources, spec.sources, spec.source_count * sizeof *sources);
    for (uint32_t j = 0; j < resume->token.header.source_count; j++)
        if (resume->sources[j])
            sources[resume->sources[j] - resume->spec->sources].documents =
                resume->token.sources[j].documents_next;
    spec.sources = sources;
    int code = rp_calendar_open(&calendar, &spec, NULL, &ignored);
    if (code == 0)
        code = rp_calendar_contract(calendar, &writer, &ignored);
    *text_out = code == 0 ? rp_calloc(writer.bytes + 1, 1) : NULL;
    if (*text_out && writer.bytes > 0)
        memcpy(*text_out, writer.text, writer.bytes);
    else if (code == 0 && !*text_out)
        code = -ENOMEM;
    rp_calendar_close(calendar);
    free(writer.text);
    free(sources);
    if (code == -ENOMEM)
        return rp_fail(resume->error, code, NULL, "no memory for the records of a state token");
    return 0; /* after other failures the caller tries other records */
}

/* A calendar, and the text of the records that it was opened with, on the heap. */
struct opened {
    struct rp_calendar *calendar;
    char *records;
};

static void close_opened(struct opened *opened)
{
    rp_calendar_close(opened->calendar);
    free(opened->records);
    *opened = (struct opened){NULL, NULL};
}

/* The records of a contract, of the history, or made again: *text_out is NULL without records. */
static int find_text(const struct rp_token2_resume *resume, unsigned from, char **text_out)
{
    const char *given = resume->with->begun_records;
    *text_out = NULL;
    if (from == 1)
        return rp_token2_history_records(resume->token.history, text_out, resume->error);
    if (from == 2)
        return resume->removed == 0 ? make_anew(resume, text_out) : 0;
    if (!given)
        return 0;
    *text_out = rp_calloc(strlen(given) + 1, 1);
    if (!*text_out)
        return rp_fail(resume->error, -ENOMEM, NULL, "no memory for the records of a state token");
    memcpy(*text_out, given, strlen(given) + 1);
    return 0;
}

/* The calendar with the first records that have the token's chain B. If none have, the records of
 * the history: the token's values are in force then. */
static int open_known(const struct rp_token2_resume *resume, struct opened *opened)
{
    struct rp_error first = {0};
    *opened = (struct opened){NULL, NULL};
    for (unsigned from = 0; from < 3; from++) {
        struct opened found = {NULL, NULL};
        int code = find_text(resume, from, &found.records);
        if (code == 0 && !found.records)
            continue;
        struct rp_error error = {0};
        if (code == 0)
            code = open_with(resume, resume->spec, found.records, &found.calendar, &error);
        if (code == -ENOMEM || (code == -RP_E_CORRUPT && from == 1)) {
            close_opened(&found);
            close_opened(opened);
            return code == -ENOMEM
                       ? rp_fail(resume->error, code, NULL,
                                 "no memory for the calendar of a stream")
                       : RP_TOKEN_DAMAGED(resume->error, ": its history: %s", error.message);
        }
        bool is_known = code == 0 && rp_calendar_knows_records(found.calendar);
        if (is_known || (code == 0 && (!opened->calendar || from == 1))) {
            close_opened(opened);
            *opened = found;
        } else {
            close_opened(&found);
        }
        if (is_known)
            return 0;
        if (code < 0 && first.code == 0)
            first = error;
    }
    if (opened->calendar)
        return 0;
    return rp_fail(resume->error, first.code, first.hint[0] ? first.hint : RP_TOKEN_DAMAGED_HINT,
                   "%s", first.message);
}

/* ---- the record at row e ----------------------------------------------------------------------
 */

/* Whether the weights that the caller gives are others than those in force. */
static bool weights_differ(const struct rp_token2_resume *resume)
{
    const uint32_t *weights = resume->with->weights;
    uint64_t divisor = 0, found = 0;
    if (!weights)
        return false;
    for (uint32_t i = 0; i < resume->spec->source_count; i++) {
        divisor = rp_gcd_u64(weights[i], divisor);
        found += weights[i] > 0;
    }
    for (uint32_t j = 0; j < resume->token.header.source_count; j++) {
        const struct rp_stream_source *source = resume->sources[j];
        uint32_t had = resume->token.sources[j].weight;
        if (had != (source && divisor > 0 ? weights[source - resume->spec->sources] / divisor : 0))
            return true;
        found -= had > 0;
    }
    return found > 0;
}

static int check_weights(const struct rp_token2_resume *resume)
{
    const struct rp_stream_spec *spec = resume->spec;
    uint64_t row = resume->token.header.window_end;
    for (uint32_t i = 0; i < spec->stage_count; i++)
        if (spec->stages[i].from == row && (spec->stages[i].sets & RP_SETS_WEIGHTS))
            return rp_fail(resume->error, -RP_E_MISMATCH,
                           "the run is unchanged; give the weights in that stage, or without it",
                           "other weights from row %" PRIu64
                           " on: a stage that begins there sets weights itself",
                           row);
    return 0;
}

/* Documents of the record: those that the spec has there already, and those that were appended. */
static void add_documents(const struct rp_token2_resume *resume, struct extended *extended,
                          struct rp_stage_spec *record)
{
    uint32_t count = record->documents_count;
    if (count > 0)
        memcpy(extended->documents, record->documents, count * sizeof *extended->documents);
    for (uint32_t j = 0; j < resume->token.header.source_count && resume->with->grow; j++) {
        const struct rp_stream_source *source = resume->sources[j];
        if (!source || source->documents <= resume->token.sources[j].documents_next)
            continue;
        uint32_t number = (uint32_t)(source - resume->spec->sources), i = 0;
        while (i < count && extended->documents[i].source != number)
            i++;
        if (i == count)
            extended->documents[count++] = (struct rp_source_count){number, source->documents};
    }
    record->documents = extended->documents;
    record->documents_count = count;
}

/* Limits of the token that end here. */
static void add_limits(const struct rp_token2_resume *resume, const bool *kept,
                       struct extended *extended, struct rp_stage_spec *record)
{
    uint32_t count = 0;
    for (uint32_t j = 0; j < resume->token.header.source_count; j++)
        if (kept[j])
            extended->limits[count++] = (struct rp_limits_change){
                .source = (uint32_t)(resume->sources[j] - resume->spec->sources),
                .sets = 7,
                .limits = resume->token.sources[j].limits};
    if (count > 0) {
        record->limits = extended->limits;
        record->limits_count = count;
    }
}

/* Add growth, weights and limits to the record of the spec at row e, or a record with them. */
static int extend(const struct rp_token2_resume *resume, const bool *kept, bool reweights,
                  struct extended *extended)
{
    const struct rp_stream_spec *spec = resume->spec;
    uint64_t row = resume->token.header.window_end;
    uint32_t at = 0, count = spec->record_count, sources = resume->token.header.source_count;
    while (at < count && spec->records[at].from < row)
        at++;
    bool is_new = at == count || spec->records[at].from != row;
    uint32_t had = is_new ? 0 : spec->records[at].documents_count;
    extended->spec = *spec;
    extended->records = rp_calloc((size_t)count + 1, sizeof *extended->records);
    extended->documents = rp_calloc((size_t)had + sources, sizeof *extended->documents);
    extended->limits = rp_calloc(sources, sizeof *extended->limits);
    if (!extended->records || !extended->documents || !extended->limits)
        return rp_fail(resume->error, -ENOMEM, NULL, "no memory for the records of a stream");
    struct rp_stage_spec *record = &extended->records[at];
    for (uint32_t i = 0; i < count; i++)
        extended->records[i + (is_new && i >= at)] = spec->records[i];
    if (is_new)
        *record = (struct rp_stage_spec){.from = row};
    add_documents(resume, extended, record);
    add_limits(resume, kept, extended, record);
    if (reweights) {
        record->sets |= RP_SETS_WEIGHTS;
        record->weights = resume->with->weights;
        record->ramp = 0;
    }
    extended->spec.records = extended->records;
    extended->spec.record_count = count + is_new;
    return 0;
}

/* The calendar with the record of row e: growth, other weights, and limits that are `kept`, by
 * number. *out is NULL if there are none. */
static int open_extended(const struct rp_token2_resume *resume, const char *records,
                         const bool *kept, uint32_t kept_count, struct rp_calendar **out)
{
    bool grows = resume->grown > 0 && resume->with->grow, reweights = weights_differ(resume);
    struct extended extended = {.records = NULL};
    *out = NULL;
    if (!grows && !reweights && kept_count == 0)
        return 0;
    if (resume->token.header.next_row == 0)
        return rp_fail(resume->error, -RP_E_MISMATCH,
                       grows ? "no batch was delivered: begin a new stream, which has them, or "
                               "continue without them: `grow: false`"
                             : "no batch was delivered: begin a new stream, which has them",
                       "%s: the state is at row 0, where all is begun",
                       grows ? "documents were appended" : "other weights");
    int code = reweights ? check_weights(resume) : 0;
    if (code == 0)
        code = extend(resume, kept, reweights, &extended);
    if (code == 0)
        code = open_with(resume, &extended.spec, records, out, resume->error);
    free_extended(&extended);
    return code;
}

/* Inside a deal window that begins at the row of a record, its boundary actions are done again. */
static int check_window(const struct rp_token2_resume *resume, const struct rp_calendar *calendar)
{
    const struct rp_token2_header *header = &resume->token.header;
    if (header->next_row == header->window_first || header->window_first == 0 ||
        rp_calendar_knows_records(calendar) ||
        rp_token2_history_excludes(resume->token.history, header->window_first))
        return 0;
    return rp_fail(resume->error, -RP_E_MISMATCH,
                   "the run is unchanged; continue with the state's own checkpoint, whose contract "
                   "has the records",
                   "the state is inside a deal window that may begin with a record, at row %" PRIu64
                   ", and the records are not known",
                   header->window_first);
}

static int make_calendar(const struct rp_token2_resume *resume, struct opened *opened)
{
    int code = open_known(resume, opened);
    if (code == 0)
        code = rp_token2_match_calendar(resume, opened->calendar);
    if (code == 0)
        code = check_window(resume, opened->calendar);
    return code < 0 ? code : rp_token2_verify(&resume->token, opened->calendar, resume->error);
}

/* ---- the plan -------------------------------------------------------------------------------- */

/* The plan keeps for its next token: limits up to row e, and sources that left the config. */
static int keep(const struct rp_token2_resume *resume, struct rp_planner *plan)
{
    struct rp_token2_kept *kept = rp_token2_kept_of(plan);
    if (!kept)
        return rp_fail(resume->error, -ENOMEM, NULL, "no memory for the sources of a token");
    kept->limits_end = resume->token.header.window_end;
    kept->oldest = rp_token2_history_oldest(resume->token.history, resume->token.header.next_row);
    for (uint32_t j = 0; j < resume->token.header.source_count; j++) {
        const struct rp_planner_token_source *had = &resume->token.sources[j];
        kept->sources[j] = (struct rp_token2_kept_source){
            .limits = had->limits,
            .is_removed = !resume->sources[j],
            .prints = had->prints,
            .prints_at = resume->sources[j] ? 0 : had->state.documents,
            .too_long = had->too_long,
            .drop_untrained = had->drop_untrained,
            .documents_next = had->documents_next,
        };
    }
    return 0;
}

static int restore(const struct rp_token2_resume *resume, struct rp_planner *plan)
{
    const struct rp_token2_header *header = &resume->token.header;
    struct rp_limits *limits = rp_calloc(header->source_count, sizeof *limits);
    if (!limits)
        return rp_fail(resume->error, -ENOMEM, NULL, "no memory for the limits of a state token");
    for (uint32_t j = 0; j < header->source_count; j++)
        limits[j] = resume->token.sources[j].limits;
    const struct rp_stream_position position = {header->next_row, header->window_first,
                                                header->window_end};
    int code = rp_planner_restore(plan, &resume->token.snapshot, &position, limits,
                                  header->source_count, resume->error);
    free(limits);
    return code < 0 ? code : keep(resume, plan);
}

/* A calendar, and its plan at the token's row. */
struct resumed {
    struct rp_calendar *calendar;
    struct rp_planner *plan;
};

static void close_resumed(struct resumed *resumed)
{
    rp_planner_close(resumed->plan);
    rp_calendar_close(resumed->calendar);
    *resumed = (struct resumed){NULL, NULL};
}

/* Continue with the record of row e. Without one, `opened` gives its calendar. */
static int begin(const struct rp_token2_resume *resume, struct opened *opened, const bool *kept,
                 uint32_t kept_count, struct resumed *resumed)
{
    int code = open_extended(resume, opened->records, kept, kept_count, &resumed->calendar);
    if (code == 0 && !resumed->calendar) {
        resumed->calendar = opened->calendar;
        opened->calendar = NULL;
    }
    if (code == 0)
        code = rp_planner_open(&resumed->plan, resumed->calendar, resume->error);
    return code < 0 ? code : restore(resume, resumed->plan);
}

/* Which limits are reached is known once the window of the token is planned again, up to row e. For
 * that, all limits that differ end there. */
static int continue_with(const struct rp_token2_resume *resume, struct opened *opened,
                         struct resumed *resumed)
{
    bool *kept = rp_calloc(resume->token.header.source_count, sizeof *kept);
    if (!kept)
        return rp_fail(resume->error, -ENOMEM, NULL, "no memory for the limits of a state token");
    uint32_t count = rp_token2_other_limits(resume, opened->calendar, kept);
    int code = begin(resume, opened, kept, count, resumed);
    if (code == 0 && count > 0) {
        int left = rp_token2_match_limits(resume, opened->calendar, resumed->plan, kept);
        code = left < 0 ? left : 0;
        if (code == 0 && (uint32_t)left < count) {
            close_resumed(resumed);
            code = begin(resume, opened, kept, (uint32_t)left, resumed);
        }
    }
    free(kept);
    return code;
}

int rp_planner_token_resume(struct rp_calendar **calendar_out, struct rp_planner **plan_out,
                            const struct rp_stream_spec *spec, const void *token, size_t bytes,
                            const struct rp_stream_resume *with, struct rp_error *error)
{
    struct rp_token2_resume resume = {.spec = spec, .with = with, .error = error};
    struct opened opened = {NULL, NULL};
    struct resumed resumed = {NULL, NULL};
    int code = rp_token2_decode(&resume.token, token, bytes, error);
    if (code == 0)
        code = rp_token2_match_spec(&resume);
    if (code == 0)
        code = rp_token2_match_rows(&resume);
    if (code == 0)
        code = make_calendar(&resume, &opened);
    if (code == 0)
        code = continue_with(&resume, &opened, &resumed);
    close_opened(&opened);
    free(resume.sources);
    free(resume.names);
    rp_token2_free(&resume.token);
    if (code < 0)
        close_resumed(&resumed);
    *calendar_out = resumed.calendar;
    *plan_out = resumed.plan;
    return code;
}
