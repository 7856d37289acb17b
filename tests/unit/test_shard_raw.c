/* SPDX-License-Identifier: Apache-2.0 */
/* Files of tokens separated by EOS: raw, npy and llm.c, against the simplest possible scan. */
#include "corpus_files.h"

#include <errno.h>
#include <time.h>

#include "corpus/document_scan.h"

#define EOS 7

static void assert_lengths(const struct rp_corpus *corpus, const uint64_t *lengths, uint64_t count)
{
    const struct rp_source *source = rp_corpus_source(corpus, 0);
    uint64_t position = 0;
    assert_int_equal(rp_source_documents(source), count);
    for (uint64_t d = 0; d < count; d++) {
        struct rp_extent extent;
        struct rp_error error;
        uint64_t tokens;
        rp_source_length_many(source, &d, 1, &tokens);
        assert_int_equal(tokens, lengths[d]);
        assert_int_equal(rp_source_length(source, d), lengths[d]);
        assert_int_equal(rp_source_extent(source, d, &extent, &error), 0);
        assert_int_equal(extent.tokens, lengths[d]);
        if (d == 0)
            position = extent.byte_offset;
        assert_int_equal(extent.byte_offset, position);
        position += lengths[d] * extent.width;
    }
}

/* `tokens` is a string: e is EOS, everything else a token. */
static void put_tokens(struct image *image, const char *tokens, unsigned width)
{
    for (const char *t = tokens; *t; t++) {
        uint64_t value = *t == 'e' ? EOS : 100;
        add_bytes(image, &value, width);
    }
}

static void test_eos_edges(void **state)
{
    (void)state;
    static const struct {
        const char *tokens;
        unsigned count;
        uint64_t trailing[4];
        unsigned leading_count;
        uint64_t leading[4];
    } cases[] = {
        {"e", 1, {1}, 1, {1}},
        {"x", 1, {1}, 1, {1}},
        {"xe", 1, {2}, 2, {1, 1}},
        {"ex", 2, {1, 1}, 1, {2}},
        {"xxexxe", 2, {3, 3}, 3, {2, 3, 1}},
        {"exxexx", 3, {1, 3, 2}, 2, {3, 3}},
        {"eee", 3, {1, 1, 1}, 3, {1, 1, 1}},
        {"xxx", 1, {3}, 1, {3}},
    };
    static const enum rp_token_type types[] = {RP_TOKEN_U8,  RP_TOKEN_U16, RP_TOKEN_I16,
                                               RP_TOKEN_I32, RP_TOKEN_U32, RP_TOKEN_I64};
    struct rp_corpus *corpus;
    struct rp_error error;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
            struct image image = {.count = 0};
            put_tokens(&image, cases[c].tokens, rp_token_width(types[t]));
            put_file("r.bin", image.bytes, image.count);
            assert_int_equal(open_one(&corpus, "r.bin", RP_FORMAT_RAW, types[t], EOS, &error), 0);
            assert_lengths(corpus, cases[c].trailing, cases[c].count);
            rp_corpus_close(corpus);
        }
        struct image llmc = {.count = 0};
        add_u32(&llmc, 20240520), add_u32(&llmc, 1),
            add_u32(&llmc, (uint32_t)strlen(cases[c].tokens));
        llmc.count = 1024;
        put_tokens(&llmc, cases[c].tokens, 2);
        put_file("l.bin", llmc.bytes, llmc.count);
        assert_int_equal(open_one(&corpus, "l.bin", RP_FORMAT_AUTO, RP_TOKEN_NONE, EOS, &error), 0);
        assert_lengths(corpus, cases[c].leading, cases[c].leading_count);
        rp_corpus_close(corpus);
    }
}

