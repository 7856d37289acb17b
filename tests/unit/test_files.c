/* SPDX-License-Identifier: Apache-2.0 */
/* Token files are mapped only where their pages are known to be in memory. And how often a file is
 * tried for O_DIRECT: once, however often it is opened. */
#include "corpus_files.h"

#include <errno.h>
#include <linux/magic.h>
#include <sys/uio.h>
#include <sys/vfs.h>

#include "flow/cached.h"
#include "flow/files.h"
#include "flow/flow.h"

#define PAGE 256u /* so that a short file has many */
#define PAGES 1600u

/* The file system as a test wants it: its type, and its answer to a read that may not wait. */
static struct {
    long type;
    int refusal;     /* 0: none */
    bool has_all;    /* the page cache has the wanted pages */
    bool has[PAGES]; /* or these pages: missing ones are read meanwhile */
} disk;

int fstatfs(int fd, struct statfs *info)
{
    (void)fd;
    *info = (struct statfs){.f_type = disk.type};
    return 0;
}

ssize_t preadv2(int fd, const struct iovec *parts, int count, off_t offset, int flags)
{
    (void)fd, (void)parts, (void)count, (void)flags;
    assert_true((uint64_t)offset / PAGE < PAGES);
    bool *has = &disk.has[(uint64_t)offset / PAGE];
    if (!disk.refusal && (disk.has_all || *has))
        return 1;
    *has = true;
    errno = disk.refusal ? disk.refusal : EAGAIN;
    return -1;
}

/* The places of probes follow the clock: with this one each call probes other pages. */
int clock_gettime(clockid_t clock, struct timespec *time)
{
    static long now_ns;
    (void)clock;
    now_ns += 3 * PAGE;
    *time = (struct timespec){.tv_nsec = now_ns};
    return 0;
}

/* A kernel that can only be probed, or not at all. */
static enum rp_page_cache_way find_way(const struct rp_page_cache_file *file)
{
    enum rp_page_cache_way way = rp_page_cache_of_kernel.find_way(file);
    if (way == RP_PAGE_CACHE_WHOLE)
        return way;
    return disk.refusal ? RP_PAGE_CACHE_SILENT : RP_PAGE_CACHE_PROBED;
}

static uint64_t missing(const struct rp_page_cache_file *file, uint64_t first, uint64_t bytes)
{
    return rp_page_cache_of_kernel.missing(file, first, bytes);
}

static const struct rp_page_cache prober = {.find_way = find_way, .missing = missing};

/* A kernel that counts the pages of disk.has. */
static enum rp_page_cache_way find_counted(const struct rp_page_cache_file *file)
{
    assert_non_null(file->map);
    return RP_PAGE_CACHE_COUNTED;
}

static uint64_t count_missing(const struct rp_page_cache_file *file, uint64_t first, uint64_t bytes)
{
    uint64_t missing_pages = 0;
    assert_true(file->way == RP_PAGE_CACHE_COUNTED && first % PAGE == 0 && bytes > 0);
    assert_true(first + bytes <= file->bytes);
    for (uint64_t at = first; at < first + bytes; at += PAGE)
        missing_pages += !disk.has[at / PAGE];
    return missing_pages * PAGE;
}

static const struct rp_page_cache counter = {.find_way = find_counted, .missing = count_missing};

static struct rp_corpus *open_corpus(int32_t length)
{
    const int32_t lengths[] = {1000, 0, length};
    struct rp_corpus *corpus;
    struct rp_error error;
    put_megatron("corpus", 8, 2, lengths, 3);
    if (open_one(&corpus, "corpus", RP_FORMAT_AUTO, RP_TOKEN_NONE, RP_EOS_NONE, &error) != 0)
        fail_msg("%s", error.message);
    return corpus;
}

static bool are_cached(long type, int refusal, bool has_all)
{
    struct rp_corpus *corpus = open_corpus(3000);
    memset(&disk, 0, sizeof disk);
    disk.type = type;
    disk.refusal = refusal;
    disk.has_all = has_all;
    bool cached = rp_cached_is_whole(corpus, &prober);
    rp_corpus_close(corpus);
    return cached;
}

static void what_the_page_cache_holds_is_cached(void **state)
{
    (void)state;
    assert_true(are_cached(EXT4_SUPER_MAGIC, 0, true));
    assert_false(are_cached(EXT4_SUPER_MAGIC, 0, false));
}

static void a_file_system_that_lies_in_memory_is_cached(void **state)
{
    (void)state;
    assert_true(are_cached(TMPFS_MAGIC, EOPNOTSUPP, false));
}

static void a_file_system_that_cannot_be_asked_is_not_cached(void **state)
{
    (void)state;
    assert_false(are_cached(OVERLAYFS_SUPER_MAGIC, EOPNOTSUPP, false));
    assert_false(are_cached(NFS_SUPER_MAGIC, EOPNOTSUPP, false));
}

/* The read-ahead of a probe must not be taken for the corpus by the next one. */
static void a_second_look_at_a_cold_file_says_no_as_the_first_did(void **state)
{
    (void)state;
    memset(&disk, 0, sizeof disk);
    disk.type = EXT4_SUPER_MAGIC;
    struct rp_corpus *corpus = open_corpus(PAGES * PAGE / 2 - 1000);
    assert_false(rp_cached_is_whole(corpus, &prober));
    assert_false(rp_cached_is_whole(corpus, &prober));
    rp_corpus_close(corpus);
}

