/* SPDX-License-Identifier: Apache-2.0 */
/* planner_token_match.c — the comparisons of a token with the config and the corpus that continue
 * it (STREAM2.md section 12.4). Each refusal names the field, both values and a remedy. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/mem.h"
#include "plan/v2/planner_token_format.h"

struct value {
    char text[160];
};

static struct value number(uint64_t value)
{
    struct value out;
    snprintf(out.text, sizeof out.text, "%" PRIu64, value);
    return out;
}
static struct value token_id(uint32_t id)
{
    return id == RP_NO_TOKEN_ID ? (struct value){"none"} : number(id);
}
static struct value word(const char *text)
{
    struct value out;
    snprintf(out.text, sizeof out.text, "%s", text);
    return out;
}
static struct value hex(uint64_t value)
{
    struct value out;
    snprintf(out.text, sizeof out.text, "%016" PRIx64, value);
    return out;
}
static struct value hex128(struct rp_hash128 hash)
{
    struct value out;
    char text[RP_HASH_HEX_BYTES];
    snprintf(out.text, sizeof out.text, "%s", rp_hash128_hex(hash, text));
    return out;
}

/* 0 if both values are equal; otherwise a refusal. `of` may be empty. */
static int compare(const struct rp_token2_resume *resume, const char *field, const char *of,
                   struct value had, struct value has, const char *remedy)
{
    char hint[256];
    if (strcmp(had.text, has.text) == 0)
        return 0;
    snprintf(hint, sizeof hint, "the run is unchanged; %s", remedy);
    return rp_fail(resume->error, -RP_E_MISMATCH, hint,
                   "%s%s%s differs: the state has %s, this run has %s", field, of[0] ? " of " : "",
                   of, had.text, has.text);
}

/* ---- 1 to 3: fixed parameters, sources ------------------------------------------------------- */

#define FIXED_REMEDY "set it back: it stays as it is for the whole stream, or begin a new stream"
#define SOURCE_REMEDY                                                                              \
    "set it back: the parameters of a source never change; a source with others needs another name"
#define DOCUMENTS_REMEDY "bring its documents back as they were; documents may only be appended"

static int match_fixed(const struct rp_token2_resume *resume)
{
    static const char *const no_yes[] = {"no", "yes"};
    const struct rp_stream_fixed *fixed = &resume->spec->fixed;
    const struct rp_token2_header *header = &resume->token.header;
    bool blocks = fixed->shuffle == RP_SHUFFLE_BLOCK;
    enum rp_long_doc long_doc = fixed->group > 1 ? RP_LONG_DOC_SPLIT : fixed->long_doc;
    bool knows_tokenizer = rp_hash128_is_known(header->tokenizer) &&
                           rp_hash128_is_known(fixed->tokenizer);
    const struct {
        const char *field;
        struct value had, has;
    } fields[] = {
        {"seed", number(header->seed), number(fixed->seed)},
        {"shuffle", word(rp_shuffle_name((enum rp_shuffle)header->shuffle)),
         word(rp_shuffle_name(fixed->shuffle))},
        {"block_documents", number(header->block_documents),
         number(blocks ? fixed->block_documents : 0)},
        {"window_blocks", number(header->window_blocks), number(blocks ? fixed->window_blocks : 0)},
        {"group", number(header->group), number(fixed->group)},
        {"long_doc", word(rp_long_doc_name((enum rp_long_doc)header->long_doc)),
         word(rp_long_doc_name(long_doc))},
        {"bos_id", token_id(header->bos_id), token_id(fixed->bos_id)},
        {"eos_id", token_id(header->eos_id), token_id(fixed->eos_id)},
        {"label_across_cuts", word(no_yes[header->label_across_cuts]),
         word(no_yes[fixed->label_across_cuts])},
        {"tokenizer", hex128(header->tokenizer),
         hex128(knows_tokenizer ? fixed->tokenizer : header->tokenizer)},
    };
    int code = 0;
    for (size_t i = 0; i < RP_ARRAY_COUNT(fields) && code == 0; i++)
        code = compare(resume, fields[i].field, "", fields[i].had, fields[i].has, FIXED_REMEDY);
    return code;
}

