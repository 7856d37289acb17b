/* SPDX-License-Identifier: Apache-2.0 */
/* Whether token files are mapped: only what is known to lie in memory is. */
#include "corpus_files.h"

#include <errno.h>
#include <linux/magic.h>
#include <sys/uio.h>
#include <sys/vfs.h>

#include "flow/cached.h"

#define PAGE 256u /* so that a short file has many */
#define PAGES 1600u

/* The file system as a test wants it: its type, and its answer to a read that may not wait. */
static struct {
    long type;
    int refusal;     /* 0: none */
    bool has_all;    /* the page cache has what is asked for */
    bool has[PAGES]; /* or these pages: what was missing once is read meanwhile */
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

/* What a look makes the kernel read must not be taken for the corpus by the next one. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_page_cache_holds_is_cached),
        cmocka_unit_test(a_file_system_that_lies_in_memory_is_cached),
        cmocka_unit_test(a_file_system_that_cannot_be_asked_is_not_cached),
        cmocka_unit_test(a_second_look_at_a_cold_file_says_no_as_the_first_did),
        cmocka_unit_test(pages_are_counted_in_all_parts_of_a_file),
    };
    return cmocka_run_group_tests(tests, scratch_enter, scratch_leave);
}
