/* SPDX-License-Identifier: Apache-2.0 */
/* In a corpus with objects in stores, files are mapped, read through the page cache or past it, as
 * in any other corpus; objects are read. A store of the test's own has one object. */
#include "flow_kit.h"

#include <fcntl.h>

#include "corpus/corpus_struct.h"
#include "flow/cached.h"
#include "flow/flow_struct.h"
#include "flow/residency.h"

static const struct kit_source sources[] = {{"file", 5, 8, 2500}, {"object", 8, 2, 300}};
#define FILE_SHARD 0u
#define OBJECT_SHARD 1u
#define DOCUMENT_TOKENS 300u

/* ---- a store --------------------------------------------------------------------------------- */

static uint32_t direct_opens; /* the file's */

/* A place that is opened by its identity is an object, without a descriptor. */
static int open_object(struct rp_io_object *object_out, const struct rp_io_place *place,
                       struct rp_error *error)
{
    struct rp_io_place file = *place;
    direct_opens += place->o_direct && !place->identity;
    if (place->identity) {
        assert_string_equal(place->path, "store://object");
        file.path = "object.bin";
        file.o_direct = false;
    }
    int code = rp_io_open_file(object_out, &file, error);
    if (place->identity)
        object_out->fd = -1;
    return code;
}

static void close_object(const struct rp_io_object *object)
{
    close((int)object->handle);
}

static void open_mixed(struct kit *kit)
{
    const struct rp_plan_config config = small_plan();
    kit_open(kit, sources, 2, &config);
    struct rp_shard *shard = (struct rp_shard *)(uintptr_t)rp_corpus_shard(kit->corpus,
                                                                           OBJECT_SHARD);
    shard->url = "store://object";
    shard->identity = "1";
    kit->corpus->sources[OBJECT_SHARD].objects = 1;
    kit->corpus->sources[OBJECT_SHARD].segments[0]->shape.objects = 1;
    assert_int_equal(rp_corpus_file_bytes(kit->corpus),
                     rp_corpus_shard(kit->corpus, FILE_SHARD)->bytes);
}

/* ---- a page cache ---------------------------------------------------------------------------- */

static bool has_all;         /* the file's, in the page cache */
static uint64_t object_size; /* the page cache is not queried for the object */

static enum rp_page_cache_way find_way(const struct rp_page_cache_file *file)
{
    assert_true(file->bytes != object_size);
    return RP_PAGE_CACHE_COUNTED;
}

static uint64_t missing(const struct rp_page_cache_file *file, uint64_t first, uint64_t bytes)
{
    (void)first;
    assert_true(file->bytes != object_size);
    return has_all ? 0 : bytes;
}

static void nothing(const struct rp_page_cache_file *file, uint64_t first, uint64_t bytes)
{
    (void)file, (void)first, (void)bytes;
}

static uint64_t available(void)
{
    return has_all ? UINT64_C(1) << 40 : 0;
}

static const struct rp_page_cache page_cache = {find_way, missing, nothing, nothing, available};

/* ---- runs ------------------------------------------------------------------------------------ */

/* The options have the differences between the runs. */
static void run(struct rp_flow_options *options, struct rp_flow_counts *counts)
{
    struct kit kit;
    struct stream s;
    struct rp_io_method method = rp_io_method_pread;
    method.open_object = open_object;
    method.close_object = close_object;
    direct_opens = 0;
    open_mixed(&kit);
    object_size = rp_corpus_shard(kit.corpus, OBJECT_SHARD)->bytes;
    options->method = &method;
    options->page_cache = &page_cache;
    stream_open(&s, &kit, options, RP_DTYPE_I64, 0, 1);
    const struct rp_files *files = &s.flow->files;
    assert_int_equal(files->state == RP_FILES_ADAPT, options->adapts);
    assert_false(rp_files_are_mapped(files));
    /* a flow that adapts knows it after the first pass of its watcher */
    assert_int_equal(rp_files_are_cached(files), options->mapped && !options->adapts);
    stream_start(&s);
    run_to_end(&s);
    check_all_came(&s);
    assert_int_equal(files->files[FILE_SHARD].stretches != NULL, options->adapts);
    assert_int_equal(files->files[FILE_SHARD].map != NULL, options->adapts || options->mapped);
    assert_null(files->files[OBJECT_SHARD].map);
    assert_null(files->files[OBJECT_SHARD].stretches);
    if (options->adapts)
        assert_int_equal(files->residency.options.corpus_bytes, rp_corpus_file_bytes(kit.corpus));
    rp_flow_counts(s.flow, counts);
    stream_close(&s);
    kit_close(&kit);
}

