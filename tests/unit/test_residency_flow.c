/* SPDX-License-Identifier: Apache-2.0 */
/* No row depends on how each stretch of a token file is read (residency.h), nor on when that
 * changes. */
#include "flow_kit.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>

#include "corpus/spanfile.h"
#include "flow/flow_struct.h"
#include "flow/residency.h"
#include "log_kit.h"

static const struct kit_source large[] = {{"large", 5, 8, 2500}, {"small", 8, 2, 300}};
static const struct kit_source masked[] = {{"masked", 5, 8, 500}, {"plain", 8, 2, 100}};
#define DOCUMENT_TOKENS 300u

static struct {
    struct rp_flow *flow;
    struct rp_a32 stop;
} flips;

/* The words change at any moment: each transfer finds another one. */
static void *flip(void *argument)
{
    uint64_t seed = *(const uint64_t *)argument;
    struct rp_residency *r = &flips.flow->files.residency;
    while (!rp_a32_load_acquire(&flips.stop))
        for (uint32_t i = 0; i < r->file_count; i++) {
            bool is_open = rp_a32_load_acquire(&r->files[i].is_open);
            for (uint32_t s = 0; is_open && s < r->files[i].stretch_count; s++)
                rp_a32_store_relaxed(&r->files[i].stretches[s].mode,
                                     (uint32_t)(io_fake_random(&seed) % 3));
        }
    return NULL;
}

static enum rp_page_cache_way whims_find_way(const struct rp_page_cache_file *file)
{
    (void)file;
    return RP_PAGE_CACHE_COUNTED;
}

static uint64_t whims_missing(const struct rp_page_cache_file *file, uint64_t first, uint64_t bytes)
{
    static struct rp_a64 calls;
    uint64_t seed = rp_a64_add_relaxed(&calls, 1) + file->bytes + first;
    return io_fake_random(&seed) % 2 * bytes;
}

static uint64_t whims_available(void)
{
    static struct rp_a64 calls;
    return rp_a64_add_relaxed(&calls, 1) % 2 << 40;
}

static void whims_nothing(const struct rp_page_cache_file *file, uint64_t first, uint64_t bytes)
{
    (void)file, (void)first, (void)bytes;
}

static const struct rp_page_cache whims = {whims_find_way, whims_missing, whims_nothing,
                                           whims_nothing, whims_available};

static void run_with_flips(struct stream *s, uint64_t seed)
{
    pthread_t flipper;
    flips.flow = s->flow;
    rp_a32_store_relaxed(&flips.stop, 0);
    assert_int_equal(s->flow->files.state, RP_FILES_ADAPT);
    stream_start(s);
    assert_int_equal(pthread_create(&flipper, NULL, flip, &seed), 0);
    run_to_end(s);
    rp_a32_store_release(&flips.stop, 1);
    pthread_join(flipper, NULL);
}

static void no_row_depends_on_the_way_it_is_read(void **state)
{
    (void)state;
    uint64_t mapped = 0, buffered = 0, direct = 0;
    for (uint64_t run = 0; run < 9; run++) {
        struct rp_plan_config config = small_plan();
        config.shuffle = (enum rp_shuffle)(run % 3);
        config.block_documents = 20;
        config.window_blocks = 2;
        struct kit kit;
        kit_open(&kit, large, 2, &config);
        struct rp_flow_options options = small_flow(&rp_io_method_pread);
        options.adapts = options.may_buffer = options.may_direct = true;
        options.mapped = run == 1;
        options.prefetch_bytes = 8 << 20;
        options.verify_blocks = run % 2;
        options.packers = options.readers = 1 + run % 2;
        options.packer_processes = run > 5 && processes_work();
        options.page_cache = run % 3 == 2 ? NULL : &whims;
        struct stream s;
        stream_open(&s, &kit, &options, RP_DTYPE_I64, 0, run);
        run_with_flips(&s, run);
        check_all_came(&s);
        struct rp_flow_counts counts;
        rp_flow_counts(s.flow, &counts);
        buffered += counts.buffered_bytes;
        direct += counts.direct_bytes;
        mapped += counts.taken_bytes - counts.buffered_bytes - counts.direct_bytes;
        stream_close(&s);
        kit_close(&kit);
    }
    assert_true(mapped > 0 && buffered > 0 && direct > 0);
}