static const char *too_long_word(enum rp_too_long too_long)
{
    static const char *const words[] = {"not atomic", "drop", "truncate", "error"};
    return words[too_long & 3];
}
static const char *drop_word(enum rp_drop_untrained drop)
{
    static const char *const words[] = {"none", "document", "fragment", "unknown"};
    return words[drop & 3];
}

static int match_prints(const struct rp_token2_resume *resume,
                        const struct rp_planner_token_source *had,
                        const struct rp_stream_source *has)
{
    struct rp_source_prints prints;
    struct rp_error *error = resume->error;
    int code = has->view.prints(has->view.context, had->state.documents, &prints, error);
    if (code < 0)
        return rp_fail_context(error, code, "source %s at the %" PRIu64 " documents of the state",
                               had->name, had->state.documents);
    bool knows_full = had->prints.full != 0 && prints.full != 0;
    code = compare(resume, "sampled fingerprint", had->name, hex(had->prints.sampled),
                   hex(prints.sampled), DOCUMENTS_REMEDY);
    if (code == 0)
        code = compare(resume, "full fingerprint", had->name, hex(had->prints.full),
                       hex(knows_full ? prints.full : had->prints.full), DOCUMENTS_REMEDY);
    if (code == 0)
        code = compare(resume, "selection", had->name, hex(had->prints.selection),
                       hex(prints.selection),
                       "set select, repeat and unseen_of back: another selection is a new "
                       "source with another name");
    return code;
}

/* Whether the token is at row 0, where stage 0 says how many documents the source has. */
static bool declares_documents(const struct rp_token2_resume *resume,
                               const struct rp_stream_source *source)
{
    const struct rp_stage_spec *stage = resume->spec->stages;
    uint32_t number = (uint32_t)(source - resume->spec->sources);
    bool is_declared = false;
    for (uint32_t i = 0; resume->token.header.next_row == 0 && i < stage->documents_count; i++)
        is_declared = is_declared || stage->documents[i].source == number;
    return is_declared;
}

static int match_source(struct rp_token2_resume *resume, uint32_t j)
{
    const struct rp_planner_token_source *had = &resume->token.sources[j];
    const struct rp_stream_source *has = resume->sources[j];
    enum rp_too_long too_long = rp_too_long_of(has->too_long, resume->spec->fixed.group);
    int code = compare(resume, "too_long", had->name, word(too_long_word(had->too_long)),
                       word(too_long_word(too_long)), SOURCE_REMEDY);
    if (code == 0)
        code = compare(resume, "drop_untrained", had->name, word(drop_word(had->drop_untrained)),
                       word(drop_word(has->drop_untrained)), SOURCE_REMEDY);
    if (code == 0 && has->documents < had->documents_next)
        code = compare(resume, "number of documents", had->name, number(had->documents_next),
                       number(has->documents), DOCUMENTS_REMEDY);
    if (code == 0)
        code = match_prints(resume, had, has);
    resume->grown += has->documents > had->documents_next && !declares_documents(resume, has);
    return code;
}

/* Check that a source that left the config gives no further item. `pieces`: its waiting ones. */
static int match_removed(struct rp_token2_resume *resume, uint32_t j, uint32_t pieces)
{
    const struct rp_planner_token_source *had = &resume->token.sources[j];
    resume->removed++;
    if (had->weight > 0)
        return rp_fail(resume->error, -RP_E_MISMATCH,
                       "the run is unchanged; add it to the config again, and set its weight to 0 "
                       "at a stage before it leaves",
                       "source %s is not in the config, and the state has it with weight %" PRIu32,
                       had->name, had->weight);
    if (pieces > 0)
        return rp_fail(resume->error, -RP_E_MISMATCH,
                       "the run is unchanged; add it to the config again with weight 0: it may "
                       "leave once its last document is in a row",
                       "source %s is not in the config, and %" PRIu32
                       " of its documents wait for rows",
                       had->name, pieces);
    return 0;
}

static int compare_sources(const void *a, const void *b)
{
    const struct rp_stream_source *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}
static int compare_name(const void *name, const void *source)
{
    const struct rp_stream_source *const *x = source;
    return strcmp(name, (*x)->name);
}