static void pages_are_counted_in_all_parts_of_a_file(void **state)
{
    (void)state;
    memset(&disk, 0, sizeof disk);
    struct rp_corpus *corpus = open_corpus(PAGES * PAGE / 2 - 1010); /* the end is no page's */
    memset(disk.has, true, sizeof disk.has);
    assert_true(rp_cached_is_whole(corpus, &counter));
    memset(disk.has + PAGES / 10 * 9, false, PAGES / 10);
    assert_false(rp_cached_is_whole(corpus, &counter));
    memset(disk.has, true, sizeof disk.has);
    memset(disk.has, false, PAGES / 10);
    assert_false(rp_cached_is_whole(corpus, &counter));
    rp_corpus_close(corpus);
}

/* ---- files that are opened again ------------------------------------------------------------- */

#define ALIGNMENT 512u /* that a trial finds */

static uint32_t trials, openings; /* with O_DIRECT */
static bool refuses;              /* the file system takes no O_DIRECT */

/* A file system that takes O_DIRECT or refuses it, wherever the test runs. */
static int open_on_such_a_disk(struct rp_io_object *object, const struct rp_io_place *place,
                               struct rp_error *error)
{
    struct rp_io_place buffered = *place;
    buffered.o_direct = false;
    int code = rp_io_method_pread.open_object(object, &buffered, error);
    if (code < 0 || !place->o_direct)
        return code;
    openings++;
    trials += !place->known_alignment;
    object->alignment = refuses ? 1 : place->known_alignment ? place->known_alignment : ALIGNMENT;
    return code;
}

static struct rp_corpus *open_two_shards(void)
{
    static const int32_t lengths[] = {1000, 2000};
    static const char *const shards[] = {"first", "second"};
    const struct rp_source_spec source = {
        .name = "s", .weight = 1, .shards = shards, .shard_count = 2, .eos = RP_EOS_NONE};
    const struct rp_corpus_spec spec = {.sources = &source, .source_count = 1};
    struct rp_corpus *corpus;
    struct rp_error error;
    for (uint32_t i = 0; i < 2; i++)
        put_megatron(shards[i], 8, 2, lengths, 2);
    if (rp_corpus_open(&corpus, &spec, &error) != 0)
        fail_msg("%s", error.message);
    return corpus;
}

/* Two files share one descriptor, so each is opened at each of its turns: for direct reads, or for
 * buffered ones and then a second time for direct reads. */
static void a_file_is_tried_for_direct_reads_once(void **state)
{
    (void)state;
    struct rp_corpus *corpus = open_two_shards();
    struct rp_io_method method = rp_io_method_pread;
    method.open_object = open_on_such_a_disk;
    for (uint32_t direct = 0; direct < 2; direct++) {
        const struct rp_flow_options options = {
            .corpus = corpus, .method = &method, .o_direct = direct, .descriptors_max = 1};
        struct rp_files files;
        struct rp_error error;
        uint64_t ticket;
        trials = openings = 0;
        assert_int_equal(rp_files_open(&files, &options, &error), 0);
        for (uint32_t turn = 0; turn < 6; turn++) {
            int code = rp_files_get_open(&files, turn % 2, UINT64_MAX, &ticket, &error);
            assert_int_equal(code, RP_FILES_OPEN);
            assert_true(direct || rp_files_need_direct(&files, turn % 2));
        }
        assert_int_equal(openings, 6);
        assert_int_equal(trials, 2);
        rp_files_close(&files);
    }
    rp_corpus_close(corpus);
}

static void a_refusal_of_direct_reads_is_remembered(void **state)
{
    (void)state;
    struct rp_corpus *corpus = open_two_shards();
    struct rp_io_method method = rp_io_method_pread;
    method.open_object = open_on_such_a_disk;
    const struct rp_flow_options options = {.corpus = corpus, .method = &method, .o_direct = true};
    struct rp_files files;
    struct rp_error error;
    uint64_t ticket;
    refuses = true;
    openings = 0;
    assert_int_equal(rp_files_open(&files, &options, &error), 0);
    assert_int_equal(rp_files_get_open(&files, 0, UINT64_MAX, &ticket, &error), RP_FILES_OPEN);
    assert_false(rp_files_need_direct(&files, 0));
    assert_int_equal(openings, 1);
    rp_files_close(&files);
    rp_corpus_close(corpus);
    refuses = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_page_cache_holds_is_cached),
        cmocka_unit_test(a_file_system_that_lies_in_memory_is_cached),
        cmocka_unit_test(a_file_system_that_cannot_be_asked_is_not_cached),
        cmocka_unit_test(a_second_look_at_a_cold_file_says_no_as_the_first_did),
        cmocka_unit_test(pages_are_counted_in_all_parts_of_a_file),
        cmocka_unit_test(a_file_is_tried_for_direct_reads_once),
        cmocka_unit_test(a_refusal_of_direct_reads_is_remembered),
    };
    return cmocka_run_group_tests(tests, scratch_enter, scratch_leave);
}
