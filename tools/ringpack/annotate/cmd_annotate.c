/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_annotate.c — `ringpack annotate -c CONFIG --column NAME=FILE`: numbers of documents become
 * columns of the index. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "annotate/annotate.h"
#include "base/mem.h"
#include "base/text.h"
#include "cmd.h"
#include "cmd_config.h"
#include "convert/wanted.h"
#include "corpus/index/build.h"
#include "corpus/index/write.h"
#include "interrupt.h"
#include "object/url.h"
#include "plan/v2/selection.h"
#include "stream.h"

#define COLUMNS_MAX 64u

struct arguments {
    struct rp_cmd_line line;
    const char *source;
    struct wanted_list {
        struct rp_column_wanted columns[COLUMNS_MAX]; /* NAME=FILE[:FIELD] */
        uint32_t count;
    } wanted;
    bool replace, json, quiet;
};

/* One command on an open index. */
struct annotating {
    const struct arguments *arguments;
    struct rp_index *index;
    const struct rp_index_source *source;
    uint64_t missing;           /* documents of the segments without the column that is read */
    struct rp_gathered *values; /* one for each column */
    struct rp_index_new_column *columns; /* [columns * segments of the source] */
    uint32_t count;
};

/* ---- the command line ------------------------------------------------------------------------ */

/* A file may have a colon in its name. */
static bool take_column(const char *text, void *place)
{
    struct wanted_list *list = place;
    struct rp_column_wanted *wanted = &list->columns[list->count];
    if (list->count == COLUMNS_MAX || !rp_wanted_take(wanted, text))
        return false;
    if (!rp_url_is(wanted->place) && access(wanted->place, F_OK) != 0)
        rp_wanted_cut(wanted);
    list->count++;
    return true;
}

static int check_name(const struct wanted_list *list, uint32_t number)
{
    const char *name = list->columns[number].name;
    if (!rp_expression_is_name(name))
        return rp_cmd_misuse("annotate",
                             "column `%.60s`: expected a letter or `_`, then letters, digits or "
                             "`_`: at most 47 bytes, and none of and, or, not, in",
                             name);
    if (rp_selection_is_built_in(name))
        return rp_cmd_misuse("annotate",
                             "column `%s`: each corpus has length, shard, document and "
                             "fraction; choose another name",
                             name);
    for (uint32_t i = 0; i < number; i++)
        if (!strcmp(list->columns[i].name, name))
            return rp_cmd_misuse("annotate", "column `%s` is given twice", name);
    return RP_EXIT_FINE;
}

static int check(void *parsed)
{
    const struct arguments *arguments = parsed;
    if (!arguments->line.path && arguments->line.setting_count == 0)
        return rp_cmd_misuse("annotate", "expected -c CONFIG");
    if (arguments->wanted.count == 0)
        return rp_cmd_misuse("annotate", "expected --column NAME=FILE");
    for (uint32_t i = 0; i < arguments->wanted.count; i++) {
        int status = check_name(&arguments->wanted, i);
        if (status != RP_EXIT_FINE)
            return status;
    }
    return RP_EXIT_FINE;
}

/* ---- the source ------------------------------------------------------------------------------ */

static int find_source(const struct rp_config *config, const char *name, uint32_t *number,
                       struct rp_error *error)
{
    struct rp_text_near near = {.word = name ? name : ""};
    for (uint32_t s = 0; s < config->source_count; s++) {
        if (!name ? config->source_count == 1 : !strcmp(config->sources[s].name, name)) {
            *number = s;
            return 0;
        }
        rp_text_offer(&near, config->sources[s].name);
    }
    if (!name)
        return rp_fail(error, -RP_E_USAGE, "give --source NAME",
                       "the config has %u sources: expected the name of one", config->source_count);
    char hint[128];
    snprintf(hint, sizeof hint, "did you mean `%.63s`?", near.best ? near.best : "");
    return rp_fail(error, -RP_E_USAGE, near.best ? hint : "`ringpack config show` has the sources",
                   "the config has no source `%.63s`", name);
}