static void test_llmc_headers(void **state)
{
    (void)state;
    struct image image = {.count = 0};
    struct rp_corpus *corpus;
    struct rp_error error;
    add_u32(&image, 20240801), add_u32(&image, 7), add_u32(&image, 3);
    image.count = 1024;
    add_u32(&image, 128000), add_u32(&image, 5), add_u32(&image, 128000);
    put_file("l.bin", image.bytes, image.count);
    assert_int_equal(open_one(&corpus, "l.bin", RP_FORMAT_AUTO, RP_TOKEN_NONE, -1, &error), 0);
    assert_int_equal(rp_corpus_shard(corpus, 0)->type, RP_TOKEN_U32);
    assert_lengths(corpus, (uint64_t[]){2, 1},
                   2); /* split at the EOS of Llama 3 without a declaration */
    rp_corpus_close(corpus);

    put_file("l.bin", image.bytes, image.count - 4);
    assert_int_equal(open_one(&corpus, "l.bin", RP_FORMAT_AUTO, RP_TOKEN_NONE, -1, &error),
                     -RP_E_CORRUPT);
    assert_says(&error, "3 tokens|1036|1032");
    put_file("l.bin", image.bytes, 1023);
    assert_int_equal(open_one(&corpus, "l.bin", RP_FORMAT_AUTO, RP_TOKEN_NONE, -1, &error),
                     -RP_E_CORRUPT);
    put_file("l.bin", image.bytes, 1024);
    assert_true(open_one(&corpus, "l.bin", RP_FORMAT_AUTO, RP_TOKEN_NONE, -1, &error) < 0);
    image.bytes[4] = 1;
    put_file("l.bin", image.bytes, image.count);
    assert_int_equal(open_one(&corpus, "l.bin", RP_FORMAT_AUTO, RP_TOKEN_NONE, -1, &error),
                     -RP_E_VERSION);
    image.bytes[4] = 7;
    memset(image.bytes + 8, 0xff, 4); /* -1 tokens */
    put_file("l.bin", image.bytes, image.count);
    assert_int_equal(open_one(&corpus, "l.bin", RP_FORMAT_AUTO, RP_TOKEN_NONE, -1, &error),
                     -RP_E_CORRUPT);
    uint32_t evaluation = 20240522;
    memcpy(image.bytes, &evaluation, 4);
    put_file("l.bin", image.bytes, image.count);
    assert_int_equal(open_one(&corpus, "l.bin", RP_FORMAT_AUTO, RP_TOKEN_NONE, -1, &error),
                     -RP_E_FORMAT);
    assert_says(&error, "evaluation");
}

static void put_npy(const char *dict, unsigned version, unsigned data_bytes)
{
    struct image image = {.count = 0};
    size_t prefix = version == 1 ? 10 : 12,
           length = (prefix + strlen(dict) + 1 + 63) / 64 * 64 - prefix;
    add_bytes(&image, "\x93NUMPY", 6);
    add_u8(&image, (uint8_t)version), add_u8(&image, 0);
    if (version == 1)
        add_u16(&image, (uint16_t)length);
    else
        add_u32(&image, (uint32_t)length);
    add_bytes(&image, dict, strlen(dict));
    while (image.count < prefix + length - 1)
        add_u8(&image, ' ');
    add_u8(&image, '\n');
    for (unsigned i = 0; i < data_bytes; i++)
        add_u8(&image, 0);
    put_file("n.npy", image.bytes, image.count);
}

static void test_npy_headers(void **state)
{
    (void)state;
    static const struct {
        const char *descr;
        unsigned width;
    } good[] = {{"|u1", 1}, {"<u2", 2}, {"<u4", 4}, {"<i4", 4}, {"<i8", 8}};
    struct rp_corpus *corpus;
    struct rp_error error;
    char dict[128];
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        for (unsigned version = 1; version <= 2; version++) {
            snprintf(dict, sizeof dict, "{'descr': '%s', 'fortran_order': False, 'shape': (5,), }",
                     good[i].descr);
            put_npy(dict, version, 5 * good[i].width);
            assert_int_equal(open_one(&corpus, "n.npy", RP_FORMAT_AUTO, RP_TOKEN_NONE, 0, &error),
                             0);
            assert_lengths(corpus, (uint64_t[]){1, 1, 1, 1, 1},
                           5); /* five times token 0, which is EOS */
            rp_corpus_close(corpus);
        }
    put_npy("{'descr': '<u4', 'fortran_order': False, 'shape': (5,), }", 1, 20);
    FILE *file = fopen("n.npy", "r+b"); /* a header that ends with a space, and no line with it */
    assert_int_equal(fseek(file, 127, SEEK_SET), 0);
    assert_int_equal(fputc(' ', file), ' ');
    assert_int_equal(fclose(file), 0);
    assert_int_equal(open_one(&corpus, "n.npy", RP_FORMAT_AUTO, RP_TOKEN_NONE, 0, &error), 0);
    assert_int_equal(rp_source_tokens(rp_corpus_source(corpus, 0)), 5);
    rp_corpus_close(corpus);
}

