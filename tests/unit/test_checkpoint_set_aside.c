/* SPDX-License-Identifier: Apache-2.0 */
/* Fresh starts set checkpoints aside: none is removed or overwritten, numbers continue, and an
 * interrupted one continues from the newest. */
#include "checkpoint_sample.h"

#include <sys/stat.h>

#include "storage_fakes.h"

static struct rp_checkpoint_dir *open_dir(const char *path, struct rp_storage *storage)
{
    struct rp_error error;
    struct rp_checkpoint_dir *dir;
    if (sample_open_with(&dir, path, 3, NULL, storage, 8192, &error) < 0)
        fail_msg("%s", error.message);
    return dir;
}

static void set_aside(const char *path, int expected)
{
    struct rp_error error;
    struct rp_checkpoint_dir *dir = open_dir(path, &rp_storage_system);
    assert_int_equal(rp_checkpoint_set_aside_all(dir, &error), expected);
    rp_checkpoint_dir_close(dir);
}

static void test_everything_moves_under_its_own_name(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_set_aside *asides;
    size_t count;
    uint64_t sequence;
    sample_fill("all", 3);
    assert_int_equal(
        rename("all/checkpoint-000000000001.rpc", "all/checkpoint-000000000001.rpc.bad"), 0);
    set_aside("all", 3);
    assert_int_equal(count_names("all", "checkpoint-"), 0);
    set_aside("all", 0); /* no checkpoint is left: no second directory */
    assert_int_equal(rp_checkpoint_set_asides("all", &asides, &count, &error), 0);
    assert_int_equal(count, 1);
    assert_int_equal(asides[0].count, 3);
    assert_int_equal(asides[0].oldest_sequence, 1);
    assert_int_equal(asides[0].newest_sequence, 3);
    char path[64];
    snprintf(path, sizeof path, "all/%s", asides[0].name);
    assert_int_equal(newest_row(path), 30);
    free(asides);

    struct rp_checkpoint_dir *dir = open_dir("all", &rp_storage_system);
    assert_int_equal(sample_save(dir, 70, &sequence, &error), 0);
    assert_int_equal(sequence, 4); /* above those that were set aside */
    rp_checkpoint_dir_close(dir);
    set_aside("all", 1); /* the same day: another directory */
    assert_int_equal(rp_checkpoint_set_asides("all", &asides, &count, &error), 0);
    assert_int_equal(count, 2);
    free(asides);
}

/* Each rename fails once: a run continues from the newest remaining one, and the next try does the
 * rest. */
static void test_a_failure_half_way_leaves_the_newest(void **state)
{
    (void)state;
    for (unsigned at = 0; at < 4; at++) {
        char path[32];
        struct rp_error error;
        snprintf(path, sizeof path, "half-%u", at);
        sample_fill(path, 4);
        static struct faulty faulty;
        faulty_init(&faulty);
        struct rp_checkpoint_dir *dir = open_dir(path, &faulty.storage);
        faulty_arm(&faulty, FAULT_CODE, -EIO, at, false);
        assert_true(rp_checkpoint_set_aside_all(dir, &error) < 0);
        assert_non_null(strstr(error.hint, "no file is lost"));
        faulty.armed = false;
        rp_checkpoint_dir_close(dir);
        assert_int_equal(newest_row(path), 40);
        set_aside(path, 4 - (int)at);
        assert_int_equal(newest_row(path), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everything_moves_under_its_own_name),
        cmocka_unit_test(test_a_failure_half_way_leaves_the_newest),
    };
    return cmocka_run_group_tests_name("checkpoint_set_aside", tests, sample_enter_memory,
                                       sample_leave);
}
