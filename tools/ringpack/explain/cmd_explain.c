/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_explain.c — `ringpack explain`: the command line, and which rows are shown. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/text.h"
#include "cmd.h"
#include "explain/search.h"
#include "interrupt.h"
#include "page_file.h"

#define LIMIT_STANDARD 400u
#define COLUMNS_STANDARD 80u
#define COLUMNS_LEAST 20u
#define LONG_NS 1000000000u /* planning that is reported */

struct arguments {
    struct rp_origin origin;
    struct rp_search search;
    const char *output, *tokenizer;
    char *output_path, *tokenizer_path; /* the same, absolute */
    uint64_t limit;
    bool json, csv;
};

/* A number, or two with a dash between them. */
static bool take_range(const char *text, void *place)
{
    struct rp_range *range = place;
    char first[32];
    const char *dash = strchr(text, '-');
    snprintf(first, sizeof first, "%.*s", dash ? (int)(dash - text) : 31, text);
    range->is_given = true;
    return rp_text_count(first, &range->first) &&
           rp_text_count(dash ? dash + 1 : first, &range->last) && range->first <= range->last &&
           range->last < UINT64_MAX;
}

static bool take_document(const char *text, void *place)
{
    struct rp_search *search = place;
    char *colon = strrchr(text, ':');
    if (!colon || !take_range(colon + 1, &search->documents))
        return false;
    *colon = '\0';
    search->source = text;
    return true;
}

static const struct rp_option own_options[] = {
    RP_STEPS_OPTION(step, struct arguments, search, "the rows of step N"),
    {RP_COUNT("rank", "R", struct arguments, search.rank),
     .given = offsetof(struct arguments, search.rank_given), .expected = "the number of a rank",
     .help = "of the step, the rows of rank R"},
    {RP_TAKE("row", "A[-B]", struct arguments, search.rows, take_range),
     .expected = "a row or FIRST-LAST", .help = "row A, or rows A to B"},
    {RP_TAKE("document", "SOURCE:A[-B]", struct arguments, search, take_document),
     .expected = "SOURCE:NUMBER or SOURCE:FIRST-LAST",
     .help = "all rows that hold a part of these documents of a source, by its name or number"},
    {RP_TAKE("epoch", "A[-B]", struct arguments, search.epochs, take_range),
     .expected = "an epoch or FIRST-LAST",
     .help = "search these epochs (default: the first; with a checkpoint or engine, the current "
             "one and the next, and if these have no row of it, the one before)"},
    {RP_TEXT("text", "TEXT", struct arguments, search.text),
     .help = "only rows or documents that contain this text; without the options above, search "
             "all documents"},
    {RP_TEXT("tokenizer", "FILE", struct arguments, tokenizer),
     .help = "decode with this tokenizer.json, or `bytes` (default: the one that "
             "PREFIX.tokens.json names)"},
    {RP_COUNT("limit", "N", struct arguments, limit),
     .help = "at most N characters, or ids, of a fragment (default 400; 0 = no text is read)"},
    {RP_FLAG("json", struct arguments, json), .help = "print JSON"},
    {RP_FLAG("csv", struct arguments, csv), .help = "print CSV"},
    {RP_LOCAL("output", "FILE", struct arguments, output), .letter = 'o',
     .help = "write to FILE; a page if its name ends with .html"},
    RP_ORIGIN_BASE_ROW_OPTION(struct arguments, origin),
    {0},
};

static int check(void *argument)
{
    struct arguments *arguments = argument;
    const struct rp_search *search = &arguments->search;
    int asked = search->step_given + search->rows.is_given + search->documents.is_given;
    const char *mistake = NULL;
    if (asked > 1 || (asked == 0 && !search->text))
        mistake = "expected one of --step, --row and --document, or --text";
    else if (search->rank_given && !search->step_given)
        mistake = "--rank needs --step";
    else if (search->epochs.is_given && (search->step_given || search->rows.is_given))
        mistake = "--epoch needs --document or --text";
    else if (search->text && (!*search->text || arguments->limit == 0))
        mistake = "--text: expected a text, and a --limit above 0";
    else if (arguments->json && arguments->csv)
        mistake = "--json and --csv are two forms: give one of them";
    if (mistake)
        return rp_cmd_misuse("explain", "%s", mistake);
    if (arguments->output)
        arguments->output_path = rp_origin_absolute(arguments->output);
    if (arguments->tokenizer)
        arguments->tokenizer_path = strcmp(arguments->tokenizer, "bytes")
                                        ? rp_origin_absolute(arguments->tokenizer)
                                        : strdup("bytes");
    return RP_EXIT_FINE;
}

/* ---- the output ------------------------------------------------------------------------------ */

