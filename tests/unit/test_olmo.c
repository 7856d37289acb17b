/* SPDX-License-Identifier: Apache-2.0 */
/* OLMo's .npy with the rows of its documents, made byte by byte: every bit flip and every
 * truncation of the rows, as text and compressed; false rows. python/test_olmo.py has the library's
 * own files. */
#include "corpus_files.h"

#include <zlib.h>

#define DOCUMENTS 4u
#define TOKENS 8u

static const char rows[] = "0,3,id-0,\"a \"\"file\"\", of\ntwo lines\",0\r\n"
                           "3,3,id-1,b,1\r\n"
                           "3,4,id-2,b,2\r\n"
                           "4,8,id-3,b,3\r\n";
#define ROWS_BYTES (sizeof rows - 1)
static const uint64_t lengths[DOCUMENTS] = {3, 0, 1, 4};

/* Returns the bytes of an archive of `text` in `out`. */
static size_t compress_text(const char *text, size_t bytes, uint8_t *out, size_t out_bytes)
{
    z_stream stream = {.next_in = (uint8_t *)(uintptr_t)text,
                       .avail_in = (uInt)bytes,
                       .next_out = out,
                       .avail_out = (uInt)out_bytes};
    assert_int_equal(deflateInit2(&stream, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY),
                     Z_OK);
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    size_t made = out_bytes - stream.avail_out;
    deflateEnd(&stream);
    return made;
}

/* A folder with the tokens 0 … 7 and the rows of their documents; returns the path of the tokens.
 */
static const char *put_pair(const char *folder, const char *suffix, const void *text, size_t bytes)
{
    static char path[64];
    uint16_t tokens[TOKENS];
    for (unsigned t = 0; t < TOKENS; t++)
        tokens[t] = (uint16_t)t;
    (void)mkdir(folder, 0700);
    snprintf(path, sizeof path, "%s/x%s", folder, suffix);
    put_file(path, text, bytes);
    snprintf(path, sizeof path, "%s/x.npy", folder);
    put_file(path, tokens, sizeof tokens);
    return path;
}

static int open_pair(struct rp_corpus **corpus, const char *path, struct rp_error *error)
{
    return open_one(corpus, path, RP_FORMAT_AUTO, RP_TOKEN_U16, -1, error);
}

static void check_documents(const char *path)
{
    struct rp_corpus *corpus;
    struct rp_error error;
    uint64_t end = 0;
    assert_int_equal(open_pair(&corpus, path, &error), 0);
    const struct rp_source *source = rp_corpus_source(corpus, 0);
    assert_int_equal(rp_source_documents(source), DOCUMENTS);
    for (uint64_t d = 0; d < DOCUMENTS; d++) {
        struct rp_extent extent;
        assert_int_equal(rp_source_extent(source, d, &extent, &error), 0);
        assert_int_equal(extent.tokens, lengths[d]);
        assert_int_equal(extent.byte_offset, end);
        end += 2 * extent.tokens;
    }
    rp_corpus_close(corpus);
}

static void documents_are_the_rows(void **state)
{
    (void)state;
    uint8_t archive[512];
    size_t bytes = compress_text(rows, ROWS_BYTES, archive, sizeof archive);
    check_documents(put_pair("text", ".csv", rows, ROWS_BYTES));
    check_documents(put_pair("gzip", ".csv.gz", archive, bytes));
    size_t half = (size_t)(strstr(rows, "3,4") - rows); /* two archives are one text */
    bytes = compress_text(rows, half, archive, sizeof archive);
    bytes += compress_text(rows + half, ROWS_BYTES - half, archive + bytes, sizeof archive - bytes);
    check_documents(put_pair("gzips", ".csv.gz", archive, bytes));
}

/* Is it refused by its name, or are its documents end to end from the first token to the last? */
static bool is_refused(const char *path, const char *folder)
{
    struct rp_corpus *corpus;
    struct rp_error error;
    uint64_t end = 0;
    if (open_pair(&corpus, path, &error) < 0) {
        assert_says(&error, folder);
        return true;
    }
    const struct rp_source *source = rp_corpus_source(corpus, 0);
    for (uint64_t d = 0; d < rp_source_documents(source); d++) {
        struct rp_extent extent;
        assert_int_equal(rp_source_extent(source, d, &extent, &error), 0);
        assert_int_equal(extent.byte_offset, end);
        end += 2 * extent.tokens;
    }
    assert_int_equal(end, 2 * TOKENS);
    rp_corpus_close(corpus);
    return false;
}

/* A file that has just been written is opened a moment later (base/file.h), so that all damaged
 * copies are written before the first is opened. */
static const char *folder_of(size_t number)
{
    static char folder[32];
    snprintf(folder, sizeof folder, "d%zu", number);
    return folder;
}