static uint64_t mapped_bytes(const struct rp_flow_counts *counts)
{
    return counts->taken_bytes - counts->buffered_bytes - counts->direct_bytes;
}

static struct rp_flow_options adapting(void)
{
    struct rp_flow_options options = small_flow(&rp_io_method_pread);
    options.adapts = options.may_buffer = options.may_direct = true;
    return options;
}

static void files_that_the_page_cache_holds_are_mapped(void **state)
{
    (void)state;
    has_all = true;
    for (int processes = 0; processes < 2; processes++) {
        struct rp_flow_options options = adapting();
        struct rp_flow_counts counts;
        options.mapped = true;
        options.packer_processes = processes && processes_work();
        run(&options, &counts);
        assert_true(mapped_bytes(&counts) > 0);
        assert_true(counts.buffered_bytes > 0); /* the object's */
        assert_int_equal(counts.direct_bytes, 0);
    }
}

static void files_that_memory_has_no_room_for_are_read_past_it(void **state)
{
    (void)state;
    has_all = false;
    struct rp_flow_options options = adapting();
    struct rp_flow_counts counts;
    run(&options, &counts);
    assert_int_equal(direct_opens, 1); /* with the descriptor for buffered reads */
    assert_int_equal(mapped_bytes(&counts), 0);
}

/* `o_direct: on`, with and without a watched page cache. */
static void files_are_opened_for_direct_reads(void **state)
{
    (void)state;
    has_all = false;
    for (int adapts = 0; adapts < 2; adapts++) {
        struct rp_flow_options options = small_flow(&rp_io_method_pread);
        struct rp_flow_counts counts;
        options.o_direct = options.may_direct = true;
        options.adapts = adapts;
        run(&options, &counts);
        assert_int_equal(direct_opens, 1);
        assert_int_equal(mapped_bytes(&counts), 0);
    }
}

/* `io: mapped`. */
static void files_are_mapped_for_good(void **state)
{
    (void)state;
    struct rp_flow_options options = small_flow(&rp_io_method_pread);
    struct rp_flow_counts counts;
    options.mapped = true;
    run(&options, &counts);
    assert_true(mapped_bytes(&counts) > 0 && counts.buffered_bytes > 0);
}

static void a_start_asks_for_files_alone(void **state)
{
    (void)state;
    struct kit kit;
    open_mixed(&kit);
    object_size = rp_corpus_shard(kit.corpus, OBJECT_SHARD)->bytes;
    has_all = true;
    assert_true(rp_cached_is_whole(kit.corpus, &page_cache));
    has_all = false;
    assert_false(rp_cached_is_whole(kit.corpus, &page_cache));
    kit_close(&kit);
}

static int write_corpus(void **state)
{
    int code = kit_enter(state);
    for (uint32_t i = 0; i < 2 && code == 0; i++)
        kit_write(&sources[i], i, DOCUMENT_TOKENS, 3 + i);
    return code;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_that_the_page_cache_holds_are_mapped),
        cmocka_unit_test(files_that_memory_has_no_room_for_are_read_past_it),
        cmocka_unit_test(files_are_opened_for_direct_reads),
        cmocka_unit_test(files_are_mapped_for_good),
        cmocka_unit_test(a_start_asks_for_files_alone),
    };
    return cmocka_run_group_tests(tests, write_corpus, scratch_leave);
}
