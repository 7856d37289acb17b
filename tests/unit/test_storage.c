/* SPDX-License-Identifier: Apache-2.0 */
/* The storage over system calls: which failures it reports, which it repeats, and which kinds of
 * file system it gets along with. */
#include "system_faults.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/bits.h"
#include "checkpoint/storage.h"

#define BYTES 4096u

static struct rp_storage *const storage = &rp_storage_system;
static char directory[] = "/tmp/rp-test-storage-XXXXXX";
static int dir;
static _Alignas(BYTES) uint8_t page[BYTES];

static int enter(void **state)
{
    (void)state;
    if (!mkdtemp(directory))
        return -1;
    dir = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return dir < 0;
}

static int leave(void **state)
{
    (void)state;
    close(dir);
    return rmdir(directory);
}

static int create(const char *name)
{
    int fd = storage->create(storage, dir, name);
    assert_true(fd >= 0);
    return fd;
}

static void removed(const char *name)
{
    assert_int_equal(storage->unlink(storage, dir, name), 0);
}

static bool is_direct(int fd)
{
    return fcntl(fd, F_GETFL) & O_DIRECT;
}

/* Each method with its call, and whether a signal that interrupts it is waited for. */
static void test_a_failing_call_is_its_errno(void **state)
{
    (void)state;
    int fd = create("a");
    assert_int_equal(storage->write(storage, fd, page, BYTES, 0), BYTES);
    int again = storage->reopen(storage, dir, "a");
    assert_true(again >= 0);
    system_spoil("openat", 0, 1, EACCES);
    assert_int_equal(storage->create(storage, dir, "b"), -EACCES);
    system_spoil("openat", 0, 1, ESTALE);
    assert_int_equal(storage->reopen(storage, dir, "a"), -ESTALE);
    system_spoil("fallocate", 0, 1, ENOSPC);
    assert_int_equal(storage->reserve(storage, fd, BYTES), -ENOSPC);
    system_spoil("pwrite", 0, 1, EDQUOT);
    assert_int_equal(storage->write(storage, fd, page, BYTES, 0), -EDQUOT);
    system_spoil("pread", 0, 1, EIO);
    assert_int_equal(storage->read(storage, again, page, BYTES, 0), -EIO);
    system_spoil("fsync", 0, 1, EIO);
    assert_int_equal(storage->sync(storage, fd), -EIO);
    system_spoil("fsync", 0, 1, EIO);
    assert_int_equal(storage->sync_dir(storage, dir), -EIO);
    system_spoil("renameat2", 0, 1, EROFS);
    assert_int_equal(storage->rename(storage, dir, "a", "c"), -EROFS);
    system_spoil("unlinkat", 0, 1, EPERM);
    assert_int_equal(storage->unlink(storage, dir, "a"), -EPERM);
    system_spoil("close", 0, 1, EIO);
    assert_int_equal(storage->close(storage, fd), -EIO);
    system_mend();
    assert_int_equal(storage->close(storage, again), 0);
    removed("a");
}

static void test_an_interrupted_call_is_repeated(void **state)
{
    (void)state;
    system_spoil("openat", 0, 2, EINTR);
    int fd = create("a");
    system_spoil("fallocate", 0, 2, EINTR);
    assert_int_equal(storage->reserve(storage, fd, BYTES), 0);
    system_spoil("pwrite", 0, 2, EINTR);
    assert_int_equal(storage->write(storage, fd, page, BYTES, 0), BYTES);
    system_spoil("openat", 0, 2, EINTR);
    int again = storage->reopen(storage, dir, "a");
    assert_true(again >= 0);
    system_spoil("pread", 0, 2, EINTR);
    assert_int_equal(storage->read(storage, again, page, BYTES, 0), BYTES);
    system_spoil("renameat2", 0, 2, EINTR);
    assert_int_equal(storage->rename(storage, dir, "a", "b"), 0);
    system_spoil("unlinkat", 0, 2, EINTR);
    assert_int_equal(storage->unlink(storage, dir, "b"), 0);
    system_mend();
    assert_int_equal(storage->close(storage, again), 0);
    system_spoil("close", 0, 1, EINTR); /* it is closed all the same: not an error, not repeated */
    assert_int_equal(storage->close(storage, fd), 0);
    assert_int_equal(system_mend(), 1);
}