static void test_npy_headers_that_are_refused(void **state)
{
    (void)state;
    struct rp_corpus *corpus;
    struct rp_error error;
    static const char *const bad[] = {
        "{'descr': '<f4', 'fortran_order': False, 'shape': (5,), }",
        "{'descr': '>u4', 'fortran_order': False, 'shape': (5,), }",
        "{'descr': '<u4', 'fortran_order': True, 'shape': (5,), }",
        "{'descr': '<u4', 'fortran_order': False, 'shape': (5, 1), }",
        "{'descr': '<u4', 'fortran_order': False, 'shape': (), }",
        "{'descr': '<u4', 'fortran_order': False, 'shape': (-5,), }",
        "{'descr': '<u4', 'fortran_order': False, 'shape': (4,), }",
        "{'descr': '<u4', 'fortran_order': False, 'shape': (6,), }",
        "{'descr': '<u4', 'fortran_order': False, 'shape': (99999999999999999999999999,), }",
        "{'descr': '<u4', 'fortran_order': False, 'shape': (4611686018427387909,), }",
        "{'descr': '<u4', 'fortran_order': False, 'shape': (18446744073709551619,), }",
        "{'descr': [('a', '<u4')], 'fortran_order': False, 'shape': (5,), }",
        "{'descr': '<u4', 'fortran_order': False, 'shape': (5,), } and more",
        "",
        "{",
        "{'descr': '<u4'",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        put_npy(bad[i], 1, 20);
        assert_true(open_one(&corpus, "n.npy", RP_FORMAT_AUTO, RP_TOKEN_NONE, 0, &error) < 0);
        assert_says(&error, "n.npy");
    }
}

static void test_npy_files_that_are_refused(void **state)
{
    (void)state;
    struct rp_corpus *corpus;
    struct rp_error error;
    static const struct image others = {.bytes = "no numpy", .count = 200};
    put_file("n.npy", others.bytes, others.count);
    assert_true(open_one(&corpus, "n.npy", RP_FORMAT_NPY, RP_TOKEN_NONE, 0, &error) < 0);
    assert_says(&error, "no numpy header");
    static const struct image long_header = {.bytes = "\x93NUMPY\2\0\1\x10", .count = 5000};
    put_file("n.npy", long_header.bytes, long_header.count);
    assert_true(open_one(&corpus, "n.npy", RP_FORMAT_AUTO, RP_TOKEN_NONE, 0, &error) < 0);
    assert_says(&error, "a header of at most 4096 bytes");
    put_npy("{'descr': '<u4', 'fortran_order': False, 'shape': (5,), }", 0, 20);
    assert_true(open_one(&corpus, "n.npy", RP_FORMAT_AUTO, RP_TOKEN_NONE, 0, &error) < 0);
    put_npy("{'descr': '<u4', 'fortran_order': False, 'shape': (5,), }", 4, 20);
    assert_true(open_one(&corpus, "n.npy", RP_FORMAT_AUTO, RP_TOKEN_NONE, 0, &error) < 0);
    put_npy("{'descr': '<u4', 'fortran_order': False, 'shape': (5,), }", 1, 20);
    assert_true(open_one(&corpus, "n.npy", RP_FORMAT_RAW, RP_TOKEN_U16, 0, &error) < 0);
    assert_says(&error, "declared raw");
    for (off_t bytes = 147; bytes >= 0; bytes--) {
        assert_int_equal(truncate("n.npy", bytes), 0);
        assert_true(open_one(&corpus, "n.npy", RP_FORMAT_NPY, RP_TOKEN_NONE, 0, &error) < 0);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    struct rp_corpus *corpus;
    struct rp_error error;
    put_file("r.bin", "abcdefgh", 8);
    assert_int_equal(open_one(&corpus, "r.bin", RP_FORMAT_AUTO, RP_TOKEN_U16, 5, &error),
                     -RP_E_FORMAT);
    assert_says(&error, "unknown format|--dtype u16"); /* raw is never guessed */
    assert_int_equal(open_one(&corpus, "r.bin", RP_FORMAT_RAW, RP_TOKEN_NONE, 5, &error),
                     -RP_E_FORMAT);
    assert_says(&error, "no dtype");
    assert_int_equal(open_one(&corpus, "r.bin", RP_FORMAT_RAW, RP_TOKEN_U16, -1, &error),
                     -RP_E_FORMAT);
    assert_says(&error, "no eos");
    assert_int_equal(open_one(&corpus, "r.bin", RP_FORMAT_RAW, RP_TOKEN_U8, 256, &error),
                     -RP_E_FORMAT);
    assert_says(&error, "0 to 255|found 256");
    assert_int_equal(open_one(&corpus, "r.bin", RP_FORMAT_RAW, RP_TOKEN_I16, 40000, &error),
                     -RP_E_FORMAT);
    put_file("r.bin", "abcdefg", 7);
    assert_int_equal(open_one(&corpus, "r.bin", RP_FORMAT_RAW, RP_TOKEN_U16, 5, &error),
                     -RP_E_FORMAT);
    assert_says(&error, "multiple of 2");
    put_file("r.bin", "", 0);
    assert_int_equal(open_one(&corpus, "r.bin", RP_FORMAT_RAW, RP_TOKEN_U16, 5, &error),
                     -RP_E_EMPTY);
    assert_int_equal(unlink("r.bin"), 0);
    assert_true(open_one(&corpus, "r.bin", RP_FORMAT_RAW, RP_TOKEN_U16, 5, &error) < 0);
    assert_int_equal(mkfifo("r.bin", 0600), 0);
    for (int format = RP_FORMAT_AUTO; format <= RP_FORMAT_LLMC; format++) {
        assert_true(open_one(&corpus, "r.bin", (enum rp_format)format, RP_TOKEN_U16, 5, &error) <
                    0);
        assert_says(&error, format == RP_FORMAT_MEGATRON ? "FIFO|r." : "FIFO");
    }
    assert_int_equal(unlink("r.bin"), 0);
    assert_int_equal(mkdir("r.bin", 0700), 0);
    assert_true(open_one(&corpus, "r.bin", RP_FORMAT_RAW, RP_TOKEN_U16, 5, &error) < 0);
    assert_says(&error, "a directory");
    assert_int_equal(rmdir("r.bin"), 0);
    static const struct {
        const char *bytes, *says;
    } foreign[] = {{"PAR1xxxxxxxx", "Parquet"},
                   {"\x89HDF\r\n\x1a\nxxxx", "HDF5"},
                   {"\x1f\x8bxxxxxxxxxx", "gzip"},
                   {"\xff\xff\xff\xffxxxxxxxx", "Arrow"},
                   {"(\xb5/\xfdxxxxxxxx", "zstd"}};
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        put_file("f", foreign[i].bytes, 12);
        assert_int_equal(open_one(&corpus, "f", RP_FORMAT_AUTO, RP_TOKEN_NONE, -1, &error),
                         -RP_E_FORMAT);
        assert_says(&error, foreign[i].says);
    }
}

