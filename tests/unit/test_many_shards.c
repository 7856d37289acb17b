/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of a corpus grows with its shards and no faster: twice as many shards take twice the
 * system calls and twice the allocations, to open and to close; and small indexes take no
 * mappings. */
#include "system_faults.h"

#include "corpus_files.h"

#include "base/available.h"
#include "base/file.h"
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

/* System calls of opening and of closing that number of shards. */
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
    assert_int_equal(rp_corpus_data_count(corpus), shards);
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

#define LARGE_SHARDS 40u
#define MAPS_MAX 100000u

static void open_large(uint64_t limit)
{
    const char *paths[LARGE_SHARDS];
    for (uint32_t i = 0; i < LARGE_SHARDS; i++)
        paths[i] = "large";
    struct rp_source_spec source = declared(RP_FORMAT_AUTO, RP_TOKEN_NONE, -1);
    source.shards = paths;
    source.shard_count = LARGE_SHARDS;
    struct rp_corpus_spec spec = {.sources = &source, .source_count = 1};
    struct rp_corpus *corpus;
    struct rp_error error;
    assert_int_equal(rp_corpus_open(&corpus, &spec, &error), -RP_E_RESOURCE);
    char found[64];
    snprintf(found, sizeof found, "found %llu", (unsigned long long)limit);
    assert_non_null(strstr(error.message, found));
    assert_non_null(strstr(error.message, "10 of 40 shards are open: "));
    assert_non_null(strstr(error.message, "vm.max_map_count"));
    assert_non_null(strstr(error.hint, "sysctl -w vm.max_map_count="));
}

/* The message has the number that all shards need, not only the next one. */
static void too_few_mappings_are_told_by_number(void **unused)
{
    (void)unused;
    enum { DOCUMENTS = 3000 };
    static struct image index;
    static int32_t lengths[DOCUMENTS];
    static int64_t pointers[DOCUMENTS], first[DOCUMENTS + 1];
    static uint16_t tokens[DOCUMENTS];
    uint64_t limit, count = 0;
    if (!rp_read_number("/proc/sys/vm/max_map_count", "", &limit) || limit > MAPS_MAX)
        skip();
    for (int d = 0; d < DOCUMENTS; d++) {
        lengths[d] = 1;
        pointers[d] = 2 * d;
        first[d + 1] = d + 1;
    }
    add_megatron_index(&index, 8, lengths, pointers, DOCUMENTS, first, DOCUMENTS);
    put_file("large.idx", index.bytes, index.count);
    put_file("large.bin", tokens, sizeof tokens);
    struct rp_map *maps = calloc(MAPS_MAX, sizeof *maps);
    assert_non_null(maps);
    struct rp_error error;
    while (rp_mapped_check_room(11, &error) == 0)
        assert_int_equal(rp_map_open(&maps[count++], "large.idx", &error), 0);
    open_large(limit);
    for (uint64_t i = 0; i < count; i++)
        rp_map_close(&maps[i]);
    free(maps);
    assert_int_equal(rp_mapped_count(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(megatron_shards, scratch_enter, NULL),
        cmocka_unit_test(too_few_mappings_are_told_by_number),
        cmocka_unit_test_setup_teardown(raw_shards, NULL, scratch_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
