/* SPDX-License-Identifier: Apache-2.0 */
/* Kept checkpoints are read again from time to time: one that decays, or a copy, is named and
 * counted, stays, and is no reason to remove older ones. */
#include "checkpoint_sample.h"

#include <time.h>

#include "storage_fakes.h"

static struct rp_scrub_counts counts;

static void sleep_shortly(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

/* Until a pass has ended that began after now. */
static void wait_for_pass(const struct rp_checkpoint_dir *dir)
{
    rp_checkpoint_dir_scrubs(dir, &counts);
    for (uint64_t passes = counts.passes; counts.passes < passes + 2; sleep_shortly())
        rp_checkpoint_dir_scrubs(dir, &counts);
}

static void save(struct rp_checkpoint_dir *dir, uint64_t row)
{
    struct rp_error error;
    if (sample_save(dir, row, NULL, &error) < 0 || sample_read_back < 0)
        fail_msg("%s", error.message);
}

/* The newest position is copied: the copier is done. */
static void wait_for_copy(const struct rp_checkpoint_dir *dir, uint64_t row)
{
    struct rp_copy_counts copies;
    do {
        sleep_shortly();
        rp_checkpoint_dir_copies(dir, &copies);
    } while (copies.is_at_work || copies.row != row);
}

static void test_what_decays_is_named_and_older_ones_stay(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_checkpoint_dir *dir;
    assert_int_equal(sample_open(&dir, "kept", 2, "copies", &error), 0);
    rp_checkpoint_dir_scrubs(dir, &counts); /* no reader yet */
    assert_int_equal(counts.passes, 0);
    assert_int_equal(rp_checkpoint_dir_scrub(dir, 1, &error), 0);
    for (uint64_t row = 10; row <= 20; row += 10) {
        save(dir, row);
        wait_for_copy(dir, row);
    }
    for (; counts.files != 4; sleep_shortly()) /* the first pass that begins from now on */
        rp_checkpoint_dir_scrubs(dir, &counts);
    assert_int_equal(counts.failures, 0);
    assert_int_equal(counts.reason[0], 0);

    hear_log();
    damage("kept/checkpoint-000000000002.rpc", 8200);
    damage("copies/checkpoint-000000000001.rpc", 20000);
    wait_for_pass(dir);
    const char *heard = log_heard();
    assert_non_null(
        strstr(heard, "kept/checkpoint-000000000002.rpc: a kept checkpoint is damaged"));
    assert_non_null(strstr(heard, "copies/checkpoint-000000000001.rpc: a kept checkpoint is dam"));
    assert_int_equal(counts.files, 2);
    assert_int_equal(counts.failures, 2);
    assert_non_null(strstr(counts.reason, "other bytes than were written"));

    save(dir, 30); /* 20 is one of the two newest, and damaged: so 10 stays */
    wait_for_copy(dir, 30);
    assert_int_equal(access("kept/checkpoint-000000000001.rpc", R_OK), 0);
    assert_int_equal(access("kept/checkpoint-000000000002.rpc", R_OK), 0);
    damage("kept/checkpoint-000000000002.rpc", 8200); /* good again: it was damaged once */
    save(dir, 40);
    wait_for_copy(dir, 40);
    rp_checkpoint_dir_close(dir);
    assert_int_equal(newest_row("kept"), 40);
    assert_int_equal(access("kept/checkpoint-000000000003.rpc", R_OK), 0);
}

static void test_a_pass_ends_at_once(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_checkpoint_dir *dir;
    assert_int_equal(sample_open(&dir, "ends", 2, NULL, &error), 0);
    assert_int_equal(rp_checkpoint_dir_scrub(dir, 31536000, &error), 0);
    save(dir, 10);
    rp_checkpoint_dir_close(dir); /* within the test's time limit, not within a year */
    assert_int_equal(sample_open(&dir, "ends", 2, NULL, &error), 0);
    assert_int_equal(rp_checkpoint_dir_scrub(dir, 0, &error), 0);
    rp_checkpoint_dir_scrubs(dir, &counts);
    assert_int_equal(counts.passes, 0);
    rp_checkpoint_dir_close(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_decays_is_named_and_older_ones_stay),
        cmocka_unit_test(test_a_pass_ends_at_once),
    };
    return cmocka_run_group_tests_name("checkpoint_scrub", tests, sample_enter, sample_leave);
}
