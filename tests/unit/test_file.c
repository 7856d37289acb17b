/* SPDX-License-Identifier: Apache-2.0 */
/* Files: anything but a regular file is refused without blocking, a replacement is whole or absent,
 * and no file is left behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/file.h"

static char directory[] = "/tmp/rp-test-file-XXXXXX";

static int enter(void **state)
{
    (void)state;
    return mkdtemp(directory) && chdir(directory) == 0 ? 0 : -1;
}

static int leave(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", directory);
    return chdir("/") == 0 && system(command) == 0 ? 0 : -1;
}

static unsigned entries(void)
{
    unsigned count = 0;
    DIR *dir = opendir(".");
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

static void put(const char *path, const char *text)
{
    struct rp_error error;
    assert_int_equal(rp_file_replace(path, text, strlen(text), &error), 0);
}

static void test_open_refuses_what_is_no_file(void **state)
{
    (void)state;
    struct rp_error error;
    assert_int_equal(mkfifo("fifo", 0600), 0);
    assert_int_equal(mkdir("dir", 0700), 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "socket"};
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);

    assert_true(rp_file_open_read("fifo", NULL, &error) <
                0); /* would hang if it opened it to read */
    assert_non_null(strstr(error.message, "a FIFO"));
    assert_int_equal(rp_file_open_read("dir", NULL, &error), -EISDIR);
    assert_non_null(strstr(error.message, "a directory"));
    assert_true(rp_file_open_read("socket", NULL, &error) < 0);
    assert_non_null(strstr(error.message, "a socket"));
    assert_true(rp_file_open_read("/dev/null", NULL, &error) < 0);
    assert_non_null(strstr(error.message, "a device"));
    assert_int_equal(rp_file_open_read("missing", NULL, &error), -ENOENT);
    assert_non_null(strstr(error.message, "missing"));
    assert_int_equal(rp_file_open_read("missing", NULL, NULL), -ENOENT);
    close(listener);
    unlink("fifo"), unlink("socket"), rmdir("dir");
}

static void test_open_and_read(void **state)
{
    (void)state;
    struct rp_error error;
    uint64_t bytes = 0;
    char buffer[8] = {0};
    put("a", "0123456789");
    int fd = rp_file_open_read("a", &bytes, &error);
    assert_true(fd >= 0);
    assert_int_equal(bytes, 10);
    assert_int_equal(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
    assert_int_equal(rp_file_read_at(fd, "a", buffer, 4, 3, &error), 0);
    assert_string_equal(buffer, "3456");
    assert_int_equal(rp_file_read_at(fd, "a", buffer, 8, 5, &error), -RP_E_CHANGED);
    assert_non_null(strstr(error.message, "expected 8 bytes at offset 5, found 5"));
    close(fd);
    assert_int_equal(rp_file_read_at(fd, "a", buffer, 1, 0, &error), -EBADF);
    unlink("a");
}

static void test_read_all_is_bounded_and_terminated(void **state)
{
    (void)state;
    struct rp_error error;
    char *text;
    size_t bytes;
    put("a", "hello");
    assert_int_equal(rp_file_read_all("a", 5, &text, &bytes, &error), 0);
    assert_int_equal(bytes, 5);
    assert_string_equal(text, "hello");
    free(text);
    assert_int_equal(rp_file_read_all("a", 4, &text, &bytes, &error), -EFBIG);
    put("a", "");
    assert_int_equal(rp_file_read_all("a", 4, &text, &bytes, &error), 0);
    assert_int_equal(bytes, 0);
    assert_string_equal(text, "");
    free(text);
    unlink("a");
}

static void test_replace_keeps_the_old_until_publish(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_new_file new_file;
    char *text;
    put("a", "old");
    assert_int_equal(rp_new_file_open(&new_file, "a", &error), 0);
    assert_int_equal(rp_file_write(new_file.fd, "a", "nXw", 3, &error), 0);
    assert_int_equal(rp_file_write_at(new_file.fd, "a", "e", 1, 1, &error), 0);
    assert_int_equal(rp_file_read_all("a", 9, &text, NULL, &error), 0);
    assert_string_equal(text, "old");
    free(text);
    assert_int_equal(rp_new_file_publish(&new_file, &error), 0);
    assert_int_equal(rp_file_read_all("a", 9, &text, NULL, &error), 0);
    assert_string_equal(text, "new");
    free(text);
    rp_new_file_discard(&new_file); /* ended already: no effect */
    assert_int_equal(entries(), 1);
    unlink("a");
}

static void test_discard_leaves_nothing(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_new_file new_file;
    assert_int_equal(rp_new_file_open(&new_file, "a", &error), 0);
    assert_int_equal(rp_file_write(new_file.fd, "a", "x", 1, &error), 0);
    rp_new_file_discard(&new_file);
    assert_int_equal(entries(), 0);
    assert_true(rp_new_file_open(&new_file, "no/such/dir/a", &error) == -ENOENT);
    assert_non_null(strstr(error.message, "no/such/dir/a"));
}

/* RLIMIT_FSIZE stands in for a full disk: write(2) fails in the middle. */
static void test_failed_write_leaves_the_old(void **state)
{
    (void)state;
    struct rp_error error;
    struct rlimit before, limited;
    static char big[1 << 16];
    char *text;
    put("a", "old");
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limited = before;
    limited.rlim_cur = 1 << 12;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limited), 0);
    int code = rp_file_replace("a", big, sizeof big, &error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(code, -EFBIG);
    assert_int_equal(rp_file_read_all("a", 9, &text, NULL, &error), 0);
    assert_string_equal(text, "old");
    free(text);
    assert_int_equal(entries(), 1);
    unlink("a");
}

