/* SPDX-License-Identifier: Apache-2.0 */
/* The lock, or the directory, is replaced between its opening and its locking: of two engines one
 * is refused, and each save keeps checking. On a file system that reports another inode at each
 * check, saves continue. */
#include "checkpoint_sample.h"

#include <dlfcn.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "run_with_faults.h"

static void (*before_lock)(void); /* is called once */
static const char *moving;        /* a directory that is moved away once it has been opened */
static int lock_error;            /* 0, or of a file system without locks */
static ino_t strange_inode; /* 0, or the inode in the next stat of a lock, plus one each time */

/* ---- in front of the C library --------------------------------------------------------------- */

#ifndef __SANITIZE_THREAD__
int flock(int fd, int operation)
{
    static int (*next)(int fd, int operation);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "flock");
    void (*act)(void) = before_lock;
    before_lock = NULL;
    if (act)
        act();
    if (lock_error) {
        errno = lock_error;
        return -1;
    }
    return next(fd, operation);
}

/* The directory was found, or made, by its first opening, and is opened to be kept by its second.
 */
int openat(int dir, const char *path, int flags, ...)
{
    static int (*next)(int dir, const char *path, int flags, ...);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "openat");
    int fd = next(dir, path, flags, 0600);
    static int openings;
    if (moving && !strcmp(path, moving) && ++openings == 2) {
        const char *place = moving;
        moving = NULL;
        assert_int_equal(rename(place, "moved-away"), 0);
        assert_int_equal(mkdir(place, 0700), 0);
    }
    return fd;
}

int fstatat(int dir, const char *restrict name, struct stat *restrict info, int flags)
{
    static int (*next)(int dir, const char *name, struct stat *info, int flags);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "fstatat");
    int code = next(dir, name, info, flags);
    if (strange_inode && !strcmp(name, ".lock"))
        info->st_ino = strange_inode++;
    return code;
}
#endif

/* ---------------------------------------------------------------------------------------------- */

static struct rp_checkpoint_dir *other;

static void remove_lock(void)
{
    assert_int_equal(unlink("place/.lock"), 0);
}

static void replace_lock(void)
{
    struct rp_error error;
    remove_lock();
    assert_int_equal(sample_open(&other, "place", 2, NULL, &error), 0);
}

static void test_a_lock_that_another_engine_replaces(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_checkpoint_dir *dir;
    before_lock = replace_lock;
    assert_int_equal(sample_open(&dir, "place", 2, NULL, &error), -RP_E_BUSY);
    assert_non_null(strstr(error.message, "place: another ringpack writes here: process"));
    assert_int_equal(sample_save(other, 10, NULL, &error), 0);
    rp_checkpoint_dir_close(other);
    assert_int_equal(sample_open(&dir, "place", 2, NULL, &error), 0);
    rp_checkpoint_dir_close(dir);
    remove_directory("place");
}

/* The lock that is taken then is watched like any other. */
static void test_a_lock_that_somebody_removes(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_checkpoint_dir *dir;
    before_lock = remove_lock;
    assert_int_equal(sample_open(&dir, "place", 2, NULL, &error), 0);
    assert_int_equal(sample_save(dir, 10, NULL, &error), 0);
    replace_lock();
    assert_int_equal(sample_save(dir, 20, NULL, &error), -RP_E_BUSY);
    assert_int_equal(sample_save(other, 30, NULL, &error), 0);
    rp_checkpoint_dir_close(other);
    rp_checkpoint_dir_close(dir);
    remove_directory("place");
}

static void test_a_directory_that_is_replaced(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_checkpoint_dir *dir;
    assert_int_equal(mkdir("place", 0700), 0);
    moving = "place";
    assert_int_equal(sample_open(&dir, "place", 2, NULL, &error), 0);
    assert_int_equal(sample_save(dir, 10, NULL, &error), 0);
    assert_int_equal(newest_row("place"), 10);
    assert_int_equal(count_names("moved-away", "."), 2); /* . and .. */
    assert_int_equal(rename("place", "moved-again"), 0);
    assert_int_equal(sample_save(dir, 20, NULL, &error), -ENOENT);
    rp_checkpoint_dir_close(dir);
}

static void test_inodes_that_differ_at_each_look(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_checkpoint_dir *dir;
    strange_inode = (ino_t)1 << 40;
    assert_int_equal(sample_open(&dir, "strange", 2, NULL, &error), 0);
    assert_int_equal(sample_save(dir, 10, NULL, &error), 0);
    rp_checkpoint_dir_close(dir);
    strange_inode = 0;
}

static void test_a_file_system_without_locks(void **state)
{
    (void)state;
    static const int errors[] = {ENOSYS, EOPNOTSUPP, ENOLCK};
    struct rp_error error;
    struct rp_checkpoint_dir *dir;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        lock_error = errors[i];
        assert_int_equal(sample_open(&dir, "lockless", 2, NULL, &error), -errors[i]);
        assert_non_null(strstr(error.message, "lockless: cannot lock it (flock)"));
        assert_non_null(strstr(error.hint, "mount the file system with locks"));
    }
    lock_error = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_lock_that_another_engine_replaces),
        cmocka_unit_test(test_a_lock_that_somebody_removes),
        cmocka_unit_test(test_a_directory_that_is_replaced),
        cmocka_unit_test(test_inodes_that_differ_at_each_look),
        cmocka_unit_test(test_a_file_system_without_locks),
    };
    return run_with_faults("checkpoint_lock", tests, sample_enter, sample_leave);
}
