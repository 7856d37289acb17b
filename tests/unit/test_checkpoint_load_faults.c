/* SPDX-License-Identifier: Apache-2.0 */
/* Every system call of the readers of checkpoints fails, once and for ever, in many ways: the read
 * is refused with a message or gives the newest one; never an older one, never "no checkpoint", and
 * no file changes its name. */
#include "checkpoint_sample.h"

#include "system_faults.h"

#include "storage_fakes.h"

static void prepare(void)
{
    struct rp_error error;
    struct rp_checkpoint_dir *dir;
    struct rp_storage storage = fast_storage();
    assert_int_equal(sample_open_with(&dir, "place", 3, NULL, &storage, 8192, &error), 0);
    for (uint64_t row = 10; row <= 30; row += 10)
        assert_int_equal(sample_save(dir, row, NULL, &error), 0);
    rp_checkpoint_dir_close(dir);
}

static int load(struct rp_error *error)
{
    struct rp_checkpoint *checkpoint;
    int code = rp_checkpoint_newest(&checkpoint, "place", true, error);
    if (code == 1) {
        if (rp_checkpoint_info(checkpoint)->next_row != 30)
            fail_msg("call %u: an older checkpoint was taken", system_orders.at);
        sample_check(checkpoint);
    }
    rp_checkpoint_close(checkpoint);
    return code < 0 ? code : code == 1 ? 0 : 1;
}

static int list(struct rp_error *error)
{
    struct rp_checkpoint_entry *entries;
    size_t count;
    int code = rp_checkpoint_list("place", &entries, &count, error);
    if (code == 0)
        assert_int_equal(count, 3);
    rp_checkpoint_list_free(entries, count);
    return code;
}

static int rewind_one(struct rp_error *error)
{
    return rp_checkpoint_rewind("place", 2, error);
}

/* Returns how many calls there were, and in *cured how often one failure was overcome. */
static unsigned check(int (*operate)(struct rp_error *error), int failure, unsigned failing,
                      unsigned *cured)
{
    bool rewinds = operate == rewind_one;
    unsigned at = 0;
    for (bool is_past = false; !is_past; at++) {
        struct rp_error error = {0};
        assert_true(at < FAULTS_MAX);
        prepare();
        system_spoil(NULL, at, failing, failure);
        int code = operate(&error);
        is_past = system_mend() <= at;
        if (code > 0)
            fail_msg("errno %d of call %u: it said that there is no checkpoint", failure, at);
        if (code < 0)
            assert_non_null(strstr(error.message, "place"));
        else if (!is_past)
            ++*cured;
        if (count_names("place", ".bad"))
            fail_msg("errno %d of call %u: a good file was set aside", failure, at);
        if (operate(&error) != 0)
            fail_msg("errno %d of call %u, and well again: %s", failure, at, error.message);
        assert_int_equal(newest_row("place"), rewinds ? 20 : 30);
        remove_directory("place");
    }
    return at - 1;
}

static void check_all(int (*operate)(struct rp_error *error))
{
    static const int failures[] = {EIO, EINTR, ESTALE, EMFILE, EACCES, ENOMEM};
    for (size_t i = 0; i < RP_ARRAY_COUNT(failures); i++) {
        unsigned cured = 0, ignored = 0;
        unsigned calls = check(operate, failures[i], 1, &cured);
        if (failures[i] != EINTR) /* it would be retried for ever, as it should */
            check(operate, failures[i], UINT32_MAX, &ignored);
        print_message("  %s: %u calls, %u failures overcome\n", strerror(failures[i]), calls,
                      cured);
    }
}

static void test_loading_the_newest(void **state)
{
    (void)state;
    check_all(load);
}

/* ---- reads with other results than requested --------------------------------------------- */

static unsigned passing_failures; /* reads that still fail */
static size_t read_bytes_max;

static ssize_t strange_read(struct rp_storage *storage, int fd, void *data, size_t bytes,
                            uint64_t offset)
{
    (void)storage;
    if (passing_failures > 0) {
        passing_failures--;
        return -EIO;
    }
    ssize_t got = pread(fd, data, bytes < read_bytes_max ? bytes : read_bytes_max, (off_t)offset);
    return got < 0 ? -errno : got;
}

static int load_strangely(unsigned failures, size_t bytes_max, struct rp_error *error)
{
    ssize_t (*real)(struct rp_storage *, int, void *, size_t, uint64_t) = rp_storage_system.read;
    passing_failures = failures;
    read_bytes_max = bytes_max;
    rp_storage_system.read = strange_read;
    int code = load(error);
    rp_storage_system.read = real;
    return code;
}

static void test_short_reads_and_passing_failures(void **state)
{
    (void)state;
    struct rp_error error;
    prepare();
    assert_int_equal(load_strangely(0, 4096, &error), 0);
    assert_int_equal(load_strangely(2, 4096, &error), 0);
    remove_directory("place");
}

static void test_listing(void **state)
{
    (void)state;
    check_all(list);
}

static void test_rewinding(void **state)
{
    (void)state;
    check_all(rewind_one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loading_the_newest),
        cmocka_unit_test(test_short_reads_and_passing_failures),
        cmocka_unit_test(test_listing),
        cmocka_unit_test(test_rewinding),
    };
    return run_with_faults("checkpoint_load_faults", tests, sample_enter_memory, sample_leave);
}
