/* SPDX-License-Identifier: Apache-2.0 */
/* Retention counts positions, not files. Saves at one position push no other out, a history is kept
 * if configured, and no checkpoint goes before its copy is verified. */
#include "checkpoint_sample.h"

#include <sys/stat.h>

#include "storage_fakes.h"

#define MANY 1000u

static struct rp_storage storage;

static struct rp_checkpoint_dir *open_dir(const char *path, uint32_t keep, const char *copies)
{
    struct rp_error error;
    struct rp_checkpoint_dir *dir;
    storage = fast_storage();
    if (sample_open_with(&dir, path, keep, copies, &storage, 8192, &error) < 0)
        fail_msg("%s", error.message);
    return dir;
}

static void save(struct rp_checkpoint_dir *dir, uint64_t row)
{
    struct rp_error error;
    if (sample_save(dir, row, NULL, &error) < 0)
        fail_msg("%s", error.message);
}

/* As an engine at its end: only a position that is not there already. */
static bool save_if_new(struct rp_checkpoint_dir *dir, uint64_t row)
{
    struct sample sample;
    char *path;
    sample_make(&sample, row);
    bool is_there = rp_checkpoint_is_saved(dir, &sample.info, sample.state, sizeof sample.state,
                                           &path);
    assert_int_equal(is_there, path != NULL);
    free(path);
    if (!is_there)
        save(dir, row);
    rp_checkpoint_prune(dir);
    return !is_there;
}

/* The rows of the present checkpoints, newest first: "30 20 10". */
static const char *rows_of(const char *path)
{
    static char text[4096];
    struct rp_error error;
    struct rp_checkpoint_entry *entries;
    size_t count, used = 0;
    text[0] = '\0';
    assert_int_equal(rp_checkpoint_list(path, &entries, &count, &error), 0);
    for (size_t i = 0; i < count && used < sizeof text; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%u", i ? " " : "",
                                 (unsigned)entries[i].info.next_row);
    rp_checkpoint_list_free(entries, count);
    return text;
}

/* A byte changes on the disk after the save was acknowledged: reading back finds it, no older one
 * goes, and the checkpoint counts no more, although another save follows. A start takes an older
 * one. The same if the save is not read back before the next pruning. */
static void test_a_save_that_changes_on_the_disk_keeps_older_ones(void **state)
{
    (void)state;
    struct rp_error error;
    char *path;
    for (unsigned reads_back = 0; reads_back < 2; reads_back++) {
        struct rp_checkpoint_dir *dir = open_dir("changed", 2, NULL);
        struct sample sample;
        save(dir, 10);
        save(dir, 20);
        assert_int_equal(sample_read_back, 0);
        sample_make(&sample, 30);
        assert_int_equal(rp_checkpoint_save(dir, &sample.info, sample.parts, 3, &path, &error), 0);
        damage(path, 8200);
        if (reads_back) {
            assert_int_equal(rp_checkpoint_read_back_save(dir, &error), -RP_E_CORRUPT);
            assert_non_null(strstr(error.message, path));
            damage(path, 8200); /* it is as it was: but not to be trusted */
            assert_int_equal(rp_checkpoint_read_back_save(dir, &error), 0); /* no file is left */
        }
        rp_checkpoint_prune(dir);
        assert_int_equal(count_names("changed", "checkpoint-"), 3);
        char *again;
        assert_false(
            rp_checkpoint_is_saved(dir, &sample.info, sample.state, sizeof sample.state, &again));
        if (reads_back)
            damage(path, 8200);
        assert_int_equal(newest_row("changed"), 20);
        save(dir, 40);
        assert_int_equal(count_names("changed", "checkpoint-"), 3); /* 40, the damaged one, 20 */
        assert_int_equal(newest_row("changed"), 40);
        save(dir, 50);
        assert_string_equal(rows_of("changed"), "50 40");
        rp_checkpoint_dir_close(dir);
        remove_directory("changed");
        free(path);
    }
}

