/* SPDX-License-Identifier: Apache-2.0 */
/* Shards of MDS and chunks of litData, made byte by byte: their documents; every bit flip and every
 * truncation; false offsets. python/test_mds.py and python/test_litdata.py have the other forms. */
#include "corpus_files.h"

#include "base/bits.h"

#define HEAD                                                                                       \
    "{\"column_encodings\": [%s], \"column_names\": [%s], \"column_sizes\": [%s], "                \
    "\"format\": \"mds\", \"version\": 2}"
#define DOCUMENTS 4u
#define TOKENS 8u

/* Their tokens are 1, 2, 3, … from the first document to the last. */
static const uint8_t lengths[DOCUMENTS] = {3, 0, 1, 4};

static struct image image;

static void add_tokens(unsigned first, unsigned count)
{
    for (unsigned t = 0; t < count; t++)
        add_u16(&image, (uint16_t)(first + t));
}

/* The forms of a sample. */
static void add_bare(unsigned first, unsigned count)
{
    add_u32(&image, 2 * count);
    add_tokens(first, count);
}

static void add_array(unsigned first, unsigned count)
{
    add_u32(&image, 3 + 2 * count);
    add_u8(&image, 16), add_u8(&image, 1 << 2), add_u8(&image, (uint8_t)count);
    add_tokens(first, count);
}

static void add_two_columns(unsigned first, unsigned count)
{
    add_u32(&image, 2), add_u32(&image, 3 + 2 * count);
    add_bytes(&image, "hi", 2);
    add_u8(&image, 1 << 2 | 1), add_u16(&image, (uint16_t)count);
    add_tokens(first, count);
    add_bytes(&image, "12345678", 8);
}

static const struct form {
    const char *encodings, *names, *sizes;
    void (*add)(unsigned first, unsigned count);
    enum rp_token_type declared;
    enum rp_format format;
} forms[] = {
    {"\"bytes\"", "\"tokens\"", "null", add_bare, RP_TOKEN_U16, RP_FORMAT_MDS},
    {"\"ndarray\"", "\"ids\"", "null", add_array, RP_TOKEN_NONE, RP_FORMAT_MDS},
    {"\"str\", \"ndarray:uint16\", \"int\"", "\"a\", \"input_ids\", \"n\"", "null, null, 8",
     add_two_columns, RP_TOKEN_NONE, RP_FORMAT_MDS},
};
#define FORMS (sizeof forms / sizeof forms[0])

static void make(const struct form *form)
{
    char text[512];
    int bytes = snprintf(text, sizeof text, HEAD, form->encodings, form->names, form->sizes);
    uint32_t ends[DOCUMENTS + 1] = {0};
    image.count = 4 + sizeof ends;
    add_bytes(&image, text, (size_t)bytes);
    ends[0] = (uint32_t)image.count;
    for (unsigned d = 0, first = 1; d < DOCUMENTS; first += lengths[d++]) {
        form->add(first, lengths[d]);
        ends[d + 1] = (uint32_t)image.count;
    }
    const uint32_t count = DOCUMENTS;
    memcpy(image.bytes, &count, sizeof count);
    memcpy(image.bytes + 4, ends, sizeof ends);
}

static int open_form(struct rp_corpus **corpus, const char *path, const struct form *form,
                     struct rp_error *error)
{
    return open_one(corpus, path, form->format, form->declared, -1, error);
}