/* The scan in pieces of random sizes against one token at a time. */
static void test_scan_against_the_obvious(void **state)
{
    (void)state;
    unsigned seed = (unsigned)time(NULL);
    print_message("seed %u\n", seed);
    static const enum rp_token_type types[] = {RP_TOKEN_U8, RP_TOKEN_U16, RP_TOKEN_U32,
                                               RP_TOKEN_I64};
    static uint64_t tokens64[5000], found[5003], expected[5003];
    static uint8_t stored[sizeof tokens64] __attribute__((aligned(64)));
    for (unsigned round = 0; round < 200; round++) {
        enum rp_token_type type = types[round % 4];
        bool leads = round / 4 % 2;
        unsigned width = rp_token_width(type), range = 2 + (unsigned)rand_r(&seed) % 250;
        size_t count = (unsigned)rand_r(&seed) % 5000, n = 0, f = 0, at = 0;
        uint64_t largest = 0;
        if (count > 0)
            expected[n++] = 0;
        for (size_t i = 0; i < count; i++) {
            tokens64[i] = (unsigned)rand_r(&seed) % range;
            largest = tokens64[i] > largest ? tokens64[i] : largest;
            memcpy(stored + i * width, &tokens64[i], width);
            if (tokens64[i] == 1 && leads && i > 0)
                expected[n++] = i;
            if (tokens64[i] == 1 && !leads)
                expected[n++] = i + 1;
        }
        if (count > 0 && (leads || expected[n - 1] != count))
            expected[n++] = count;
        struct rp_document_scan scan;
        rp_document_scan_begin(&scan, type, 1, leads);
        while (at < count) {
            size_t part = 1 + (unsigned)rand_r(&seed) % (count - at);
            f += rp_document_scan_add(&scan, stored + at * width, part, found + f);
            at += part;
        }
        f += rp_document_scan_finish(&scan, found + f);
        assert_int_equal(f, n);
        assert_memory_equal(found, expected, n * sizeof found[0]);
        assert_int_equal(scan.token_max, largest);
    }
}

