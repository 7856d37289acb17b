/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_plan.c — `ringpack plan`: how a config packs its corpus, without reading a token.
 *
 * The rows are planned as the engine would plan them, and counted. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "cmd.h"
#include "cmd_config.h"
#include "corpus/eos.h"
#include "explain/make_landmarks.h"
#include "masked_tally.h"
#include "page_file.h"
#include "plan/rows_by_size.h"
#include "plan/layout_tally.h"
#include "plan/memory_lines.h"
#include "plan/picture.h"
#include "plan/preview.h"
#include "plan/stage_tally.h"
#include "plan/step_tally.h"
#include "server/server.h"
#include "stream.h"

#define ROWS_STANDARD 1000000u
#define SHARE_APART 0.01          /* a warning says that realised and wanted share differ by more */
#define SHARE_APART_RELATIVE 0.10 /* or by more than this part of the wanted share */

struct arguments {
    struct rp_cmd_line line;
    uint64_t rows; /* --rows; 0 = not given */
    bool landmarks, json;
    const char *svg;    /* NULL = no picture */
    const char *state;  /* NULL = from row 0 on */
    const char *layout; /* NULL = nothing is compared */
};

/* The counts of the planned rows. */
struct tally {
    uint64_t rows, padding_rows; /* padding_rows: rows of an ended lane, without a fragment */
    uint64_t fragments, fragments_max;
    struct rp_rows_by_size documents_per_row;
    uint64_t *source_tokens; /* [sources] emitted */
    struct rp_masked_tally masks;
    struct rp_step_tally steps;
    struct rp_stage_tally stages; /* for stream version 2 */
    struct rp_picture *picture;   /* NULL = none is wanted */
    struct rp_layout_tally layout;
    const struct rp_corpus *corpus;
    struct rp_preview preview;
    bool complete; /* the stream ended */
    /* Documents after the last row, which the plan has not read. They are empty or dropped. */
    uint64_t trailing_documents, trailing_tokens;
    double seconds;
    struct rp_plan_counts counts; /* from the start on */
    struct rp_engine_memory memory;
    uint32_t max_docs_per_row;
};

static const struct rp_option own_options[] = {
    {RP_COUNT("rows", "N", struct arguments, rows), .least = 1,
     .expected = "a whole number such as 500 or 10k",
     .help = "plan at most N rows (default: the whole stream, at most 1m rows)"},
    {RP_TEXT("state", "FILE", struct arguments, state),
     .help = "begin at the position of this state token, checkpoint, checkpoint directory, or file "
             "of a trainer that has one: preview a start from there, also with other weights"},
    {RP_FLAG("landmarks", struct arguments, landmarks),
     .help = "plan all of the stream, or N rows, and keep landmarks, so that `explain`, `state`, "
             "`audit`, Replay and starts at a step find any row at once. It continues from the "
             "last landmark"},
    {RP_TEXT("layout", "dp=8,pp=4,cp=2,mb=1", struct arguments, layout),
     .help = "compare the time that ranks, micro-batches and pipelines of such a job lose by "
             "waiting for each other, without `deal` and with windows of 1 to 16 steps, from the "
             "lengths of the first steps. dp: ranks; mb: rows of a micro-batch; pp: stages; vp: "
             "parts of an interleaved stage; cp: ranks that share a row"},
    {RP_FLAG("json", struct arguments, json), .help = "print JSON"},
    {RP_LOCAL("svg", "FILE", struct arguments, svg),
     .help = "also draw the planned rows: mixture, padding, lengths of documents, cost by rank"},
    {0},
};

static int check(void *argument)
{
    const struct arguments *arguments = argument;
    if (arguments->svg && arguments->landmarks)
        return rp_cmd_misuse("plan", "--svg and --landmarks: use one of them at a time");
    if (arguments->layout && arguments->landmarks)
        return rp_cmd_misuse("plan", "--layout and --landmarks: use one of them at a time");
    if (arguments->state && arguments->landmarks)
        return rp_cmd_misuse("plan", "--state and --landmarks: landmarks are kept from row 0 on");
    return RP_EXIT_FINE;
}

static void tally_row(struct tally *tally, const struct rp_row *row)
{
    tally->rows++;
    tally->padding_rows += row->count == 0;
    tally->fragments += row->count;
    tally->fragments_max = rp_max_u64(tally->fragments_max, row->count);
    rp_rows_by_size_add(&tally->documents_per_row, row->count);
    for (uint32_t i = 0; i < row->count; i++)
        tally->source_tokens[row->fragments[i].source] += row->fragments[i].length;
}