static int find_sources(struct rp_token2_resume *resume)
{
    uint32_t count = resume->token.header.source_count, of_spec = resume->spec->source_count;
    const struct rp_stream_source **sorted = rp_calloc(of_spec, sizeof *sorted);
    resume->sources = rp_calloc(count, sizeof *resume->sources);
    resume->names = rp_calloc(count, sizeof *resume->names);
    if (!sorted || !resume->sources || !resume->names) {
        free(sorted);
        return rp_fail(resume->error, -ENOMEM, NULL, "no memory for the sources of a state token");
    }
    for (uint32_t i = 0; i < of_spec; i++)
        sorted[i] = &resume->spec->sources[i];
    qsort(sorted, of_spec, sizeof *sorted, compare_sources);
    for (uint32_t j = 0; j < count; j++) {
        const char *name = resume->token.sources[j].name;
        const struct rp_stream_source **found = bsearch(name, sorted, of_spec, sizeof *sorted,
                                                        compare_name);
        resume->names[j] = name;
        resume->sources[j] = found && !(*found)->is_absent ? *found : NULL;
    }
    free(sorted);
    return 0;
}

int rp_token2_match_spec(struct rp_token2_resume *resume)
{
    uint32_t count = resume->token.header.source_count;
    uint32_t *pieces = rp_calloc(count, sizeof *pieces);
    if (!pieces)
        return rp_fail(resume->error, -ENOMEM, NULL, "no memory for the sources of a state token");
    for (uint64_t i = 0; i < rp_snapshot_pieces(&resume->token.snapshot); i++)
        pieces[rp_snapshot_piece(&resume->token.snapshot, i)->source]++;
    int code = match_fixed(resume);
    if (code == 0)
        code = find_sources(resume);
    for (uint32_t j = 0; j < count && code == 0; j++)
        code = resume->sources[j] ? match_source(resume, j) : match_removed(resume, j, pieces[j]);
    free(pieces);
    return code;
}

/* ---- 6: limits ------------------------------------------------------------------------------- */

static bool is_reached(const struct rp_limits *limits, const struct rp_source_state *state)
{
    return (limits->max_epochs > 0 && state->epoch >= limits->max_epochs) ||
           (limits->max_tokens > 0 && state->tokens >= limits->max_tokens);
}

static struct value limits_text(const struct rp_limits *limits)
{
    static const char *const words[] = {"continue", "stop", "error"};
    struct value out;
    snprintf(out.text, sizeof out.text, "%" PRIu32 " epochs, %" PRIu64 " tokens, %s",
             limits->max_epochs, limits->max_tokens, words[limits->on_exhausted % 3]);
    return out;
}

static const struct rp_limits *limits_of_config(const struct rp_token2_resume *resume,
                                                const struct rp_calendar *calendar)
{
    uint64_t next_row = resume->token.header.next_row;
    return rp_calendar_at(calendar, next_row > 0 ? next_row - 1 : 0)->limits;
}

uint32_t rp_token2_other_limits(const struct rp_token2_resume *resume,
                                const struct rp_calendar *calendar, bool *other)
{
    const struct rp_limits *limits = limits_of_config(resume, calendar);
    uint32_t count = 0;
    for (uint32_t j = 0; j < resume->token.header.source_count; j++) {
        const struct rp_limits *had = &resume->token.sources[j].limits, *has = &limits[j];
        other[j] = resume->sources[j] && resume->token.header.next_row > 0 &&
                   (had->max_epochs != has->max_epochs || had->max_tokens != has->max_tokens ||
                    had->on_exhausted != has->on_exhausted);
        count += other[j];
    }
    return count;
}

/* A plan that goes to another row of its calendar writes no record. */
static int refuse_reached(const struct rp_token2_resume *resume, uint32_t j,
                          const struct rp_limits *has, const struct rp_source_state *state)
{
    const struct rp_limits *had = &resume->token.sources[j].limits;
    uint64_t row = resume->token.header.window_end;
    bool is_raised = is_reached(had, state);
    return rp_fail(resume->error, -RP_E_MISMATCH,
                   is_raised ? "the run is unchanged; stop this engine, and start it with "
                               "`--state FILE` of this state: the new limits hold from there on"
                             : "the run is unchanged; set the limits back, or to more than it has "
                               "read",
                   "the limits of source %s differ: the state has %s, this run has %s; at row "
                   "%" PRIu64 " it has read %" PRIu32 " epochs and %" PRIu64 " tokens, %s",
                   resume->names[j], limits_text(had).text, limits_text(has).text, row,
                   state->epoch, state->tokens,
                   is_raised ? "so a start has to raise its limits" : "which is not less");
}

