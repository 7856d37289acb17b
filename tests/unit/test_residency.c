/* SPDX-License-Identifier: Apache-2.0 */
/* How each stretch of a token file is read follows the page cache and the memory, and no row
 * depends on it. */
#include "flow_kit.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "corpus/spanfile.h"
#include "flow/flow_struct.h"
#include "flow/residency.h"

/* ---- a page cache of a test's own ------------------------------------------------------------ */

#define STRETCHES 16u
#define FILE_BYTES ((uint64_t)STRETCHES * RP_STRETCH_BYTES)

static struct {
    uint64_t missing[STRETCHES];
    uint64_t available;
    uint32_t read_ahead[STRETCHES], settled[STRETCHES]; /* calls */
} fake;

static enum rp_page_cache_way fake_find_way(const struct rp_page_cache_file *file)
{
    (void)file;
    return RP_PAGE_CACHE_COUNTED;
}

static uint64_t fake_missing(const struct rp_page_cache_file *file, uint64_t first, uint64_t bytes)
{
    (void)file;
    assert_int_equal(bytes, RP_STRETCH_BYTES);
    return fake.missing[first / RP_STRETCH_BYTES];
}

static void fake_read_ahead(const struct rp_page_cache_file *file, uint64_t first, uint64_t bytes)
{
    (void)file, (void)bytes;
    fake.read_ahead[first / RP_STRETCH_BYTES]++;
}

static void fake_settle(const struct rp_page_cache_file *file, uint64_t first, uint64_t bytes)
{
    (void)file, (void)bytes;
    fake.settled[first / RP_STRETCH_BYTES]++;
    fake.missing[first / RP_STRETCH_BYTES] = 0;
}

static uint64_t fake_available(void)
{
    return fake.available;
}

static const struct rp_page_cache fake_page_cache = {fake_find_way, fake_missing, fake_read_ahead,
                                                     fake_settle, fake_available};

static void fake_forget(void)
{
    for (uint32_t i = 0; i < STRETCHES; i++)
        fake.missing[i] = RP_STRETCH_BYTES;
}

static struct rp_residency residency;
static struct rp_stretch *stretches;
static struct rp_a64 taken;

/* Memory with room for so many stretches, of which the page cache holds none. */
static void open_residency(uint32_t room, bool may_fill, bool may_direct)
{
    struct rp_error error;
    memset(&fake, 0, sizeof fake);
    fake_forget();
    fake.available = (uint64_t)room * RP_STRETCH_BYTES * 4 / 3 + 4;
    const struct rp_residency_options options = {.page_cache = &fake_page_cache,
                                                 .corpus_bytes = FILE_BYTES,
                                                 .may_fill = may_fill,
                                                 .may_direct = may_direct};
    const struct rp_page_cache_file file = {.map = (const uint8_t *)&fake, .bytes = FILE_BYTES};
    assert_int_equal(rp_residency_open(&residency, &options, 1, &taken, &error), 0);
    assert_non_null(stretches = rp_residency_add(&residency, 0, &file));
    rp_a64_store_relaxed(&taken, 1u << 30);
}

/* Memory has other room now, and the watcher looks at it and at every stretch. */
static void look(uint32_t room)
{
    fake.available = (uint64_t)room * RP_STRETCH_BYTES * 4 / 3 + 4;
    residency.room_ns = 0;
    rp_residency_look(&residency);
}

static uint32_t count(enum rp_read_way way)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < STRETCHES; i++)
        found += rp_a32_load_relaxed(&stretches[i].way) == (uint32_t)way;
    return found;
}

static void want_all(void)
{
    rp_residency_want(stretches, 0, FILE_BYTES);
}

static void what_fits_is_read_in_and_mapped(void **state)
{
    (void)state;
    open_residency(2 * STRETCHES, true, true);
    look(2 * STRETCHES);
    assert_int_equal(count(RP_READ_BUFFERED), STRETCHES);
    rp_residency_want(stretches, RP_STRETCH_BYTES - 1, RP_STRETCH_BYTES + 1);
    look(2 * STRETCHES);
    assert_int_equal(count(RP_READ_MAPPED), 2);
    assert_int_equal(fake.read_ahead[0] + fake.read_ahead[1], 2);
    assert_int_equal(rp_residency_way(stretches, 0, 2 * RP_STRETCH_BYTES), RP_READ_MAPPED);
    assert_int_equal(rp_residency_way(stretches, 0, 2 * RP_STRETCH_BYTES + 1), RP_READ_BUFFERED);
    fake.missing[0] = RP_STRETCH_BYTES / 2; /* lost again */
    look(2 * STRETCHES);
    assert_int_equal(rp_residency_way(stretches, 0, 1), RP_READ_BUFFERED);
    assert_int_equal(rp_residency_way(stretches, RP_STRETCH_BYTES, RP_STRETCH_BYTES + 1),
                     RP_READ_MAPPED);
    rp_residency_close(&residency);
}

