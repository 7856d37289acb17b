/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of a corpus grows with its shards and no faster: twice as many shards take twice the
 * system calls and twice the allocations, to open and to close; and small indexes take no
 * mappings. */
#include "system_faults.h"

#include "corpus_files.h"

#include "base/mapped.h"

#define SHARDS 1000u
#define SPARE 64u /* calls that do not depend on the number of shards */

static char (*names)[32];

static void make_shards(enum rp_format format)
{
    static const int32_t lengths[] = {3, 5, 2};
    static const uint16_t tokens[] = {4, 5, 9, 1, 2, 3, 9};
    names = calloc(2 * SHARDS, sizeof *names);
    assert_non_null(names);
    put_megatron("first", 8, 2, lengths, 3);
    put_file("first.raw", tokens, sizeof tokens);
    for (uint32_t i = 0; i < 2 * SHARDS; i++) {
        char path[40];
        const char *type = format == RP_FORMAT_RAW ? "raw" : "bin";
        snprintf(names[i], sizeof *names, "s%05u.%s", i, type);
        snprintf(path, sizeof path, "first.%s", type);
        assert_int_equal(link(path, names[i]), 0);
        snprintf(path, sizeof path, "s%05u.idx", i);
        assert_true(format == RP_FORMAT_RAW || link("first.idx", path) == 0);
    }
}

/* System calls of opening and of closing so many shards. */
static void count_calls(enum rp_format format, uint32_t shards, unsigned *open_calls,
                        unsigned *close_calls)
{
    const char **paths = calloc(shards, sizeof *paths);
    assert_non_null(paths);
    for (uint32_t i = 0; i < shards; i++)
        paths[i] = names[i];
    struct rp_source_spec source = declared(format, format ? RP_TOKEN_U16 : RP_TOKEN_NONE,
                                            format ? 9 : -1);
    source.shards = paths;
    source.shard_count = shards;
    struct rp_corpus_spec spec = {.sources = &source, .source_count = 1};
    struct rp_corpus *corpus;
    struct rp_error error;
    system_spoil(NULL, UINT32_MAX, 0, EIO);
    int code = rp_corpus_open(&corpus, &spec, &error);
    *open_calls = system_mend();
    if (code < 0)
        fail_msg("%s", error.message);
    assert_int_equal(rp_mapped_count(), 0);
    assert_int_equal(rp_corpus_shard_count(corpus), shards);
    system_spoil(NULL, UINT32_MAX, 0, EIO);
    rp_corpus_close(corpus);
    *close_calls = system_mend();
    free(paths);
}

static void check_growth(enum rp_format format)
{
    unsigned open_once, open_twice, close_once, close_twice;
    make_shards(format);
    count_calls(format, SHARDS, &open_once, &close_once);
    count_calls(format, 2 * SHARDS, &open_twice, &close_twice);
    printf("%s: %u calls open %u shards, %u open twice as many; %u and %u close them\n",
           rp_format_name(format), open_once, SHARDS, open_twice, close_once, close_twice);
    assert_true(open_once >= SHARDS && open_once <= 40 * SHARDS);
    assert_true(open_twice <= 2 * open_once + SPARE);
    assert_true(close_twice <= 2 * close_once + SPARE);
    free(names);
}

static void megatron_shards(void **unused)
{
    (void)unused;
    check_growth(RP_FORMAT_AUTO);
}

static void raw_shards(void **unused)
{
    (void)unused;
    check_growth(RP_FORMAT_RAW);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(megatron_shards, scratch_enter, NULL),
        cmocka_unit_test_setup_teardown(raw_shards, NULL, scratch_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
