/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are published together: a power cut at any moment leaves each with its old or its new
 * content, whole; and a file that fails to sync replaces none.
 *
 * The calls that change names or sync are recorded. A power cut may come after any of them, and may
 * keep or lose each rename that no sync of its directory covers. So a state is bad if it has a name
 * whose content was not synced, and the end is bad if a rename may still be lost. A syncfs does not
 * count for content: it need not report a write that failed. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/new_files.h"
#include "run_with_faults.h"

#define CALLS_MAX 4096u

/* ---- the recording --------------------------------------------------------------------------- */

static struct {
    enum kind { SYNC, SYNC_ALL, RENAME } kind;
    ino_t inode;     /* SYNC: of a file or a directory; RENAME: of the file */
    ino_t directory; /* RENAME */
} calls[CALLS_MAX];
static unsigned call_count;

static struct {
    int syncfs_error;
    int fsync_error; /* for files whose path ends with `unlucky` */
    const char *unlucky;
    long magic; /* for every file system */
} orders;

#define NEXT(name, type, ...)                                                                      \
    static type (*next)(__VA_ARGS__);                                                              \
    if (!next)                                                                                     \
    *(void **)&next = dlsym(RTLD_NEXT, #name)

/* Unused under ThreadSanitizer. */
static __attribute__((unused)) void record(enum kind kind, ino_t inode, ino_t directory)
{
    assert_true(call_count < CALLS_MAX);
    calls[call_count].kind = kind;
    calls[call_count].inode = inode;
    calls[call_count++].directory = directory;
}

static ino_t inode_of(int fd)
{
    struct stat info;
    assert_int_equal(fstat(fd, &info), 0);
    return info.st_ino;
}

static ino_t unlucky_inode;

#ifndef __SANITIZE_THREAD__ /* it calls them too early */
int fsync(int fd)
{
    if (orders.fsync_error && inode_of(fd) == unlucky_inode) {
        errno = orders.fsync_error;
        return -1;
    }
    record(SYNC, inode_of(fd), 0);
    return 0;
}

int syncfs(int fd)
{
    assert_true(fd >= 0);
    if (orders.syncfs_error) {
        errno = orders.syncfs_error;
        return -1;
    }
    record(SYNC_ALL, 0, 0);
    return 0;
}

int fstatfs(int fd, struct statfs *info)
{
    NEXT(fstatfs, int, int, struct statfs *);
    int code = next(fd, info);
    if (orders.magic)
        info->f_type = orders.magic;
    return code;
}

int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    NEXT(renameat, int, int, const char *, int, const char *);
    struct stat info;
    assert_int_equal(fstatat(from_dir, from, &info, 0), 0);
    record(RENAME, info.st_ino, inode_of(to_dir));
    return next(from_dir, from, to_dir, to);
}
#endif

/* ---- the judge ------------------------------------------------------------------------------- */

static void hold_after_each_power_cut(void)
{
    for (unsigned i = 0; i < call_count; i++) {
        if (calls[i].kind != RENAME)
            continue;
        bool has_content = false, has_name = false;
        for (unsigned k = 0; k < i; k++)
            has_content |= calls[k].kind == SYNC && calls[k].inode == calls[i].inode;
        for (unsigned k = i + 1; k < call_count; k++)
            has_name |= calls[k].kind == SYNC_ALL ||
                        (calls[k].kind == SYNC && calls[k].inode == calls[i].directory);
        assert_true(has_content);
        assert_true(has_name);
    }
}

static unsigned count(enum kind kind)
{
    unsigned found = 0;
    for (unsigned i = 0; i < call_count; i++)
        found += calls[i].kind == kind;
    return found;
}

/* ---- files ----------------------------------------------------------------------------------- */

static char directory[] = "/tmp/rp-test-new-files-XXXXXX";
static struct rp_new_files files;

static int enter(void **state)
{
    (void)state;
    return mkdtemp(directory) && chdir(directory) == 0 && mkdir("a", 0700) == 0 &&
                   mkdir("b", 0700) == 0
               ? 0
               : -1;
}

static int leave(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", directory);
    return chdir("/") == 0 && system(command) == 0 ? 0 : -1;
}

static void path_of(unsigned number, char path[32])
{
    snprintf(path, 32, "%s/%u", number % 3 == 2 ? "b" : "a", number);
}

static void begin(unsigned number_of_files, const char *text)
{
    struct rp_error error;
    char path[32];
    call_count = 0;
    for (unsigned i = 0; i < number_of_files; i++) {
        struct rp_new_file *file = &files.files[files.count++];
        path_of(i, path);
        assert_int_equal(rp_new_file_open(file, path, &error), 0);
        assert_int_equal(rp_file_write(file->fd, path, text, strlen(text), &error), 0);
        if (orders.unlucky && !strcmp(orders.unlucky, path))
            unlucky_inode = inode_of(file->fd);
    }
}

static void assert_content(unsigned number, const char *text)
{
    struct rp_error error;
    char path[32], *found;
    path_of(number, path);
    assert_int_equal(rp_file_read_all(path, 100, &found, NULL, &error), 0);
    assert_string_equal(found, text);
    free(found);
}

static void test_each_is_whole_after_a_power_cut(void **state)
{
    (void)state;
    static const unsigned counts[] = {0, 1, 2, 7, 8, 30, RP_NEW_FILES_MAX};
    static const long magics[] = {EXT4_SUPER_MAGIC, 0x65735546 /* FUSE */};
    static const int syncfs_errors[] = {0, EIO, ENOSYS};
    for (unsigned c = 0; c < sizeof counts / sizeof counts[0]; c++)
        for (unsigned m = 0; m < 2; m++)
            for (unsigned e = 0; e < 3; e++) {
                char text[32];
                snprintf(text, sizeof text, "%u %u %u", c, m, e);
                orders.magic = magics[m];
                orders.syncfs_error = syncfs_errors[e];
                begin(counts[c], text);
                rp_new_files_publish(&files);
                assert_int_equal(files.count, 0);
                hold_after_each_power_cut();
                assert_int_equal(count(RENAME), counts[c]);
                bool is_together = counts[c] >= 8 && m == 0 && e == 0;
                assert_int_equal(count(SYNC_ALL), is_together);
                for (unsigned i = 0; i < counts[c]; i++) {
                    assert_int_equal(files.codes[i], 0);
                    assert_content(i, text);
                }
            }
    memset(&orders, 0, sizeof orders);
}

static void test_what_fails_to_sync_replaces_nothing(void **state)
{
    (void)state;
    for (unsigned e = 0; e < 2; e++) {
        orders.magic = EXT4_SUPER_MAGIC;
        begin(20, "old");
        rp_new_files_publish(&files);
        orders.syncfs_error = e ? EIO : 0;
        orders.fsync_error = EIO;
        orders.unlucky = "a/13";
        begin(20, "new");
        rp_new_files_publish(&files);
        hold_after_each_power_cut();
        for (unsigned i = 0; i < 20; i++) {
            assert_int_equal(files.codes[i], i == 13 ? -EIO : 0);
            assert_content(i, i == 13 ? "old" : "new");
        }
        assert_non_null(strstr(files.errors[13].message, "a/13"));
        memset(&orders, 0, sizeof orders);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_is_whole_after_a_power_cut),
        cmocka_unit_test(test_what_fails_to_sync_replaces_nothing),
    };
    return run_with_faults("new_files", tests, enter, leave);
}
