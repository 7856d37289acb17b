/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint that cannot be read for a time (permission, memory, descriptors, a server) is not
 * damaged: neither pruning nor reading again removes it, or says that it is, and once it can be
 * read it counts as before. */
#include "checkpoint_sample.h"

#include <dlfcn.h>
#include <time.h>

#include "run_with_faults.h"
#include "storage_fakes.h"

/* Opening this file fails `failing` times, after it has worked `spared` times. The thread that
 * reads again also opens files. */
static struct {
    char name[64];
    int error, spared, failing;
} orders;

static void spoil(unsigned sequence, int error, int spared, int failing)
{
    snprintf(orders.name, sizeof orders.name, "checkpoint-%012u.rpc", sequence);
    orders.error = error;
    __atomic_store_n(&orders.spared, spared, __ATOMIC_RELEASE);
    __atomic_store_n(&orders.failing, failing, __ATOMIC_RELEASE);
}

static bool all_have_failed(void)
{
    return __atomic_load_n(&orders.failing, __ATOMIC_ACQUIRE) == 0;
}

/* ---- in front of the C library --------------------------------------------------------------- */

#ifndef __SANITIZE_THREAD__
int openat(int dir, const char *name, int flags, ...)
{
    static int (*next)(int dir, const char *name, int flags, ...);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "openat");
    if (all_have_failed() || strcmp(name, orders.name) != 0)
        return next(dir, name, flags, 0600);
    if (__atomic_fetch_sub(&orders.spared, 1, __ATOMIC_ACQ_REL) > 0)
        return next(dir, name, flags, 0600);
    __atomic_fetch_sub(&orders.failing, 1, __ATOMIC_ACQ_REL);
    errno = orders.error;
    return -1;
}
#endif

/* ---------------------------------------------------------------------------------------------- */

static struct rp_storage storage;

/* `every`: the history keeps one checkpoint of that number of rows. */
static struct rp_checkpoint_dir *open_dir(const char *path, uint64_t every)
{
    struct rp_error error;
    struct rp_checkpoint_dir *dir;
    storage = fast_storage();
    if (sample_open_with(&dir, path, 2, NULL, &storage, 8192, &error) < 0)
        fail_msg("%s", error.message);
    rp_checkpoint_keep_every(dir, every);
    return dir;
}

static void save(struct rp_checkpoint_dir *dir, uint64_t row)
{
    struct rp_error error;
    if (sample_save(dir, row, NULL, &error) < 0)
        fail_msg("%s", error.message);
}

static bool exists(const char *directory, unsigned sequence)
{
    char path[128];
    snprintf(path, sizeof path, "%s/checkpoint-%012u.rpc", directory, sequence);
    return access(path, F_OK) == 0;
}

static void damage_state(const char *directory, unsigned sequence)
{
    char path[128];
    snprintf(path, sizeof path, "%s/checkpoint-%012u.rpc", directory, sequence);
    damage(path, 8192 + 50);
}

/* After a restart a file is unknown, and its head cannot be read once. */
static void a_checkpoint_whose_row_cannot_be_read_stays(void **state)
{
    (void)state;
    static const int failures[] = {EACCES, EMFILE, ESTALE, EIO, ENOMEM};
    for (size_t i = 0; i < RP_ARRAY_COUNT(failures); i++) {
        struct rp_checkpoint_dir *dir = open_dir("head", 15);
        for (uint64_t row = 10; row <= 40; row += 10)
            save(dir, row); /* 10 is the only one of its 15 rows */
        rp_checkpoint_dir_close(dir);
        dir = open_dir("head", 15);
        spoil(1, failures[i], 0, 1);
        hear_log();
        save(dir, 50);
        const char *heard = log_heard();
        assert_true(all_have_failed());
        assert_true(exists("head", 1));
        assert_non_null(strstr(heard, "head/checkpoint-000000000001.rpc: this old checkpoint "
                                      "stays, because its row could not be read"));
        assert_non_null(strstr(heard, rp_strerror(-failures[i])));
        hear_log();
        save(dir, 60); /* it is read again */
        assert_string_equal(log_heard(), "");
        rp_checkpoint_dir_close(dir);
        assert_true(exists("head", 1) && exists("head", 2) && exists("head", 3));
        assert_int_equal(count_names("head", "checkpoint-"), 5); /* 10 20 30 50 60 */
        remove_directory("head");
    }
}

/* Its head can be read, and then there is no memory for the file: the next one of the same rows
 * does not take its place. Once it can be read, it is the one that is kept. */
