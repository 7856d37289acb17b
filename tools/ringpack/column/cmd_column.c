/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_column.c — `ringpack column -c CONFIG --column NAME=FILE`: a value for each token becomes a
 * side column, in a file next to each shard (corpus/side_file.h).
 *
 * Flow: open the corpus of the config, without its columns → open the .npy files, compare their
 * types and their rows with the tokens of the shards → write a file for each shard in turn. Each is
 * whole or as it was, so after a kill the same command with --replace writes all of them. */
#include <errno.h>
#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/mem.h"
#include "base/text.h"
#include "cmd.h"
#include "cmd_config.h"
#include "column/adding.h"
#include "convert/convert.h"
#include "corpus/sides.h"
#include "interrupt.h"
#include "stream.h"

struct arguments {
    struct rp_cmd_line line;
    struct rp_column_choice choice;
    bool check;
};

static bool take_column(const char *text, void *place)
{
    struct rp_column_wanted *wanted = place;
    if (wanted->name || !rp_wanted_take(wanted, text))
        return false;
    if (access(wanted->place, F_OK) != 0) /* a name may have a colon */
        rp_wanted_cut(wanted);
    return true;
}

static bool take_inserted(const char *text, void *place)
{
    static const char *const names[] = {"none", "eos", "bos", "both"};
    enum rp_inserted *inserted = place;
    for (size_t i = 0; i < RP_ARRAY_COUNT(names); i++)
        if (!strcmp(text, names[i])) {
            *inserted = (enum rp_inserted)i;
            return true;
        }
    return false;
}

static int check(void *parsed)
{
    const struct arguments *arguments = parsed;
    if (!arguments->line.path && arguments->line.setting_count == 0)
        return rp_cmd_misuse("column", "expected -c CONFIG");
    if (arguments->check == (arguments->choice.column.name != NULL))
        return rp_cmd_misuse("column", "expected --column NAME=FILE, or --check");
    if (arguments->check)
        return RP_EXIT_FINE;
    if (arguments->choice.type && !rp_wanted_dtype(arguments->choice.type))
        return rp_cmd_misuse("column", "--type: expected " RP_COLUMN_TYPES);
    return rp_wanted_check_name("column", arguments->choice.column.name);
}

/* ---- names of columns ------------------------------------------------------------------------ */

static const struct rp_shard *shard_of(const struct rp_adding *adding, uint32_t i)
{
    return rp_corpus_shard(adding->corpus, adding->first + i);
}

/* The longest folder that has all shards of the source. */
static size_t common_folder(const struct rp_adding *adding)
{
    const char *first = shard_of(adding, 0)->path;
    size_t common = strlen(first);
    for (uint32_t i = 0; i < adding->shards; i++) {
        const char *path = shard_of(adding, i)->path;
        size_t same = 0;
        while (same < common && path[same] == first[same])
            same++;
        common = same;
    }
    while (common > 0 && first[common - 1] != '/')
        common--;
    return common;
}

/* Files are written next to shards; if these are objects, below a directory, to be copied from. */
static int check_output(struct rp_adding *adding, struct rp_error *error)
{
    const char *output = adding->choice->output;
    for (uint32_t i = 0; i < adding->shards; i++) {
        const struct rp_shard *shard = shard_of(adding, i);
        if (shard->url && !output)
            return rp_fail(error, -RP_E_USAGE,
                           "give --output DIR, and copy the files from there to the store",
                           "%s: ringpack does not write to stores", shard->path);
        if (!shard->url && output)
            return rp_fail(error, -RP_E_USAGE, "leave --output out",
                           "%s: a run looks for its columns next to it", shard->path);
    }
    adding->folder = common_folder(adding);
    return 0;
}