/* A second fsync after one that failed says "fine" of pages that are gone. */
static void test_an_interrupted_fsync_is_a_failure(void **state)
{
    (void)state;
    int fd = create("a");
    system_spoil("fsync", 0, 1, EINTR);
    assert_int_equal(storage->sync(storage, fd), -EINTR);
    assert_int_equal(system_mend(), 1);
    assert_int_equal(storage->close(storage, fd), 0);
    removed("a");
}

/* A file system that refuses direct I/O at the first read or write is tried again without. */
static void test_direct_is_given_up_where_it_is_refused(void **state)
{
    (void)state;
    int fd = create("a");
    rp_storage_direct(fd);
    bool has_direct = is_direct(fd); /* not on every file system */
    memset(page, 7, BYTES);
    system_spoil("pwrite", 0, 1, EINVAL);
    ssize_t put = storage->write(storage, fd, page, BYTES, 0);
    assert_int_equal(system_mend(), has_direct ? 2 : 1);
    assert_int_equal(put, has_direct ? (ssize_t)BYTES : -EINVAL);
    assert_false(is_direct(fd));
    system_spoil("pwrite", 0, 1, EINVAL); /* no call is left to give up */
    assert_int_equal(storage->write(storage, fd, page, BYTES, 0), -EINVAL);
    system_mend();
    assert_int_equal(storage->write(storage, fd, page, BYTES, 0), BYTES);
    int again = storage->reopen(storage, dir, "a");
    memset(page, 0, BYTES);
    system_spoil("pread", 0, 1, EINVAL);
    ssize_t got = storage->read(storage, again, page, BYTES, 0);
    system_mend();
    assert_int_equal(got, has_direct ? (ssize_t)BYTES : -EINVAL);
    if (has_direct)
        assert_int_equal(page[BYTES - 1], 7);
    assert_int_equal(storage->close(storage, again), 0);
    assert_int_equal(storage->close(storage, fd), 0);
    removed("a");
}

/* The second attempt has signals and failures of its own. */
static void test_the_attempt_without_direct_may_fail_too(void **state)
{
    (void)state;
    int fd = create("a");
    if (!is_direct(fd)) {
        print_message("left out: %s has no direct I/O\n", directory);
    } else {
        system_spoil("pwrite", 0, 2, EINVAL);
        assert_int_equal(storage->write(storage, fd, page, BYTES, 0), -EINVAL);
        system_mend();
        assert_int_equal(storage->write(storage, fd, page, BYTES, 0), BYTES);
        int again = storage->reopen(storage, dir, "a");
        system_spoil("pread", 0, 2, EINVAL);
        assert_int_equal(storage->read(storage, again, page, BYTES, 0), -EINVAL);
        system_mend();
        assert_int_equal(storage->close(storage, again), 0);
    }
    system_spoil("fcntl", 0, 9, EBADF); /* the flags are not known: it stays as it is */
    rp_storage_direct(fd);
    assert_int_equal(system_mend(), 1);
    assert_int_equal(storage->close(storage, fd), 0);
    removed("a");
}

/* NFS: no fallocate, no exclusive rename, no fsync of directories. */
static void test_a_file_system_that_can_less(void **state)
{
    (void)state;
    int fd = create("a"), other = create("b");
    system_spoil("fallocate", 0, 1, EOPNOTSUPP);
    assert_int_equal(storage->reserve(storage, fd, BYTES), 0);
    system_spoil("fsync", 0, 1, EINVAL);
    assert_int_equal(storage->sync_dir(storage, dir), 0);
    static const int refusals[] = {EINVAL, ENOSYS};
    for (size_t i = 0; i < RP_ARRAY_COUNT(refusals); i++) {
        system_spoil("renameat2", 0, 1, refusals[i]);
        assert_int_equal(storage->rename(storage, dir, "a", "b"), -EEXIST);
        system_spoil("renameat2", 0, 1, refusals[i]);
        assert_int_equal(storage->rename(storage, dir, i ? "c" : "a", i ? "a" : "c"), 0);
    }
    system_mend();
    assert_int_equal(storage->close(storage, fd), 0);
    assert_int_equal(storage->close(storage, other), 0);
    removed("a");
    removed("b");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_failing_call_is_its_errno),
        cmocka_unit_test(test_an_interrupted_call_is_repeated),
        cmocka_unit_test(test_an_interrupted_fsync_is_a_failure),
        cmocka_unit_test(test_direct_is_given_up_where_it_is_refused),
        cmocka_unit_test(test_the_attempt_without_direct_may_fail_too),
        cmocka_unit_test(test_a_file_system_that_can_less),
    };
    return run_with_faults("storage", tests, enter, leave);
}
