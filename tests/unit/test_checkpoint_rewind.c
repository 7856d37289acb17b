/* SPDX-License-Identifier: Apache-2.0 */
/* A rewind holds for the mirror: the next start that has one renames the copies of rewound
 * checkpoints, and no others, so a directory that is lost later resumes at the right row. */
#include "checkpoint_sample.h"

#include "storage_fakes.h"

static struct rp_storage storage;

static struct rp_checkpoint_dir *open_dir(const char *copies)
{
    struct rp_error error;
    struct rp_checkpoint_dir *dir;
    storage = fast_storage();
    if (sample_open_with(&dir, "run", 10, copies, &storage, 8192, &error) < 0)
        fail_msg("%s", error.message);
    return dir;
}

static void start_and_end(const char *copies)
{
    rp_checkpoint_dir_close(open_dir(copies));
}

/* Closing waits for the copy, so each save has one. */
static void save(uint64_t row)
{
    struct rp_error error;
    struct rp_checkpoint_dir *dir = open_dir("copies");
    if (sample_save(dir, row, NULL, &error) < 0)
        fail_msg("%s", error.message);
    rp_checkpoint_dir_close(dir);
}

static void rewind_to(uint64_t sequence)
{
    struct rp_error error;
    if (rp_checkpoint_rewind("run", sequence, &error) < 0)
        fail_msg("%s", error.message);
}

/* A name of the directory: is it there? */
static bool has(const char *directory, unsigned sequence, const char *suffix)
{
    char path[128];
    snprintf(path, sizeof path, "%s/checkpoint-%012u.rpc%s", directory, sequence, suffix);
    return access(path, F_OK) == 0;
}

/* As by hand. */
static void undo(unsigned sequence)
{
    char from[128], to[128];
    snprintf(from, sizeof from, "run/checkpoint-%012u.rpc.rewound", sequence);
    snprintf(to, sizeof to, "run/checkpoint-%012u.rpc", sequence);
    assert_int_equal(rename(from, to), 0);
}

/* Rows 8, 16 and 24, all copied. */
static void prepare(void)
{
    for (uint64_t row = 8; row <= 24; row += 8)
        save(row);
    assert_int_equal(newest_row("copies"), 24);
}

static void clean_up(void)
{
    remove_directory("run");
    remove_directory("copies");
}

static void a_directory_that_is_lost_after_a_rewind(void **state)
{
    (void)state;
    prepare();
    rewind_to(1);
    assert_int_equal(count_names("run", ".rewind-000000000001-000000000003"), 1);
    assert_int_equal(newest_row("copies"), 24); /* the rewind does not know where they are */
    start_and_end("copies");
    assert_int_equal(newest_row("run"), 8);
    assert_int_equal(newest_row("copies"), 8);
    assert_true(has("copies", 2, ".rewound") && has("copies", 3, ".rewound"));
    assert_int_equal(count_names("run", ".rewind-"), 0);
    save(32);
    start_and_end("copies"); /* all is done */
    assert_int_equal(newest_row("copies"), 32);
    clean_up();
}

/* The directory has pruned checkpoints that its copies still have. */
static void copies_of_what_was_pruned(void **state)
{
    (void)state;
    prepare();
    assert_int_equal(unlink("run/checkpoint-000000000002.rpc"), 0);
    rewind_to(1);
    start_and_end("copies");
    assert_true(has("copies", 1, "") && has("copies", 2, ".rewound") &&
                has("copies", 3, ".rewound"));
    clean_up();
}

static void starts_without_a_second_location_between(void **state)
{
    (void)state;
    struct rp_error error;
    prepare();
    rewind_to(2);
    for (uint64_t row = 17; row <= 18; row++) { /* 4 and 5, without copies */
        struct rp_checkpoint_dir *dir = open_dir(NULL);
        assert_int_equal(sample_save(dir, row, NULL, &error), 0);
        rp_checkpoint_dir_close(dir);
    }
    rewind_to(4); /* two marks, then */
    assert_int_equal(count_names("run", ".rewind-"), 2);
    start_and_end("copies");
    assert_int_equal(count_names("run", ".rewind-"), 0);
    assert_int_equal(newest_row("run"), 17);
    assert_int_equal(newest_row("copies"), 16);
    clean_up();
}

static void a_rewind_that_is_undone(void **state)
{
    (void)state;
    prepare();
    rewind_to(1);
    undo(2);
    start_and_end("copies"); /* only 3 is still given up */
    assert_true(has("copies", 2, "") && has("copies", 3, ".rewound"));
    assert_int_equal(newest_row("copies"), newest_row("run"));
    clean_up();

    prepare();
    rewind_to(1);
    undo(3);
    start_and_end("copies");
    assert_int_equal(newest_row("copies"), 24);
    assert_int_equal(count_names("copies", ".rewound"), 0);
    clean_up();
}