/* The caller frees it; NULL when out of memory. */
static char *path_of(const struct rp_adding *adding, uint32_t i)
{
    const char *output = adding->choice->output, *name = adding->choice->column.name;
    const char *path = shard_of(adding, i)->path;
    char *below = output ? rp_asprintf("%s/%s", output, path + adding->folder) : NULL;
    char *made = output && !below ? NULL : rp_sidefile_path(below ? below : path, name);
    free(below);
    return made;
}

static int make_folder(const struct rp_adding *adding, const char *path, struct rp_error *error)
{
    if (!adding->choice->output)
        return 0;
    char *folder = rp_path_directory(path);
    int code = folder ? rp_dir_make(folder, error)
                      : rp_fail(error, -ENOMEM, NULL, "out of memory for a name");
    free(folder);
    return code;
}

/* ---- the source and the files ---------------------------------------------------------------- */

static int find_shards(struct rp_adding *adding, struct rp_error *error)
{
    const struct rp_corpus *corpus = adding->corpus;
    const char *name = adding->choice->source;
    uint32_t sources = rp_corpus_source_count(corpus), first = 0, s = 0;
    if (!name && sources > 1)
        return rp_fail(error, -RP_E_USAGE, "give --source NAME",
                       "the config has %u sources: expected the name of one", sources);
    for (; name && s < sources && strcmp(rp_source_name(rp_corpus_source(corpus, s)), name); s++)
        first += rp_source_shards(rp_corpus_source(corpus, s));
    if (s == sources)
        return rp_fail(error, -RP_E_USAGE, "`ringpack config show` has the sources",
                       "the config has no source `%.63s`", name);
    adding->first = first;
    adding->source = rp_corpus_source(corpus, s);
    adding->shards = rp_source_shards(adding->source);
    return check_output(adding, error);
}

static int open_all(struct rp_adding *adding, const glob_t *found, const char *folder,
                    struct rp_error *error)
{
    char expected[RP_SIDE_TYPE_BYTES], has[RP_SIDE_TYPE_BYTES];
    const struct rp_column_wanted *column = &adding->choice->column;
    const struct rp_values_choice values = {.field = column->detail ? column->detail : column->name,
                                            .type = adding->choice->type,
                                            .folder = folder,
                                            .bf16 = adding->choice->bf16};
    int code = 0;
    for (size_t i = 0; i < found->gl_pathc && code == 0; i++) {
        struct rp_values *npy = &adding->files[adding->file_count++];
        code = rp_values_open(npy, found->gl_pathv[i], &values, error);
        if (code == 0 && npy->has_lists != adding->files[0].has_lists)
            return rp_fail(error, -RP_E_USAGE, "give files of one kind",
                           "%s: files of lists and others in one column", npy->path);
        if (code < 0 || memcmp(&npy->type, &adding->files[0].type, sizeof npy->type) == 0)
            continue;
        rp_sidefile_type_text(&adding->files[0].type, expected);
        rp_sidefile_type_text(&npy->type, has);
        code = rp_fail(error, -RP_E_MISMATCH, "save all of them with one dtype and one width",
                       "%s: expected %s, as in %s, found %s", npy->path, expected,
                       adding->files[0].path, has);
    }
    return code;
}

/* Lists are written to a nameless file in the folder of the first column. */
static int open_files(struct rp_adding *adding, const glob_t *found, struct rp_error *error)
{
    char *path = path_of(adding, 0), *folder = path ? rp_path_directory(path) : NULL;
    adding->files = rp_calloc(found->gl_pathc, sizeof *adding->files);
    int code = adding->files && folder
                   ? make_folder(adding, path, error)
                   : rp_fail(error, -ENOMEM, NULL, "out of memory for %zu files", found->gl_pathc);
    if (code == 0)
        code = open_all(adding, found, folder, error);
    free(folder);
    free(path);
    return code;
}