/* Returns 0, or the plan's error. */
static int run_plan(struct rp_plan *plan, const struct rp_config *config, uint64_t rows_max,
                    struct tally *tally, struct rp_error *error)
{
    bool is_cut = config->long_doc == RP_LONG_DOC_TRUNCATE;
    struct rp_cmd_progress progress;
    rp_cmd_progress_begin(&progress, "planning rows", false);
    uint64_t started = rp_now_ns();
    int code = 1;
    while (tally->rows < rows_max) {
        struct rp_row row;
        uint32_t seq_len = rp_plan_seq_len(plan);
        rp_stage_tally_begin(&tally->stages);
        code = rp_plan_next(plan, &row, error);
        if (code <= 0)
            break;
        tally_row(tally, &row);
        rp_stage_tally_add(&tally->stages, &row, seq_len);
        if (tally->picture)
            rp_picture_add(tally->picture, &row, seq_len);
        rp_layout_tally_add(&tally->layout, &row, seq_len);
        int counted = rp_masked_tally_add(&tally->masks, tally->corpus, &row, seq_len, is_cut,
                                          error);
        if (counted < 0) {
            code = counted;
            break;
        }
        rp_step_tally_add(&tally->steps, &row, seq_len, tally->masks.row_labels);
        if (tally->rows % 4096 == 0)
            rp_cmd_progress(&progress, tally->rows, 0);
    }
    tally->seconds = (double)(rp_now_ns() - started) / 1e9;
    tally->complete = code == 0;
    rp_stage_tally_end(&tally->stages, tally->complete);
    rp_step_tally_end(&tally->steps, tally->complete);
    rp_plan_counts(plan, &tally->counts);
    rp_preview_subtract(&tally->preview, &tally->counts);
    rp_cmd_progress_end(&progress);
    return code < 0 ? code : 0;
}

static void tally_trailing(struct tally *tally, const struct rp_config *config,
                           const struct rp_corpus *corpus)
{
    uint64_t documents = 0, tokens = 0;
    for (uint32_t i = 0; i < config->source_count; i++) {
        documents += rp_source_documents(rp_corpus_source(corpus, i));
        tokens += rp_source_tokens(rp_corpus_source(corpus, i));
    }
    const struct rp_plan_counts *before = &tally->preview.counts, *counts = &tally->counts;
    tally->trailing_documents = documents * config->num_epochs - before->documents -
                                counts->documents;
    tally->trailing_tokens = tokens * config->num_epochs - before->tokens_read -
                             counts->tokens_read;
}

