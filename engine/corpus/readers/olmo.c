/* SPDX-License-Identifier: Apache-2.0 */
/* olmo.c — the files of dolma's tokenizer, which OLMo-core reads:
 *
 *     NAME.npy     bare tokens; in spite of its name it has no header of numpy
 *     NAME.csv.gz  a row for each document: its first token, the token after its last one, then
 *                  ignored columns (id, src, loc), whose texts may be quoted
 *
 * A companion file may hold a mask (byte_mask.h). The documents are exactly the rows: no EOS is
 * searched for. The rows are contiguous, from the first token of the file to its last; anything
 * else means that the two files do not belong together. A decompressed NAME.csv is read as well.
 * The width of a token is in neither file, so it must be declared. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/mem.h"
#include "base/text.h"
#include "corpus/byte_mask.h"
#include "corpus/gunzip.h"
#include "corpus/numpy.h"

#define COLUMNS 2u /* that are read */
#define HINT_APART                                                                                 \
    "the .npy and its rows do not belong together, the dtype is another one, or one was cut "      \
    "short: copy or write both again"

/* The path of the rows; the caller frees it. NULL: no such file, or no memory. */
static char *find_rows(const char *path, bool *is_compressed)
{
    size_t stem = rp_text_stem(path, ".npy");
    static const char *const suffixes[] = {".csv", ".csv.gz"};
    char *found = NULL;
    for (size_t i = 0; i < RP_ARRAY_COUNT(suffixes) && !found; i++) {
        found = rp_asprintf("%.*s%s", (int)stem, path, suffixes[i]);
        *is_compressed = i == 1;
        if (found && access(found, F_OK) != 0) {
            free(found);
            found = NULL;
        }
    }
    return found;
}