/* An entry for each token; file by file if there are as many files as shards. */
static int check_rows(const struct rp_adding *adding, struct rp_error *error)
{
    uint64_t expected = 0, rows = 0, entries = 0, token_offset;
    bool is_paired = adding->file_count == adding->shards && adding->shards > 1;
    int code = 0;
    for (uint32_t i = 0; i < adding->shards && code == 0; i++) {
        code = rp_sides_count_entries(adding->corpus, adding->first + i,
                                      adding->choice->column.name, &entries, &token_offset, error);
        expected += entries;
        if (code == 0 && is_paired && adding->files[i].rows != entries)
            return rp_fail(error, -RP_E_MISMATCH,
                           "files are taken in bytewise order of their names, one for each shard",
                           "%s: expected %" PRIu64 " rows, as %s has tokens, found %" PRIu64,
                           adding->files[i].path, entries, shard_of(adding, i)->path,
                           adding->files[i].rows);
    }
    for (uint32_t i = 0; i < adding->file_count; i++)
        rows += adding->files[i].rows;
    if (code < 0 || rows == expected)
        return code;
    return rp_fail(
        error, -RP_E_MISMATCH,
        "give a row for each token of the token files, separators included, in the order "
        "of the shards; `ringpack inspect` has the numbers of tokens",
        "%s: expected %" PRIu64 " rows, as the source has tokens, found %" PRIu64,
        adding->choice->column.place, expected, rows);
}

/* ---- writing --------------------------------------------------------------------------------- */

static int copy_rows(struct rp_adding *adding, struct rp_side_writer *writer, uint64_t rows,
                     struct rp_error *error)
{
    uint32_t width = writer->type.bytes;
    int code = 0;
    while (rows > 0 && code == 0) {
        const struct rp_values *npy = &adding->files[adding->file];
        uint64_t some = rp_min_u64(rp_min_u64(rows, RP_COLUMN_BUFFER_BYTES / width),
                                   npy->rows - adding->row);
        code = rp_interrupt_check("each file is whole or as it was", error);
        if (code == 0 && some > 0)
            code = rp_file_read_at(npy->fd, npy->path, adding->buffer, (size_t)some * width,
                                   npy->at + adding->row * width, error);
        if (code == 0)
            code = rp_sidefile_add(writer, adding->buffer, (size_t)some * width, error);
        rows -= some;
        adding->row += some;
        if (adding->row == npy->rows) {
            adding->file++;
            adding->row = 0;
        }
    }
    return code;
}

static int write_shard(struct rp_adding *adding, uint32_t i, struct rp_error *error)
{
    const struct rp_column_choice *choice = adding->choice;
    struct rp_side_writer writer;
    char type[RP_SIDE_TYPE_BYTES], text[RP_CMD_TEXT_BYTES], tokenizer[RP_TOKENIZER_TEXT_BYTES];
    uint64_t entries, token_offset;
    char *path = path_of(adding, i);
    int code = path ? make_folder(adding, path, error)
                    : rp_fail(error, -ENOMEM, NULL, "out of memory for a name");
    if (code == 0)
        code = rp_sides_count_entries(adding->corpus, adding->first + i, choice->column.name,
                                      &entries, &token_offset, error);
    if (code == 0) {
        code = rp_sidefile_begin(&writer, path, &adding->files[0].type, error);
        writer.tokenizer = adding->tokenizer;
        if (code == 0)
            code = adding->files[0].has_lists ? rp_adding_write_lists(adding, &writer, i, error)
                                              : copy_rows(adding, &writer, entries, error);
        if (code == 0)
            code = rp_sidefile_finish(&writer, error);
        rp_sidefile_discard(&writer);
    }
    rp_sidefile_type_text(&adding->files[0].type, type);
    if (code == 0 && !choice->quiet)
        printf("%s: %s, %s tokens%s%s\n", path, type, rp_cmd_count_text(entries, text),
               choice->tokenizer ? ", tokenizer " : "",
               choice->tokenizer ? rp_ids_tokenizer_text(&adding->tokenizer, tokenizer) : "");
    free(path);
    return code;
}