static void test_dir_make(void **state)
{
    (void)state;
    struct rp_error error;
    struct stat info;
    assert_int_equal(rp_dir_make("x/y//z/", &error), 0);
    assert_int_equal(stat("x/y/z", &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    assert_int_equal(rp_dir_make("x/y/z", &error), 0);
    put("x/file", "");
    assert_int_equal(rp_dir_make("x/file", &error), -ENOTDIR);
    assert_true(rp_dir_make("x/file/below", &error) < 0);
    assert_int_equal(rp_dir_make("/", &error), 0);
    int code = rp_dir_make("/sys/absent", &error); /* forbidden to all: the reason is named */
    assert_true(code == -EPERM || code == -EACCES || code == -EROFS);
}

static void test_map(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_map map;
    put("a", "hello");
    assert_int_equal(rp_map_open(&map, "a", &error), 0);
    assert_int_equal(map.bytes, 5);
    assert_memory_equal(map.data, "hello", 5);
    rp_map_close(&map);
    rp_map_close(&map);
    put("a", "");
    assert_int_equal(rp_map_open(&map, "a", &error), 0);
    assert_null(map.data);
    rp_map_close(&map);
    assert_int_equal(rp_map_open(&map, "missing", &error), -ENOENT);
}

static void test_path_directory(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"a", "."}, {"/a", "/"}, {"b/a", "b"}, {"/b/c/a", "/b/c"}, {"", "."}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *found = rp_path_directory(cases[i][0]);
        assert_string_equal(found, cases[i][1]);
        free(found);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open_refuses_what_is_no_file),
        cmocka_unit_test(test_open_and_read),
        cmocka_unit_test(test_read_all_is_bounded_and_terminated),
        cmocka_unit_test(test_replace_keeps_the_old_until_publish),
        cmocka_unit_test(test_discard_leaves_nothing),
        cmocka_unit_test(test_failed_write_leaves_the_old),
        cmocka_unit_test(test_dir_make),
        cmocka_unit_test(test_map),
        cmocka_unit_test(test_path_directory),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