/* The source in the index, if it is the source of the config. */
static int take_source(struct annotating *annotating, const struct rp_config *config,
                       struct rp_error *error)
{
    const struct rp_index *index = annotating->index;
    uint32_t number = 0;
    int code = find_source(config, annotating->arguments->source, &number, error);
    if (code < 0)
        return code;
    if (index->source_count != config->source_count)
        return rp_fail(error, -RP_E_MISMATCH, "run `ringpack index -c CONFIG` first",
                       "%s: expected %u sources, as the config has, found %u", index->path,
                       config->source_count, index->source_count);
    struct rp_source_spec *specs = rp_stream_sources(config);
    if (!specs)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for %u sources", config->source_count);
    code = rp_index_check_source(index, number, &specs[number], error);
    annotating->source = &index->sources[number];
    free(specs);
    return code;
}

/* ---- one column ------------------------------------------------------------------------------ */

static const struct rp_index_column *column_in(const struct annotating *annotating,
                                               uint32_t segment, const char *name)
{
    return rp_index_find_column(annotating->index, &annotating->source->segments[segment], name);
}

static uint64_t documents_in(const struct annotating *annotating, uint32_t segment)
{
    return annotating->source->segments[segment].shape.table.documents;
}

/* The documents that have no such column yet, and the type of it where it is. */
static enum rp_index_column_type examine(struct annotating *annotating, const char *name)
{
    enum rp_index_column_type type = RP_INDEX_COLUMN_NONE;
    annotating->missing = 0;
    for (uint32_t g = 0; g < annotating->source->segment_count; g++) {
        const struct rp_index_column *column = column_in(annotating, g, name);
        if (column)
            type = column->type;
        else
            annotating->missing += documents_in(annotating, g);
    }
    return type;
}

static int check_rows(const struct annotating *annotating, const struct rp_column_wanted *wanted,
                      uint64_t rows, struct rp_error *error)
{
    bool replaces = annotating->arguments->replace;
    uint64_t all = annotating->source->documents, missing = annotating->missing;
    uint64_t expected = replaces ? all : missing;
    if (rows == expected)
        return 0;
    if (expected == all)
        return rp_fail(error, -RP_E_MISMATCH,
                       "give a row for each document, in the order of the shards; `ringpack "
                       "inspect` has the numbers of documents",
                       "%s: expected %" PRIu64 " rows, one for each document, found %" PRIu64,
                       wanted->place, expected, rows);
    return rp_fail(error, -RP_E_MISMATCH,
                   "give a row for each of these documents, or one for each of all documents and "
                   "--replace",
                   "%s: column `%s`: expected %" PRIu64 " rows, for the documents that do not have "
                   "it yet, found %" PRIu64,
                   wanted->place, wanted->name, expected, rows);
}

static int read_values(struct annotating *annotating, const struct rp_column_wanted *wanted,
                       struct rp_gathered *values, const char *folder, struct rp_error *error)
{
    struct rp_cmd_progress bar;
    char label[96];
    snprintf(label, sizeof label, "reading %.63s", wanted->name);
    rp_cmd_progress_begin(&bar, label, false);
    bar.shown &= !annotating->arguments->quiet;
    const struct rp_progress progress = {rp_cmd_progress, &bar};
    values->column = wanted->name;
    values->field = wanted->detail ? wanted->detail : wanted->name;
    values->progress = &progress;
    values->expected = annotating->arguments->replace ? annotating->source->documents
                                                      : annotating->missing;
    int code = rp_gathered_open(values, folder, error);
    if (code == 0)
        code = rp_annotate_read(values, wanted->place, error);
    if (code == 0)
        code = rp_gathered_map(values, error);
    rp_cmd_progress_end(&bar);
    values->progress = NULL;
    return code < 0 ? code : check_rows(annotating, wanted, values->count, error);
}