static int check_absent(const struct rp_adding *adding, struct rp_error *error)
{
    int code = 0;
    for (uint32_t i = 0; i < adding->shards && code == 0; i++) {
        char *path = path_of(adding, i);
        if (!path || (!adding->choice->replace && access(path, F_OK) == 0))
            code = rp_fail(
                error, path ? -RP_E_USAGE : -ENOMEM, "give --replace, or choose another name",
                "%s: this column is there already", path ? path : shard_of(adding, i)->path);
        free(path);
    }
    return code;
}

/* A column that no start takes is not written. */
static int take_tokenizer(struct rp_adding *adding, struct rp_error *error)
{
    const struct rp_column_choice *choice = adding->choice;
    if (!choice->tokenizer)
        return 0;
    int code = rp_tokenizer_identify(choice->tokenizer, &adding->tokenizer, error);
    return code < 0 ? code
                    : rp_sides_check_tokenizer(adding->corpus, &adding->tokenizer,
                                               choice->column.place, error);
}

static int add(struct rp_adding *adding, const glob_t *found, struct rp_error *error)
{
    int code = find_shards(adding, error);
    if (code == 0)
        code = take_tokenizer(adding, error);
    if (code == 0)
        code = open_files(adding, found, error);
    if (code == 0)
        code = adding->files[0].has_lists ? rp_adding_check_lists(adding, error)
                                          : check_rows(adding, error);
    if (code == 0)
        code = check_absent(adding, error);
    adding->buffer = malloc(RP_COLUMN_BUFFER_BYTES);
    if (code == 0 && !adding->buffer)
        code = rp_fail(error, -ENOMEM, NULL, "out of memory");
    for (uint32_t i = 0; i < adding->shards && code == 0; i++)
        code = write_shard(adding, i, error);
    if (code == 0 && adding->choice->output && !adding->choice->quiet)
        printf("copy them to %.*s\n", (int)adding->folder, shard_of(adding, 0)->path);
    return code;
}

static void print_columns(const struct rp_sides *sides)
{
    char type[RP_SIDE_TYPE_BYTES], tokenizer[RP_TOKENIZER_TEXT_BYTES];
    for (uint32_t c = 0; c < sides->count; c++) {
        const struct rp_side_info *info = &sides->columns[c];
        rp_sidefile_type_text(&info->type, type);
        printf("%s: %s, tokenizer %s\n", info->name, type,
               rp_ids_tokenizer_text(&info->tokenizer, tokenizer));
    }
}

/* Compare the columns of the config with their hashes. */
static int check_columns(const struct arguments *arguments, const struct rp_config *config)
{
    struct rp_error error = {0};
    struct rp_corpus *corpus = NULL;
    int code = config->sides.count
                   ? rp_stream_open_corpus(&corpus, config, false, &error)
                   : rp_fail(&error, -RP_E_USAGE, "name them: `columns`, `label_columns`",
                             "the config has no columns");
    if (code == 0)
        code = rp_sides_verify(rp_corpus_sides(corpus), &error);
    if (code == 0 && !arguments->choice.quiet) {
        print_columns(rp_corpus_sides(corpus));
        printf("%u columns are as they were written\n", config->sides.count);
    }
    rp_corpus_close(corpus);
    return code < 0 ? rp_cmd_report(&error) : RP_EXIT_FINE;
}

