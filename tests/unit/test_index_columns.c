/* SPDX-License-Identifier: Apache-2.0 */
/* Columns of an index: values of documents that are appended and read again, and refusals. */
#include <errno.h>

#include "index_kit.h"

static void open_index(struct rp_index **index)
{
    struct rp_error error = {0};
    const struct rp_index_open_options options = {.path = INDEX};
    if (rp_index_open(index, &options, &error) < 0)
        fail_msg("%s", error.message);
}

/* Two columns of one segment and one of another, written one by one; each append keeps the others.
 */
static void test_columns(void **state)
{
    (void)state;
    struct rp_error error = {0};
    struct rp_index *index;
    put_shards();
    unlink(INDEX);
    make(1);
    struct rp_fingerprint prefix = prefix_of_source();
    open_index(&index);
    uint64_t documents = index->segments[0].shape.table.documents;
    rp_index_close(index);
    double scores[64];
    uint64_t stages[64];
    for (uint64_t d = 0; d < documents; d++) {
        scores[d] = 0.5 + (double)d;
        stages[d] = d % 7;
    }
    assert_int_equal(append_column(0, "score", RP_INDEX_COLUMN_F64, scores, &error), 0);
    assert_int_equal(make(SHARDS).outcome, RP_INDEXED_APPENDED);
    assert_int_equal(append_column(0, "stage", RP_INDEX_COLUMN_U8, stages, &error), 0);
    assert_int_equal(append_column(1, "stage", RP_INDEX_COLUMN_U8, stages, &error), 0);
    open_index(&index);
    assert_int_equal(index->generation, 5);
    const struct rp_index_segment *first = &index->segments[0], *second = &index->segments[1];
    const struct rp_index_column *score = rp_index_find_column(index, first, "score");
    const struct rp_index_column *stage = rp_index_find_column(index, first, "stage");
    assert_non_null(score);
    assert_non_null(stage);
    assert_non_null(rp_index_find_column(index, second, "stage"));
    assert_null(rp_index_find_column(index, second, "score"));
    assert_int_equal(score->type, RP_INDEX_COLUMN_F64);
    assert_int_equal(score->values, documents);
    for (uint64_t d = 0; d < documents; d++) {
        double value;
        memcpy(&value, rp_index_value(score, d), sizeof value);
        assert_true(value == 0.5 + (double)d);
        assert_int_equal(*(const uint8_t *)rp_index_value(stage, d), d % 7);
    }
    assert_true(rp_hash128_equal(first->prefix.full, prefix.full)); /* columns change none */
    rp_index_close(index);
    struct rp_corpus *made, *opened;
    assert_int_equal(open_corpus_with(&made, INDEX, &error), 0);
    assert_int_equal(open_corpus_with(&opened, NULL, &error), 0);
    assert_int_equal(compare(made, opened, &error), 0);
    rp_corpus_close(made);
    rp_corpus_close(opened);
}

static void test_bad_columns_are_refused(void **state)
{
    (void)state;
    static uint8_t bytes[1 << 16];
    static const uint64_t values[4096];
    struct rp_error error = {0};
    struct rp_corpus *corpus;
    put_shards();
    unlink(INDEX);
    make(SHARDS);
    const char *long_name = "a name of 48 bytes, which is one more than there may be";
    const struct {
        uint32_t segment;
        const char *name;
        enum rp_index_column_type type;
    } bad[] = {{1, "a", RP_INDEX_COLUMN_U8},
               {0, "", RP_INDEX_COLUMN_U8},
               {0, long_name, RP_INDEX_COLUMN_U8},
               {0, "a", RP_INDEX_COLUMN_TYPE_COUNT}};
    for (size_t i = 0; i < RP_ARRAY_COUNT(bad); i++)
        assert_int_equal(append_column(bad[i].segment, bad[i].name, bad[i].type, values, &error),
                         -RP_E_USAGE);
    assert_int_equal(append_column(0, "a", RP_INDEX_COLUMN_I64, values, &error), 0);
    /* every bit of its data, its hashes and the head: the slot says where the head is */
    size_t count = get_file(INDEX, bytes, sizeof bytes);
    const uint8_t *entry = bytes + rp_load_u64(bytes + 64 + 8) + 128 + 2 * 128;
    for (size_t at = (size_t)rp_load_u64(entry + 8); at < count; at++) {
        bytes[at] ^= (uint8_t)(1u << at % 8);
        put_file(INDEX, bytes, count);
        if (open_corpus_with(&corpus, INDEX, &error) == 0)
            fail_msg("byte %zu is not checked", at);
        bytes[at] ^= (uint8_t)(1u << at % 8);
    }
}

/* A second writer is refused, and leaves the empty folder of the first one in its place. */
static void test_a_refused_writer_leaves_the_folder(void **state)
{
    (void)state;
    struct rp_error error = {0};
    char *work, *other;
    int fd, other_fd;
    assert_int_equal(rp_index_work_open(INDEX, &work, &fd, &error), 0);
    assert_int_equal(rp_index_work_open(INDEX, &other, &other_fd, &error), -EWOULDBLOCK);
    rp_index_work_close(other, other_fd);
    assert_int_equal(access(work, F_OK), 0);
    rp_index_work_close(work, fd);
    assert_int_not_equal(access(INDEX ".work", F_OK), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_columns),
        cmocka_unit_test(test_bad_columns_are_refused),
        cmocka_unit_test(test_a_refused_writer_leaves_the_folder),
    };
    return cmocka_run_group_tests(tests, scratch_enter, scratch_leave);
}
