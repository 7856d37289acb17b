/* SPDX-License-Identifier: Apache-2.0 */
/* Columns of a source: values of each type, of documents in several segments and of a range; a
 * segment without the column, a damaged page; the selection of a source over them. */
#include "index_kit.h"

#include "selector.h"

#define DOCUMENTS_MAX 128u

static uint64_t words[DOCUMENTS_MAX];

static struct rp_corpus *open_ranged(const char *range)
{
    static const char *const patterns[] = {"*.bin"};
    struct rp_source_spec source = declared(RP_FORMAT_RAW, RP_TOKEN_U16, EOS);
    source.name = "all";
    source.shards = patterns;
    source.shard_count = 1;
    source.documents = range;
    const struct rp_corpus_spec spec = {.sources = &source, .source_count = 1, .index = INDEX};
    struct rp_corpus *corpus;
    struct rp_error error = {0};
    if (rp_corpus_open(&corpus, &spec, &error) < 0)
        fail_msg("%s", error.message);
    return corpus;
}

static struct rp_column *find(const struct rp_corpus *corpus, const char *name)
{
    struct rp_error error = {0};
    struct rp_column *column;
    if (rp_column_open(&column, rp_corpus_source(corpus, 0), name, &error) < 0)
        fail_msg("%s", error.message);
    return column;
}

static uint64_t word_of_real(double real)
{
    uint64_t word;
    memcpy(&word, &real, sizeof word);
    return word;
}

/* The value of a document, as its type holds it. */
static uint64_t value_of(enum rp_index_column_type type, uint64_t document)
{
    switch (type) {
    case RP_INDEX_COLUMN_F32:
    case RP_INDEX_COLUMN_F64:
        return word_of_real(0.5 * (double)document - 3);
    case RP_INDEX_COLUMN_I8:
    case RP_INDEX_COLUMN_I16:
    case RP_INDEX_COLUMN_I32:
    case RP_INDEX_COLUMN_I64:
        return document - 5;
    default:
        return document * 2;
    }
}

/* Append a column for a segment. Returns the documents up to its end. */
static uint64_t add_column(uint32_t segment, const char *name, enum rp_index_column_type type)
{
    struct rp_error error = {0};
    struct rp_index *index;
    const struct rp_index_open_options options = {.path = INDEX};
    assert_int_equal(rp_index_open(&index, &options, &error), 0);
    uint64_t first = 0, documents = index->segments[segment].shape.table.documents;
    for (uint32_t g = 0; g < segment; g++)
        first += index->segments[g].shape.table.documents;
    rp_index_close(index);
    for (uint64_t d = 0; d < documents; d++)
        words[d] = value_of(type, first + d);
    if (append_column(segment, name, type, words, &error) < 0)
        fail_msg("%s", error.message);
    return first + documents;
}

static void check_values(const struct rp_corpus *corpus, const char *name,
                         enum rp_index_column_type type, uint64_t first)
{
    static uint64_t documents[DOCUMENTS_MAX], found[DOCUMENTS_MAX];
    struct rp_error error = {0};
    struct rp_column *column = find(corpus, name);
    uint64_t count = rp_source_documents(rp_corpus_source(corpus, 0));
    assert_string_equal(rp_column_type(column), rp_index_column_type_name(type));
    /* more than a batch: 0, 7, 14, … modulo their number */
    for (uint64_t d = 0; d < DOCUMENTS_MAX; d++)
        documents[d] = d * 7 % count;
    assert_int_equal(rp_column_values(column, documents, DOCUMENTS_MAX, found, &error), 0);
    for (uint64_t d = 0; d < DOCUMENTS_MAX; d++)
        assert_true(found[d] == value_of(type, first + documents[d]));
    rp_column_close(column);
}