static void a_checkpoint_that_cannot_be_verified_stays(void **state)
{
    (void)state;
    sample_fill("file", 4);
    struct rp_checkpoint_dir *dir = open_dir("file", 100);
    spoil(1, ENOMEM, 1, 1);
    hear_log();
    save(dir, 110);
    const char *heard = log_heard();
    assert_true(all_have_failed());
    assert_true(exists("file", 1) && exists("file", 2));
    assert_non_null(strstr(heard, "and the next pruning tries again"));
    assert_false(exists("file", 3)); /* 2 verifies */
    save(dir, 120);
    assert_true(exists("file", 1));
    assert_false(exists("file", 2));
    rp_checkpoint_dir_close(dir);
    remove_directory("file");
}

/* A damaged one goes only for one that verifies. */
static void a_damaged_one_waits_for_one_that_verifies(void **state)
{
    (void)state;
    sample_fill("wait", 3);
    damage_state("wait", 1);
    struct rp_checkpoint_dir *dir = open_dir("wait", 100);
    spoil(2, EACCES, 1, 1);
    save(dir, 110);
    assert_true(all_have_failed());
    assert_true(exists("wait", 1) && exists("wait", 2));
    save(dir, 120);
    assert_true(exists("wait", 2));
    assert_false(exists("wait", 1));
    rp_checkpoint_dir_close(dir);
    remove_directory("wait");
}

/* Save, change a byte of the file, and read it back. */
static void save_badly(struct rp_checkpoint_dir *dir, uint64_t row)
{
    struct rp_error error;
    struct sample sample;
    sample_make(&sample, row);
    assert_int_equal(rp_checkpoint_save(dir, &sample.info, sample.parts, 3, NULL, &error), 0);
    damage_state("bad", (unsigned)sample.info.sequence);
    assert_true(rp_checkpoint_read_back_save(dir, &error) < 0);
    rp_checkpoint_prune(dir);
}

/* The disk has returned neither of two saves in turn, and the newer one cannot be opened any more:
 * a start may need the older one. */
static void a_bad_save_stays_beside_one_that_cannot_be_read(void **state)
{
    (void)state;
    struct rp_checkpoint_dir *dir = open_dir("bad", 0);
    save(dir, 10);
    save(dir, 20);
    save_badly(dir, 30);
    damage_state("bad", 3); /* it is as it was written */
    spoil(4, EACCES, 1, 1); /* reading back works */
    save_badly(dir, 40);
    assert_true(all_have_failed());
    assert_true(exists("bad", 3));
    rp_checkpoint_dir_close(dir);
    assert_int_equal(newest_row("bad"), 30);
    remove_directory("bad");
}

/* ---- reading again --------------------------------------------------------------------------- */

static struct rp_scrub_counts counts;

/* Until a pass has ended that began after now. */
static void wait_for_pass(const struct rp_checkpoint_dir *dir)
{
    rp_checkpoint_dir_scrubs(dir, &counts);
    for (uint64_t passes = counts.passes; counts.passes < passes + 2;) {
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        rp_checkpoint_dir_scrubs(dir, &counts);
    }
}

static void reading_again_marks_only_what_is_damaged(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_checkpoint_dir *dir = open_dir("again", 100);
    save(dir, 10);
    save(dir, 20);
    spoil(1, EACCES, 0, INT32_MAX);
    hear_log();
    assert_int_equal(rp_checkpoint_dir_scrub(dir, 1, &error), 0);
    wait_for_pass(dir);
    const char *heard = log_heard();
    assert_non_null(strstr(heard, "again/checkpoint-000000000001.rpc: a kept checkpoint cannot be "
                                  "read"));
    assert_null(strstr(heard, "damaged"));
    assert_int_equal(counts.files, 1);
    assert_int_equal(counts.failures, 1);
    assert_non_null(strstr(counts.reason, "Permission denied"));
    spoil(1, 0, 0, 0);
    wait_for_pass(dir);
    assert_int_equal(counts.files, 2);
    assert_int_equal(counts.failures, 0);
    save(dir, 110);
    save(dir, 120); /* 10 verifies, so it is the one of its 100 rows that is kept */
    rp_checkpoint_dir_close(dir);
    assert_true(exists("again", 1));
    assert_false(exists("again", 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_checkpoint_whose_row_cannot_be_read_stays),
        cmocka_unit_test(a_checkpoint_that_cannot_be_verified_stays),
        cmocka_unit_test(a_damaged_one_waits_for_one_that_verifies),
        cmocka_unit_test(a_bad_save_stays_beside_one_that_cannot_be_read),
        cmocka_unit_test(reading_again_marks_only_what_is_damaged),
    };
    return run_with_faults("checkpoint_unread", tests, sample_enter_memory, sample_leave);
}