/* Save, change a byte of the file, and read it back. Returns the path; the caller frees it. */
static char *save_badly(struct rp_checkpoint_dir *dir, uint64_t row)
{
    struct rp_error error;
    struct sample sample;
    char *path;
    sample_make(&sample, row);
    assert_int_equal(rp_checkpoint_save(dir, &sample.info, sample.parts, 3, &path, &error), 0);
    damage(path, 8200);
    assert_int_equal(rp_checkpoint_read_back_save(dir, &error), -RP_E_CORRUPT);
    rp_checkpoint_prune(dir);
    return path;
}

/* If several saves in turn are bad, the newest stays, and every one that is good on the disk after
 * all. */
static void test_bad_saves_do_not_fill_the_disk(void **state)
{
    (void)state;
    struct rp_checkpoint_dir *dir = open_dir("filled", 2, NULL);
    save(dir, 10);
    save(dir, 20);
    for (uint64_t row = 30; row < 90; row += 10) {
        free(save_badly(dir, row));
        assert_int_equal(count_names("filled", "checkpoint-"), 3);
    }
    char *once = save_badly(dir, 90);
    damage(once, 8200); /* it is as it was written */
    free(save_badly(dir, 100));
    assert_int_equal(count_names("filled", "checkpoint-"), 4);
    assert_int_equal(newest_row("filled"), 90);
    save(dir, 110); /* from here on the bad one before is none of those in turn */
    free(save_badly(dir, 120));
    assert_int_equal(count_names("filled", "checkpoint-"), 5); /* 120 110 100 90 20 */
    rp_checkpoint_dir_close(dir);
    free(once);
}

static void test_idle_restarts_lose_no_position(void **state)
{
    (void)state;
    struct rp_checkpoint_dir *dir = open_dir("idle", 3, NULL);
    for (uint64_t row = 10; row <= 50; row += 10)
        assert_true(save_if_new(dir, row));
    rp_checkpoint_dir_close(dir);
    assert_string_equal(rows_of("idle"), "50 40 30");
    for (unsigned i = 0; i < MANY; i++) {
        dir = open_dir("idle", 3, NULL);
        assert_false(save_if_new(dir, 50));
        rp_checkpoint_dir_close(dir);
    }
    assert_string_equal(rows_of("idle"), "50 40 30");
}

/* Also where the saves at one position are none of the same state, or of a program that knew no
 * better. */
static void test_saves_at_one_position_push_no_other_out(void **state)
{
    (void)state;
    struct rp_checkpoint_dir *dir = open_dir("same", 3, NULL);
    save(dir, 10);
    save(dir, 20);
    for (unsigned i = 0; i < MANY; i++)
        save(dir, 30);
    rp_checkpoint_dir_close(dir);
    assert_string_equal(rows_of("same"), "30 20 10");
}

static void test_a_save_that_differs_is_no_repetition(void **state)
{
    (void)state;
    struct sample sample;
    char *path;
    struct rp_checkpoint_dir *dir = open_dir("differs", 3, NULL);
    sample_make(&sample, 10);
    assert_false(
        rp_checkpoint_is_saved(dir, &sample.info, sample.state, sizeof sample.state, &path));
    save(dir, 10);
    assert_true(
        rp_checkpoint_is_saved(dir, &sample.info, sample.state, sizeof sample.state, &path));
    assert_string_equal(path, "differs/checkpoint-000000000001.rpc");
    free(path);
    assert_false(rp_checkpoint_is_saved(dir, &sample.info, sample.state, 299, &path));
    sample.state[7] ^= 1;
    assert_false(
        rp_checkpoint_is_saved(dir, &sample.info, sample.state, sizeof sample.state, &path));
    sample.state[7] ^= 1;
    sample.info.identity.low++; /* another stream */
    assert_false(
        rp_checkpoint_is_saved(dir, &sample.info, sample.state, sizeof sample.state, &path));
    sample.info.identity.low--;
    save(dir, 20); /* it is not the newest any more: a start would take the other one */
    assert_false(
        rp_checkpoint_is_saved(dir, &sample.info, sample.state, sizeof sample.state, &path));
    sample_make(&sample, 20);
    damage("differs/checkpoint-000000000002.rpc", 16384 + 50); /* its contents */
    assert_false(
        rp_checkpoint_is_saved(dir, &sample.info, sample.state, sizeof sample.state, &path));
    damage("differs/checkpoint-000000000002.rpc", 8192 + 50); /* its state */
    assert_false(
        rp_checkpoint_is_saved(dir, &sample.info, sample.state, sizeof sample.state, &path));
    rp_checkpoint_dir_close(dir);
}