static void values_of_each_type_are_read_again(void **state)
{
    (void)state;
    put_shards();
    unlink(INDEX);
    make(1);
    make(SHARDS);
    for (unsigned type = 1; type < RP_INDEX_COLUMN_TYPE_COUNT; type++)
        for (uint32_t segment = 0; segment < 2; segment++)
            add_column(segment, rp_index_column_type_name(type), (enum rp_index_column_type)type);
    struct rp_corpus *corpus = open_ranged(NULL), *part = open_ranged("3-20");
    for (unsigned type = 1; type < RP_INDEX_COLUMN_TYPE_COUNT; type++) {
        const char *name = rp_index_column_type_name(type);
        check_values(corpus, name, (enum rp_index_column_type)type, 0);
        check_values(part, name, (enum rp_index_column_type)type, 3);
    }
    rp_corpus_close(corpus);
    rp_corpus_close(part);
}

static void refuse(const struct rp_corpus *corpus, const char *name, const char *expected,
                   const char *hint)
{
    struct rp_error error = {0};
    struct rp_column *column;
    assert_int_equal(rp_column_open(&column, rp_corpus_source(corpus, 0), name, &error),
                     -RP_E_CONFIG);
    assert_null(column);
    if (!strstr(error.message, expected) || !strstr(error.hint, hint))
        fail_msg("%s\n%s", error.message, error.hint);
}

/* New documents have no value, so a selection by the column is refused, unless they are not in the
 * range. */
static void a_segment_without_the_column_is_refused(void **state)
{
    (void)state;
    char expected[64];
    struct rp_error error = {0};
    struct rp_corpus *opened;
    put_shards();
    unlink(INDEX);
    make(1);
    uint64_t first = add_column(0, "score", RP_INDEX_COLUMN_F32);
    assert_int_equal(make(SHARDS).outcome, RP_INDEXED_APPENDED);
    struct rp_corpus *corpus = open_ranged(NULL);
    snprintf(expected, sizeof expected, "not for documents %u to", (unsigned)first);
    refuse(corpus, "score", expected, "ringpack annotate -c CONFIG --source all --column score=");
    refuse(corpus, "scores", "no column `scores`", "did you mean `score`?");
    refuse(corpus, "quality_of_text", "no column", "ringpack annotate");
    struct rp_corpus *part = open_ranged("0-5");
    struct rp_column *column = find(part, "score");
    uint64_t before;
    struct rp_hash128 root;
    assert_true(rp_column_root(column, 0, &before, &root));
    assert_int_equal(before, 0);
    assert_false(rp_column_root(column, 1, &before, &root));
    rp_column_close(column);
    rp_corpus_close(part);
    rp_corpus_close(corpus);
    add_column(1, "score", RP_INDEX_COLUMN_I8);
    corpus = open_ranged(NULL);
    refuse(corpus, "score", "expected one type, found f32, and i8", "--replace");
    rp_corpus_close(corpus);
    add_column(1, "score", RP_INDEX_COLUMN_F32); /* in the place of the other */
    corpus = open_ranged(NULL);
    check_values(corpus, "score", RP_INDEX_COLUMN_F32, 0);
    rp_corpus_close(corpus);
    assert_int_equal(open_corpus_with(&opened, NULL, &error), 0);
    refuse(opened, "score", "the source has none", "index: NAME.rpi");
    rp_corpus_close(opened);
}

