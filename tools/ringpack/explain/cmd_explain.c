/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_explain.c — `ringpack explain`: the command line, and which rows are shown. */
#include <argp.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/mem.h"
#include "base/text.h"
#include "cmd.h"
#include "cmd_options.h"
#include "explain/search.h"
#include "interrupt.h"
#include "page_file.h"

#define LIMIT_STANDARD 400u
#define COLUMNS_STANDARD 80u
#define COLUMNS_LEAST 20u
#define LONG_NS 1000000000u /* planning that is told of */

enum {
    OPTION_STEP = 0x1000,
    OPTION_RANK,
    OPTION_ROW,
    OPTION_DOCUMENT,
    OPTION_EPOCH,
    OPTION_TEXT,
    OPTION_TOKENIZER,
    OPTION_LIMIT,
    OPTION_JSON,
    OPTION_CSV
};

struct arguments {
    struct rp_origin origin;
    struct rp_search search;
    const char *output, *tokenizer;
    char *output_path, *tokenizer_path; /* the same, absolute */
    uint64_t limit;
    bool json, csv;
};

static const struct argp_option own_options[] = {
    {"step", OPTION_STEP, "N", 0, "the rows of step N", 0},
    {"rank", OPTION_RANK, "R", 0, "of the step, those of rank R", 0},
    {"row", OPTION_ROW, "A[-B]", 0, "row A, or rows A to B", 0},
    {"document", OPTION_DOCUMENT, "SOURCE:A[-B]", 0,
     "all rows that hold a part of these documents of a source, by its name or number", 0},
    {"epoch", OPTION_EPOCH, "A[-B]", 0,
     "look for the documents in these epochs (default: the first; with a checkpoint or engine, the "
     "current one and the next)",
     0},
    {"text", OPTION_TEXT, "TEXT", 0,
     "of these rows or documents, only those that contain this text; alone, of all documents", 0},
    {"tokenizer", OPTION_TOKENIZER, "FILE", 0,
     "decode with this tokenizer.json, or `bytes` (default: what PREFIX.tokens.json names)", 0},
    {"limit", OPTION_LIMIT, "N", 0,
     "show at most N characters, or ids, of a fragment (default 400; 0 = no text is read)", 0},
    {"json", OPTION_JSON, NULL, 0, "print JSON", 0},
    {"csv", OPTION_CSV, NULL, 0, "print CSV", 0},
    {"output", 'o', "FILE", 0, "write to FILE; a page if it ends with .html", 0},
    {"base-row", RP_ORIGIN_BASE_ROW, "ROW", 0, RP_ORIGIN_BASE_ROW_HELP, 0},
    {0},
};

/* A number, or two with a dash between them. */
static bool parse_range(const char *text, struct rp_range *range)
{
    char first[32];
    const char *dash = strchr(text, '-');
    snprintf(first, sizeof first, "%.*s", dash ? (int)(dash - text) : 31, text);
    range->is_given = true;
    return rp_text_count(first, &range->first) &&
           rp_text_count(dash ? dash + 1 : first, &range->last) && range->first <= range->last &&
           range->last < UINT64_MAX;
}

static void parse_document(struct rp_search *search, char *text, struct argp_state *state)
{
    char *colon = strrchr(text, ':');
    if (!colon || !parse_range(colon + 1, &search->documents))
        argp_error(state, "--document: expected SOURCE:NUMBER or SOURCE:FIRST-LAST, found `%s`",
                   text);
    *colon = '\0';
    search->source = text;
}

static error_t parse_end(struct arguments *arguments, struct argp_state *state)
{
    const struct rp_search *search = &arguments->search;
    int asked = search->step_given + search->rows.is_given + search->documents.is_given;
    if (asked > 1 || (asked == 0 && !search->text))
        argp_error(state, "expected one of --step, --row and --document, or --text");
    if (search->rank_given && !search->step_given)
        argp_error(state, "--rank is of a --step");
    if (search->epochs.is_given && (search->step_given || search->rows.is_given))
        argp_error(state, "--epoch is of a --document, or of a --text");
    if (search->text && (!*search->text || arguments->limit == 0))
        argp_error(state, "--text: expected a text, and a --limit above 0");
    if (arguments->json && arguments->csv)
        argp_error(state, "--json and --csv are two forms: give one of them");
    if (arguments->output)
        arguments->output_path = rp_origin_absolute(arguments->output);
    if (arguments->tokenizer)
        arguments->tokenizer_path = strcmp(arguments->tokenizer, "bytes")
                                        ? rp_origin_absolute(arguments->tokenizer)
                                        : strdup("bytes");
    return 0;
}

static error_t parse(int key, char *text, struct argp_state *state)
{
    struct arguments *a = state->input;
    struct rp_search *search = &a->search;
    switch (key) {
    case OPTION_STEP:
        search->step_given = true;
        if (!rp_text_count(text, &search->step))
            argp_error(state, "--step: expected the number of a step, found `%s`", text);
        return 0;
    case OPTION_RANK:
        search->rank_given = true;
        if (!rp_text_u64(text, &search->rank))
            argp_error(state, "--rank: expected the number of a rank, found `%s`", text);
        return 0;
    case OPTION_ROW:
        if (!parse_range(text, &search->rows))
            argp_error(state, "--row: expected a row or FIRST-LAST, found `%s`", text);
        return 0;
    case OPTION_DOCUMENT:
        parse_document(search, text, state);
        return 0;
    case OPTION_EPOCH:
        if (!parse_range(text, &search->epochs))
            argp_error(state, "--epoch: expected an epoch or FIRST-LAST, found `%s`", text);
        return 0;
    case OPTION_TEXT:
        search->text = text;
        return 0;
    case OPTION_TOKENIZER:
        a->tokenizer = text;
        return 0;
    case OPTION_LIMIT:
        if (!rp_text_count(text, &a->limit))
            argp_error(state, "--limit: expected a whole number, found `%s`", text);
        return 0;
    case OPTION_JSON:
        a->json = true;
        return 0;
    case OPTION_CSV:
        a->csv = true;
        return 0;
    case 'o':
        a->output = rp_cmd_local_path(state, "output", text);
        return 0;
    case ARGP_KEY_END:
        return parse_end(a, state);
    default:
        return rp_origin_parse(&a->origin, key, text, state);
    }
}

/* ---- where it is printed --------------------------------------------------------------------- */

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
    if (arguments->json || rp_text_has_suffix(path, ".json"))
        return &rp_json_printer;
    if (arguments->csv || rp_text_has_suffix(path, ".csv"))
        return &rp_csv_printer;
    return rp_text_has_suffix(path, ".html") ? &rp_page_printer : &rp_table_printer;
}

/* Say what took long, and what was left in the cache directory. */
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
    rp_texts_open(&texts, walk.corpus, arguments->tokenizer_path);
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
    static const struct rp_cmd_verb verb = {
        .options = own_options,
        .parse = parse,
        .args_doc = "[CHECKPOINT|DIR|STATE|RUN]",
        .doc = "Say which documents are in a step, in rows, or in which rows a document is.\v"
               "The stream is that of `-c CONFIG`, of a checkpoint (which keeps its config), or of "
               "the engine that runs as RUN. No engine is needed, and none is disturbed. "
               "Rows are planned from the nearest row that is known; a long way from row 0 is "
               "planned once, because landmarks are kept in cache_dir.\n\n"
               "  ringpack explain -c config.yaml --step 48210 -o step.html\n"
               "  ringpack explain checkpoints --document web:123\n"
               "  ringpack explain --run pretrain --step 7 --text 'lorem ipsum'",
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
