/* SPDX-License-Identifier: Apache-2.0 */
/* Arrow, in files that pyarrow wrote (tests/fuzz/make_corpus.py): their documents; every bit flip
 * and every truncation; false offsets. python/test_arrow.py has the other forms. */
#include "corpus_files.h"

#include "base/bits.h"
#include "corpus/readers.h"

#define SEEDS RP_SOURCE_DIR "/tests/fuzz/corpus/arrow/"

/* Their tokens are 1, 2, 3, … from the first document to the last. */
static const struct seed {
    const char *name;
    enum rp_token_type type;
    uint64_t documents, tokens;
} seeds[] = {
    {"stream", RP_TOKEN_I32, 5, 9},  {"file", RP_TOKEN_I32, 5, 9},
    {"legacy", RP_TOKEN_I32, 5, 9},  {"large-list", RP_TOKEN_U16, 5, 9},
    {"null-row", RP_TOKEN_U8, 3, 4}, {"fixed-size-list", RP_TOKEN_I64, 3, 9},
    {"padded", RP_TOKEN_I32, 3, 6},  {"other-columns", RP_TOKEN_I32, 5, 9},
};

static uint8_t image[1 << 16];

/* The first byte of a seed is the fuzz target's own. */
static size_t load(const char *name)
{
    static uint8_t seed[sizeof image];
    char path[512];
    snprintf(path, sizeof path, SEEDS "%s", name);
    size_t count = get_file(path, seed, sizeof seed);
    assert_true(count > 1);
    memcpy(image, seed + 1, count - 1);
    return count - 1;
}

static int open_image(struct rp_corpus **corpus, size_t count, struct rp_error *error)
{
    put_file("a.arrow", image, count);
    return open_one(corpus, "a.arrow", RP_FORMAT_ARROW, RP_TOKEN_NONE, -1, error);
}

/* Every document inside the file, and in a stream none before the end of the last. */
static void assert_inside(const struct rp_corpus *corpus, size_t count, bool is_stream)
{
    const struct rp_source *source = rp_corpus_source(corpus, 0);
    uint64_t end = 0;
    for (uint64_t d = 0; d < rp_source_documents(source); d++) {
        struct rp_extent extent;
        struct rp_error error;
        assert_int_equal(rp_source_extent(source, d, &extent, &error), 0);
        assert_true(extent.byte_offset + extent.tokens * extent.width <= count);
        if (extent.tokens == 0)
            continue;
        assert_true(!is_stream || extent.byte_offset >= end);
        end = extent.byte_offset + extent.tokens * extent.width;
    }
}

static void documents_of_every_form(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++) {
        struct rp_corpus *corpus;
        struct rp_error error;
        assert_int_equal(open_image(&corpus, load(seeds[i].name), &error), 0);
        const struct rp_source *source = rp_corpus_source(corpus, 0);
        uint64_t next = 1;
        assert_int_equal(rp_corpus_shard(corpus, 0)->type, seeds[i].type);
        assert_int_equal(rp_source_documents(source), seeds[i].documents);
        assert_int_equal(rp_source_tokens(source), seeds[i].tokens);
        for (uint64_t d = 0; d < seeds[i].documents; d++) {
            struct rp_extent extent;
            assert_int_equal(rp_source_extent(source, d, &extent, &error), 0);
            assert_int_equal(rp_source_length(source, d), extent.tokens);
            for (uint64_t t = 0; t < extent.tokens; t++) {
                uint64_t token = 0;
                memcpy(&token, image + extent.byte_offset + t * extent.width, extent.width);
                assert_int_equal(token, next++);
            }
        }
        assert_int_equal(next, seeds[i].tokens + 1);
        rp_corpus_close(corpus);
    }
}

static void nulls_among_tokens_are_refused(void **state)
{
    (void)state;
    struct rp_corpus *corpus;
    struct rp_error error;
    assert_int_equal(open_image(&corpus, load("null-token"), &error), -RP_E_FORMAT);
    assert_says(&error, "a.arrow|1 nulls among the tokens");
}

/* A file that has just been written is opened a moment later (base/file.h), so that damaged copies
 * are written many at a time and then opened. */
#define COPIES 512u

static const char *name_of(size_t i)
{
    static char name[32];
    snprintf(name, sizeof name, "a%zu.arrow", i % COPIES);
    return name;
}

/* Is a damaged file refused by name, or are all its documents in it? */
static bool is_refused(const char *path, size_t count, bool is_stream)
{
    struct rp_corpus *corpus;
    struct rp_error error;
    if (open_one(&corpus, path, RP_FORMAT_ARROW, RP_TOKEN_NONE, -1, &error) < 0) {
        if (!strstr(error.message, "with 0 tokens")) /* in all shards of the source */
            assert_says(&error, path);
        return true;
    }
    assert_inside(corpus, count, is_stream);
    rp_corpus_close(corpus);
    return false;
}