int rp_token2_match_limits(const struct rp_token2_resume *resume,
                           const struct rp_calendar *calendar, const struct rp_planner *plan,
                           bool *other)
{
    const struct rp_limits *limits = limits_of_config(resume, calendar);
    int count = 0;
    for (uint32_t j = 0; j < resume->token.header.source_count; j++) {
        const struct rp_source_state *state = rp_planner_reached(plan, j);
        bool is_kept = other[j] && is_reached(&resume->token.sources[j].limits, state);
        if (other[j] && (is_kept ? resume->with->keeps_limits : is_reached(&limits[j], state)))
            return refuse_reached(resume, j, &limits[j], state);
        other[j] = is_kept;
        count += is_kept;
    }
    return count;
}

/* ---- 4 and 5: begun stages and records ------------------------------------------------------- */

static int match_parameters(const struct rp_token2_resume *resume,
                            const struct rp_calendar *calendar)
{
    const struct rp_token2_header *header = &resume->token.header;
    const struct rp_stage *stage = rp_calendar_at(calendar,
                                                  header->next_row > 0 ? header->next_row - 1 : 0);
    struct rp_deal deal = rp_token2_deal_of(&header->deal);
    bool is_concat = stage->packing == RP_PACKING_CONCAT;
    char at[64];
    snprintf(at, sizeof at, "the stage from row %" PRIu64, stage->from);
    const struct {
        const char *field;
        struct value had, has;
    } fields[] = {
        {"seq_len", number(header->seq_len), number(stage->seq_len)},
        {"align", number(header->align), number(stage->align)},
        {"packing", word(rp_packing_name((enum rp_packing)header->packing)),
         word(rp_packing_name(stage->packing))},
        {rp_plan_window_name(stage->packing), number(header->window),
         number(is_concat ? 0 : stage->window)},
        {"row_gap", word(rp_plan_row_gap_name((enum rp_row_gap)header->row_gap)),
         word(rp_plan_row_gap_name(is_concat ? RP_ROW_GAP_PAD : stage->row_gap))},
        {"spread", number(header->spread), number(is_concat ? 0 : stage->spread)},
        {"max_docs_per_row", number(header->max_docs_per_row), number(stage->max_docs_per_row)},
        {"deal", word(rp_calendar_deal_text(&deal).text),
         word(rp_calendar_deal_text(&stage->deal).text)},
    };
    int code = 0;
    for (size_t i = 0; i < RP_ARRAY_COUNT(fields) && code == 0; i++)
        code = compare(
            resume, fields[i].field, at, fields[i].had, fields[i].has,
            "set it back: a stage that is begun never changes. To change it from here on, "
            "add a stage");
    for (uint32_t j = 0; j < header->source_count && code == 0; j++) {
        const struct rp_planner_token_source *had = &resume->token.sources[j];
        if (!resume->sources[j] || j >= stage->joined)
            continue;
        code = compare(resume, "weight", had->name, number(had->weight), number(stage->weights[j]),
                       "set it back: give other weights by a stage");
        if (code == 0)
            code = compare(resume, "record of the documents", had->name,
                           number(had->documents_next), number(stage->documents[j]),
                           "continue with the records of the state's own checkpoint");
    }
    return code;
}

/* Refuse a source that left the config while a ramp gives it a share. */
static int match_shares(const struct rp_token2_resume *resume, const struct rp_calendar *calendar)
{
    const struct rp_token2_header *header = &resume->token.header;
    if (resume->removed == 0)
        return 0;
    uint64_t *shares = rp_calloc(rp_calendar_source_count(calendar), sizeof *shares);
    int code = 0;
    if (!shares)
        return rp_fail(resume->error, -ENOMEM, NULL, "no memory for the shares of a state token");
    rp_calendar_shares(calendar, header->window_first, shares);
    for (uint32_t j = 0; j < header->source_count && code == 0; j++)
        if (!resume->sources[j] && shares[j] > 0)
            code = rp_fail(
                resume->error, -RP_E_MISMATCH,
                "the run is unchanged; add it to the config again until the ramp is over",
                "source %s is not in the config, and a ramp still gives it a share",
                resume->names[j]);
    free(shares);
    return code;
}