static double ratio(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

static double realised_share(const struct tally *tally, uint32_t source)
{
    return ratio((double)tally->source_tokens[source], (double)tally->counts.emitted);
}

/* How often each token of the source is read, on average. */
static double times_read(const struct tally *tally, uint32_t source)
{
    return ratio((double)tally->source_tokens[source],
                 (double)rp_source_tokens(rp_corpus_source(tally->corpus, source)));
}

/* Figures computed from the counts. */
struct summary {
    double efficiency, cuts_per_100, documents_per_row, ns_per_document;
    uint64_t steps; /* the run's, when the stream ended */
};

static struct summary summarise(const struct tally *tally)
{
    const struct rp_plan_counts *counts = &tally->counts;
    double slots = (double)(counts->emitted + counts->padding);
    uint64_t rows = tally->rows;
    return (struct summary){
        .efficiency = ratio((double)counts->emitted, slots),
        .cuts_per_100 = 100 * ratio((double)counts->cuts, (double)counts->documents),
        .documents_per_row = ratio((double)tally->fragments, (double)(rows - tally->padding_rows)),
        .ns_per_document = 1e9 * ratio(tally->seconds, (double)counts->documents),
        .steps = tally->steps.run_steps,
    };
}

/* Whether a source misses its wanted share. The reason is that sources have
 * ended before the stream, and others have filled the rest. */
static bool misses_share(const struct rp_config *config, const struct tally *tally, uint32_t source)
{
    double asked = rp_picture_asked_share(config, source), realised = realised_share(tally, source);
    double apart = realised > asked ? realised - asked : asked - realised;
    return tally->complete && rp_config_reads_alike(config) &&
           (apart > SHARE_APART || apart > SHARE_APART_RELATIVE * asked);
}

static void warn_of_mixture(const struct rp_config *config, const struct tally *tally)
{
    bool misses = false;
    for (uint32_t i = 0; i < config->source_count; i++)
        misses |= misses_share(config, tally, i);
    if (misses)
        printf(
            "  warning: the weights do not hold to the end: a source is used up after num_epochs "
            "(%" PRIu64
            "),\n           and the others continue without it; `num_epochs: endless` keeps "
            "them, and repeats sources\n",
            config->num_epochs);
}

static void print_mixture(const struct rp_config *config, const struct tally *tally)
{
    char text[RP_CMD_TEXT_BYTES];
    printf("mixture                  asked  realised         tokens  times read (mean)\n");
    for (uint32_t i = 0; i < config->source_count; i++) {
        printf("  %-20.20s%7.3f %%%8.3f %% %14s%12.2f\n", config->sources[i].name,
               100 * rp_picture_asked_share(config, i), 100 * realised_share(tally, i),
               rp_cmd_count_text(tally->source_tokens[i], text), times_read(tally, i));
    }
}

static void print_count(const char *label, uint64_t count, const char *rest)
{
    char text[RP_CMD_TEXT_BYTES];
    printf("  %-20s%s%s\n", label, rp_cmd_count_text(count, text), rest);
}

static void print_lost(const char *label, uint64_t tokens, const struct rp_config *config)
{
    char rest[64];
    snprintf(rest, sizeof rest, " tokens (long_doc: %s%s)", rp_long_doc_name(config->long_doc),
             config->stream_version == 2 ? "; too_long, without" : "");
    print_count(label, tokens, rest);
}

static void print_report(const struct rp_config *config, const struct tally *tally)
{
    struct summary summary = summarise(tally);
    const struct rp_plan_counts *counts = &tally->counts;
    char text[RP_CMD_TEXT_BYTES];
    rp_preview_print(&tally->preview, config);
    printf("packing\n  %-20s%.3f %%\n", "efficiency", 100 * summary.efficiency);
    print_count("rows", tally->rows, tally->complete ? "" : " (the stream is longer)");
    if (tally->complete) {
        char step[64];
        snprintf(step, sizeof step, " of %" PRIu64 " rows", config->global_batch_size);
        print_count("steps", summary.steps, config->batches.count > 1 ? "" : step);
    }
    print_count("tokens", counts->emitted, "");
    print_count("padding", counts->padding, " tokens");
    print_count("documents", counts->documents, "");
    printf("  %-20s%.2f per 100 documents\n", "cuts", summary.cuts_per_100);
    print_count("rows capped", tally->counts.capped, " by max_docs_per_row");
    print_lost("truncated", counts->truncated, config);
    print_lost("dropped", counts->dropped, config);
    print_count("empty", counts->empty, " documents");
    if (counts->passed_over)
        print_count("passed over", counts->passed_over, " documents (not selected)");
    if (counts->left_out)
        print_count("left out", counts->left_out, " tokens (drop_untrained)");
    if (tally->masks.is_masked) {
        print_count("labels", tally->masks.all.labels, " tokens, by the masks");
        print_count("nothing trained", tally->masks.all.untrained, " documents");
        print_count("cut off", tally->masks.all.cut_off,
                    " documents lost all trained tokens (long_doc)");
    }
    if (tally->trailing_documents)
        print_count("after the last row", tally->trailing_documents,
                    " documents, empty or dropped");
    rp_step_tally_print(&tally->steps);
    printf("  %-20s%.1f ns a document, %s documents/s\n", "planning", summary.ns_per_document,
           rp_cmd_short_text(ratio(1e9, summary.ns_per_document), text));
    printf("documents per row     mean %.2f, most %" PRIu64 " of %u\n", summary.documents_per_row,
           tally->fragments_max, tally->max_docs_per_row);
    rp_rows_by_size_print(&tally->documents_per_row);
    if (tally->stages.calendar)
        rp_stage_tally_print(&tally->stages);
    else
        print_mixture(config, tally);
    warn_of_mixture(config, tally);
    if (tally->masks.is_masked)
        rp_masked_tally_print(&tally->masks, tally->corpus, tally->source_tokens);
    rp_layout_print(&tally->layout);
    rp_footprint_print(config, &tally->memory);
}

static void print_json(const struct rp_config *config, const struct tally *tally)
{
    struct summary summary = summarise(tally);
    const struct rp_plan_counts *counts = &tally->counts;
    json_t *mixture = json_array();
    for (uint32_t i = 0; i < config->source_count; i++)
        json_array_append_new(mixture, json_pack("{s:o, s:f, s:f, s:I, s:f, s:b}", "source",
                                                 rp_cmd_json_text(config->sources[i].name), "asked",
                                                 rp_picture_asked_share(config, i), "realised",
                                                 realised_share(tally, i), "tokens",
                                                 (json_int_t)tally->source_tokens[i], "times_read",
                                                 times_read(tally, i), "misses_share",
                                                 misses_share(config, tally, i)));
    json_t *report = json_pack(
        "{sb sI so sf sI sI sI sI sI sI sI sI sI sI sf sf sI sI sf so so so}", "complete",
        tally->complete, "rows", (json_int_t)tally->rows, "steps",
        tally->complete ? json_integer((json_int_t)summary.steps) : json_null(), "efficiency",
        summary.efficiency, "tokens", (json_int_t)counts->emitted, "padding",
        (json_int_t)counts->padding, "documents", (json_int_t)counts->documents, "empty",
        (json_int_t)counts->empty, "truncated", (json_int_t)counts->truncated, "dropped",
        (json_int_t)counts->dropped, "buffered", (json_int_t)counts->buffered, "rows_capped",
        (json_int_t)counts->capped, "trailing_documents", (json_int_t)tally->trailing_documents,
        "trailing_tokens", (json_int_t)tally->trailing_tokens, "cuts_per_100_documents",
        summary.cuts_per_100, "documents_per_row", summary.documents_per_row,
        "documents_per_row_max", (json_int_t)tally->fragments_max, "max_docs_per_row",
        (json_int_t)tally->max_docs_per_row, "ns_per_document", summary.ns_per_document,
        "documents_per_row_histogram", rp_rows_by_size_json(&tally->documents_per_row), "mixture",
        mixture, "memory", rp_footprint_json(&tally->memory));
    json_object_set_new(report, "passed_over", json_integer((json_int_t)counts->passed_over));
    json_object_set_new(report, "left_out", json_integer((json_int_t)counts->left_out));
    rp_stage_tally_json(&tally->stages, report);
    rp_preview_json(&tally->preview, report);
    rp_step_tally_json(&tally->steps, report);
    rp_layout_json(&tally->layout, report);
    if (tally->masks.is_masked)
        json_object_set_new(report, "masks", rp_masked_tally_json(&tally->masks, tally->corpus));
    rp_cmd_print_json(report);
}

/* Dropped documents are in no row; unless all rows are planned, they are not known. */
static int finish_masks(struct tally *tally, const struct rp_config *config,
                        const struct rp_corpus *corpus, struct rp_error *error)
{
    int code = 0;
    if (tally->complete && tally->preview.row == 0 && tally->masks.is_masked &&
        !tally->stages.calendar && config->long_doc == RP_LONG_DOC_DROP)
        code = rp_masked_tally_dropped(&tally->masks, corpus, config->seq_len, config->num_epochs,
                                       error);
    rp_masked_tally_sum(&tally->masks, corpus);
    return code;
}

static int tally_plan(struct tally *tally, const struct rp_config *config,
                      const struct rp_corpus *corpus, const struct rp_plan *plan,
                      struct rp_error *error)
{
    struct rp_docs_per_row found;
    char text[512];
    tally->memory = rp_engine_memory(config, corpus, plan);
    tally->max_docs_per_row = rp_plan_max_docs_per_row(plan);
    int code = rp_stream_docs_per_row(&found, config, corpus, error);
    if (code >= 0 && rp_stream_docs_per_row_text(&found, config, text, sizeof text))
        rp_log(RP_LOG_WARNING, "%s", text);
    for (uint32_t i = 0; i < config->source_count; i++) {
        const struct rp_source *source = rp_corpus_source(corpus, i);
        if (rp_source_eos_doubt(source, text, sizeof text))
            rp_log(RP_LOG_WARNING, "source `%s`: %s", rp_source_name(source), text);
    }
    return code;
}

static int count_rows(struct tally *tally, const struct arguments *arguments,
                      const struct rp_config *config, struct rp_plan *plan, struct rp_error *error)
{
    uint32_t least, most;
    rp_plan_places_range(plan, &least, &most);
    int code = rp_masked_tally_open(&tally->masks, tally->corpus, most, error);
    tally->masks.form = rp_plan_row_form(plan);
    if (code >= 0)
        code = rp_step_tally_open(&tally->steps, config, tally->corpus, plan, error);
    if (code >= 0)
        code = rp_stage_tally_open(&tally->stages, config, tally->corpus, plan, error);
    if (code >= 0)
        code = run_plan(plan, config, arguments->rows ? arguments->rows : ROWS_STANDARD, tally,
                        error);
    if (code >= 0)
        code = rp_layout_tally_end(&tally->layout, plan, error);
    if (code >= 0 && tally->complete && rp_plan_version(plan) == 1)
        tally_trailing(tally, config, tally->corpus);
    return code < 0 ? code : finish_masks(tally, config, tally->corpus, error);
}

/* Count the rows, for a picture too. A wrong path of its file costs no time. */
static int count_and_draw(struct tally *tally, const struct arguments *arguments,
                          const struct rp_config *config, struct rp_plan *plan,
                          struct rp_error *error)
{
    static struct rp_picture picture;
    struct rp_page_file page;
    if (!arguments->svg)
        return count_rows(tally, arguments, config, plan, error);
    int code = rp_page_file_open(&page, arguments->svg, error);
    if (code < 0)
        return code;
    tally->picture = &picture;
    code = rp_picture_open(&picture, config, tally->corpus, plan, error);
    if (code >= 0)
        code = count_rows(tally, arguments, config, plan, error);
    picture.layout = &tally->layout;
    if (code >= 0)
        code = rp_picture_draw(page.out, &picture, &tally->counts, tally->complete, error);
    rp_picture_close(&picture);
    return rp_page_file_close(&page, code, error);
}

static int show_plan(const struct arguments *arguments, const struct rp_config *config)
{
    struct rp_error error = {0};
    struct rp_corpus *corpus = NULL;
    struct rp_plan *plan = NULL;
    struct tally tally = {.source_tokens = rp_calloc(config->source_count, sizeof(uint64_t)),
                          .preview = {.path = arguments->state}};
    int code = tally.source_tokens ? 0
                                   : rp_fail(&error, -ENOMEM, NULL, "out of memory for the counts");
    if (code >= 0)
        code = rp_layout_tally_open(&tally.layout, arguments->layout, config, &error);
    if (code >= 0)
        code = rp_stream_open_corpus(&corpus, config, true, &error);
    tally.corpus = corpus;
    if (code >= 0)
        code = rp_stream_open_plan(&plan, config, corpus, &error);
    if (code >= 0)
        code = tally_plan(&tally, config, corpus, plan, &error);
    if (code >= 0)
        code = rp_preview_begin(&tally.preview, plan, config, &error);
    if (code >= 0)
        rp_plan_cross_stages(plan);
    if (code >= 0)
        code = count_and_draw(&tally, arguments, config, plan, &error);
    if (code >= 0 && arguments->json)
        print_json(config, &tally);
    else if (code >= 0)
        print_report(config, &tally);
    rp_plan_close(plan);
    rp_corpus_close(corpus);
    rp_masked_tally_close(&tally.masks);
    rp_step_tally_close(&tally.steps);
    rp_stage_tally_close(&tally.stages);
    rp_layout_tally_close(&tally.layout);
    rp_preview_close(&tally.preview);
    free(tally.source_tokens);
    return code < 0 ? rp_cmd_report(&error) : RP_EXIT_FINE;
}

static int plan(void *argument, const struct rp_config *config)
{
    const struct arguments *arguments = argument;
    struct rp_error error = {0};
    if (!arguments->landmarks)
        return show_plan(arguments, config);
    int code = rp_make_landmarks(config, arguments->rows, arguments->json, &error);
    return code < 0 ? rp_cmd_report(&error) : RP_EXIT_FINE;
}

static int finish(struct rp_cmd_line *line)
{
    return rp_cmd_config_finish_at_file(line, ((const struct arguments *)line)->state);
}

int rp_cmd_plan(int argc, char **argv)
{
    static const struct rp_verb verb = {
        .name = "plan",
        .help = "Show how a config packs its corpus, without reading a token; or keep landmarks.",
        .options = own_options,
        .takes = RP_TAKES_CONFIG,
        .check = check,
        .run = plan,
        .finish = finish,
    };
    struct arguments arguments = {0};
    return rp_cmd_config_run(&verb, &arguments, argc, argv);
}
