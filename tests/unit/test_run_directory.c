/* SPDX-License-Identifier: Apache-2.0 */
/* The names of an engine live as long as the engine: made again and dated, whoever removes them; a
 * second engine of the name is refused meanwhile; and the default directories. */
#include "listener_kit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bits.h"

/* Removes the files in the run directory, and the directory itself if `all`. */
static void wipe(bool all)
{
    char command[160];
    snprintf(command, sizeof command, all ? "rm -rf '%s'" : "rm -f '%s'/*", run_dir);
    assert_int_equal(system(command), 0);
}

static bool can_connect(const char *directory)
{
    int fd = rp_socket_connect(directory, "r", &error);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static void names_that_vanish_are_made_again(void **state)
{
    (void)state;
    static const char *const parts[] = {"r.sock", "r.lock", "", "*"};
    struct rp_listener listener = open_listener("r");
    uint64_t now = 1;
    assert_true(rp_listener_check(&listener, now));
    for (size_t i = 0; i < RP_ARRAY_COUNT(parts); i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", run_dir, parts[i]);
        if (i < 2)
            assert_int_equal(unlink(path), 0);
        else
            wipe(i == 2);
        assert_true(rp_listener_check(&listener, now)); /* not yet: it checks once a second */
        now += 1000000000;
        assert_false(rp_listener_check(&listener, now));
        assert_int_equal(rp_listener_renew(&listener, &error), 0);
        now += 1000000000;
        assert_true(rp_listener_check(&listener, now));
        assert_true(can_connect(run_dir));
        struct rp_listener second;
        assert_int_equal(rp_listener_open(&second, run_dir, "r", &error), -RP_E_BUSY);
        int fd = rp_listener_accept(&listener, &error);
        assert_true(fd >= 0);
        close(fd);
    }
    rp_listener_close(&listener);
    assert_int_equal(access(run_dir, F_OK), -1);
}

static void a_directory_that_cannot_be_made_is_tried_again(void **state)
{
    (void)state;
    struct rp_listener listener = open_listener("r");
    wipe(true);
    FILE *file = fopen(run_dir, "w"); /* in the way */
    assert_non_null(file);
    fclose(file);
    for (uint64_t now = 2000000000; now < 5000000000; now += 1000000000) {
        assert_false(rp_listener_check(&listener, now));
        assert_true(rp_listener_renew(&listener, &error) < 0);
        assert_int_equal(rp_listener_accept(&listener, &error), -EAGAIN);
    }
    assert_int_equal(unlink(run_dir), 0);
    assert_int_equal(rp_listener_renew(&listener, &error), 0);
    assert_true(can_connect(run_dir));
    rp_listener_close(&listener);
}

/* The lock is a file, and somebody has removed it. */
static void a_second_engine_is_refused_in_a_wiped_directory(void **state)
{
    (void)state;
    struct rp_listener first = open_listener("r"), second;
    char pid[32];
    snprintf(pid, sizeof pid, "process %ld", (long)getpid());
    wipe(true);
    assert_int_equal(rp_listener_open(&second, run_dir, "r", &error), -RP_E_BUSY);
    assert_non_null(strstr(error.message, pid));
    struct rp_listener other = open_listener("other"); /* names do not stand in each other's way */
    rp_listener_close(&other);
    rp_listener_close(&first);
    second = open_listener("r");
    rp_listener_close(&second);
}

/* Files that another process has put there since are not this one's to remove. */
static void names_of_others_are_left_alone(void **state)
{
    (void)state;
    char path[128];
    struct rp_listener listener = open_listener("r");
    wipe(false);
    snprintf(path, sizeof path, "%s/r.sock", run_dir);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    rp_listener_close(&listener);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(run_dir), 0);
}

static void names_do_not_grow_old(void **state)
{
    (void)state;
    static const char *const names[] = {"r.sock", "r.lock"};
    const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    struct rp_listener listener = open_listener("r");
    struct stat found;
    assert_true(rp_listener_check(&listener, 1));
    for (unsigned round = 1; round <= 2; round++) {
        for (size_t i = 0; i < RP_ARRAY_COUNT(names); i++)
            assert_int_equal(utimensat(listener.directory_fd, names[i], old, AT_SYMLINK_NOFOLLOW),
                             0);
        assert_true(rp_listener_check(&listener, round * 3600000000000)); /* an hour later */
        for (size_t i = 0; i < RP_ARRAY_COUNT(names); i++) {
            assert_int_equal(fstatat(listener.directory_fd, names[i], &found, 0), 0);
            assert_true(found.st_mtime > 1000 && found.st_atime > 1000);
        }
    }
    rp_listener_close(&listener);
}

/* XDG_RUNTIME_DIR is of a login: a job that inherits it may run without one. */
static void a_default_directory_that_cannot_be_used_is_passed_over(void **state)
{
    (void)state;
    char runtime[64], own[80], fallback[64];
    snprintf(runtime, sizeof runtime, "%s/runtime", base);
    snprintf(own, sizeof own, "%s/ringpack", runtime);
    snprintf(fallback, sizeof fallback, "/tmp/ringpack-%u", geteuid());
    assert_int_equal(setenv("XDG_RUNTIME_DIR", runtime, 1), 0);
    const char *run = strrchr(base, '-') + 1; /* this process' own name */
    struct rp_listener listener;
    int fd;
    assert_int_equal(rp_listener_open(&listener, NULL, run, &error), 0);
    assert_string_equal(listener.path, fallback);
    assert_true((fd = rp_socket_connect(NULL, run, &error)) >= 0);
    close(fd);
    assert_int_equal(mkdir(runtime, 0700), 0); /* a login: it is still found */
    assert_true((fd = rp_socket_connect(NULL, run, &error)) >= 0);
    close(fd);
    rp_listener_close(&listener);

    assert_int_equal(rp_listener_open(&listener, NULL, run, &error), 0);
    assert_string_equal(listener.path, own);
    assert_int_equal(rp_listener_check(&listener, 1), true);
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", runtime);
    assert_int_equal(system(command), 0); /* the last logout */
    assert_false(rp_listener_check(&listener, 2000000000));
    assert_int_equal(rp_listener_renew(&listener, &error), 0);
    assert_string_equal(listener.path, fallback);
    assert_true((fd = rp_socket_connect(NULL, run, &error)) >= 0);
    close(fd);
    rp_listener_close(&listener);

    assert_int_equal(mkdir(runtime, 0700), 0);
    assert_int_equal(mkdir(own, 0700), 0);
    assert_int_equal(chmod(own, 0777), 0); /* anybody could put a socket there */
    assert_int_equal(rp_listener_open(&listener, NULL, run, &error), 0);
    assert_string_equal(listener.path, fallback);
    rp_listener_close(&listener);
    assert_int_equal(rp_socket_connect(NULL, run, &error), -RP_E_GONE);
    assert_non_null(strstr(error.message, own));
    assert_non_null(strstr(error.message, fallback));
    assert_int_equal(unsetenv("XDG_RUNTIME_DIR"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_that_vanish_are_made_again),
        cmocka_unit_test(a_directory_that_cannot_be_made_is_tried_again),
        cmocka_unit_test(a_second_engine_is_refused_in_a_wiped_directory),
        cmocka_unit_test(names_of_others_are_left_alone),
        cmocka_unit_test(names_do_not_grow_old),
        cmocka_unit_test(a_default_directory_that_cannot_be_used_is_passed_over),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
