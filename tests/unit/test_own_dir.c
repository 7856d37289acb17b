/* SPDX-License-Identifier: Apache-2.0 */
/* Default directories in /tmp: one that others may write to, that belongs to others, or that is a
 * symlink is refused, by all that use it. The test is a user of its own, so that it finds no other
 * user's files and leaves none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/own_dir.h"
#include "cache/quota.h"
#include "object/remote.h"

static uid_t own_uid;    /* in the name of the directory */
static bool is_stranger; /* the files belong to another user */
static char path[64], blocks[80], target[80];

uid_t getuid(void)
{
    return own_uid;
}

uid_t geteuid(void)
{
    struct stat info;
    assert_int_equal(stat("/proc/self", &info), 0);
    return info.st_uid + is_stranger;
}

static void clear(void)
{
    char command[256];
    snprintf(command, sizeof command, "rm -rf '%s' '%s'", path, target);
    assert_int_equal(system(command), 0);
}

static int enter(void **state)
{
    (void)state;
    own_uid = 3000000000u + (uid_t)getpid();
    snprintf(path, sizeof path, "/tmp/ringpack-%u-cache", (unsigned)own_uid);
    snprintf(blocks, sizeof blocks, "%s/blocks", path);
    snprintf(target, sizeof target, "%s-target", path);
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    clear();
    return 0;
}

static int leave(void **state)
{
    (void)state;
    clear();
    return 0;
}

static void make(mode_t mode)
{
    clear();
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(chmod(path, mode), 0);
}

static void refuse(const char *expected)
{
    struct rp_error error;
    struct rp_quota space;
    struct rp_remote *remotes;
    bool is_new;
    char *file;
    const char *url = "http://127.0.0.1:9/x.bin";
    int code = rp_dir_make_caches(path, &error);
    assert_true(code < 0);
    assert_non_null(strstr(error.message, path));
    assert_non_null(strstr(error.message, expected));
    assert_non_null(strstr(error.hint, "cache_dir"));
    assert_int_equal(rp_dir_make_caches(blocks, &error), code);
    assert_int_equal(access(blocks, F_OK), -1);
    assert_int_equal(rp_quota_open(&space, blocks, &error), code);
    int of_remotes = rp_remotes_open(&remotes, &url, 1, NULL, &error);
    if (of_remotes == -RP_E_RESOURCE) /* a build without libcurl reads no URL */
        return;
    assert_int_equal(of_remotes, code);
    assert_int_equal(rp_remote_fetch(url, NULL, &file, &is_new, &error), code);
}

static void test_directories_of_others_are_refused(void **state)
{
    (void)state;
    make(0777);
    refuse("0777 found");
    make(0720);
    refuse("0720 found");
    make(0700);
    is_stranger = true;
    refuse("it belongs to user");
    is_stranger = false;
    clear();
    assert_int_equal(mkdir(target, 0700), 0);
    assert_int_equal(symlink(target, path), 0);
    refuse("no symlink expected");
    clear();
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    refuse("a directory");
}

static void test_the_own_one_is_made_and_used(void **state)
{
    (void)state;
    struct rp_error error;
    struct stat info;
    clear();
    char *found = rp_dir_of_caches(NULL);
    assert_string_equal(found, path);
    free(found);
    for (int turn = 0; turn < 2; turn++) {
        assert_int_equal(rp_dir_make_caches(blocks, &error), 0);
        assert_int_equal(stat(path, &info), 0);
        assert_int_equal(info.st_mode & 07777, 0700);
        assert_int_equal(access(blocks, F_OK), 0);
    }
}

/* Who names a directory answers for it. */
static void test_a_directory_that_was_named_is_used_as_it_is(void **state)
{
    (void)state;
    struct rp_error error;
    char inner[sizeof target + 8];
    snprintf(inner, sizeof inner, "%s/x", target);
    clear();
    assert_int_equal(mkdir(target, 0700), 0);
    assert_int_equal(chmod(target, 0777), 0);
    assert_int_equal(rp_dir_make_caches(target, &error), 0);
    assert_int_equal(rp_dir_make_caches(inner, &error), 0);
}

/* A home that others own, as HOME=/ is for a user without an entry: the one in /tmp is used. */
static void test_a_home_that_cannot_be_written_is_left_alone(void **state)
{
    (void)state;
    struct rp_error error;
    char own[sizeof target + 24];
    snprintf(own, sizeof own, "%s/.cache/ringpack", target);
    clear();
    assert_int_equal(mkdir(target, 0700), 0);
    setenv("HOME", "/proc/self", 1); /* no user can make a directory there, not even root */
    char *found = rp_dir_of_caches(NULL);
    assert_string_equal(found, path);
    free(found);
    setenv("HOME", target, 1);
    found = rp_dir_of_caches(NULL);
    assert_string_equal(found, own);
    assert_int_equal(rp_dir_make_caches(found, &error), 0);
    free(found);
    unsetenv("HOME");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_directories_of_others_are_refused),
        cmocka_unit_test(test_the_own_one_is_made_and_used),
        cmocka_unit_test(test_a_directory_that_was_named_is_used_as_it_is),
        cmocka_unit_test(test_a_home_that_cannot_be_written_is_left_alone),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
