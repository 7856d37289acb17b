/* SPDX-License-Identifier: Apache-2.0 */
/* Every system call and every allocation of opening, indexing and inspecting a corpus fails: it is
 * refused with a message, no file stays open and no half of an index is left behind. */
#include "system_faults.h"

#include "corpus_files.h"

#include <glob.h>

#include "base/bits.h"
#include "corpus/index/index.h"

#define EOS 9

static const char *path;  /* the meant shard's */
static enum rp_format as; /* its declaration */
static uint64_t told;     /* by the report of progress */

static struct rp_source_spec hints(void)
{
    return as == RP_FORMAT_RAW ? declared(as, RP_TOKEN_U16, EOS)
                               : declared(RP_FORMAT_AUTO, RP_TOKEN_NONE, -1);
}

static int open_it(struct rp_error *error)
{
    struct rp_source_spec spec = hints();
    struct rp_corpus *corpus;
    int code = open_one(&corpus, path, spec.format, spec.type, spec.eos, error);
    if (code == 0) {
        const struct rp_source *source = rp_corpus_source(corpus, 0);
        uint64_t tokens = 0;
        for (uint64_t d = 0; d < rp_source_documents(source); d++)
            tokens += rp_source_length(source, d);
        assert_true(tokens > 0 && tokens <= rp_source_tokens(source));
        rp_corpus_close(corpus);
    }
    return code;
}

static void tell(void *context, uint64_t done, uint64_t total)
{
    (void)context;
    assert_true(done <= total);
    told = done;
}

/* At most one index, under its name, and it is whole. */
static void check_directory(const char *pattern)
{
    glob_t found;
    if (glob(pattern, 0, NULL, &found) != 0)
        return;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        struct rp_index *index;
        struct rp_index_record record;
        struct rp_error error;
        assert_true(strcmp(found.gl_pathv[i] + strlen(found.gl_pathv[i]) - 4, ".rpi") == 0);
        if (rp_sidecar_open(&index, &record, found.gl_pathv[i], path, &error) < 0)
            fail_msg("%s", error.message);
        rp_index_close(index);
    }
    globfree(&found);
}

static const struct rp_progress telling = {tell, NULL};

static int index_it(struct rp_error *error)
{
    struct rp_source_spec spec = hints();
    int code = rp_sidecar_build(
        path, &(struct rp_sidecar_build_options){.hints = &spec, .progress = &telling}, error);
    assert_true(code < 0 || told > 0);
    bool armed = system_orders.armed;
    pid_t process = memory_orders ? memory_orders->process : 0;
    system_orders.armed = false;
    if (memory_orders)
        memory_orders->process = 0;
    check_directory("*.rpi*");
    system_orders.armed = armed;
    if (memory_orders)
        memory_orders->process = process;
    return code;
}

static int index_elsewhere(struct rp_error *error)
{
    struct rp_source_spec spec = hints();
    return rp_sidecar_build(
        path, &(struct rp_sidecar_build_options){.hints = &spec, .index_dir = "index/deep"}, error);
}

static int inspect_it(struct rp_error *error)
{
    struct rp_source_spec spec = hints();
    const struct rp_inspect_options options = {
        .hints = &spec, .scan_tokens = true, .progress = &telling};
    struct rp_inspection inspection;
    int code = rp_inspect(path, &options, &inspection, error);
    if (code == 0) {
        assert_int_equal(inspection.token_max, 250);
        assert_int_equal(inspection.damaged_documents, 0);
        assert_true(inspection.length_min <= inspection.length_max);
    }
    return code;
}

static void check_all(int (*operate)(struct rp_error *error))
{
    static const int numbers[] = {EIO, ENOENT, EACCES, EMFILE};
    for (size_t i = 0; i < RP_ARRAY_COUNT(numbers); i++) {
        every_call(operate, numbers[i], 1);
        every_call(operate, numbers[i], UINT32_MAX);
    }
    every_call(operate, EINTR, 1);
    every_allocation(operate, false);
    every_allocation(operate, true);
}

static void put_shards(void)
{
    static uint16_t tokens[5000];
    const int32_t lengths[] = {300, 0, 51};
    for (size_t i = 0; i < RP_ARRAY_COUNT(tokens); i++)
        tokens[i] = (uint16_t)(i % 251);
    put_file("s.bin", tokens, sizeof tokens);
    put_megatron("m", 8, 2, lengths, 3);
    (void)unlink("s.bin.rpi");
    (void)unlink("m.bin.rpi");
}

static void for_both(int (*operate)(struct rp_error *error))
{
    path = "s.bin", as = RP_FORMAT_RAW;
    check_all(operate);
    path = "m", as = RP_FORMAT_MEGATRON;
    check_all(operate);
}