static void of_what_does_not_fit_a_part_is_kept(void **state)
{
    (void)state;
    open_residency(6, true, true);
    look(6);
    assert_int_equal(count(RP_READ_DIRECT), STRETCHES);
    for (int i = 0; i < 5; i++) {
        want_all();
        look(6);
    }
    assert_int_equal(count(RP_READ_MAPPED), 6);
    assert_int_equal(count(RP_READ_DIRECT), STRETCHES - 6);
    uint32_t reads = 0;
    for (uint32_t i = 0; i < STRETCHES; i++)
        reads += fake.read_ahead[i];
    assert_int_equal(reads, 6);
    rp_residency_close(&residency);
}

/* Memory gets short, and later there is enough of it. */
static void the_room_follows_memory_without_flapping(void **state)
{
    (void)state;
    open_residency(2 * STRETCHES, true, true);
    look(STRETCHES);
    assert_int_equal(count(RP_READ_BUFFERED), STRETCHES);
    look(STRETCHES - 1); /* an eighth too small: that does not change anything */
    assert_int_equal(count(RP_READ_BUFFERED), STRETCHES);
    look(4);
    assert_true(count(RP_READ_DIRECT) >= STRETCHES - 5);
    look(STRETCHES - 1);
    assert_true(count(RP_READ_DIRECT) >= STRETCHES - 5);
    look(STRETCHES);
    assert_int_equal(count(RP_READ_BUFFERED), STRETCHES);
    rp_residency_close(&residency);
}

static void what_is_lost_at_once_is_not_read_in_for_ever(void **state)
{
    (void)state;
    open_residency(8, true, true);
    uint32_t reads = 0;
    for (int i = 0; i < 40; i++) {
        want_all();
        look(8);
        fake_forget(); /* somebody else takes the memory, and nothing tells of it */
    }
    for (uint32_t i = 0; i < STRETCHES; i++)
        reads += fake.read_ahead[i];
    assert_in_range(reads, 8, 40 * 8 / 3);
    rp_residency_close(&residency);
}

static void direct_reads_do_not_fill_the_page_cache(void **state)
{
    (void)state;
    open_residency(2 * STRETCHES, false, true);
    fake.missing[3] = 0;
    for (int i = 0; i < 3; i++) {
        want_all();
        look(2 * STRETCHES);
    }
    assert_int_equal(count(RP_READ_DIRECT), STRETCHES - 1);
    assert_int_equal(rp_a32_load_relaxed(&stretches[3].way), RP_READ_MAPPED);
    for (uint32_t i = 0; i < STRETCHES; i++)
        assert_int_equal(fake.read_ahead[i], 0);
    rp_residency_close(&residency);
}

static void buffered_reads_stay_buffered(void **state)
{
    (void)state;
    open_residency(1, true, false);
    want_all();
    look(1);
    assert_int_equal(count(RP_READ_DIRECT), 0);
    rp_residency_close(&residency);
}

/* No more is read in than is in relation to what is taken. */
static void a_slow_trainer_does_not_fill_the_page_cache(void **state)
{
    (void)state;
    open_residency(2 * STRETCHES, true, true);
    rp_a64_store_relaxed(&taken, 0);
    residency.read_in = (64u << 20) - RP_STRETCH_BYTES;
    want_all();
    look(2 * STRETCHES);
    assert_int_equal(count(RP_READ_MAPPED), 2);
    rp_a64_store_relaxed(&taken, RP_STRETCH_BYTES);
    want_all();
    look(2 * STRETCHES);
    assert_int_equal(count(RP_READ_MAPPED), STRETCHES);
    rp_residency_close(&residency);
}

/* ---- the kernel's ---------------------------------------------------------------------------- */