/* A large index is mapped, and its pages are compared when they are used. */
static void a_damaged_page_is_found_where_it_is_used(void **state)
{
    (void)state;
    static uint8_t bytes[1 << 20];
    static uint16_t tokens[20000];
    static uint64_t values[20000];
    struct rp_error error = {0};
    struct rp_corpus *corpus;
    for (size_t t = 0; t < RP_ARRAY_COUNT(tokens); t++)
        tokens[t] = t % 2 ? EOS : 1;
    put_shards();
    put_file(paths[0], tokens, sizeof tokens);
    unlink(INDEX);
    make(1);
    for (size_t d = 0; d < RP_ARRAY_COUNT(values); d++)
        values[d] = d;
    assert_int_equal(append_column(0, "a", RP_INDEX_COLUMN_U64, values, &error), 0);
    size_t count = get_file(INDEX, bytes, sizeof bytes);
    const uint8_t *entry = bytes + rp_load_u64(bytes + 64 + 8) + 128 + 2 * 128;
    bytes[rp_load_u64(entry + 8) + 4096 + 5] ^= 1; /* document 512 */
    put_file(INDEX, bytes, count);
    corpus = open_ranged(NULL);
    struct rp_column *column = find(corpus, "a");
    uint64_t documents[] = {9999, 511, 0, 1024}, found[4], of_page = 600;
    assert_int_equal(rp_column_values(column, documents, 4, found, &error), 0);
    assert_memory_equal(found, documents, sizeof found);
    assert_int_equal(rp_column_values(column, &of_page, 1, found, &error), -RP_E_CORRUPT);
    assert_non_null(strstr(error.message, "document 600"));
    assert_non_null(strstr(error.message, "column `a`"));
    rp_column_close(column);
    struct rp_selector *selection;
    uint8_t counts[2];
    const struct rp_selector_spec spec = {.select = "a < 3", .group = 1};
    assert_int_equal(rp_selector_open(&selection, rp_corpus_source(corpus, 0), &spec, &error), 0);
    assert_int_equal(
        rp_selection_counts(rp_selector_selection(selection), &of_page, 1, counts, &error),
        -RP_E_CORRUPT);
    rp_selector_close(selection);
    rp_corpus_close(corpus);
}

static void a_source_is_selected_by_its_columns(void **state)
{
    (void)state;
    struct rp_error error = {0};
    struct rp_selector *selection;
    const struct rp_selection_repeat repeats[] = {{3, "shard == 1 and length > 2"}};
    const struct rp_selector_spec spec = {.select = "score >= 18.5 and document != 30",
                                          .repeats = repeats,
                                          .repeat_count = 1,
                                          .group = 1},
                                  misspelt = {.select = "scor >= 1", .group = 1};
    uint64_t documents[17], hash, other;
    uint8_t counts[17];
    put_shards();
    unlink(INDEX);
    make(1);
    make(SHARDS);
    add_column(0, "score", RP_INDEX_COLUMN_I16);
    add_column(1, "score", RP_INDEX_COLUMN_I16);
    struct rp_corpus *corpus = open_ranged("20-37");
    const struct rp_source *source = rp_corpus_source(corpus, 0);
    if (rp_selector_open(&selection, source, &spec, &error) < 0)
        fail_msg("%s", error.message);
    for (uint64_t d = 0; d < 17; d++)
        documents[d] = d;
    const struct rp_selection *made = rp_selector_selection(selection);
    assert_int_equal(rp_selection_passes(made), 3);
    assert_int_equal(rp_selection_counts(made, documents, 17, counts, &error), 0);
    for (uint64_t d = 0; d < 17; d++) {
        uint64_t row, length = rp_source_length(source, d);
        bool is_second = strstr(rp_source_provenance(source, d, &row), "b.bin") != NULL;
        bool is_chosen = 20 + d >= 24 && 20 + d != 30; /* the score is the document less 5 */
        assert_int_equal(counts[d], is_chosen ? (is_second && length > 2 ? 3 : 1) : 0);
    }
    /* the roots of both segments are in it; another range of one segment has another hash */
    assert_int_equal(rp_selection_hash(made, 17, NULL, &hash, &error), 0);
    assert_int_equal(rp_selection_hash(made, 5, NULL, &other, &error), 0);
    assert_true(hash != 0 && other != 0 && hash != other);
    rp_selector_close(selection);
    assert_int_equal(rp_selector_open(&selection, source, &misspelt, &error), -RP_E_CONFIG);
    assert_non_null(strstr(error.message, "source `all`: select"));
    rp_corpus_close(corpus);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_of_each_type_are_read_again),
        cmocka_unit_test(a_segment_without_the_column_is_refused),
        cmocka_unit_test(a_damaged_page_is_found_where_it_is_used),
        cmocka_unit_test(a_source_is_selected_by_its_columns),
    };
    return cmocka_run_group_tests(tests, scratch_enter, scratch_leave);
}