static int take_values(struct annotating *annotating, uint32_t number, const char *folder,
                       struct rp_error *error)
{
    const struct rp_column_wanted *wanted = &annotating->arguments->wanted.columns[number];
    struct rp_gathered *values = &annotating->values[number];
    bool replaces = annotating->arguments->replace;
    enum rp_index_column_type older = examine(annotating, wanted->name);
    if (annotating->missing == 0 && !replaces)
        return rp_fail(error, -RP_E_USAGE, "give --replace, or choose another name",
                       "%s: all documents of the source have a column `%s` already",
                       annotating->index->path, wanted->name);
    int code = read_values(annotating, wanted, values, folder, error);
    if (code < 0)
        return code;
    enum rp_index_column_type read = values->type;
    if (!replaces && older && read != older && !rp_gathered_become(values, older))
        return rp_fail(error, -RP_E_MISMATCH, "give the values of all documents and --replace",
                       "%s: column `%s` is %s for the documents that have it, and that type does "
                       "not hold all of these values, which are %s",
                       wanted->place, wanted->name, rp_index_column_type_name(older),
                       rp_index_column_type_name(read));
    const uint64_t *words = values->words;
    for (uint32_t g = 0; g < annotating->source->segment_count; g++) {
        uint64_t documents = documents_in(annotating, g);
        if (documents == 0 || (!replaces && column_in(annotating, g, wanted->name)))
            continue;
        annotating->columns[annotating->count++] = (struct rp_index_new_column){
            .segment = (uint32_t)(annotating->source->segments + g - annotating->index->segments),
            .name = wanted->name,
            .type = values->type,
            .words = words};
        words += documents;
    }
    return 0;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static void report(const struct annotating *annotating)
{
    const struct wanted_list *list = &annotating->arguments->wanted;
    char text[RP_CMD_TEXT_BYTES];
    json_t *columns = json_array();
    for (uint32_t i = 0; i < list->count; i++) {
        const struct rp_gathered *values = &annotating->values[i];
        const char *type = rp_index_column_type_name(values->type);
        if (annotating->arguments->json)
            json_array_append_new(columns,
                                  json_pack("{s:s, s:s, s:I}", "column", list->columns[i].name,
                                            "type", type, "documents", (json_int_t)values->count));
        else
            printf("%s: column %s: %s, %s documents of source %s\n", annotating->index->path,
                   list->columns[i].name, type, rp_cmd_count_text(values->count, text),
                   annotating->source->texts[RP_INDEX_NAME]);
    }
    if (annotating->arguments->json)
        rp_cmd_print_json(json_pack(
            "{s:o, s:o, s:o}", "path", rp_cmd_json_text(annotating->index->path), "source",
            rp_cmd_json_text(annotating->source->texts[RP_INDEX_NAME]), "columns", columns));
    else
        json_decref(columns);
}

static int append(struct annotating *annotating, struct rp_error *error)
{
    struct rp_cmd_progress bar;
    rp_cmd_progress_begin(&bar, "writing the index", false);
    bar.shown &= !annotating->arguments->quiet;
    const struct rp_progress progress = {rp_cmd_progress, &bar};
    int code = rp_index_append_columns(annotating->index, annotating->columns, annotating->count,
                                       &progress, error);
    rp_cmd_progress_end(&bar);
    return code;
}

static int annotate(struct annotating *annotating, const struct rp_config *config,
                    const char *folder, struct rp_error *error)
{
    uint32_t count = annotating->arguments->wanted.count;
    int code = take_source(annotating, config, error);
    if (code < 0)
        return code;
    annotating->values = rp_calloc(count, sizeof *annotating->values);
    annotating->columns = rp_calloc((size_t)count * annotating->source->segment_count,
                                    sizeof *annotating->columns);
    if (!annotating->values || !annotating->columns)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for %u columns", count);
    for (uint32_t i = 0; i < count; i++)
        annotating->values[i].fd = -1;
    for (uint32_t i = 0; code == 0 && i < count; i++)
        code = take_values(annotating, i, folder, error);
    return code < 0 ? code : append(annotating, error);
}

static int open_index(struct rp_index **index, const char *path, struct rp_error *error)
{
    const struct rp_index_open_options options = {.path = path};
    if (!path)
        return rp_fail(error, -RP_E_USAGE,
                       "name one in the config (`index: NAME.rpi`), and run `ringpack index -c "
                       "CONFIG`",
                       "columns are kept in the index of a corpus, and the config names none");
    if (rp_url_is(path))
        return rp_fail(error, -RP_E_USAGE, "annotate the file, and copy it there",
                       "the index is in a store, and ringpack does not write to stores");
    return rp_index_open(index, &options, error);
}

static int run(void *parsed, const struct rp_config *config)
{
    struct annotating annotating = {.arguments = parsed};
    const char *path = rp_config_index_file(config);
    struct rp_error error = {0};
    char *work = NULL;
    int work_fd = -1, code = open_index(&annotating.index, path, &error);
    if (code == 0) { /* it is opened again once no other process writes it */
        rp_index_close(annotating.index);
        annotating.index = NULL;
        code = rp_index_work_open(path, &work, &work_fd, &error);
    }
    if (code == 0)
        code = open_index(&annotating.index, path, &error);
    if (code == 0)
        code = annotate(&annotating, config, work, &error);
    if (code == 0)
        report(&annotating);
    for (uint32_t i = 0; annotating.values && i < annotating.arguments->wanted.count; i++)
        rp_gathered_close(&annotating.values[i]);
    free(annotating.values);
    free(annotating.columns);
    rp_index_close(annotating.index);
    rp_index_work_close(work, work_fd);
    return code < 0 ? rp_cmd_report(&error) : RP_EXIT_FINE;
}

static const struct rp_option options[] = {
    {RP_TAKE("column", "NAME=FILE", struct arguments, wanted, take_column),
     .expected = "NAME=FILE or NAME=FILE:FIELD, at most 64 times",
     .help = "a column, and the file, pattern or folder with its numbers; FIELD is its name there "
             "(default: NAME), given as NAME=FILE:FIELD. May be given several times"},
    {RP_TEXT("source", "NAME", struct arguments, source),
     .help = "the source of the documents (default: the only one)"},
    {RP_FLAG("replace", struct arguments, replace), .help = "replace columns of these names"},
    {RP_FLAG("json", struct arguments, json), .help = "print one JSON object"},
    {RP_FLAG("quiet", struct arguments, quiet), .letter = 'q', .help = "no progress"},
    {0}};

int rp_cmd_annotate(int argc, char **argv)
{
    static const struct rp_verb verb = {
        .name = "annotate",
        .usage = "-c CONFIG --column NAME=FILE[:FIELD]",
        .help =
            "Add columns to the index of a config: a number for each document, such as a "
            "score, a language or a cluster. `select` and `repeat` of a source choose documents "
            "by them.",
        .notes =
            "A file has a row for each document of the source, in the order of the documents: "
            "Parquet, Arrow, Lance, JSON Lines (plain, .gz, .zst) or a .npy of one dimension. "
            "Several files are read in bytewise order of their names. Values are integers, real "
            "numbers or booleans; null, NaN and texts are refused. Documents that were added to "
            "the index after a column was made have none; then a file has a row for each of "
            "them.\n\n"
            "All columns of a command count together: after a kill the index is as it was, and the "
            "same command starts over. A run that uses the index need not stop; it sees them "
            "when it is started again. `ringpack inspect` on the index lists its columns.",
        .options = options,
        .takes = RP_TAKES_CONFIG,
        .check = check,
        .run = run};
    struct arguments arguments = {0};
    rp_interrupt_catch_once();
    return rp_cmd_config_run(&verb, &arguments, argc, argv);
}