/* A rewind that was undone after a start is copied again, and done again. */
static void a_rewind_that_is_repeated(void **state)
{
    (void)state;
    struct rp_checkpoint_dir *dir;
    struct sample sample;
    char *path;
    prepare();
    rewind_to(2);
    start_and_end("copies");
    undo(3);
    dir = open_dir("copies");
    sample_make(&sample, 24);
    assert_true(
        rp_checkpoint_is_saved(dir, &sample.info, sample.state, sizeof sample.state, &path));
    free(path);
    rp_checkpoint_dir_close(dir);
    assert_true(has("copies", 3, "") && has("copies", 3, ".rewound"));
    rewind_to(2);
    start_and_end("copies");
    assert_true(has("copies", 3, ".rewound"));
    assert_false(has("copies", 3, ""));
    assert_int_equal(newest_row("copies"), 16);
    clean_up();
}

/* The mark is there, and then no file was renamed, or only the newest checkpoint. */
static void a_rewind_that_was_interrupted(void **state)
{
    (void)state;
    struct rp_error error;
    prepare();
    assert_int_equal(rp_file_replace("run/.rewind-000000000001-000000000003", "", 0, &error), 0);
    start_and_end("copies");
    assert_int_equal(newest_row("copies"), 24);
    assert_int_equal(rp_file_replace("run/.rewind-000000000001-000000000003", "", 0, &error), 0);
    assert_int_equal(
        rename("run/checkpoint-000000000003.rpc", "run/checkpoint-000000000003.rpc.rewound"), 0);
    start_and_end("copies");
    assert_int_equal(newest_row("run"), 16);
    assert_int_equal(newest_row("copies"), 16);
    clean_up();
}

static void names_that_only_look_like_a_mark(void **state)
{
    (void)state;
    static const char *const names[] = {
        "run/.rewind-1-3",
        "run/.rewind-000000000001-000000000003.tmp",
        "run/.rewind-000000000001",
        "run/.rewind-000000000001-+00000000003",
    };
    struct rp_error error;
    prepare();
    rewind_to(3); /* no later checkpoint, so no action */
    assert_int_equal(count_names("run", ".rewind-"), 0);
    for (size_t i = 0; i < RP_ARRAY_COUNT(names); i++)
        assert_int_equal(rp_file_replace(names[i], "", 0, &error), 0);
    assert_int_equal(rename("run/checkpoint-000000000003.rpc", "run/away"), 0);
    start_and_end("copies");
    assert_int_equal(newest_row("copies"), 24);
    assert_int_equal(count_names("run", ".rewind-"), RP_ARRAY_COUNT(names));
    clean_up();
}

/* ---- calls that fail ------------------------------------------------------------------------- */

/* Each call of a start that has copies to rename fails: the start is refused, or it has renamed
 * them; and the next one has. */
static void each_call_of_the_start_fails(void **state)
{
    (void)state;
    struct faulty faulty;
    struct rp_error error;
    unsigned refused = 0;
    bool is_past = false;
    for (unsigned at = 0; !is_past; at++) {
        struct rp_checkpoint_dir *dir;
        prepare();
        rewind_to(1);
        faulty_init(&faulty);
        faulty_arm(&faulty, FAULT_CODE, -EIO, at, false);
        int code = sample_open_with(&dir, "run", 10, "copies", &faulty.storage, 8192, &error);
        is_past = faulty.hits == 0;
        refused += code < 0;
        if (code == 0)
            assert_int_equal(newest_row("copies"), 8);
        else
            assert_non_null(strstr(error.message, rp_strerror(-EIO)));
        rp_checkpoint_dir_close(dir);
        start_and_end("copies");
        assert_int_equal(newest_row("copies"), 8);
        assert_true(has("copies", 3, ".rewound") && has("run", 3, ".rewound"));
        clean_up();
    }
    assert_true(refused >= 3); /* two renames and a sync, and the calls of the trials */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_directory_that_is_lost_after_a_rewind),
        cmocka_unit_test(copies_of_what_was_pruned),
        cmocka_unit_test(starts_without_a_second_location_between),
        cmocka_unit_test(a_rewind_that_is_undone),
        cmocka_unit_test(a_rewind_that_is_repeated),
        cmocka_unit_test(a_rewind_that_was_interrupted),
        cmocka_unit_test(names_that_only_look_like_a_mark),
        cmocka_unit_test(each_call_of_the_start_fails),
    };
    return cmocka_run_group_tests_name("checkpoint_rewind", tests, sample_enter_memory,
                                       sample_leave);
}
