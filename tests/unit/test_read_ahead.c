/* SPDX-License-Identifier: Apache-2.0 */
/* A flow's requests to the kernel to read into the page cache, besides its own reads. */
#include "flow_kit.h"

#include <pthread.h>

#include "flow/flow_struct.h"
#include "flow/residency.h"

static const struct kit_source sources[] = {{"large", 5, 8, 2500}, {"small", 8, 2, 300}};
#define DOCUMENT_TOKENS 300u

/* A page cache that holds all or no pages, in memory that packer processes share. */
static struct {
    struct rp_a64 holds_all;
    struct rp_a64 calls, asked_bytes; /* calls of read_ahead */
    struct rp_a64 calls_behind;       /* past the first stretch, among these */
    struct rp_a64 bad_calls;          /* empty or beyond the end of the file, among these */
    struct rp_a64 looks;              /* at the second stretch of the large file */
    uint64_t available;
} * cache;

static enum rp_page_cache_way find_way(const struct rp_page_cache_file *file)
{
    (void)file;
    return RP_PAGE_CACHE_COUNTED;
}

static uint64_t missing(const struct rp_page_cache_file *file, uint64_t first, uint64_t bytes)
{
    (void)file;
    rp_a64_add_relaxed(&cache->looks, first > 0);
    return rp_a64_load_relaxed(&cache->holds_all) ? 0 : bytes;
}

/* Also in packer processes, where no assertion may fail. */
static void read_ahead(const struct rp_page_cache_file *file, uint64_t first, uint64_t bytes)
{
    rp_a64_add_relaxed(&cache->calls, 1);
    rp_a64_add_relaxed(&cache->asked_bytes, bytes);
    rp_a64_add_relaxed(&cache->calls_behind, first >= RP_STRETCH_BYTES);
    rp_a64_add_relaxed(&cache->bad_calls, bytes == 0 || first + bytes > file->bytes);
}

static void settle(const struct rp_page_cache_file *file, uint64_t first, uint64_t bytes)
{
    (void)file, (void)first, (void)bytes;
}

static uint64_t available(void)
{
    return cache->available;
}

static const struct rp_page_cache page_cache = {find_way, missing, read_ahead, settle, available};

static void begin(uint64_t memory, bool holds_all)
{
    memset(cache, 0, sizeof *cache);
    cache->available = memory;
    rp_a64_store_relaxed(&cache->holds_all, holds_all);
}

static struct rp_flow_options options_of_flow(void)
{
    struct rp_flow_options options = small_flow(&rp_io_method_pread);
    options.adapts = options.may_buffer = options.may_direct = true;
    options.prefetch_bytes = 8 << 20;
    options.page_cache = &page_cache;
    return options;
}

/* ---- pages that are lost --------------------------------------------------------------------- */

struct flipper {
    struct rp_residency *residency;
    struct rp_a32 stop;
};

/* Transfers are planned while the words of their stretches say `mapped`, and packed while these say
 * something else, or not: the test writes the words, and no watcher. */
static void *flip(void *argument)
{
    struct flipper *flipper = argument;
    struct rp_residency *r = flipper->residency;
    enum rp_read_mode way = RP_READ_DIRECT;
    while (!rp_a32_load_acquire(&flipper->stop)) {
        way = way == RP_READ_DIRECT ? RP_READ_MAPPED : RP_READ_DIRECT;
        for (uint32_t i = 0; i < r->file_count; i++) {
            bool is_open = rp_a32_load_acquire(&r->files[i].is_open);
            for (uint32_t s = 0; is_open && s < r->files[i].stretch_count; s++)
                rp_a32_store_relaxed(&r->files[i].stretches[s].mode, way);
        }
        usleep(100);
    }
    return NULL;
}

static void run_while_pages_are_lost(bool processes, bool verify)
{
    const struct rp_plan_config config = small_plan();
    struct kit kit;
    kit_open(&kit, sources, 2, &config);
    struct rp_flow_options options = options_of_flow();
    options.mapped = true;
    options.packer_processes = processes;
    options.verify_blocks = verify;
    begin(0, false);
    struct stream s;
    stream_open(&s, &kit, &options, RP_DTYPE_I64, 0, 1);
    stream_start(&s);
    struct flipper flipper = {.residency = &s.flow->files.residency};
    rp_residency_stop(flipper.residency);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, flip, &flipper), 0);
    run_to_end(&s);
    rp_a32_store_release(&flipper.stop, 1);
    pthread_join(thread, NULL);
    check_all_came(&s);
    stream_close(&s);
    kit_close(&kit);
}

