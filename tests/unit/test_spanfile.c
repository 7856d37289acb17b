/* SPDX-License-Identifier: Apache-2.0 */
/* A file of spans: it is read as it was written and gets into the sidecar; every bit flip, every
 * truncation and every false claim about a document is noticed. */
#include "corpus_files.h"

#include "corpus/index/index.h"
#include "corpus/spanfile.h"

static const int32_t lengths[] = {6, 1, 0, 9};
static const struct rp_span spans[] = {{1, 2}, {4, 6}, {3, 9}};
static const uint32_t counts[] = {2, 0, 0, 1};
#define DOCUMENTS 4
#define FILE_BYTES (96 + 4 * DOCUMENTS + 8 * 3)

static void put_spans(const struct rp_span *own)
{
    struct rp_error error;
    struct rp_spanfile_writer writer;
    const struct rp_mask_origin origin = {"skip", {.ignores = true}};
    assert_int_equal(rp_spanfile_begin(&writer, "m.spans", &origin, &error), 0);
    for (size_t d = 0; d < DOCUMENTS; own += counts[d++])
        assert_int_equal(rp_spanfile_add(&writer, own, counts[d], &error), 0);
    assert_int_equal(rp_spanfile_finish(&writer, &error), 0);
    assert_int_equal(rp_new_file_publish(&writer.file, &error), 0);
    rp_spanfile_discard(&writer);
}

static int read_all(struct rp_error *error)
{
    struct rp_spanfile file;
    const struct rp_span *own, *expected = spans;
    uint32_t count;
    int code = rp_spanfile_open(&file, "m.spans", error);
    for (size_t d = 0; d < DOCUMENTS && code >= 0; d++) {
        code = rp_spanfile_next(&file, (uint64_t)lengths[d], &own, &count, error);
        if (code < 0)
            break;
        for (uint32_t i = 0; i < count && count == counts[d]; i++, expected++)
            code = own[i].begin == expected->begin && own[i].end == expected->end ? code : 1;
    }
    code = code < 0 ? code : rp_spanfile_end(&file, error);
    rp_spanfile_close(&file);
    return code;
}

static void put_shard(void)
{
    put_megatron("m", 8, 2, lengths, DOCUMENTS);
}

static void what_is_written_is_indexed(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_index *index;
    struct rp_index_record record;
    put_shard();
    put_spans(spans);
    assert_int_equal(read_all(&error), 0);
    assert_int_equal(rp_sidecar_build("m.bin", NULL, &error), 0);
    assert_int_equal(rp_sidecar_open(&index, &record, "m.bin.rpi", "m.bin", &error), 0);
    const struct rp_table *table = &index->segments[0].table;
    assert_string_equal(record.mask.name, "skip");
    assert_true(record.mask.rule.ignores);
    assert_int_equal(table->spans.count, 3);
    assert_memory_equal(table->spans.table, spans, sizeof spans);
    static const uint64_t ends[] = {0, 2, 2, 2, 3};
    assert_memory_equal(table->spans.ends, ends, sizeof ends);
    rp_index_close(index);
}

static void every_bit_and_every_truncation_is_noticed(void **state)
{
    (void)state;
    static uint8_t bytes[512];
    struct rp_error error;
    put_spans(spans);
    assert_int_equal(get_file("m.spans", bytes, sizeof bytes), FILE_BYTES);
    for (size_t bit = 0; bit < 8 * FILE_BYTES; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        put_file("m.spans", bytes, FILE_BYTES);
        if (read_all(&error) >= 0)
            fail_msg("bit %zu of byte %zu is not checked", bit % 8, bit / 8);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (size_t cut = 0; cut < FILE_BYTES; cut++) {
        put_file("m.spans", bytes, cut);
        assert_true(read_all(&error) < 0);
        assert_says(&error, "m.spans|convert again");
    }
    bytes[FILE_BYTES] = 0;
    put_file("m.spans", bytes, FILE_BYTES + 1);
    assert_true(read_all(&error) < 0);
}

static void spans_that_break_the_rules_are_refused(void **state)
{
    (void)state;
    static const struct rp_span lies[][3] = {
        {{0, 2}, {4, 6}, {3, 9}}, {{1, 2}, {2, 6}, {3, 9}}, {{1, 2}, {4, 7}, {3, 9}},
        {{1, 1}, {4, 6}, {3, 9}}, {{4, 6}, {1, 2}, {3, 9}}, {{1, 2}, {4, 6}, {3, UINT32_MAX}},
    };
    struct rp_error error;
    put_shard();
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        put_spans(lies[i]);
        assert_int_equal(read_all(&error), -RP_E_CORRUPT);
        assert_int_equal(rp_sidecar_build("m.bin", NULL, &error), -RP_E_CORRUPT);
    }
}

static void another_number_of_documents_is_refused(void **state)
{
    (void)state;
    static const int32_t more[] = {6, 1, 0, 9, 0};
    struct rp_error error;
    put_spans(spans);
    for (size_t count = 3; count <= 5; count += 2) {
        put_megatron("m", 8, 2, more, count);
        assert_int_equal(rp_sidecar_build("m.bin", NULL, &error), -RP_E_CORRUPT);
        assert_says(&error, "m.spans|documents");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_indexed),
        cmocka_unit_test(every_bit_and_every_truncation_is_noticed),
        cmocka_unit_test(spans_that_break_the_rules_are_refused),
        cmocka_unit_test(another_number_of_documents_is_refused),
    };
    return cmocka_run_group_tests(tests, scratch_enter, scratch_leave);
}
