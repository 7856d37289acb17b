/* SPDX-License-Identifier: Apache-2.0 */
/* Every allocation of an operation on checkpoints fails once, and all from there on: the operation
 * fails with a message or works, existing files stay, and with memory again it works. */
#include "checkpoint_sample.h"

#include "memory_faults.h"

#include "base/hash.h"
#include "storage_fakes.h"

#define CALLS_MAX 1000u /* no operation here needs as many allocations */

static struct rp_storage storage;
static struct rp_checkpoint_dir *open_one;

static int take_directory(struct rp_error *error)
{
    struct rp_checkpoint_dir *dir;
    int code = sample_open_with(&dir, "place", 3, NULL, &storage, 8192, error);
    if (code == 0)
        rp_checkpoint_dir_close(dir);
    return code;
}

static int save(struct rp_error *error)
{
    struct sample sample;
    char *path = NULL;
    sample_make(&sample, 40);
    int code = rp_checkpoint_save(open_one, &sample.info, sample.parts, 3, &path, error);
    assert_true(code < 0 || path);
    free(path);
    return code;
}

static int load_newest(struct rp_error *error)
{
    struct rp_checkpoint *checkpoint;
    int code = rp_checkpoint_newest(&checkpoint, "place", true, error);
    if (code == 1) {
        assert_true(rp_checkpoint_info(checkpoint)->next_row >= 30); /* never a step back */
        sample_check(checkpoint);
    }
    rp_checkpoint_close(checkpoint);
    return code < 0 ? code : 0;
}

static int list_all(struct rp_error *error)
{
    struct rp_checkpoint_entry *entries;
    size_t count;
    int code = rp_checkpoint_list("place", &entries, &count, error);
    if (code == 0)
        assert_true(count >= 3);
    rp_checkpoint_list_free(entries, count);
    return code;
}

/* Three checkpoints, and their directory is still taken. */
static void prepare(void)
{
    struct rp_error error;
    storage = fast_storage();
    assert_int_equal(sample_open_with(&open_one, "place", 3, NULL, &storage, 8192, &error), 0);
    for (uint64_t row = 10; row <= 30; row += 10)
        assert_int_equal(sample_save(open_one, row, NULL, &error), 0);
}

/* `operate` is the operation, `while_open` with a directory taken. Returns the number of its
 * allocations; each of them has failed. */
static unsigned check(int (*operate)(struct rp_error *error), bool while_open, bool for_ever)
{
    unsigned failures = 0;
    for (unsigned at = 0; at < CALLS_MAX; at++) {
        struct rp_error error = {0};
        prepare();
        if (!while_open)
            rp_checkpoint_dir_close(open_one);
        memory_spoil(getpid(), at, for_ever);
        int code = operate(&error);
        bool is_past = memory_mend() <= at;
        if (code < 0) {
            failures++;
            assert_true(error.message[0] != '\0');
            assert_non_null(strstr(error.message, "memory"));
        }
        struct rp_error after;
        if (operate(&after) != 0)
            fail_msg("with memory again: %s", after.message);
        if (while_open)
            rp_checkpoint_dir_close(open_one);
        assert_true(newest_row("place") >= 30);
        assert_int_equal(count_names("place", ".bad"), 0);
        assert_int_equal(count_names("place", ".tmp"), 0);
        remove_directory("place");
        if (is_past) {
            assert_int_equal(code, 0);
            assert_true(failures > 0);
            return at;
        }
    }
    fail_msg("more than %u allocations", CALLS_MAX);
    return 0;
}

static void check_both(int (*operate)(struct rp_error *error), bool while_open)
{
    unsigned once = check(operate, while_open, false);
    unsigned for_ever = check(operate, while_open, true);
    print_message("  %u allocations\n", once);
    assert_true(for_ever >= once);
}

static void test_taking_a_directory(void **state)
{
    (void)state;
    check_both(take_directory, false);
}

static void test_saving(void **state)
{
    (void)state;
    check_both(save, true);
}

/* It has no caller to report to: old ones stay, and the next save removes them. */
static void test_pruning(void **state)
{
    (void)state;
    for (unsigned at = 0; at < 2; at++) {
        struct rp_error error;
        prepare();
        assert_int_equal(sample_save(open_one, 40, NULL, &error), 0);
        hear_log();
        memory_spoil(getpid(), at, false);
        rp_checkpoint_prune(open_one);
        memory_mend();
        assert_non_null(strstr(log_heard(), "place: old checkpoints stay: "));
        assert_int_equal(sample_save(open_one, 50, NULL, &error), 0);
        rp_checkpoint_dir_close(open_one);
        assert_int_equal(count_names("place", "checkpoint-"), 3);
        remove_directory("place");
    }
}

static void test_loading_the_newest(void **state)
{
    (void)state;
    check_both(load_newest, false);
}

static void test_listing(void **state)
{
    (void)state;
    check_both(list_all, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_taking_a_directory),
        cmocka_unit_test(test_saving),
        cmocka_unit_test(test_pruning),
        cmocka_unit_test(test_loading_the_newest),
        cmocka_unit_test(test_listing),
    };
    return run_with_faults("checkpoint_memory", tests, sample_enter_memory, sample_leave);
}
