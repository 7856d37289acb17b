/* SPDX-License-Identifier: Apache-2.0 */
/* A directory of checkpoints: the one that counts, setting aside, retention, rewinding, the mirror,
 * and no run that starts from zero by itself. */
#include "checkpoint_sample.h"

#include <sys/stat.h>

#include "checkpoint/format.h"
#include "descriptor_zero.h"
#include "storage_fakes.h"

static const char *name_of(unsigned sequence)
{
    static char name[64];
    snprintf(name, sizeof name, "checkpoint-%012u.rpc", sequence);
    return name;
}

static char *path_of(const char *directory, unsigned sequence, const char *suffix)
{
    static char paths[4][128];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s%s", directory, name_of(sequence), suffix);
    return path;
}

static bool exists(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

/* ---- newest ---------------------------------------------------------------------------------- */

static void test_nothing_yet_is_no_error(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_checkpoint *checkpoint;
    assert_int_equal(rp_checkpoint_newest(&checkpoint, "absent", true, &error), 0);
    assert_null(checkpoint);
    sample_fill("fresh", 0); /* taken by a run that never saved */
    assert_int_equal(rp_checkpoint_newest(&checkpoint, "fresh", true, &error), 0);
    assert_int_equal(rp_file_replace("no-directory", "x", 1, &error), 0);
    assert_int_equal(rp_checkpoint_newest(&checkpoint, "no-directory", true, &error), -ENOTDIR);
}

static void test_a_damaged_one_is_set_aside_and_the_one_before_is_taken(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_checkpoint *checkpoint;
    sample_fill("aside", 4);
    damage(path_of("aside", 4, ""), 100);
    assert_int_equal(truncate(path_of("aside", 3, ""), 20000), 0);
    assert_int_equal(newest_row("aside"), 20); /* only read: */
    assert_true(exists(path_of("aside", 4, "")));
    hear_log();
    assert_int_equal(rp_checkpoint_newest(&checkpoint, "aside", true, &error), 1);
    const char *log = log_heard();
    assert_non_null(strstr(log, "checkpoint-000000000004.rpc: set aside as"));
    assert_null(strstr(log, "cannot"));
    assert_null(strstr(log, "contents"));
    assert_int_equal(rp_checkpoint_info(checkpoint)->next_row, 20);
    rp_checkpoint_close(checkpoint);
    assert_true(exists(path_of("aside", 4, ".bad")) && exists(path_of("aside", 3, ".bad")));
    assert_false(exists(path_of("aside", 4, "")) || exists(path_of("aside", 3, "")));

    uint64_t sequence; /* numbers of files set aside are not used again */
    struct rp_checkpoint_dir *dir;
    assert_int_equal(sample_open(&dir, "aside", 3, NULL, &error), 0);
    assert_int_equal(sample_save(dir, 50, &sequence, &error), 0);
    assert_int_equal(sequence, 5);
    rp_checkpoint_dir_close(dir);
}

/* A file that was set aside before stays as it is, also with a new file of its number; and if no
 * rename works, the one before is taken all the same. */
static void test_what_is_set_aside_already(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_checkpoint *checkpoint;
    sample_fill("already", 3);
    damage(path_of("already", 3, ""), 100);
    assert_int_equal(link(path_of("already", 3, ""), path_of("already", 3, ".bad")), 0);
    assert_int_equal(link(path_of("already", 3, ""), path_of("already", 4, ".bad")), 0);
    hear_log();
    assert_int_equal(rp_checkpoint_newest(&checkpoint, "already", true, &error), 1);
    assert_non_null(strstr(log_heard(), "3.rpc: cannot set this damaged checkpoint aside: File"));
    assert_int_equal(rp_checkpoint_info(checkpoint)->next_row, 20);
    rp_checkpoint_close(checkpoint);
    assert_true(exists(path_of("already", 3, "")) && exists(path_of("already", 4, ".bad")));

    struct rp_checkpoint_entry *entries;
    size_t count;
    assert_int_equal(rp_checkpoint_list("already", &entries, &count, &error), 0);
    assert_int_equal(count, 5);
    assert_int_equal(entries[0].status, RP_CHECKPOINT_SET_ASIDE);
    assert_non_null(strstr(entries[0].message, "damaged at byte"));
    assert_int_equal(entries[1].status, RP_CHECKPOINT_BAD); /* 3 before 3.bad */
    assert_int_equal(entries[2].status, RP_CHECKPOINT_SET_ASIDE);
    rp_checkpoint_list_free(entries, count);
    assert_int_equal(rp_checkpoint_rewind("already", 4, &error),
                     -RP_E_USAGE); /* it does not count */
}

static void test_damaged_contents_are_not_set_aside(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_checkpoint *checkpoint;
    sample_fill("lost", 2);
    damage(path_of("lost", 2, ""), 16384 + 50);
    hear_log();
    assert_int_equal(rp_checkpoint_newest(&checkpoint, "lost", true, &error), 1);
    assert_non_null(strstr(log_heard(), "its contents are damaged"));
    assert_int_equal(rp_checkpoint_info(checkpoint)->next_row, 20);
    assert_int_equal(rp_checkpoint_info(checkpoint)->contents_end_row, 20);
    assert_true(rp_checkpoint_contents_bad(checkpoint));
    rp_checkpoint_close(checkpoint);
    assert_true(exists(path_of("lost", 2, "")));
}

static void test_descriptor_zero_is_as_good_as_any(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_checkpoint *checkpoint;
    struct rp_checkpoint_dir *dir;
    sample_fill("zero", 2);
    int aside = free_zero();
    assert_int_equal(rp_checkpoint_newest(&checkpoint, "zero", true, &error), 1);
    rp_checkpoint_close(checkpoint);
    assert_int_equal(rp_checkpoint_rewind("zero", 1, &error), 0);
    assert_true(zero_is_free());
    assert_int_equal(sample_open(&dir, "zero", 3, "zero-too", &error), 0);
    assert_int_equal(sample_save(dir, 30, NULL, &error), 0);
    rp_checkpoint_dir_close(dir);
    give_back_zero(aside);
    assert_int_equal(newest_row("zero"), 30);
    assert_int_equal(newest_row("zero-too"), 30);
}

static void test_all_bad_is_an_error_and_changes_nothing(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_checkpoint *checkpoint;
    sample_fill("all-bad", 2);
    damage(path_of("all-bad", 1, ""), 8192 + 50);
    damage(path_of("all-bad", 2, ""), 100);
    assert_int_equal(rp_checkpoint_newest(&checkpoint, "all-bad", true, &error), -RP_E_CORRUPT);
    assert_null(checkpoint);
    assert_non_null(strstr(error.message, "none of its checkpoints verifies"));
    assert_non_null(strstr(error.hint, "--fresh"));
    assert_true(exists(path_of("all-bad", 1, "")) && exists(path_of("all-bad", 2, "")));
    /* Also when somebody has moved them all out of the way. */
    assert_int_equal(rename(path_of("all-bad", 1, ""), path_of("all-bad", 1, ".bad")), 0);
    assert_int_equal(rename(path_of("all-bad", 2, ""), path_of("all-bad", 2, ".rewound")), 0);
    assert_int_equal(rp_checkpoint_newest(&checkpoint, "all-bad", true, &error), -RP_E_CORRUPT);
}

static void test_what_may_be_good_is_not_stepped_over(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_checkpoint *checkpoint;
    sample_fill("newer", 2);
    size_t bytes;
    char *text;
    assert_int_equal(rp_file_read_all(path_of("newer", 2, ""), 1 << 20, &text, &bytes, &error), 0);
    text[8] = 2; /* a later format, hashed right */
    struct rp_hash128 hash = rp_hash128(text, 8176);
    memcpy(text + 8176, &hash, sizeof hash);
    assert_int_equal(rp_file_replace(path_of("newer", 2, ""), text, bytes, &error), 0);
    free(text);
    assert_int_equal(rp_checkpoint_newest(&checkpoint, "newer", true, &error), -RP_E_VERSION);
    assert_true(exists(path_of("newer", 2, "")));
}

static void test_what_only_looks_like_a_checkpoint(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_checkpoint *checkpoint;
    sample_fill("odd", 1);
    assert_int_equal(symlink(name_of(1), path_of("odd", 2, "")), 0);
    assert_int_equal(mkdir(path_of("odd", 3, ""), 0700), 0);
    assert_int_equal(mkfifo(path_of("odd", 4, ""), 0600), 0);
    assert_int_equal(link(path_of("odd", 1, ""), path_of("odd", 5, "")), 0); /* the header says 1 */
    assert_int_equal(link(path_of("odd", 1, ""), "odd/checkpoint-9.rpc"), 0);
    assert_int_equal(link(path_of("odd", 1, ""), "odd/checkpoint-0000000000099.rpc"), 0);
    assert_int_equal(link(path_of("odd", 1, ""), "odd/checkpoint-000000000099.rpc~"), 0);
    assert_int_equal(link(path_of("odd", 1, ""), "odd/checkpoint-+00000000099.rpc"), 0);
    assert_int_equal(newest_row("odd"), 10);
    assert_int_equal(rp_checkpoint_newest(&checkpoint, "odd", true, &error), 1);
    rp_checkpoint_close(checkpoint);
    assert_int_equal(count_names("odd", ".bad"), 4);
}

/* ---- keeping --------------------------------------------------------------------------------- */

static void test_the_newest_verified_are_kept(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_checkpoint_dir *dir;
    char *path;
    assert_int_equal(sample_open(&dir, "keep", 3, NULL, &error), 0);
    for (unsigned i = 1; i <= 6; i++) {
        struct sample sample;
        sample_make(&sample, i * 10);
        assert_int_equal(rp_checkpoint_save(dir, &sample.info, sample.parts, 3, &path, &error), 0);
        assert_string_equal(path, path_of("keep", i, ""));
        assert_int_equal(sample.info.sequence, i);
        free(path);
        rp_checkpoint_prune(dir);
        assert_int_equal(count_names("keep", "checkpoint-"), i < 3 ? i : 3);
    }
    rp_checkpoint_dir_close(dir);
    assert_true(exists(path_of("keep", 4, "")) && exists(path_of("keep", 6, "")));
}

static void test_damaged_ones_do_not_count_as_kept(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_checkpoint_dir *dir;
    sample_fill("count", 5);
    damage(path_of("count", 3, ""), 100);
    damage(path_of("count", 4, ""), 100);
    damage(path_of("count", 5, ""), 100);
    assert_int_equal(sample_open(&dir, "count", 2, NULL, &error), 0);
    assert_int_equal(sample_save(dir, 60, NULL, &error), 0);
    /* 6 is verified, 2 is the second: only 1 may go. */
    assert_true(exists(path_of("count", 6, "")) && exists(path_of("count", 2, "")));
    assert_false(exists(path_of("count", 1, "")));
    assert_true(exists(path_of("count", 3, "")));
    assert_int_equal(sample_save(dir, 70, NULL, &error), 0); /* now 7 and 6 */
    assert_int_equal(count_names("count", "checkpoint-"), 2);
    rp_checkpoint_dir_close(dir);
}

static void test_what_a_killed_run_left_is_swept(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_checkpoint_dir *dir;
    sample_fill("swept", 1);
    assert_int_equal(rp_file_replace("swept/.checkpoint-000000000002.rpc.tmp", "x", 1, &error), 0);
    assert_int_equal(rp_file_replace("swept/..probe.tmp", "x", 1, &error), 0);
    assert_int_equal(rp_file_replace("swept/.probe", "x", 1, &error), 0);
    assert_int_equal(rp_file_replace("swept/notes.txt", "x", 1, &error), 0);
    assert_int_equal(sample_open(&dir, "swept", 3, NULL, &error), 0);
    rp_checkpoint_dir_close(dir);
    assert_int_equal(count_names("swept", ".tmp") + count_names("swept", "probe"), 0);
    assert_true(exists("swept/notes.txt") && exists(path_of("swept", 1, "")));
}

/* Users may give the directory of their models. */
static void test_temporary_files_of_others_are_left_alone(void **state)
{
    (void)state;
    static const char *const foreign[] = {
        "shared/.model.safetensors.tmp",
        "shared/.checkpoint-7.rpc.tmp",
        "shared/.checkpoint-000000000007.pt.tmp",
        "shared/.checkpoint-000000000007.rpc.tmp.tmp",
        "shared/..tmp",
        "shared/.tmp",
    };
    struct rp_error error;
    struct rp_checkpoint_dir *dir;
    sample_fill("shared", 1);
    for (size_t i = 0; i < RP_ARRAY_COUNT(foreign); i++)
        assert_int_equal(rp_file_replace(foreign[i], "x", 1, &error), 0);
    assert_int_equal(sample_open(&dir, "shared", 3, NULL, &error), 0);
    rp_checkpoint_dir_close(dir);
    for (size_t i = 0; i < RP_ARRAY_COUNT(foreign); i++)
        assert_true(exists(foreign[i]));
}

static void test_numbers_that_end(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_checkpoint_dir *dir;
    assert_int_equal(mkdir("end", 0700), 0);
    assert_int_equal(rp_file_replace("end/checkpoint-999999999999.rpc.bad", "x", 1, &error), 0);
    assert_int_equal(sample_open(&dir, "end", 3, NULL, &error), 0);
    assert_int_equal(sample_save(dir, 10, NULL, &error), -RP_E_RESOURCE);
    rp_checkpoint_dir_close(dir);
}

/* ---- list and rewind ------------------------------------------------------------------------- */

static void test_list(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_checkpoint_entry *entries;
    size_t count;
    sample_fill("list", 5);
    damage(path_of("list", 3, ""), 100);
    assert_int_equal(rename(path_of("list", 2, ""), path_of("list", 2, ".bad")), 0);
    assert_int_equal(rename(path_of("list", 4, ""), path_of("list", 4, ".rewound")), 0);
    damage(path_of("list", 5, ""), 100);
    assert_int_equal(rename(path_of("list", 5, ""), path_of("list", 5, ".rewound")), 0);
    assert_int_equal(rp_checkpoint_list("list", &entries, &count, &error), 0);
    assert_int_equal(count, 5);
    assert_int_equal(entries[0].status, RP_CHECKPOINT_REWOUND); /* and damaged */
    assert_non_null(strstr(entries[0].message, "damaged at byte"));
    assert_int_equal(entries[1].status, RP_CHECKPOINT_REWOUND);
    assert_int_equal(entries[1].info.next_row, 40);
    assert_int_equal(entries[2].status, RP_CHECKPOINT_BAD);
    assert_non_null(strstr(entries[2].message, "damaged at byte"));
    assert_int_equal(entries[3].status, RP_CHECKPOINT_SET_ASIDE);
    assert_int_equal(entries[4].status, RP_CHECKPOINT_GOOD);
    assert_int_equal(entries[4].sequence, 1);
    assert_int_equal(entries[4].info.next_row, 10);
    assert_int_equal(entries[4].bytes, 24576);
    assert_string_equal(entries[4].name, name_of(1));
    rp_checkpoint_list_free(entries, count);
    assert_int_equal(rp_checkpoint_list("absent", &entries, &count, &error), -ENOENT);
    sample_fill("list-empty", 0);
    assert_int_equal(rp_checkpoint_list("list-empty", &entries, &count, &error), 0);
    assert_int_equal(count, 0);
    rp_checkpoint_list_free(entries, count);
}

static void test_rewind(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_checkpoint_dir *dir;
    uint64_t sequence;
    sample_fill("rewind", 4);
    damage(path_of("rewind", 1, ""), 100);
    assert_int_equal(rp_checkpoint_rewind("rewind", 9, &error), -RP_E_USAGE);
    assert_int_equal(rp_checkpoint_rewind("rewind", 1, &error), -RP_E_CORRUPT);
    assert_int_equal(newest_row("rewind"), 40); /* refused, without a change */
    assert_int_equal(rp_checkpoint_rewind("rewind", 2, &error), 0);
    assert_int_equal(newest_row("rewind"), 20);
    assert_true(exists(path_of("rewind", 3, ".rewound")) &&
                exists(path_of("rewind", 4, ".rewound")));
    assert_int_equal(rp_checkpoint_rewind("rewind", 2, &error), 0); /* again: no action */

    assert_int_equal(sample_open(&dir, "rewind", 3, NULL, &error), 0);
    assert_int_equal(sample_save(dir, 30, &sequence, &error), 0);
    assert_int_equal(sequence, 5); /* so that the rewound ones can come back under their names */
    rp_checkpoint_dir_close(dir);
    assert_true(exists(path_of("rewind", 3, ".rewound")) &&
                exists(path_of("rewind", 4, ".rewound")));
    assert_int_equal(rename(path_of("rewind", 4, ".rewound"), path_of("rewind", 4, "")), 0);
    assert_int_equal(newest_row("rewind"), 30);

    assert_int_equal(rp_checkpoint_rewind("absent", 1, &error), -ENOENT);
    assert_false(exists("absent")); /* a mistyped path is not made */
}

/* ---- a directory that its path does not lead to any more ------------------------------------- */

static void test_what_no_restart_would_find_is_not_saved(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_checkpoint_dir *dir;
    assert_int_equal(sample_open(&dir, "here-now", 2, NULL, &error), 0);
    assert_int_equal(sample_save(dir, 10, NULL, &error), 0);
    assert_int_equal(rename("here-now", "elsewhere"), 0);
    assert_int_equal(sample_save(dir, 20, NULL, &error), -ENOENT);
    assert_int_equal(mkdir("here-now", 0700), 0); /* or something was mounted there */
    assert_int_equal(sample_save(dir, 20, NULL, &error), -ENOENT);
    assert_non_null(strstr(error.message, "here-now: the checkpoint directory is not there"));
    assert_non_null(strstr(error.hint, "bring it back"));
    assert_int_equal(newest_row("elsewhere"), 10);
    assert_int_equal(count_names("here-now", "checkpoint-"), 0);

    assert_int_equal(rmdir("here-now"), 0);
    assert_int_equal(symlink("elsewhere", "here-now"), 0); /* moved for good: it is found */
    assert_int_equal(sample_save(dir, 30, NULL, &error), 0);
    assert_int_equal(newest_row("here-now"), 30);
    rp_checkpoint_dir_close(dir);
}

static void test_a_directory_that_another_run_has_taken(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_checkpoint_dir *first, *second;
    assert_int_equal(sample_open(&first, "taken", 2, NULL, &error), 0);
    assert_int_equal(sample_open(&second, "taken", 2, NULL, &error), -RP_E_BUSY);
    assert_int_equal(unlink("taken/.lock"), 0);
    assert_int_equal(sample_save(first, 10, NULL, &error), 0); /* no other engine is there yet */
    assert_int_equal(sample_open(&second, "taken", 2, NULL, &error), 0);
    assert_int_equal(sample_save(first, 20, NULL, &error), -RP_E_BUSY);
    assert_non_null(strstr(error.message, "taken: .lock was removed"));
    assert_int_equal(sample_save(second, 30, NULL, &error), 0);
    assert_int_equal(newest_row("taken"), 30);
    rp_checkpoint_dir_close(first);
    rp_checkpoint_dir_close(second);
}

/* ---- the mirror --------------------------------------------------------------------- */

static void test_copies(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_checkpoint_dir *dir;
    char *here, *there;
    size_t here_bytes, there_bytes;
    for (unsigned i = 1; i <= 5; i++) { /* closing waits for the copy, so none is skipped */
        assert_int_equal(sample_open(&dir, "here", 2, "there", &error), 0);
        assert_int_equal(sample_save(dir, i * 10, NULL, &error), 0);
        rp_checkpoint_dir_close(dir);
    }
    assert_int_equal(count_names("there", "checkpoint-"), 2);
    assert_int_equal(newest_row("there"), 50);
    assert_int_equal(rp_file_read_all(path_of("here", 5, ""), 1 << 20, &here, &here_bytes, &error),
                     0);
    assert_int_equal(
        rp_file_read_all(path_of("there", 5, ""), 1 << 20, &there, &there_bytes, &error), 0);
    assert_int_equal(here_bytes, there_bytes);
    assert_memory_equal(here, there, here_bytes);
    free(here), free(there);

    remove_directory("here"); /* a new node: its numbers continue above the copies */
    uint64_t sequence;
    assert_int_equal(sample_open(&dir, "here", 2, "there", &error), 0);
    assert_int_equal(sample_save(dir, 60, &sequence, &error), 0);
    assert_int_equal(sequence, 6);
    rp_checkpoint_dir_close(dir);
    assert_int_equal(newest_row("there"), 60);
}

static void test_a_broken_mirror(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_checkpoint_dir *dir;
    assert_int_equal(rp_file_replace("file", "x", 1, &error), 0);
    assert_true(sample_open(&dir, "primary", 2, "file/copies", &error) < 0); /* known at start */
    assert_non_null(strstr(error.message, "mirror"));
    assert_null(dir);
    assert_int_equal(sample_open(&dir, "primary", 2, "primary", &error), -RP_E_BUSY);

    assert_int_equal(sample_open(&dir, "primary", 2, "gone", &error), 0);
    remove_directory("gone");
    assert_int_equal(sample_save(dir, 10, NULL, &error), 0);
    rp_checkpoint_dir_close(dir);
    assert_int_equal(newest_row("primary"), 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_yet_is_no_error),
        cmocka_unit_test(test_a_damaged_one_is_set_aside_and_the_one_before_is_taken),
        cmocka_unit_test(test_what_is_set_aside_already),
        cmocka_unit_test(test_damaged_contents_are_not_set_aside),
        cmocka_unit_test(test_descriptor_zero_is_as_good_as_any),
        cmocka_unit_test(test_all_bad_is_an_error_and_changes_nothing),
        cmocka_unit_test(test_what_may_be_good_is_not_stepped_over),
        cmocka_unit_test(test_what_only_looks_like_a_checkpoint),
        cmocka_unit_test(test_the_newest_verified_are_kept),
        cmocka_unit_test(test_damaged_ones_do_not_count_as_kept),
        cmocka_unit_test(test_what_a_killed_run_left_is_swept),
        cmocka_unit_test(test_temporary_files_of_others_are_left_alone),
        cmocka_unit_test(test_numbers_that_end),
        cmocka_unit_test(test_list),
        cmocka_unit_test(test_rewind),
        cmocka_unit_test(test_what_no_restart_would_find_is_not_saved),
        cmocka_unit_test(test_a_directory_that_another_run_has_taken),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_a_broken_mirror),
    };
    return cmocka_run_group_tests_name("checkpoint_retention", tests, sample_enter, sample_leave);
}