static void documents_of_every_form(void **state)
{
    (void)state;
    for (size_t i = 0; i < FORMS; i++) {
        struct rp_corpus *corpus;
        struct rp_error error;
        make(&forms[i]);
        put_file("a.mds", image.bytes, image.count);
        assert_int_equal(open_form(&corpus, "a.mds", &forms[i], &error), 0);
        const struct rp_source *source = rp_corpus_source(corpus, 0);
        uint64_t next = 1;
        assert_int_equal(rp_corpus_shard(corpus, 0)->type, RP_TOKEN_U16);
        assert_int_equal(rp_source_documents(source), DOCUMENTS);
        for (uint64_t d = 0; d < DOCUMENTS; d++) {
            struct rp_extent extent;
            assert_int_equal(rp_source_extent(source, d, &extent, &error), 0);
            assert_int_equal(extent.tokens, lengths[d]);
            for (uint64_t t = 0; t < extent.tokens; t++)
                assert_int_equal(rp_load_u16(image.bytes + extent.byte_offset + 2 * t), next++);
        }
        assert_int_equal(next, TOKENS + 1);
        rp_corpus_close(corpus);
    }
}

/* A file that has just been written is opened a moment later (base/file.h), so that damaged copies
 * are written many at a time and then opened. */
#define COPIES 512u

static const char *name_of(size_t i)
{
    static char name[32];
    snprintf(name, sizeof name, "a%zu.mds", i % COPIES);
    return name;
}

/* Is a damaged file refused by a name that begins with `name`, or are its documents in it, none
 * before the end of the last? */
static bool is_refused(const char *path, const char *name, const struct form *form, size_t count)
{
    struct rp_corpus *corpus;
    struct rp_error error;
    uint64_t end = 0;
    if (open_form(&corpus, path, form, &error) < 0) {
        if (!strstr(error.message, "with 0 tokens")) /* in all shards of the source */
            assert_says(&error, name);
        return true;
    }
    const struct rp_source *source = rp_corpus_source(corpus, 0);
    for (uint64_t d = 0; d < rp_source_documents(source); d++) {
        struct rp_extent extent;
        assert_int_equal(rp_source_extent(source, d, &extent, &error), 0);
        assert_true(extent.byte_offset >= end);
        end = extent.byte_offset + extent.tokens * extent.width;
        assert_true(end <= count);
    }
    rp_corpus_close(corpus);
    return false;
}

static void every_bit(void **state)
{
    (void)state;
    for (size_t i = 0; i < FORMS; i++) {
        unsigned refused = 0;
        make(&forms[i]);
        for (size_t first = 0; first < 8 * image.count; first += COPIES) {
            size_t end = rp_min_u64(8 * image.count, first + COPIES);
            for (size_t bit = first; bit < end; bit++) {
                image.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
                put_file(name_of(bit), image.bytes, image.count);
                image.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
            }
            for (size_t bit = first; bit < end; bit++)
                refused += is_refused(name_of(bit), name_of(bit), &forms[i], image.count);
        }
        assert_true(refused > 4 * image.count && refused < 8 * image.count);
    }
}

static void every_truncation(void **state)
{
    (void)state;
    for (size_t i = 0; i < FORMS; i++) {
        make(&forms[i]);
        assert_true(image.count <= COPIES);
        for (size_t cut = 1; cut < image.count; cut++)
            put_file(name_of(cut), image.bytes, cut);
        for (size_t cut = 1; cut < image.count; cut++)
            assert_true(is_refused(name_of(cut), name_of(cut), &forms[i], cut));
    }
}

static void offsets_that_lie_are_refused(void **state)
{
    (void)state;
    struct rp_corpus *corpus;
    struct rp_error error;
    for (unsigned sample = 0; sample < DOCUMENTS; sample++)
        for (unsigned lie = 0; lie < 3; lie++) {
            char words[32];
            make(&forms[0]);
            uint8_t *place = image.bytes + 4 + 4 * (sample + 1);
            uint32_t lies[] = {rp_load_u32(place - 4) - 1, (uint32_t)image.count + 1, UINT32_MAX};
            memcpy(place, &lies[lie], 4);
            snprintf(words, sizeof words, "a.mds|end of sample %u", sample);
            put_file("a.mds", image.bytes, image.count);
            assert_int_equal(open_form(&corpus, "a.mds", &forms[0], &error), -RP_E_CORRUPT);
            assert_says(&error, words);
        }
    make(&forms[0]);
    add_u16(&image, 7); /* after the last sample */
    put_file("a.mds", image.bytes, image.count);
    assert_int_equal(open_form(&corpus, "a.mds", &forms[0], &error), -RP_E_CORRUPT);
    assert_says(&error, "a.mds|end of sample 3");
}