/* Damage each bit, or cut before each byte; returns how many copies are refused. */
static size_t count_refused(const char *suffix, const uint8_t *text, size_t bytes, bool cuts)
{
    uint8_t copy[1024];
    size_t count = cuts ? bytes : 8 * bytes, refused = 0;
    assert_true(bytes <= sizeof copy);
    for (size_t i = 0; i < count; i++) {
        memcpy(copy, text, bytes);
        copy[cuts ? 0 : i / 8] ^= (uint8_t)(cuts ? 0 : 1u << i % 8);
        (void)put_pair(folder_of(i), suffix, copy, cuts ? i : bytes);
    }
    for (size_t i = 0; i < count; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s/x.npy", folder_of(i));
        refused += is_refused(path, folder_of(i));
        unlink(path);
        snprintf(path, sizeof path, "%s/x%s", folder_of(i), suffix);
        unlink(path);
    }
    return refused;
}

static void every_bit(void **state)
{
    (void)state;
    uint8_t archive[512];
    size_t bytes = compress_text(rows, ROWS_BYTES, archive, sizeof archive);
    size_t flips = count_refused(".csv", (const uint8_t *)rows, ROWS_BYTES, false);
    assert_true(flips > ROWS_BYTES && flips < 8 * ROWS_BYTES); /* texts may be others */
    /* gzip's header is checked but for the time, the level and the system */
    assert_true(count_refused(".csv.gz", archive, bytes, false) >= 8 * (bytes - 6) - 8);
}

static void every_truncation(void **state)
{
    (void)state;
    uint8_t archive[512];
    size_t bytes = compress_text(rows, ROWS_BYTES, archive, sizeof archive);
    assert_int_equal(count_refused(".csv", (const uint8_t *)rows, ROWS_BYTES, true), ROWS_BYTES);
    assert_int_equal(count_refused(".csv.gz", archive, bytes, true), bytes);
}

static const struct {
    const char *rows, *words;
} lies[] = {
    {"0,3\n4,8\n", "x.csv|row 1|from 3 on|4 to 8"},           /* a hole */
    {"0,3\n2,8\n", "x.csv|row 1|from 3 on|2 to 8"},           /* an overlap */
    {"3,8\n0,3\n", "x.csv|row 0|from 0 on|3 to 8"},           /* another order */
    {"0,9\n", "x.csv|row 0|at most to 8|0 to 9"},             /* beyond the file */
    {"0,3\n3,2\n2,8\n", "x.csv|row 1|3 to 2"},                /* backwards */
    {"0,3\n", "x.csv|to token 8|1 rows to token 3"},          /* the last ones are missing */
    {"0,8\n9", "x.csv|row 1|the end of the file"},            /* cut in a row */
    {"0,8,\"a\n", "x.csv|row 0|the end of the file"},         /* cut in a text */
    {"start,end\n0,8\n", "x.csv|row 0|first token"},          /* a header */
    {"0,8\n\n", "x.csv|row 1|first token"},                   /* an empty row */
    {"0,-8\n", "x.csv|row 0|first token"},                    /* no number */
    {"0,18446744073709551624\n", "x.csv|row 0|fits 64 bits"}, /* 8, if it wrapped */
    {"0\n8,8\n", "x.csv|row 0|first token"},                  /* one column */
    {"", "x.csv|to token 8|0 rows"},
};

static void rows_that_lie_are_refused_by_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        struct rp_corpus *corpus;
        struct rp_error error;
        const char *path = put_pair("lies", ".csv", lies[i].rows, strlen(lies[i].rows));
        assert_int_equal(open_pair(&corpus, path, &error), -RP_E_CORRUPT);
        assert_says(&error, lies[i].words);
    }
}

static void what_follows_an_archive_is_refused(void **state)
{
    (void)state;
    uint8_t archive[512];
    struct rp_corpus *corpus;
    struct rp_error error;
    char words[64];
    size_t bytes = compress_text(rows, ROWS_BYTES, archive, sizeof archive);
    memcpy(archive + bytes, "0,8\n", 4);
    const char *path = put_pair("more", ".csv.gz", archive, bytes + 4);
    assert_int_equal(open_pair(&corpus, path, &error), -RP_E_CORRUPT);
    snprintf(words, sizeof words, "x.csv.gz|byte %zu|something else", bytes);
    assert_says(&error, words);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_are_the_rows),
        cmocka_unit_test(every_bit),
        cmocka_unit_test(every_truncation),
        cmocka_unit_test(rows_that_lie_are_refused_by_place),
        cmocka_unit_test(what_follows_an_archive_is_refused),
    };
    return cmocka_run_group_tests(tests, scratch_enter, scratch_leave);
}