/* Rows that are begun contain no boundary but their first (section 9.5). */
static int match_window(const struct rp_token2_resume *resume, const struct rp_calendar *calendar)
{
    const struct rp_token2_header *header = &resume->token.header;
    if (header->next_row == 0)
        return 0;
    uint64_t next = rp_calendar_next(calendar, header->next_row - 1);
    if (next >= header->window_end)
        return 0;
    char hint[96];
    snprintf(hint, sizeof hint, "the run is unchanged; let it begin at row %" PRIu64 " or later",
             header->window_end);
    return rp_fail(resume->error, -RP_E_MISMATCH, hint,
                   "a stage begins at row %" PRIu64 ", and the state is at row %" PRIu64
                   " of a deal window that ends at row %" PRIu64,
                   next, header->next_row, header->window_end);
}

/* The token's history must equal the calendar's. */
static int match_history(const struct rp_token2_resume *resume, const struct rp_calendar *calendar)
{
    char text[RP_HISTORY_MAX + 1];
    const struct rp_token2 *token = &resume->token;
    uint64_t next_row = token->header.next_row;
    struct rp_token2_oldest oldest = rp_token2_history_oldest(token->history, next_row);
    uint32_t bytes = rp_token2_history_of(calendar, next_row, rp_token2_flags(token), &oldest,
                                          text);
    if (bytes == token->header.history_bytes && strcmp(text, token->history) == 0)
        return 0;
    return RP_TOKEN_DAMAGED(resume->error, ": its history differs from its stages and records");
}

/* Stages that are begun may name a source that left the config without a word. */
static int match_names(const struct rp_token2_resume *resume)
{
    for (uint32_t j = 0; j < resume->token.header.source_count; j++) {
        uint32_t s = 0;
        while (s < resume->spec->source_count &&
               strcmp(resume->spec->sources[s].name, resume->names[j]) != 0)
            s++;
        if (s == resume->spec->source_count)
            return rp_fail(
                resume->error, -RP_E_MISMATCH,
                "the run is unchanged; name it with the weight that it had in `sources`: "
                "`removed: {NAME: WEIGHT}`",
                "source %s is not in the config, and stages that are begun name it",
                resume->names[j]);
    }
    return 0;
}

int rp_token2_match_calendar(const struct rp_token2_resume *resume,
                             const struct rp_calendar *calendar)
{
    const struct rp_token2_header *header = &resume->token.header;
    struct rp_calendar_chains chains = rp_calendar_chains(calendar, header->next_row);
    int code = compare(resume, "number of stages that are begun", "", number(header->stages_begun),
                       number(chains.declared_count),
                       "set the stages back: those that are begun never change");
    if (code == 0 && !rp_hash128_equal(header->declared, chains.declared))
        code = match_names(resume);
    if (code == 0 && !rp_hash128_equal(header->declared, chains.declared))
        code = rp_token2_match_stages(resume, calendar);
    if (code == 0 && !rp_hash128_equal(header->records, chains.records))
        code = rp_fail(resume->error, -RP_E_MISMATCH,
                       "the run is unchanged; continue with the state's own checkpoint",
                       "the records before row %" PRIu64
                       " differ: chain B of the state is %s, of this run %s",
                       header->next_row, hex128(header->records).text, hex128(chains.records).text);
    if (code == 0)
        code = compare(resume, "hash of the skips below next_row", "", hex128(header->skips),
                       hex128(rp_calendar_skip_hash(calendar, header->next_row)),
                       "set skip back: rows before the state can be neither added to it nor "
                       "removed from it");
    if (code == 0)
        code = match_parameters(resume, calendar);
    if (code == 0)
        code = match_window(resume, calendar);
    if (code == 0)
        code = match_shares(resume, calendar);
    return code < 0 ? code : match_history(resume, calendar);
}