static uint32_t asked; /* how often find_way was */

/* The kernel answers for the first file, and later for none. */
static enum rp_page_cache_way silent_find_way(const struct rp_page_cache_file *file)
{
    assert_non_null(file->map);
    return asked++ ? RP_PAGE_CACHE_SILENT : RP_PAGE_CACHE_COUNTED;
}

static enum rp_page_cache_way probed_find_way(const struct rp_page_cache_file *file)
{
    assert_non_null(file->map);
    return file->is_direct ? RP_PAGE_CACHE_SILENT : RP_PAGE_CACHE_PROBED;
}

static void run_direct(const struct rp_page_cache *page_cache, bool adapts)
{
    const struct rp_plan_config config = small_plan();
    struct kit kit;
    kit_open(&kit, large, 2, &config);
    struct rp_flow_options options = small_flow(&rp_io_method_pread);
    options.adapts = options.o_direct = options.may_direct = options.mapped = true;
    options.page_cache = page_cache;
    struct stream s;
    stream_open(&s, &kit, &options, RP_DTYPE_I64, 0, 1);
    assert_int_equal(s.flow->files.state == RP_FILES_ADAPT, adapts);
    stream_start(&s);
    run_to_end(&s);
    check_all_came(&s);
    struct rp_flow_counts counts;
    rp_flow_counts(s.flow, &counts);
    assert_true(counts.taken_bytes > 0);
    assert_int_equal(counts.taken_bytes, counts.buffered_bytes + counts.direct_bytes);
    stream_close(&s);
    kit_close(&kit);
}

static void direct_reads_stay_direct_where_nothing_is_known(void **state)
{
    (void)state;
    struct rp_page_cache page_cache = whims;
    page_cache.find_way = silent_find_way;
    asked = 0;
    run_direct(&page_cache, true);
    assert_true(asked > 1);
    page_cache.find_way = probed_find_way;
    run_direct(&page_cache, false);
}