/* A flip is refused, or changes a part that is no place: a name, a token, padding. Seeds with
 * little of their own: only one bit of each byte. */
static void every_bit(void **state)
{
    (void)state;
    unsigned refused = 0, tried = 0;
    for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++) {
        size_t count = load(seeds[i].name), step = i < 1 ? 1 : 9, done = 0;
        for (size_t bit = 0; bit < 8 * count; bit += step) {
            image[bit / 8] ^= (uint8_t)(1u << bit % 8);
            put_file(name_of(bit / step), image, count);
            image[bit / 8] ^= (uint8_t)(1u << bit % 8);
            bool is_last = bit + step >= 8 * count;
            if (bit / step % COPIES != COPIES - 1 && !is_last)
                continue;
            for (; done <= bit / step; done++, tried++)
                refused += is_refused(name_of(done), count, i != 1);
        }
    }
    assert_true(refused > tried / 5 && refused < tried);
}

static void every_truncation(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++) {
        size_t count = load(seeds[i].name);
        for (size_t first = 1; first < count; first += COPIES) {
            size_t end = rp_min_u64(count, first + COPIES);
            for (size_t cut = first; cut < end; cut++)
                put_file(name_of(cut), image, cut);
            for (size_t cut = first; cut < end; cut++)
                assert_true(is_refused(name_of(cut), cut, i != 1));
        }
    }
}

/* The last row of the first batch: its end moves past the batch's values, but not out of the file.
 */
static void offsets_that_lie_are_refused(void **state)
{
    (void)state;
    static const uint32_t offsets[] = {0, 3, 4, 4}, lies[] = {0, 3, 4, 16}, back[] = {0, 3, 2, 4};
    struct rp_corpus *corpus;
    struct rp_error error;
    size_t count = load("stream");
    uint8_t *place = memmem(image, count, offsets, sizeof offsets);
    assert_non_null(place);
    memcpy(place, lies, sizeof lies);
    assert_int_equal(open_image(&corpus, count, &error), -RP_E_CORRUPT);
    assert_says(&error, "a.arrow|row 2");
    memcpy(place, back, sizeof back);
    assert_int_equal(open_image(&corpus, count, &error), -RP_E_CORRUPT);
    assert_says(&error, "a.arrow|row 1");
}

static int keep(void *context, uint64_t byte, uint32_t tokens, const struct rp_span *spans,
                size_t span_count, struct rp_error *error)
{
    (void)byte, (void)tokens, (void)spans, (void)span_count, (void)error;
    ++*(unsigned *)context;
    return 0;
}

/* Documents that a reader emits are compared with the file, whatever the reader has checked. */
static void a_sink_takes_no_document_outside_its_file(void **state)
{
    (void)state;
    unsigned kept = 0;
    struct rp_error error;
    const struct rp_layout layout = {.type = RP_TOKEN_I32, .eos = RP_EOS_NONE};
    const struct rp_reader_options options = {.eos = RP_EOS_NONE};
    struct rp_sink sink = {.path = "f", .file_bytes = 1003, .keep = keep, .context = &kept};
    assert_int_equal(rp_sink_begin(&sink, &layout, &options, &error), 0);
    assert_int_equal(rp_sink_document(&sink, 3, 250, NULL, 0, &error), 0); /* at any byte */
    assert_int_equal(rp_sink_document(&sink, 1003, 0, NULL, 0, &error), 0);
    static const uint64_t outside[][2] = {
        {4, 250}, {1004, 0}, {0, 251}, {UINT64_MAX, 1}, {0, UINT64_MAX}, {8, UINT64_MAX / 4 + 1}};
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
        assert_int_equal(rp_sink_document(&sink, outside[i][0], outside[i][1], NULL, 0, &error),
                         -RP_E_CORRUPT);
        assert_says(&error, "f: document 2|1003");
    }
    assert_int_equal(kept, 2);
    sink.file_bytes = UINT64_MAX;
    assert_int_equal(rp_sink_document(&sink, 0, (uint64_t)UINT32_MAX + 1, NULL, 0, &error),
                     -RP_E_FORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_of_every_form),
        cmocka_unit_test(nulls_among_tokens_are_refused),
        cmocka_unit_test(every_bit),
        cmocka_unit_test(every_truncation),
        cmocka_unit_test(offsets_that_lie_are_refused),
        cmocka_unit_test(a_sink_takes_no_document_outside_its_file),
    };
    return cmocka_run_group_tests(tests, scratch_enter, scratch_leave);
}