static void test_opening_without_an_index(void **state)
{
    (void)state;
    put_shards();
    for_both(open_it);
}

static void test_inspecting(void **state)
{
    (void)state;
    put_shards();
    for_both(inspect_it);
}

static void test_indexing(void **state)
{
    (void)state;
    put_shards();
    for_both(index_it);
    for_both(index_elsewhere);
}

static void test_opening_with_an_index(void **state)
{
    (void)state;
    put_shards();
    struct rp_error error;
    path = "s.bin", as = RP_FORMAT_RAW;
    assert_int_equal(index_it(&error), 0);
    path = "m", as = RP_FORMAT_MEGATRON;
    assert_int_equal(index_it(&error), 0);
    for_both(open_it);
    for_both(inspect_it);
}

/* A shard without one good document, and one that is not there. */
static void test_inspecting_what_is_damaged(void **state)
{
    (void)state;
    struct rp_inspection inspection;
    struct rp_error error;
    put_shards();
    assert_int_equal(rp_inspect("nothing.bin", NULL, &inspection, &error), -ENOENT);
    assert_says(&error, "nothing.bin");
    const int32_t lengths[] = {2};
    put_megatron("m", 8, 2, lengths, 1);
    assert_int_equal(rp_inspect("m", NULL, &inspection, &error), 0);
    assert_int_equal(inspection.length_min, 2);
    assert_int_equal(inspection.length_max, 2);
    assert_true(inspection.token_max == UINT64_MAX); /* not looked for */
}

static void test_a_source_needs_shards_and_no_name(void **state)
{
    (void)state;
    struct rp_error error = {0};
    struct rp_corpus *corpus;
    const char *shards[] = {"m"};
    struct rp_source_spec source = {.weight = 1, .shards = shards, .shard_count = 1, .eos = -1};
    struct rp_corpus_spec spec = {.sources = &source, .source_count = 1};
    put_shards();
    assert_int_equal(rp_corpus_open(&corpus, &spec, &error), 0);
    rp_corpus_close(corpus);
    source.shard_count = 0;
    assert_true(rp_corpus_open(&corpus, &spec, &error) < 0);
    assert_true(error.message[0] != '\0');
    source.name = "named";
    assert_true(rp_corpus_open(&corpus, &spec, &error) < 0);
    spec.source_count = 0;
    assert_true(rp_corpus_open(&corpus, &spec, &error) < 0);
}

static void test_names_are_read_as_they_are_written(void **state)
{
    (void)state;
    for (unsigned i = RP_FORMAT_AUTO; strcmp(rp_format_name((enum rp_format)i), "unknown"); i++) {
        enum rp_format format = (enum rp_format)99;
        assert_true(rp_format_parse(rp_format_name((enum rp_format)i), &format));
        assert_int_equal(format, i);
    }
    static const struct {
        const char *name;
        unsigned width, bits;
    } types[] = {{"u8", 1, 8},   {"u16", 2, 16}, {"i16", 2, 15},
                 {"i32", 4, 31}, {"u32", 4, 32}, {"i64", 8, 63}};
    for (size_t i = 0; i < RP_ARRAY_COUNT(types); i++) {
        enum rp_token_type type = RP_TOKEN_NONE;
        assert_true(rp_token_type_parse(types[i].name, &type));
        assert_int_equal(rp_token_width(type), types[i].width);
        assert_int_equal(rp_token_bits(type), types[i].bits);
        assert_string_equal(rp_token_type_name(type), types[i].name);
    }
    enum rp_token_type type = RP_TOKEN_U8;
    enum rp_format format = RP_FORMAT_NPY;
    static const char *const strangers[] = {"", "none", "U16", "u16 ", "f32", "parquet"};
    for (size_t i = 0; i < RP_ARRAY_COUNT(strangers); i++) {
        assert_false(rp_token_type_parse(strangers[i], &type));
        assert_false(rp_format_parse(strangers[i], &format));
    }
    assert_int_equal(type, RP_TOKEN_U8); /* left as they were */
    assert_int_equal(format, RP_FORMAT_NPY);
    assert_string_equal(rp_token_type_name((enum rp_token_type)77), "unknown");
    assert_string_equal(rp_format_name((enum rp_format)77), "unknown");
    assert_int_equal(rp_token_width((enum rp_token_type)77), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_opening_without_an_index),
        cmocka_unit_test(test_inspecting),
        cmocka_unit_test(test_indexing),
        cmocka_unit_test(test_opening_with_an_index),
        cmocka_unit_test(test_inspecting_what_is_damaged),
        cmocka_unit_test(test_a_source_needs_shards_and_no_name),
        cmocka_unit_test(test_names_are_read_as_they_are_written),
    };
    return run_with_faults("corpus_faults", tests, scratch_enter, scratch_leave);
}