static int claim(const struct rp_probe *probe, char why[256], struct rp_error *error)
{
    bool is_compressed;
    snprintf(why, 256,
             "it is a .npy without a header, with the .csv.gz of its documents next to it");
    if (!probe->is_declared && !rp_text_has_suffix(probe->path, ".npy"))
        return 0;
    if (!memcmp(probe->head, RP_NUMPY_MAGIC, 6))
        return probe->is_declared
                   ? rp_readers_refuse(probe, "a numpy .npy file, though it was declared olmo",
                                       "declare it as npy: OLMo's files have no header", error)
                   : 0;
    char *rows = probe->is_declared ? NULL : find_rows(probe->path, &is_compressed);
    free(rows);
    return probe->is_declared || rows;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* The state of a pass over the text of the rows. */
struct rows {
    const char *path;
    const struct rp_probe *probe;
    struct rp_sink *sink;
    struct rp_byte_mask mask;
    uint64_t tokens;           /* the token file's */
    uint64_t number, end;      /* the row's number; the end of the row before it */
    uint64_t fields[COLUMNS];  /* the row's numbers, as far as they were read */
    unsigned column, digits;   /* the column that is being read; digits of its number so far */
    bool is_quoted, has_begun; /* inside a quoted text; the row has a byte already */
};

static int fail_row(const struct rows *rows, const char *expected, struct rp_error *error)
{
    return rp_fail(error, -RP_E_CORRUPT, "copy or write the file again",
                   "%s: row %" PRIu64 ": expected %s", rows->path, rows->number, expected);
}

static int fail_place(const struct rows *rows, struct rp_error *error)
{
    return rp_fail(error, -RP_E_CORRUPT, HINT_APART,
                   "%s: row %" PRIu64 ": expected tokens from %" PRIu64 " on, at most to %" PRIu64
                   ", found %" PRIu64 " to %" PRIu64,
                   rows->path, rows->number, rows->end, rows->tokens, rows->fields[0],
                   rows->fields[1]);
}

static int end_row(struct rows *rows, struct rp_error *error)
{
    uint64_t begin = rows->fields[0], end = rows->fields[1];
    uint32_t width = rp_token_width(rows->sink->layout.type);
    bool fits = begin == rows->end && end >= begin && end <= rows->tokens;
    if (!fits)
        return fail_place(rows, error);
    int code = rp_byte_mask_read(&rows->mask, rows->number, begin, end, error);
    if (code == 0)
        code = rp_sink_document(rows->sink, begin * width, end - begin, rows->mask.spans.spans,
                                rows->mask.spans.count, error);
    rows->number++;
    rows->end = end;
    memset(rows->fields, 0, sizeof rows->fields);
    rows->column = rows->digits = 0;
    rows->has_begun = false;
    return code;
}

/* Take a digit of a number, or the byte that ends it. */
static int take_digit(struct rows *rows, uint8_t byte, struct rp_error *error)
{
    uint64_t *field = &rows->fields[rows->column];
    bool ends_row = rows->column + 1 == COLUMNS && (byte == '\r' || byte == '\n');
    if (byte >= '0' && byte <= '9') {
        rows->digits++;
        return rp_mul_u64(*field, 10, field) && rp_add_u64(*field, byte - '0', field)
                   ? 0
                   : fail_row(rows, "a number that fits 64 bits", error);
    }
    if (rows->digits == 0 || (byte != ',' && !ends_row))
        return fail_row(rows, "the first token of a document, and the one after its last", error);
    rows->column++;
    rows->digits = 0;
    return byte == '\n' ? end_row(rows, error) : 0;
}

static int take_piece(struct rows *rows, const uint8_t *bytes, size_t count, struct rp_error *error)
{
    int code = 0;
    for (size_t i = 0; i < count && code == 0; i++) {
        rows->has_begun = true;
        if (rows->column < COLUMNS)
            code = take_digit(rows, bytes[i], error);
        else if (bytes[i] == '"') /* a quote inside a quoted text is doubled */
            rows->is_quoted = !rows->is_quoted;
        else if (bytes[i] == '\n' && !rows->is_quoted)
            code = end_row(rows, error);
    }
    return code;
}

static int end_rows(const struct rows *rows, struct rp_error *error)
{
    if (rows->has_begun)
        return fail_row(rows, "a whole row, found the end of the file", error);
    if (rows->end == rows->tokens)
        return 0;
    return rp_fail(error, -RP_E_CORRUPT, HINT_APART,
                   "%s: expected rows to token %" PRIu64 ", the last of %s, found %" PRIu64
                   " rows to token %" PRIu64,
                   rows->path, rows->tokens, rows->probe->path, rows->number, rows->end);
}

static int walk_rows(struct rows *rows, bool is_compressed, struct rp_error *error)
{
    struct rp_gunzip text;
    uint8_t piece[16384];
    size_t bytes = 1;
    int fd = rp_file_open_read(rows->path, NULL, error);
    if (fd < 0)
        return fd;
    int code = rp_gunzip_begin(&text, fd, rows->path,
                               is_compressed ? RP_GUNZIP_ARCHIVE : RP_GUNZIP_PLAIN, error);
    while (code == 0 && bytes > 0) {
        code = rp_gunzip_read(&text, piece, sizeof piece, &bytes, error);
        if (code == 0)
            code = take_piece(rows, piece, bytes, error);
    }
    rp_gunzip_end(&text);
    close(fd);
    return code == 0 ? end_rows(rows, error) : code;
}

static int check_type(const struct rp_probe *probe, enum rp_token_type type, struct rp_error *error)
{
    if (type == RP_TOKEN_NONE)
        return rp_fail(error, -RP_E_FORMAT, "declare its dtype: `--dtype u16` or u32",
                       "%s: OLMo's files do not say how wide a token is, and no dtype was declared",
                       probe->path);
    return rp_readers_check_width(probe, type, error);
}

static int walk(const struct rp_probe *probe, const struct rp_reader_options *options,
                struct rp_sink *sink, struct rp_error *error)
{
    struct rp_layout layout = {.type = options->type, .eos = RP_EOS_NONE};
    struct rows rows = {.probe = probe, .sink = sink, .mask = RP_BYTE_MASK_NONE};
    bool is_compressed = false;
    int code = check_type(probe, options->type, error);
    if (code == 0)
        code = rp_byte_mask_find_olmo(&rows.mask, probe, &options->mask, &layout, error);
    if (code == 0)
        code = rp_sink_begin(sink, &layout, options, error);
    if (code == 0)
        code = rp_byte_mask_open(&rows.mask, probe, options, &layout, error);
    char *path = code == 0 ? find_rows(probe->path, &is_compressed) : NULL;
    if (code == 0 && !path)
        code = rp_fail(error, -RP_E_FORMAT,
                       "copy it there, or declare the tokens as raw: `--format raw --eos ID`",
                       "%s: expected the rows of its documents next to it, NAME.csv.gz, found none",
                       probe->path);
    rows.path = path;
    rows.tokens = code == 0 ? probe->bytes / rp_token_width(layout.type) : 0;
    if (code == 0)
        code = walk_rows(&rows, is_compressed, error);
    rp_byte_mask_close(&rows.mask);
    free(path);
    return code;
}

static const struct rp_companion companions[] = {
    {".npy", ".csv.gz"}, {".npy", ".csv"}, {NULL, NULL}};

const struct rp_reader rp_reader_olmo = {
    .format = RP_FORMAT_OLMO,
    .title = "a .npy of OLMo, without a header",
    .claims_by_name = true,
    .companions = companions,
    .companions_by_beginning = rp_byte_masks_of_olmo,
    .claim = claim,
    .walk = walk,
};