static void the_kernel_says_what_it_holds(void **state)
{
    (void)state;
    const struct rp_page_cache *kernel = &rp_page_cache_of_kernel;
    uint64_t bytes = 3u << 20;
    int fd = open("held", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    void *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(map != MAP_FAILED);
    struct rp_page_cache_file file = {.fd = fd, .map = map, .bytes = bytes};
    file.way = kernel->find_way(&file);
    assert_int_not_equal(file.way, RP_PAGE_CACHE_SILENT);
    static const enum rp_page_cache_way ways[] = {RP_PAGE_CACHE_COUNTED, RP_PAGE_CACHE_LISTED,
                                                  RP_PAGE_CACHE_PROBED};
    for (uint32_t i = 0; i < 3 && file.way != RP_PAGE_CACHE_WHOLE; i++) {
        if (file.way > ways[i])
            continue; /* an older kernel */
        file.way = ways[i];
        kernel->read_ahead(&file, 0, bytes);
        kernel->settle(&file, 0, bytes);
        assert_int_equal(kernel->missing(&file, 0, bytes), 0);
    }
    struct rp_page_cache_file none = {.fd = -1};
    assert_int_equal(kernel->find_way(&none), RP_PAGE_CACHE_SILENT);
    assert_true(kernel->available() > 0);
    munmap(map, bytes);
    close(fd);
}

/* ---- whole streams --------------------------------------------------------------------------- */

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
                rp_a32_store_relaxed(&r->files[i].stretches[s].way,
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
    assert_true(s->flow->files.adapts);
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
        options.adapts = options.may_fill = options.may_direct = true;
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

/* Of the masked source, every third token is trained. */
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
    assert_int_equal(rp_index_build("masked.bin", NULL, NULL, NULL, NULL, &error), 0);
}

/* Spans have room for those of one transfer, and hardly more: most transfers are tried again after
 * a wait, and find another word than before. */
static void no_row_depends_on_the_way_when_it_is_tried_again(void **state)
{
    (void)state;
    write_masked();
    kit_tokens.trained = every_third;
    for (uint64_t run = 0; run < 4; run++) {
        const struct rp_plan_config config = small_plan();
        struct kit kit;
        kit_open(&kit, masked, 2, &config);
        assert_true(rp_source_has_mask(rp_corpus_source(kit.corpus, 0)));
        struct rp_flow_options options = small_flow(&rp_io_method_pread);
        options.adapts = options.may_fill = options.may_direct = true;
        options.verify_blocks = run % 2;
        options.page_cache = &whims;
        struct stream s;
        stream_open(&s, &kit, &options, RP_DTYPE_I64, 0, run);
        s.flow->dispatch.reads.masks.span_ring.bytes = rp_spans_max(config.seq_len) *
                                                       sizeof(struct rp_span);
        run_with_flips(&s, run);
        check_all_came(&s);
        stream_close(&s);
        kit_close(&kit);
    }
    kit_tokens.trained = NULL;
}

/* What is not there at the start is read, and then mapped; what is lost is read again. */
static void the_kernel_forgets_in_the_middle(void **state)
{
    (void)state;
    struct rp_plan_config config = small_plan();
    config.num_epochs = 2;
    struct kit kit;
    kit_open(&kit, large, 2, &config);
    struct rp_flow_options options = small_flow(&rp_io_method_pread);
    options.adapts = options.may_fill = options.may_direct = options.mapped = true;
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
        cmocka_unit_test(what_fits_is_read_in_and_mapped),
        cmocka_unit_test(of_what_does_not_fit_a_part_is_kept),
        cmocka_unit_test(the_room_follows_memory_without_flapping),
        cmocka_unit_test(what_is_lost_at_once_is_not_read_in_for_ever),
        cmocka_unit_test(direct_reads_do_not_fill_the_page_cache),
        cmocka_unit_test(buffered_reads_stay_buffered),
        cmocka_unit_test(a_slow_trainer_does_not_fill_the_page_cache),
        cmocka_unit_test(the_kernel_says_what_it_holds),
        cmocka_unit_test(no_row_depends_on_the_way_it_is_read),
        cmocka_unit_test(no_row_depends_on_the_way_when_it_is_tried_again),
        cmocka_unit_test(the_kernel_forgets_in_the_middle),
    };
    return cmocka_run_group_tests(tests, write_corpus, scratch_leave);
}
