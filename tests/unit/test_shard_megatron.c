/* SPDX-License-Identifier: Apache-2.0 */
/* Megatron datasets: the layout byte by byte, every integer dtype, and refusals. */
#include "corpus_files.h"

#include "base/bits.h"
#include "corpus/shard.h"

static void test_every_dtype(void **state)
{
    (void)state;
    static const struct {
        uint8_t code;
        unsigned width;
        enum rp_token_type type;
    } good[] = {{1, 1, RP_TOKEN_U8},  {3, 2, RP_TOKEN_I16}, {4, 4, RP_TOKEN_I32},
                {5, 8, RP_TOKEN_I64}, {8, 2, RP_TOKEN_U16}, {9, 4, RP_TOKEN_U32}};
    const int32_t lengths[] = {3, 0, 5};
    static const char *const names[] = {"d", "d.bin", "d.idx"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        put_megatron("d", good[i].code, good[i].width, lengths, 3);
        for (size_t n = 0; n < 3; n++) {
            struct rp_corpus *corpus;
            struct rp_error error;
            assert_int_equal(open_one(&corpus, names[n], RP_FORMAT_AUTO, RP_TOKEN_NONE, -1, &error),
                             0);
            const struct rp_source *source = rp_corpus_source(corpus, 0);
            const struct rp_shard *shard = rp_corpus_shard(corpus, 0);
            assert_string_equal(shard->path, "d.bin");
            assert_int_equal(shard->type, good[i].type);
            assert_int_equal(rp_source_documents(source), 3);
            assert_int_equal(rp_source_tokens(source), 8);
            assert_int_equal(rp_source_length(source, 0), 3);
            assert_int_equal(rp_source_length(source, 1), 0);
            assert_int_equal(rp_source_length(source, 2), 5);
            const uint64_t documents[] = {2, 0, 1};
            uint64_t tokens[3];
            rp_source_length_many(source, documents, 3, tokens);
            assert_true(tokens[0] == 5 && tokens[1] == 3 && tokens[2] == 0);
            struct rp_extent extent;
            assert_int_equal(rp_source_extent(source, 2, &extent, &error), 0);
            assert_int_equal(extent.shard, 0);
            assert_int_equal(extent.width, good[i].width);
            assert_int_equal(extent.byte_offset, 3 * good[i].width);
            assert_int_equal(extent.tokens, 5);
            rp_corpus_close(corpus);
        }
    }
    static const uint8_t bad[] = {0, 2, 6, 7, 10, 11, 255};
    static const char *const said[] = {
        "found 0", "int8",     "float64 (Megatron)", "float32 (Megatron)",
        "uint64",  "found 11", "found 255"};
    for (size_t i = 0; i < sizeof bad; i++) {
        put_megatron("d", bad[i], 1, lengths, 3);
        struct rp_corpus *corpus;
        struct rp_error error;
        assert_int_equal(open_one(&corpus, "d", RP_FORMAT_AUTO, RP_TOKEN_NONE, -1, &error),
                         -RP_E_FORMAT);
        assert_says(&error, said[i]);
        assert_null(corpus);
    }
}

static int open_index(const struct image *index, uint64_t bin_bytes, struct rp_corpus **corpus,
                      struct rp_error *error)
{
    put_file("x.idx", index->bytes, index->count);
    put_file("x.bin", "", 0);
    assert_int_equal(truncate("x.bin", (off_t)bin_bytes), 0);
    return open_one(corpus, "x", RP_FORMAT_MEGATRON, RP_TOKEN_NONE, -1, error);
}

