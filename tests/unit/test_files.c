/* SPDX-License-Identifier: Apache-2.0 */
/* Whether token files are mapped: only what is known to lie in memory is. */
#include "corpus_files.h"

#include <errno.h>
#include <linux/magic.h>
#include <sys/uio.h>
#include <sys/vfs.h>

#include "flow/files.h"

/* The file system as a test wants it: its type, and its answer to a read that may not wait. */
static struct {
    long type;
    int refusal; /* 0: the page cache has what is asked for */
} disk;

int fstatfs(int fd, struct statfs *info)
{
    (void)fd;
    *info = (struct statfs){.f_type = disk.type};
    return 0;
}

ssize_t preadv2(int fd, const struct iovec *parts, int count, off_t offset, int flags)
{
    (void)fd, (void)parts, (void)count, (void)offset, (void)flags;
    errno = disk.refusal;
    return disk.refusal ? -1 : 1;
}

static bool are_cached(long type, int refusal)
{
    static const int32_t lengths[] = {1000, 0, 3000};
    struct rp_corpus *corpus;
    struct rp_error error;
    put_megatron("corpus", 8, 2, lengths, 3);
    if (open_one(&corpus, "corpus", RP_FORMAT_AUTO, RP_TOKEN_NONE, RP_EOS_NONE, &error) != 0)
        fail_msg("%s", error.message);
    disk.type = type;
    disk.refusal = refusal;
    bool cached = rp_files_are_cached(corpus);
    rp_corpus_close(corpus);
    return cached;
}

static void what_the_page_cache_holds_is_cached(void **state)
{
    (void)state;
    assert_true(are_cached(EXT4_SUPER_MAGIC, 0));
    assert_false(are_cached(EXT4_SUPER_MAGIC, EAGAIN));
}

static void a_file_system_that_lies_in_memory_is_cached(void **state)
{
    (void)state;
    assert_true(are_cached(TMPFS_MAGIC, EOPNOTSUPP));
}

static void a_file_system_that_cannot_be_asked_is_not_cached(void **state)
{
    (void)state;
    assert_false(are_cached(OVERLAYFS_SUPER_MAGIC, EOPNOTSUPP));
    assert_false(are_cached(NFS_SUPER_MAGIC, EOPNOTSUPP));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_page_cache_holds_is_cached),
        cmocka_unit_test(a_file_system_that_lies_in_memory_is_cached),
        cmocka_unit_test(a_file_system_that_cannot_be_asked_is_not_cached),
    };
    return cmocka_run_group_tests(tests, scratch_enter, scratch_leave);
}