/* A warning in the log names the fix. */
static void what_keeps_a_flow_from_adapting_is_logged_with_its_hint(void **state)
{
    (void)state;
    const struct rp_plan_config config = small_plan();
    struct rlimit limit;
    struct kit kit;
    struct stream s;
    kit_open(&kit, large, 2, &config);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    const struct rlimit few = {.rlim_cur = 1024, .rlim_max = limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    struct rp_flow_options options = small_flow(&rp_io_method_pread);
    options.adapts = options.may_buffer = true;
    options.other_descriptors = 1024 - 3; /* room for each file once, not twice */
    hear_log();
    stream_open(&s, &kit, &options, RP_DTYPE_I64, 0, 1);
    const char *heard = log_heard();
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_not_equal(s.flow->files.state, RP_FILES_ADAPT);
    assert_non_null(strstr(heard, "there are not two descriptors for each of 2 token files; "
                                  "raise the limit of open files (`ulimit -n`)"));
    stream_close(&s);
    kit_close(&kit);
}

/* Every third token of the masked source is trained. */
static bool every_third(const void *context, const struct rp_fragment *fragment, uint64_t i)
{
    (void)context;
    return fragment->source != 0 || (fragment->offset + i) % 3 == 1;
}

static void put_spans(const struct rp_corpus *corpus)
{
    struct rp_error error;
    struct rp_spanfile_writer writer;
    const struct rp_mask_origin origin = {"third", {0}};
    const struct rp_source *source = rp_corpus_source(corpus, 0);
    assert_int_equal(rp_spanfile_begin(&writer, "masked.spans", &origin, &error), 0);
    for (uint64_t d = 0; d < rp_source_documents(source); d++) {
        struct rp_span spans[DOCUMENT_TOKENS];
        uint64_t length = rp_source_length(source, d);
        uint32_t count = 0;
        for (uint32_t i = 1; i < length; i += 3)
            spans[count++] = (struct rp_span){i, i + 1};
        assert_int_equal(rp_spanfile_add(&writer, spans, count, &error), 0);
    }
    assert_int_equal(rp_spanfile_finish(&writer, &error), 0);
    assert_int_equal(rp_new_file_publish(&writer.file, &error), 0);
    rp_spanfile_discard(&writer);
}

static void write_masked(void)
{
    struct rp_error error;
    struct kit kit;
    const struct rp_plan_config config = small_plan();
    for (uint32_t i = 0; i < 2; i++)
        kit_write(&masked[i], i, DOCUMENT_TOKENS, 3 + i);
    kit_open(&kit, masked, 2, &config);
    put_spans(kit.corpus);
    kit_close(&kit);
    assert_int_equal(rp_sidecar_build("masked.bin", NULL, &error), 0);
}

/* With room for that number of spans, 0 = as much as usual. Returns how many bytes were taken. */
static uint64_t run_masked(uint64_t run, uint64_t spans)
{
    const struct rp_plan_config config = small_plan();
    struct kit kit;
    struct rp_flow_counts counts;
    kit_open(&kit, masked, 2, &config);
    assert_true(rp_source_has_mask(rp_corpus_source(kit.corpus, 0)));
    struct rp_flow_options options = small_flow(&rp_io_method_pread);
    options.adapts = options.may_buffer = options.may_direct = true;
    options.verify_blocks = run % 2;
    options.page_cache = &whims;
    struct stream s;
    stream_open(&s, &kit, &options, RP_DTYPE_I64, 0, run);
    if (spans)
        s.flow->dispatch.reads.masks.span_ring.bytes = spans * sizeof(struct rp_span);
    run_with_flips(&s, run);
    check_all_came(&s);
    rp_flow_counts(s.flow, &counts);
    stream_close(&s);
    kit_close(&kit);
    return counts.taken_bytes;
}

/* Spans have room for one transfer's, and hardly more: most transfers are tried again after a wait.
 * They are placed once all the same. */
static void what_is_tried_again_is_taken_once(void **state)
{
    (void)state;
    write_masked();
    kit_tokens.trained = every_third;
    for (uint64_t run = 0; run < 4; run++)
        assert_int_equal(run_masked(run, rp_spans_max(small_plan().seq_len)), run_masked(run, 0));
    kit_tokens.trained = NULL;
}

/* Pages that are not there at the start are read, and then mapped; lost ones are read again. */
static void the_kernel_forgets_in_the_middle(void **state)
{
    (void)state;
    struct rp_plan_config config = small_plan();
    config.num_epochs = 2;
    struct kit kit;
    kit_open(&kit, large, 2, &config);
    struct rp_flow_options options = small_flow(&rp_io_method_pread);
    options.adapts = options.may_buffer = options.may_direct = options.mapped = true;
    struct stream s;
    struct rp_error error;
    stream_open(&s, &kit, &options, RP_DTYPE_I64, 0, 1);
    stream_start(&s);
    int fd = open("large.bin", O_RDONLY | O_CLOEXEC);
    for (int i = 0; i < 5; i++) {
        int code = stream_run(&s, 50, &error);
        assert_true(code == RP_FLOW_WORKED || code == RP_FLOW_IDLE);
        assert_int_equal(fsync(fd) | posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    }
    close(fd);
    run_to_end(&s);
    check_all_came(&s);
    stream_close(&s);
    kit_close(&kit);
}

static int write_corpus(void **state)
{
    int code = kit_enter(state);
    for (uint32_t i = 0; i < 2 && code == 0; i++)
        kit_write(&large[i], i, DOCUMENT_TOKENS, 3 + i);
    return code;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_row_depends_on_the_way_it_is_read),
        cmocka_unit_test(direct_reads_stay_direct_where_nothing_is_known),
        cmocka_unit_test(what_keeps_a_flow_from_adapting_is_logged_with_its_hint),
        cmocka_unit_test(what_is_tried_again_is_taken_once),
        cmocka_unit_test(the_kernel_forgets_in_the_middle),
    };
    return cmocka_run_group_tests(tests, write_corpus, scratch_leave);
}
