/* SPDX-License-Identifier: Apache-2.0 */
/* The file of a run record: it is read as it was written, every damaged one is refused or is a
 * record all the same, and each host, run and directory has one of its own. */
#include "checkpoint_sample.h"

#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/run_record.h"

#define ID "0123456789abcdef0123456789abcdef"

static size_t write_record(const char *path, uint64_t row)
{
    struct rp_run_record record = {.id = ID, .row = row, .device = 7};
    struct rp_error error;
    struct stat info;
    assert_int_equal(rp_checkpoint_run_record_write(&record, path, "run", "/a\nrow=1", &error), 0);
    assert_int_equal(stat(path, &info), 0);
    return (size_t)info.st_size;
}

static void it_is_read_as_it_was_written(void **state)
{
    (void)state;
    struct rp_run_record record;
    struct rp_error error;
    assert_int_equal(rp_checkpoint_run_record_read(&record, "none", &error), 0);
    write_record("whole", UINT64_MAX);
    assert_int_equal(rp_checkpoint_run_record_read(&record, "whole", &error), 1);
    assert_string_equal(record.id, ID);
    assert_true(record.row == UINT64_MAX); /* and not the path's */
    assert_int_equal(record.device, 7);
    assert_int_equal(strlen(record.date), strlen("2026-01-31 08:15:00"));
}

/* Every shorter file is refused, and every bit that flips, unless it makes another record. */
static void damage_is_refused(void **state)
{
    (void)state;
    char text[4096];
    struct rp_run_record record;
    struct rp_error error;
    size_t bytes = write_record("good", 12);
    FILE *file = fopen("good", "re");
    assert_int_equal(fread(text, 1, sizeof text, file), bytes);
    fclose(file);
    for (size_t bit = 0; bit < bytes * 8; bit++) {
        text[bit / 8] = (char)(text[bit / 8] ^ 1 << bit % 8);
        file = fopen("bad", "we");
        assert_int_equal(fwrite(text, 1, bytes, file), bytes);
        fclose(file);
        text[bit / 8] = (char)(text[bit / 8] ^ 1 << bit % 8);
        int code = rp_checkpoint_run_record_read(&record, "bad", &error);
        assert_true(code == -RP_E_CORRUPT || (code == 1 && rp_directory_id_is_valid(record.id)));
    }
    while (bytes-- > 0) {
        assert_int_equal(truncate("good", (off_t)bytes), 0);
        int code = rp_checkpoint_run_record_read(&record, "good", &error);
        if (code != 1) /* the last line is for people */
            assert_int_equal(code, -RP_E_CORRUPT);
        else
            assert_true(record.row == 12);
    }
}

static void each_run_and_directory_has_its_own(void **state)
{
    (void)state;
    assert_int_equal(mkdir("one", 0700) | mkdir("two", 0700) | symlink("one", "link"), 0);
    char *paths[] = {rp_checkpoint_run_record_path("/r", "a", "one"),
                     rp_checkpoint_run_record_path("/r", "a", "two"),
                     rp_checkpoint_run_record_path("/r", "b", "one"),
                     rp_checkpoint_run_record_path("/r", "a", "link")};
    assert_int_equal(strncmp(paths[0], "/r/a-", 5), 0);
    assert_string_not_equal(paths[0], paths[1]);
    assert_string_not_equal(paths[0], paths[2]);
    assert_string_equal(paths[0], paths[3]);
    assert_null(rp_checkpoint_run_record_path("/r", "a", "missing"));
    for (size_t i = 0; i < RP_ARRAY_COUNT(paths); i++)
        free(paths[i]);
}

static void check_dir(const char *state_home, const char *home, const char *expected)
{
    const char *why = NULL;
    assert_int_equal(
        state_home ? setenv("XDG_STATE_HOME", state_home, 1) : unsetenv("XDG_STATE_HOME"), 0);
    assert_int_equal(home ? setenv("HOME", home, 1) : unsetenv("HOME"), 0);
    char *found = rp_checkpoint_run_record_dir(NULL, &why);
    if (expected)
        assert_string_equal(found, expected);
    else
        assert_true(!found && strstr(why, "HOME"));
    free(found);
}

static void the_standard_directory_is_that_of_the_user(void **state)
{
    (void)state;
    const char *why;
    check_dir("/state", "/home/u", "/state/ringpack");
    check_dir(NULL, "/home/u", "/home/u/.local/state/ringpack");
    check_dir("relative", "/home/u", "/home/u/.local/state/ringpack"); /* as XDG wants it */
    check_dir("", "", NULL);
    check_dir(NULL, NULL, NULL);
    char *chosen = rp_checkpoint_run_record_dir("chosen", &why);
    assert_string_equal(chosen, "chosen");
    free(chosen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_read_as_it_was_written),
        cmocka_unit_test(damage_is_refused),
        cmocka_unit_test(each_run_and_directory_has_its_own),
        cmocka_unit_test(the_standard_directory_is_that_of_the_user),
    };
    return cmocka_run_group_tests(tests, sample_enter, sample_leave);
}