static void test_documents_of_several_sequences(void **state)
{
    (void)state;
    struct image index = {.count = 0};
    const int32_t lengths[] = {2, 3, 0, 4};
    const int64_t pointers[] = {0, 4, 10, 10}, first[] = {0, 2, 2, 4};
    struct rp_corpus *corpus;
    struct rp_error error;
    add_megatron_index(&index, 8, lengths, pointers, 4, first, 3);
    assert_int_equal(open_index(&index, 18, &corpus, &error), 0);
    const struct rp_source *source = rp_corpus_source(corpus, 0);
    assert_int_equal(rp_source_length(source, 0), 5);
    assert_int_equal(rp_source_length(source, 1), 0);
    assert_int_equal(rp_source_length(source, 2), 4);
    struct rp_extent extent;
    assert_int_equal(rp_source_extent(source, 2, &extent, &error), 0);
    assert_int_equal(extent.byte_offset, 10);
    rp_corpus_close(corpus);

    add_bytes(&index, "\0\1\0\1", 4); /* sequence modes */
    assert_int_equal(open_index(&index, 18, &corpus, &error), 0);
    rp_corpus_close(corpus);
    struct rp_inspection inspection;
    assert_int_equal(rp_inspect("x", NULL, &inspection, &error), 0);
    assert_non_null(strstr(inspection.why, "modes"));
    add_u8(&index, 0);
    assert_int_equal(open_index(&index, 18, &corpus, &error), -RP_E_CORRUPT);
}

