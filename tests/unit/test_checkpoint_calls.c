/* SPDX-License-Identifier: Apache-2.0 */
/* Every system call of taking a directory and saving, with and without a mirror, fails:
 * acknowledged checkpoints are there, no half one is, and afterwards saving works. */
#include "checkpoint_sample.h"

#include "system_faults.h"

#include "base/bits.h"
#include "base/log.h"
#include "storage_fakes.h"

static struct rp_storage storage;
static const char *copy_path;
static uint64_t next_row; /* each save is of a later one */

static int save_two(struct rp_error *error)
{
    struct rp_checkpoint_dir *dir;
    int code = sample_open_with(&dir, "place", 2, copy_path, &storage, 8192, error);
    if (code < 0)
        return code;
    uint64_t saved = 0;
    for (int i = 0; code == 0 && i < 2; i++) {
        code = sample_save(dir, next_row += 10, NULL, error);
        saved = code == 0 ? next_row : saved;
    }
    rp_checkpoint_dir_close(dir);
    bool armed = system_orders.armed;
    pid_t process = memory_orders ? memory_orders->process : 0;
    system_orders.armed = false;
    if (memory_orders)
        memory_orders->process = 0;
    if (saved > 0)
        assert_true(newest_row("place") >= saved);
    assert_int_equal(count_names("place", ".bad"), 0);
    system_orders.armed = armed;
    if (memory_orders)
        memory_orders->process = process;
    return code;
}

static void check_all(void)
{
    static const int numbers[] = {EIO, ENOSPC, EDQUOT, EFBIG, EACCES, EPERM, EROFS, EINTR, ENOENT};
    storage = fast_storage();
    storage.sync = rp_storage_system.sync;
    storage.create = rp_storage_system.create;
    storage.reopen = rp_storage_system.reopen;
    for (size_t i = 0; i < RP_ARRAY_COUNT(numbers); i++)
        every_call(save_two, numbers[i], 1);
    every_call(save_two, EIO, UINT32_MAX);
    assert_int_equal(count_names("place", ".tmp"), 0);
    remove_directory("place");
}

static void test_one_place(void **state)
{
    (void)state;
    copy_path = NULL;
    check_all();
}

static void test_two_places(void **state)
{
    (void)state;
    copy_path = "copy";
    rp_log_set_level(RP_LOG_ERROR + 1);
    check_all();
    assert_int_equal(newest_row("copy"), next_row); /* well again, the last one was copied */
    remove_directory("copy");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_place),
        cmocka_unit_test(test_two_places),
    };
    return run_with_faults("checkpoint_calls", tests, sample_enter_memory, sample_leave);
}