static int run(void *parsed, const struct rp_config *config)
{
    if (((const struct arguments *)parsed)->check)
        return check_columns(parsed, config);
    struct rp_adding adding = {.choice = &((const struct arguments *)parsed)->choice};
    struct rp_error error = {0};
    struct rp_corpus *corpus = NULL;
    struct rp_config plain = *config; /* its columns may be those that are to be made */
    glob_t found = {0};
    plain.sides.count = 0;
    int status = glob(adding.choice->column.place, GLOB_NOSORT, NULL, &found);
    int code = status == 0 ? 0
                           : rp_fail(&error, -ENOENT, NULL, "%s: no file has this name",
                                     adding.choice->column.place);
    if (code == 0) { /* glob would sort by the locale */
        qsort(found.gl_pathv, found.gl_pathc, sizeof *found.gl_pathv, rp_text_compare);
        code = rp_stream_open_corpus(&corpus, &plain, false, &error);
    }
    adding.corpus = corpus;
    if (code == 0)
        code = add(&adding, &found, &error);
    for (uint32_t i = 0; i < adding.file_count; i++)
        rp_values_close(&adding.files[i]);
    rp_map_close(&adding.lengths);
    free(adding.files);
    free(adding.buffer);
    rp_corpus_close(corpus);
    globfree(&found);
    return code < 0 ? rp_cmd_report(&error) : RP_EXIT_FINE;
}

static const struct rp_option options[] = {
    {RP_TAKE("column", "NAME=FILE[:FIELD]", struct arguments, choice.column, take_column),
     .expected = "NAME=FILE, once",
     .help = "the column, the file or pattern of files with its values, and their tensor or field "
             "(default: the name)"},
    {RP_TEXT("source", "NAME", struct arguments, choice.source),
     .help = "the source of the tokens (default: the only one)"},
    {RP_TEXT("output", "DIR", struct arguments, choice.output), .letter = 'o',
     .help = "for shards in a store: write the columns below DIR, to be copied from there"},
    {RP_TEXT("type", "TYPE", struct arguments, choice.type),
     .help = "values of lists become " RP_COLUMN_TYPES " (default: of JSON f32, else the file's)"},
    {RP_TAKE("inserted", "WHICH", struct arguments, choice.inserted, take_inserted),
     .expected = "eos, bos, both or none",
     .help = "tokens that `ringpack convert` put around documents, for which lists have no value"},
    {RP_TEXT("tokenizer", "T", struct arguments, choice.tokenizer),
     .help = "the tokenizer of values that are token ids: a tokenizer.json, the folder of one, or "
             "bytes; a start refuses them if the tokens are of another one"},
    {RP_FLAG("bf16", struct arguments, choice.bf16), .help = "values of two bytes are bfloat16"},
    {RP_FLAG("replace", struct arguments, choice.replace), .help = "replace a column of this name"},
    {RP_FLAG("check", struct arguments, check),
     .help = "compare the columns that the config names with their hashes, and write no file"},
    {RP_FLAG("quiet", struct arguments, choice.quiet), .letter = 'q', .help = "print nothing"},
    {0}};

int rp_cmd_column(int argc, char **argv)
{
    static const struct rp_verb verb = {
        .name = "column",
        .usage = "-c CONFIG --column NAME=FILE | --check",
        .help =
            "Write a side column next to the shards of a source: a value for each token, such "
            "as a loss weight, a log-probability, or the top-k of a teacher. The keys `columns` "
            "and `label_columns` of a config bring it into batches.",
        .notes =
            "Values are in .npy or .safetensors, or in lists of rows of Parquet, Arrow, Lance or "
            "JSON Lines (plain, .gz, .zst), with a value for each token of a document and a list "
            "for each document. An array has a row for each token of the token files, in the order "
            "of the shards: one dimension, or two with the values of a token in a row of at most "
            "512 bytes. Tokens that separate documents have rows too. Several files are read in "
            "bytewise order of their names; if there are as many as shards, each must have the "
            "rows of its shard.\n\n"
            "The column of PREFIX.bin is PREFIX.NAME.col, with a hash of each 4096 bytes; for an "
            "object, it is an object next to it. A run that uses it need not stop for a new "
            "column, but it ends if one that it reads is replaced.",
        .options = options,
        .takes = RP_TAKES_CONFIG,
        .check = check,
        .run = run};
    struct arguments arguments = {0};
    rp_interrupt_catch_once();
    return rp_cmd_config_run(&verb, &arguments, argc, argv);
}