/* ---- litData --------------------------------------------------------------------------------- */

static const struct form litdata = {.format = RP_FORMAT_LITDATA};
static char index_text[] =
    "{\"chunks\": [{\"dim\": 8, \"filename\": \"chunk-0-0.bin\"}], "
    "\"config\": {\"compression\": null, \"data_format\": [\"no_header_tensor:20\"], "
    "\"item_loader\": \"TokensLoader\"}}";
#define INDEX_BYTES (sizeof index_text - 1)

static void make_chunk(void)
{
    uint32_t end = 4 * (DOCUMENTS + 2);
    image.count = 0;
    add_u32(&image, DOCUMENTS), add_u32(&image, end);
    for (unsigned d = 0; d < DOCUMENTS; d++)
        add_u32(&image, end += 2 * lengths[d]);
    add_tokens(1, TOKENS);
}

/* A folder with a chunk and its index.json. */
static void put_chunk(size_t number, size_t chunk_bytes, size_t index_bytes)
{
    char name[64];
    snprintf(name, sizeof name, "d%zu", number % COPIES);
    (void)mkdir(name, 0700);
    snprintf(name, sizeof name, "d%zu/chunk-0-0.bin", number % COPIES);
    put_file(name, image.bytes, chunk_bytes);
    snprintf(name, sizeof name, "d%zu/index.json", number % COPIES);
    put_file(name, index_text, index_bytes);
}

static bool is_chunk_refused(size_t number)
{
    char folder[32], path[64];
    snprintf(folder, sizeof folder, "d%zu", number % COPIES);
    snprintf(path, sizeof path, "%s/chunk-0-0.bin", folder);
    return is_refused(path, folder, &litdata, image.count);
}

static void every_bit_of_litdata(void **state)
{
    (void)state;
    unsigned refused = 0;
    make_chunk();
    size_t bits = 8 * (image.count + INDEX_BYTES);
    for (size_t first = 0; first < bits; first += COPIES) {
        size_t end = rp_min_u64(bits, first + COPIES);
        for (size_t bit = first; bit < end; bit++) {
            size_t byte = bit / 8;
            uint8_t *place = byte < image.count ? &image.bytes[byte]
                                                : (uint8_t *)&index_text[byte - image.count];
            *place ^= (uint8_t)(1u << bit % 8);
            put_chunk(bit, image.count, INDEX_BYTES);
            *place ^= (uint8_t)(1u << bit % 8);
        }
        for (size_t bit = first; bit < end; bit++)
            refused += is_chunk_refused(bit);
    }
    assert_true(refused > bits / 4 && refused < bits);
}

static void every_truncation_of_litdata(void **state)
{
    (void)state;
    make_chunk();
    put_chunk(0, image.count, INDEX_BYTES);
    assert_false(is_chunk_refused(0));
    for (size_t cut = 1; cut < image.count; cut++)
        put_chunk(cut, cut, INDEX_BYTES);
    for (size_t cut = 1; cut < image.count; cut++)
        assert_true(is_chunk_refused(cut));
    for (size_t cut = 0; cut + 1 < INDEX_BYTES; cut++) /* the last brace is not read */
        put_chunk(cut, image.count, cut);
    for (size_t cut = 0; cut + 1 < INDEX_BYTES; cut++)
        assert_true(is_chunk_refused(cut));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_of_every_form), cmocka_unit_test(every_bit),
        cmocka_unit_test(every_truncation),        cmocka_unit_test(offsets_that_lie_are_refused),
        cmocka_unit_test(every_bit_of_litdata),    cmocka_unit_test(every_truncation_of_litdata),
    };
    return cmocka_run_group_tests(tests, scratch_enter, scratch_leave);
}