/* Pieces of the file meet in the middle of documents; the sidecar and the scan at open agree. */
static void test_large_file_same_with_and_without_sidecar(void **state)
{
    (void)state;
    enum { COUNT = 700001 };
    uint16_t *tokens = malloc(COUNT * sizeof *tokens);
    unsigned seed = 1;
    for (size_t i = 0; i < COUNT; i++)
        tokens[i] = (uint16_t)((unsigned)rand_r(&seed) % 300);
    put_file("big.bin", tokens, COUNT * sizeof *tokens);
    struct rp_corpus *scanned, *indexed;
    struct rp_error error;
    struct rp_source_spec hints = declared(RP_FORMAT_RAW, RP_TOKEN_U16, EOS);
    assert_int_equal(open_one(&scanned, "big.bin", RP_FORMAT_RAW, RP_TOKEN_U16, EOS, &error), 0);
    assert_int_equal(
        rp_sidecar_build("big.bin", &(struct rp_sidecar_build_options){.hints = &hints}, &error),
        0);
    /* With the sidecar nothing has to be declared any more. */
    assert_int_equal(open_one(&indexed, "big.bin", RP_FORMAT_AUTO, RP_TOKEN_NONE, -1, &error), 0);
    const struct rp_source *a = rp_corpus_source(scanned, 0), *b = rp_corpus_source(indexed, 0);
    assert_int_equal(rp_source_documents(a), rp_source_documents(b));
    for (uint64_t d = 0; d < rp_source_documents(a); d++)
        assert_int_equal(rp_source_length(a, d), rp_source_length(b, d));
    assert_true(rp_hash128_equal(rp_corpus_fingerprint(scanned).sampled,
                                 rp_corpus_fingerprint(indexed).sampled));
    struct rp_inspection inspection;
    assert_int_equal(rp_inspect("big.bin", NULL, &inspection, &error), 0);
    assert_int_equal(inspection.token_max, 299);
    assert_int_equal(inspection.documents, rp_source_documents(a));
    rp_corpus_close(scanned);
    rp_corpus_close(indexed);
    free(tokens);
}

static int pass(void *context, struct rp_error *error)
{
    ++*(unsigned *)context;
    return rp_fail(error, -ENOSPC, NULL, "the gate is closed");
}

/* The file has half a token, which a scan would complain of. */
static void test_a_gate_comes_before_a_scan_and_only_then(void **state)
{
    (void)state;
    static const uint8_t odd[3];
    static const uint16_t tokens[] = {1, EOS};
    const char *shard = "odd.bin";
    unsigned asked = 0;
    const struct rp_corpus_gate gate = {pass, &asked};
    struct rp_source_spec source = declared(RP_FORMAT_RAW, RP_TOKEN_U16, EOS);
    struct rp_corpus_spec spec = {.sources = &source, .source_count = 1, .gate = &gate};
    struct rp_corpus *corpus;
    struct rp_error error;
    source.shards = &shard;
    source.shard_count = 1;
    put_file("odd.bin", odd, sizeof odd);
    assert_int_equal(rp_corpus_open(&corpus, &spec, &error), -ENOSPC);
    assert_int_equal(asked, 1);
    shard = "known.bin";
    put_file("known.bin", tokens, sizeof tokens);
    assert_int_equal(
        rp_sidecar_build("known.bin", &(struct rp_sidecar_build_options){.hints = &source}, &error),
        0);
    assert_int_equal(rp_corpus_open(&corpus, &spec, &error), 0);
    assert_int_equal(asked, 1);
    rp_corpus_close(corpus);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_eos_edges),
        cmocka_unit_test(test_llmc_headers),
        cmocka_unit_test(test_npy_headers),
        cmocka_unit_test(test_npy_headers_that_are_refused),
        cmocka_unit_test(test_npy_files_that_are_refused),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_scan_against_the_obvious),
        cmocka_unit_test(test_large_file_same_with_and_without_sidecar),
        cmocka_unit_test(test_a_gate_comes_before_a_scan_and_only_then),
    };
    return cmocka_run_group_tests(tests, scratch_enter, scratch_leave);
}