static void test_a_history_is_kept(void **state)
{
    (void)state;
    struct rp_checkpoint_dir *dir = open_dir("history", 2, NULL);
    rp_checkpoint_keep_every(dir, 100);
    for (uint64_t row = 30; row <= 500; row += 30) {
        save(dir, row);
        if (row % 90 == 0) { /* whoever comes next keeps the same */
            rp_checkpoint_dir_close(dir);
            dir = open_dir("history", 2, NULL);
            rp_checkpoint_keep_every(dir, 100);
        }
    }
    rp_checkpoint_dir_close(dir);
    assert_string_equal(rows_of("history"), "480 450 420 300 210 120 30");
}

static void test_a_damaged_one_is_no_history(void **state)
{
    (void)state;
    struct rp_checkpoint_dir *dir = open_dir("harm", 2, NULL);
    save(dir, 10);
    save(dir, 20);
    rp_checkpoint_dir_close(dir);
    damage("harm/checkpoint-000000000001.rpc", 8192 + 50); /* its state; the head is good */
    dir = open_dir("harm", 2, NULL);
    rp_checkpoint_keep_every(dir, 100);
    save(dir, 110);
    save(dir, 120);
    rp_checkpoint_dir_close(dir);
    assert_string_equal(rows_of("harm"), "120 110 20");
}

static void test_nothing_goes_before_it_is_copied(void **state)
{
    (void)state;
    struct rp_checkpoint_dir *dir = open_dir("source", 2, "copies");
    save(dir, 10);
    assert_int_equal(rename("copies", "away"), 0); /* from now on copying fails */
    for (uint64_t row = 20; row <= 60; row += 10)
        save(dir, row);
    rp_checkpoint_dir_close(dir);
    /* The first one has a copy, if it was made in time; those after it have none. */
    assert_non_null(strstr(rows_of("source"), "60 50 40 30 20"));
    assert_int_equal(rename("away", "copies"), 0);
    dir = open_dir("source", 2, "copies"); /* the newest is copied, so the older ones may go */
    save(dir, 70);
    rp_checkpoint_dir_close(dir);
    assert_string_equal(rows_of("source"), "70 60");
    assert_int_equal(newest_row("copies"), 70);
}

/* A start without a new save still makes sure that there is a copy. */
static void test_what_was_not_copied_is_copied_at_the_next_end(void **state)
{
    (void)state;
    struct rp_checkpoint_dir *dir = open_dir("late", 2, NULL);
    save(dir, 10);
    rp_checkpoint_dir_close(dir);
    for (unsigned i = 0; i < 2; i++) { /* the second time it is there already */
        dir = open_dir("late", 2, "late-copies");
        assert_false(save_if_new(dir, 10));
        rp_checkpoint_dir_close(dir);
        assert_string_equal(rows_of("late-copies"), "10");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_save_that_changes_on_the_disk_keeps_older_ones),
        cmocka_unit_test(test_bad_saves_do_not_fill_the_disk),
        cmocka_unit_test(test_idle_restarts_lose_no_position),
        cmocka_unit_test(test_saves_at_one_position_push_no_other_out),
        cmocka_unit_test(test_a_save_that_differs_is_no_repetition),
        cmocka_unit_test(test_a_history_is_kept),
        cmocka_unit_test(test_a_damaged_one_is_no_history),
        cmocka_unit_test(test_nothing_goes_before_it_is_copied),
        cmocka_unit_test(test_what_was_not_copied_is_copied_at_the_next_end),
    };
    return cmocka_run_group_tests_name("checkpoint_prune", tests, sample_enter_memory,
                                       sample_leave);
}