static void test_hostile_indexes(void **state)
{
    (void)state;
    const struct {
        const char *says;
        int32_t lengths[2];
        int64_t pointers[2], first[3];
    } cases[] = {
        {"negative length", {-1, 2}, {0, 4}, {0, 1, 2}},
        {"no place in a file", {2, -1}, {0, 4}, {0, 1, 2}},
        {"outside the .bin", {1 << 30, 2}, {0, 4}, {0, 1, 2}},
        {"outside the .bin", {2, 2}, {-2, 4}, {0, 1, 2}},
        {"outside the .bin", {2, 2}, {INT64_MAX - 1, 4}, {0, 1, 2}},
        {"between two tokens", {2, 2}, {1, 4}, {0, 1, 2}},
        {"no place in a file", {2, 2}, {0, -4}, {0, 1, 2}},
        {"truncated|expected at least 12|found 8", {2, 4}, {0, 4}, {0, 1, 2}},
        {"not contiguous", {2, 2}, {0, 2}, {0, 0, 2}},
        {"document entries", {2, 2}, {0, 4}, {1, 1, 2}},
        {"document entries", {2, 2}, {0, 4}, {0, 1, 3}},
        {"outside the index", {2, 2}, {0, 4}, {0, -1, 2}},
        {"outside the index", {2, 2}, {0, 4}, {0, INT64_MAX, 2}},
        {"outside the index", {2, 2}, {0, 4}, {0, 3, 2}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct image index = {.count = 0};
        struct rp_corpus *corpus;
        struct rp_error error;
        add_megatron_index(&index, 8, cases[i].lengths, cases[i].pointers, 2, cases[i].first, 2);
        assert_int_equal(open_index(&index, 8, &corpus, &error), -RP_E_CORRUPT);
        assert_says(&error, cases[i].says);
    }
    static const uint64_t counts[] = {
        UINT64_MAX, UINT64_MAX / 12, UINT64_MAX / 12 + 1, INT64_MAX, 3, 1};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        for (unsigned at = 18; at <= 26; at += 8) {
            struct image index = {.count = 0};
            struct rp_corpus *corpus;
            struct rp_error error;
            add_megatron_index(&index, 8, cases[0].lengths, cases[0].pointers, 2,
                               (int64_t[]){0, 1, 2}, 2);
            memcpy(index.bytes + at, &counts[i], 8);
            if (at == 26 && counts[i] == 3)
                continue; /* that is the right one */
            assert_int_equal(open_index(&index, 8, &corpus, &error), -RP_E_CORRUPT);
        }
}

/* Documents are checked in runs: whatever is wrong with whichever document of a run, it is this
 * one that is named. */
static void test_any_document_of_a_run(void **state)
{
    (void)state;
    enum { DOCUMENTS = 150, WRONG = 6 };
    static struct image index;
    static int32_t good[DOCUMENTS], lengths[DOCUMENTS];
    static int64_t places[DOCUMENTS], pointers[DOCUMENTS], first[DOCUMENTS + 1];
    int64_t bytes = 0;
    for (int32_t d = 0; d < DOCUMENTS; d++) {
        good[d] = 1 + d % 7;
        places[d] = bytes;
        bytes += 2 * good[d];
        first[d + 1] = d + 1;
    }
    const int64_t wrong[WRONG] = {1, bytes, bytes - 1, INT64_MIN, INT64_MAX - 1, -2};
    for (int32_t d = 0; d + 1 < DOCUMENTS; d++) { /* the end of the last one is checked before */
        struct rp_corpus *corpus;
        struct rp_error error;
        char says[32];
        int32_t w = d % (WRONG + 1);
        memcpy(lengths, good, sizeof good);
        memcpy(pointers, places, sizeof places);
        if (w == WRONG)
            lengths[d] = INT32_MIN;
        else
            pointers[d] = w == 0 ? pointers[d] + wrong[w] : wrong[w];
        /* so long that even a length without its sign would end inside */
        uint64_t bin_bytes = w == WRONG ? UINT64_C(1) << 34 : (uint64_t)bytes;
        index.count = 0;
        add_megatron_index(&index, 8, lengths, pointers, DOCUMENTS, first, DOCUMENTS);
        assert_int_equal(open_index(&index, bin_bytes, &corpus, &error), -RP_E_CORRUPT);
        snprintf(says, sizeof says, "document %d:", d);
        assert_says(&error, says);
    }
}

/* One document has two sequences, and the next none: the later ones are in their places. */
static void test_two_sequences_in_a_run(void **state)
{
    (void)state;
    enum { DOCUMENTS = 150 };
    static struct image index;
    static int32_t lengths[DOCUMENTS];
    static int64_t pointers[DOCUMENTS], first[DOCUMENTS + 1];
    for (int32_t d = 0; d < DOCUMENTS; d++) {
        lengths[d] = 3;
        pointers[d] = 6 * d;
    }
    for (int32_t two = 0; two + 1 < DOCUMENTS; two++) {
        struct rp_corpus *corpus;
        struct rp_error error;
        for (int32_t d = 0; d <= DOCUMENTS; d++)
            first[d] = d + (d == two + 1);
        index.count = 0;
        add_megatron_index(&index, 8, lengths, pointers, DOCUMENTS, first, DOCUMENTS);
        assert_int_equal(open_index(&index, 6 * DOCUMENTS, &corpus, &error), 0);
        const struct rp_source *source = rp_corpus_source(corpus, 0);
        assert_int_equal(rp_source_tokens(source), 3 * DOCUMENTS);
        for (int32_t d = 0; d < DOCUMENTS; d++)
            assert_int_equal(rp_source_length(source, (uint64_t)d), d == two       ? 6
                                                                    : d == two + 1 ? 0
                                                                                   : 3);
        rp_corpus_close(corpus);
    }
}

static void test_every_truncation_of_an_index(void **state)
{
    (void)state;
    struct image index = {.count = 0};
    struct rp_corpus *corpus;
    struct rp_error error;
    add_megatron_index(&index, 8, (int32_t[]){2, 2}, (int64_t[]){0, 4}, 2, (int64_t[]){0, 1, 2}, 2);
    size_t whole = index.count;
    assert_int_equal(whole, 34 + 12 * 2 + 8 * 3);
    for (index.count = 0; index.count < whole; index.count++)
        assert_true(open_index(&index, 8, &corpus, &error) < 0);
    assert_int_equal(open_index(&index, 8, &corpus, &error),
                     0); /* the control: the whole one is good */
    rp_corpus_close(corpus);
}

static void test_every_bit_of_an_index(void **state)
{
    (void)state;
    struct image good = {.count = 0};
    add_megatron_index(&good, 8, (int32_t[]){2, 2}, (int64_t[]){0, 4}, 2, (int64_t[]){0, 1, 2}, 2);
    unsigned refused = 0, accepted = 0;
    for (size_t bit = 0; bit < 8 * good.count; bit++) {
        struct image index = good;
        struct rp_corpus *corpus;
        struct rp_error error;
        index.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        if (open_index(&index, 8, &corpus, &error) < 0) {
            refused++;
            continue;
        }
        accepted++; /* another length, say: it cannot be seen, but never leads outside the .bin */
        const struct rp_source *source = rp_corpus_source(corpus, 0);
        for (uint64_t d = 0; d < rp_source_documents(source); d++)
            assert_true(rp_source_length(source, d) <= 4);
        rp_corpus_close(corpus);
    }
    assert_true(refused > 15 * accepted);
}

static void test_truncated_bin(void **state)
{
    (void)state;
    const int32_t lengths[] = {10000, 20000, 10000};
    struct rp_corpus *corpus;
    struct rp_error error;
    char sizes[64];
    put_megatron("t", 8, 2, lengths, 3);
    for (off_t bytes = 80000 - 80000 % 4096; bytes >= 0; bytes -= 4096) {
        assert_int_equal(truncate("t.bin", bytes), 0);
        assert_true(open_one(&corpus, "t", RP_FORMAT_AUTO, RP_TOKEN_NONE, -1, &error) < 0);
        snprintf(sizes, sizeof sizes, "80000|%ld", (long)bytes);
        assert_says(&error, bytes ? sizes : "empty");
    }
    put_megatron("t", 8, 2, lengths, 3);
    assert_int_equal(truncate("t.bin", 79999), 0);
    assert_int_equal(open_one(&corpus, "t", RP_FORMAT_AUTO, RP_TOKEN_NONE, -1, &error),
                     -RP_E_CORRUPT);
}

/* An index that was cut to no documents leaves out all tokens of its file. */
static void test_an_index_without_documents(void **state)
{
    (void)state;
    struct rp_corpus *corpus;
    struct rp_error error;
    put_megatron("none", 8, 2, NULL, 0);
    assert_int_equal(truncate("none.bin", 2000), 0);
    assert_int_equal(open_one(&corpus, "none", RP_FORMAT_AUTO, RP_TOKEN_NONE, -1, &error),
                     -RP_E_CORRUPT);
    assert_says(&error, "none.idx: expected the sequences of none.bin|2000 bytes, found none");
}

/* More documents than are checked at open: a bad entry shows when it is used. The index is a
 * sparse file of zeros, so every document but the last is empty. */
static void test_a_large_index_is_checked_when_used(void **state)
{
    (void)state;
    const uint64_t documents = (1u << 20) + 1, bad = 1000000, sequences = 2;
    const uint64_t first = 34 + 12 * sequences;
    struct image head = {.count = 0};
    add_bytes(&head, "MMIDIDX\0\0", 9);
    add_u64(&head, 1), add_u8(&head, 8), add_u64(&head, sequences), add_u64(&head, documents + 1);
    add_u32(&head, 3), add_u32(&head, 1), add_u64(&head, 0), add_u64(&head, 6);
    put_file("large.idx", head.bytes, head.count);
    put_file("large.bin", "abcdefgh", 8);
    FILE *index = fopen("large.idx", "r+b");
    assert_int_equal(fseek(index, (long)(first + 8 * documents), SEEK_SET), 0);
    assert_int_equal(fwrite(&sequences, 8, 1, index), 1);
    assert_int_equal(fseek(index, (long)(first + 8 * bad), SEEK_SET), 0);
    assert_int_equal(fwrite(&documents, 8, 1, index), 1);
    assert_int_equal(fclose(index), 0);

    struct rp_corpus *corpus;
    struct rp_error error;
    assert_int_equal(open_one(&corpus, "large", RP_FORMAT_AUTO, RP_TOKEN_NONE, -1, &error), 0);
    const struct rp_source *source = rp_corpus_source(corpus, 0);
    assert_int_equal(rp_source_documents(source), documents);
    assert_int_equal(rp_source_tokens(source), 4);
    assert_int_equal(rp_source_length(source, documents - 1), 4);
    assert_int_equal(rp_source_length(source, bad + 1), 0);
    assert_true(rp_source_length(source, bad - 1) == UINT64_MAX);
    assert_true(rp_source_length(source, bad) == UINT64_MAX);
    assert_int_equal(rp_source_explain(source, bad, &error), -RP_E_CORRUPT);
    assert_says(&error, "document 1000000|large.bin|outside the index");
    rp_corpus_close(corpus);
    struct rp_inspection inspection;
    assert_int_equal(rp_inspect("large", NULL, &inspection, &error), 0);
    assert_int_equal(inspection.damaged_documents, 2);
    assert_int_equal(inspection.empty_documents, documents - 3);
    assert_int_equal(inspection.length_histogram[0], documents - 3);
}

/* ---- an index too large to be checked as a whole when it is opened -----------------------------
 */

enum { LARGE = RP_CHECK_ALL_MAX + 5000, ODD = LARGE / 3 };

static uint32_t large_tokens(uint64_t document)
{
    return 1 + (uint32_t)(document % 7);
}

enum oddity { NOTHING_ODD, OUTSIDE, NEGATIVE, TWO_SEQUENCES, ODDITIES };

/* Document ODD has the oddity; with TWO_SEQUENCES the one after it has none. */
static void put_large(enum oddity oddity)
{
    enum { FIRST = 34 + 12 * LARGE, BYTES = FIRST + 8 * (LARGE + 1) };
    uint8_t *index = calloc(1, BYTES);
    assert_non_null(index);
    memcpy(index, "MMIDIDX\0\0\1\0\0\0\0\0\0\0\x08", 18);
    rp_store_u64(index + 18, LARGE);
    rp_store_u64(index + 26, LARGE + 1);
    uint64_t end = 0;
    for (uint64_t d = 0; d < LARGE; d++) {
        rp_store_u32(index + 34 + 4 * d, large_tokens(d));
        rp_store_u64(index + 34 + 4ul * LARGE + 8 * d, end);
        rp_store_u64(index + FIRST + 8 * d, d);
        end += 2 * large_tokens(d);
    }
    rp_store_u64(index + FIRST + 8ul * LARGE, LARGE);
    if (oddity == OUTSIDE)
        rp_store_u64(index + 34 + 4ul * LARGE + 8 * ODD, end);
    if (oddity == NEGATIVE)
        rp_store_u32(index + 34 + 4 * ODD, UINT32_MAX);
    if (oddity == TWO_SEQUENCES)
        rp_store_u64(index + FIRST + 8 * (ODD + 1), ODD + 2);
    put_file("large.idx", index, BYTES);
    put_file("large.bin", "", 0);
    assert_int_equal(truncate("large.bin", (off_t)end), 0);
    free(index);
}

static uint64_t odd_tokens(enum oddity oddity, uint64_t document)
{
    if (oddity == TWO_SEQUENCES && document == ODD)
        return large_tokens(ODD) + large_tokens(ODD + 1);
    if (oddity == TWO_SEQUENCES && document == ODD + 1)
        return 0;
    bool is_bad = (oddity == OUTSIDE || oddity == NEGATIVE) && document == ODD;
    return is_bad ? UINT64_MAX : large_tokens(document);
}

static void check_lengths(const struct rp_opened *opened, enum oddity oddity, uint64_t step)
{
    for (uint64_t d = ODD % step; d < LARGE; d += d >= ODD && d < ODD + 3 ? 1 : step) {
        uint64_t expected = odd_tokens(oddity, d), tokens = UINT64_MAX, offset;
        rp_documents_prefetch(opened->segment, d);
        assert_int_equal(rp_documents_length(opened->segment, d), expected);
        rp_shard_locate(opened, d, &tokens, &offset);
        assert_int_equal(tokens, expected);
    }
}

/* Lengths are the same whatever is known, and nothing odd is ever taken for plain. */
static void test_a_check_ahead_changes_no_length(void **state)
{
    (void)state;
    const struct rp_source_spec hints = {.name = "s", .eos = -1};
    const struct rp_open_options options = {.find = {.hints = &hints}};
    for (enum oddity oddity = NOTHING_ODD; oddity < ODDITIES; oddity++) {
        struct rp_opened opened;
        struct rp_error error;
        put_large(oddity);
        assert_int_equal(rp_shard_open(&opened, "large", 0, &options, &error), 0);
        assert_false(rp_documents_is_plain(opened.segment, 0));
        for (int i = 0; i < 2000; i++) {
            if (i % 100 == 0)
                check_lengths(&opened, oddity, 4099);
            rp_documents_check_ahead(opened.segment, LARGE - 1);
        }
        check_lengths(&opened, oddity, 1);
        assert_true(rp_documents_is_plain(opened.segment, ODD - 1));
        assert_int_equal(rp_documents_is_plain(opened.segment, ODD), oddity == NOTHING_ODD);
        assert_int_equal(rp_documents_is_plain(opened.segment, LARGE - 1), oddity == NOTHING_ODD);
        assert_false(rp_documents_is_plain(opened.segment, LARGE));
        rp_shard_close(&opened);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    struct rp_corpus *corpus;
    struct rp_error error;
    const int32_t lengths[] = {1};
    put_megatron("d", 8, 2, lengths, 1);
    assert_int_equal(open_one(&corpus, "d", RP_FORMAT_AUTO, RP_TOKEN_I32, -1, &error),
                     -RP_E_FORMAT);
    assert_says(&error, "declared i32|found u16");
    put_file("d.idx", "TNTIDX\0\0\1\0\0\0\0\0\0\0", 16);
    assert_int_equal(open_one(&corpus, "d.bin", RP_FORMAT_AUTO, RP_TOKEN_NONE, -1, &error),
                     -RP_E_FORMAT);
    assert_says(&error, "TNTIDX");
    put_file("d.idx", "something else entirely, longer than a header is", 48);
    assert_int_equal(open_one(&corpus, "d.idx", RP_FORMAT_AUTO, RP_TOKEN_NONE, -1, &error),
                     -RP_E_FORMAT);
    assert_int_equal(unlink("d.idx"), 0);
    assert_true(open_one(&corpus, "d", RP_FORMAT_MEGATRON, RP_TOKEN_NONE, -1, &error) < 0);
    assert_says(&error, "d.idx");
    assert_true(open_one(&corpus, "nothing", RP_FORMAT_AUTO, RP_TOKEN_NONE, -1, &error) < 0);
    assert_says(&error, "nothing");

    put_megatron("d", 8, 2, lengths, 0);
    assert_int_equal(open_one(&corpus, "d", RP_FORMAT_AUTO, RP_TOKEN_NONE, -1, &error),
                     -RP_E_EMPTY);
    const int32_t zeros[] = {0, 0};
    put_megatron("d", 8, 2, zeros, 2);
    put_file("d.bin", "\0", 1);
    assert_int_equal(open_one(&corpus, "d", RP_FORMAT_AUTO, RP_TOKEN_NONE, -1, &error),
                     -RP_E_EMPTY);
    assert_says(&error, "2 documents with 0 tokens");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_dtype),
        cmocka_unit_test(test_documents_of_several_sequences),
        cmocka_unit_test(test_hostile_indexes),
        cmocka_unit_test(test_any_document_of_a_run),
        cmocka_unit_test(test_two_sequences_in_a_run),
        cmocka_unit_test(test_every_truncation_of_an_index),
        cmocka_unit_test(test_every_bit_of_an_index),
        cmocka_unit_test(test_truncated_bin),
        cmocka_unit_test(test_an_index_without_documents),
        cmocka_unit_test(test_a_large_index_is_checked_when_used),
        cmocka_unit_test(test_a_check_ahead_changes_no_length),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, scratch_enter, scratch_leave);
}