/* Columns of the terminal; 80 if it is not a terminal. */
static uint32_t find_columns(FILE *out)
{
    struct winsize size = {0};
    uint64_t columns = 0;
    const char *said = getenv("COLUMNS");
    /* a guarded stdout (terminal.h) has no descriptor of its own */
    int fd = out == stdout ? STDOUT_FILENO : fileno(out);
    if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        columns = size.ws_col;
    else if (!said || !rp_text_u64(said, &columns))
        columns = COLUMNS_STANDARD;
    return (uint32_t)rp_min_u64(rp_max_u64(columns, COLUMNS_LEAST), 1000);
}

static const struct rp_printer *form_of(const struct arguments *arguments)
{
    const char *path = arguments->output ? arguments->output : "";
    if (arguments->json || (!arguments->csv && rp_text_has_suffix(path, ".json")))
        return &rp_json_printer;
    if (arguments->csv || rp_text_has_suffix(path, ".csv"))
        return &rp_csv_printer;
    return rp_text_has_suffix(path, ".html") ? &rp_page_printer : &rp_table_printer;
}

/* Report slow planning, and files that are left in the cache directory. */
static void tell_planning(const struct rp_walk *walk)
{
    char seconds[RP_CMD_TEXT_BYTES], rows[RP_CMD_TEXT_BYTES];
    if (walk->planned_ns > LONG_NS)
        fprintf(stderr, "planned %s rows in %s\n", rp_cmd_count_text(walk->planned_rows, rows),
                rp_cmd_seconds_text((double)walk->planned_ns * 1e-9, seconds));
    if (walk->landmarks.added > 0)
        fprintf(stderr, "landmarks were saved, so later commands plan less: %zu in %s\n",
                walk->landmarks.added, walk->landmarks.path);
}

static int search_into(struct arguments *arguments, const struct rp_config *config, FILE *out,
                       struct rp_error *error)
{
    struct rp_walk walk;
    struct rp_steps steps;
    int code = rp_origin_open(&arguments->origin, config, arguments->search.step_given, &walk,
                              &steps, error);
    if (code < 0)
        return code;
    struct rp_texts texts;
    const struct rp_row_form form = rp_plan_row_form(walk.plan);
    rp_texts_open(&texts, walk.corpus, arguments->tokenizer_path, &form);
    struct rp_printer printer = *form_of(arguments);
    printer.out = out;
    printer.columns = find_columns(out);
    struct rp_row_maker maker = {.walk = &walk,
                                 .steps = &steps,
                                 .origin = &arguments->origin,
                                 .texts = arguments->limit ? &texts : NULL,
                                 .wanted = arguments->search.text,
                                 .limit = arguments->limit};
    code = rp_search_run(&arguments->search, &walk, &maker, &printer, error);
    rp_explain_free(&maker);
    rp_texts_close(&texts);
    if (code == 0)
        tell_planning(&walk);
    rp_walk_close(&walk);
    return code;
}

static int search_into_file(struct arguments *arguments, const struct rp_config *config,
                            struct rp_error *error)
{
    struct rp_page_file page;
    int code = rp_page_file_open(&page, arguments->output_path, error);
    if (code < 0)
        return code;
    code = search_into(arguments, config, page.out, error);
    return rp_page_file_close(&page, code, error);
}

static int run(void *argument, const struct rp_config *config)
{
    struct arguments *arguments = argument;
    struct rp_error error = {0};
    rp_interrupt_catch();
    int code = arguments->output ? search_into_file(arguments, config, &error)
                                 : search_into(arguments, config, stdout, &error);
    return code < 0 ? rp_cmd_report(&error) : RP_EXIT_FINE;
}

int rp_cmd_explain(int argc, char **argv)
{
    static const struct rp_verb verb = {
        .name = "explain",
        .usage = RP_ORIGIN_USAGE,
        .help = "List the documents of a step or of rows, and the rows of a document or a text.",
        .notes =
            "The stream is given by `-c CONFIG`, by a checkpoint (which keeps its config), or by "
            "the engine of RUN. No engine is needed or disturbed. Rows are planned from the "
            "nearest known row; a long way from row 0 is planned once, because landmarks are kept "
            "in cache_dir.\n\n"
            "  ringpack explain -c config.yaml --step 48210 -o step.html\n"
            "  ringpack explain checkpoints --document web:123\n"
            "  ringpack explain --run pretrain --step 7 --text 'lorem ipsum'",
        .options = own_options,
        .takes = RP_TAKES_CONFIG,
        .words_most = 1,
        .check = check,
        .run = run,
        .finish = rp_origin_finish,
    };
    struct arguments arguments = {.limit = LIMIT_STANDARD};
    int status = rp_cmd_config_run(&verb, &arguments, argc, argv);
    free(arguments.output_path);
    free(arguments.tokenizer_path);
    rp_origin_free(&arguments.origin);
    return status;
}