static void packers_ask_for_what_was_lost_since_it_was_planned(void **state)
{
    (void)state;
    for (int run = 0; run < 4; run++) {
        bool processes = run / 2 && processes_work();
        run_while_pages_are_lost(processes, run % 2);
        uint64_t calls = rp_a64_load_relaxed(&cache->calls);
        uint64_t bytes = rp_a64_load_relaxed(&cache->asked_bytes);
        assert_true(calls > 0 && rp_a64_load_relaxed(&cache->calls_behind) > 0);
        assert_int_equal(rp_a64_load_relaxed(&cache->bad_calls), 0);
        assert_true(bytes <= calls * (DOCUMENT_TOKENS * 8 + 2 * RP_BLOCK_BYTES));
    }
}

static void what_stays_mapped_is_not_asked_for(void **state)
{
    (void)state;
    const struct rp_plan_config config = small_plan();
    struct kit kit;
    kit_open(&kit, sources, 2, &config);
    struct rp_flow_options options = options_of_flow();
    options.mapped = true;
    begin(0, true);
    struct stream s;
    stream_open(&s, &kit, &options, RP_DTYPE_I64, 0, 1);
    stream_start(&s);
    run_to_end(&s);
    check_all_came(&s);
    struct rp_flow_counts counts;
    rp_flow_counts(s.flow, &counts);
    assert_true(counts.taken_bytes > 0 && counts.buffered_bytes + counts.direct_bytes == 0);
    assert_int_equal(rp_a64_load_relaxed(&cache->calls), 0);
    stream_close(&s);
    kit_close(&kit);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* The watcher has checked the file twice, or 120 ms have passed: a calm one does not check while no
 * ticket is taken. */
static void wait_for_looks(void)
{
    uint64_t until = rp_a64_load_relaxed(&cache->looks) + 2;
    for (int i = 0; i < 120 && rp_a64_load_relaxed(&cache->looks) < until; i++)
        usleep(1000);
}

/* Memory has room for one of the stretches, and reads go past the page cache. */
static uint64_t read_ahead_with(enum rp_shuffle shuffle, uint32_t block_documents, uint64_t epochs)
{
    struct rp_error error;
    struct rp_plan_config config = small_plan();
    config.shuffle = shuffle;
    config.block_documents = block_documents;
    config.window_blocks = 1;
    config.num_epochs = epochs;
    struct kit kit;
    kit_open(&kit, sources, 2, &config);
    struct rp_flow_options options = options_of_flow();
    begin((RP_STRETCH_BYTES + 4096) / 3 * 4, false);
    assert_true(rp_corpus_file_bytes(kit.corpus) > RP_STRETCH_BYTES + 4096);
    struct stream s;
    stream_open(&s, &kit, &options, RP_DTYPE_I64, 0, 1);
    stream_start(&s);
    for (int i = 0; i < 4; i++) {
        int code = stream_run(&s, 20, &error);
        assert_true(code == RP_FLOW_WORKED || code == RP_FLOW_IDLE);
        wait_for_looks();
    }
    run_to_end(&s);
    check_all_came(&s);
    struct rp_flow_counts counts;
    rp_flow_counts(s.flow, &counts);
    assert_true(counts.direct_bytes > 0 && rp_a64_load_relaxed(&cache->looks) > 2);
    stream_close(&s);
    kit_close(&kit);
    return rp_a64_load_relaxed(&cache->calls);
}

static void blocks_are_read_in_where_later_epochs_make_up_for_it(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        enum rp_shuffle shuffle = i ? RP_SHUFFLE_BLOCK : RP_SHUFFLE_NONE;
        assert_int_equal(read_ahead_with(shuffle, 20, 1), 0);
        assert_int_equal(read_ahead_with(shuffle, 20, 2), 0);
        assert_true(read_ahead_with(shuffle, 20, 3) > 0);
    }
}

/* Also for blocks that take more than an eighth of the prefetch ring. */
static void single_documents_are_read_in_in_any_epoch(void **state)
{
    (void)state;
    assert_true(read_ahead_with(RP_SHUFFLE_DOCUMENT, 0, 1) > 0);
    assert_true(read_ahead_with(RP_SHUFFLE_BLOCK, 1500, 1) > 0);
}

static int write_corpus(void **state)
{
    int code = kit_enter(state);
    cache = rp_take_shared_pages(sizeof *cache);
    for (uint32_t i = 0; i < 2 && code == 0; i++)
        kit_write(&sources[i], i, DOCUMENT_TOKENS, 3 + i);
    return cache ? code : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packers_ask_for_what_was_lost_since_it_was_planned),
        cmocka_unit_test(what_stays_mapped_is_not_asked_for),
        cmocka_unit_test(blocks_are_read_in_where_later_epochs_make_up_for_it),
        cmocka_unit_test(single_documents_are_read_in_in_any_epoch),
    };
    return cmocka_run_group_tests(tests, write_corpus, scratch_leave);
}
