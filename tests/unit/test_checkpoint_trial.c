/* SPDX-License-Identifier: Apache-2.0 */
/* The trial write of a checkpoint directory runs in parallel to the caller; its failure is reported
 * at its end, also for the mirror; and no file of it stays. */
#include "checkpoint_sample.h"

#include <semaphore.h>
#include <sys/stat.h>

#include "storage_fakes.h"

static sem_t reached, may_go_on;

static int slow_sync(struct rp_storage *storage, int fd)
{
    (void)storage;
    (void)fd;
    sem_post(&reached);
    while (sem_wait(&may_go_on) < 0)
        continue;
    return 0;
}

static void wait_for(sem_t *event)
{
    while (sem_wait(event) < 0)
        continue;
}

static struct rp_checkpoint_dir *begin(const char *path, const char *copy_path,
                                       struct rp_storage *storage)
{
    struct rp_checkpoint_dir *dir;
    struct rp_error error;
    const struct rp_checkpoint_place place = {path, copy_path, 2, false, storage, 8192};
    assert_int_equal(rp_checkpoint_dir_begin(&dir, &place, &error), 0);
    return dir;
}

static void nothing_stays(const char *path)
{
    assert_int_equal(count_names(path, ".tmp"), 0);
    assert_int_equal(count_names(path, ".probe"), 0);
}

static void the_caller_goes_on_beside_it(void **state)
{
    (void)state;
    struct rp_storage storage = fast_storage();
    struct rp_error error;
    storage.sync = slow_sync;
    sem_init(&reached, 0, 0);
    sem_init(&may_go_on, 0, 0);
    struct rp_checkpoint_dir *dir = begin("beside", "beside-too", &storage);
    for (int place = 0; place < 2; place++) /* both, before either ends */
        wait_for(&reached);
    assert_int_equal(count_names("beside", ".tmp"), 1);
    assert_int_equal(count_names("beside-too", ".tmp"), 1);
    for (int place = 0; place < 2; place++)
        sem_post(&may_go_on);
    assert_int_equal(rp_checkpoint_dir_finish_trial(dir, &error), 0);
    assert_int_equal(rp_checkpoint_dir_finish_trial(dir, &error), 0); /* as often as called */
    nothing_stays("beside");
    nothing_stays("beside-too");
    rp_checkpoint_dir_close(dir);
}

static void closing_waits_for_it(void **state)
{
    (void)state;
    struct rp_storage storage = fast_storage();
    struct rp_checkpoint_dir *dir = begin("closed", "closed-too", &storage);
    rp_checkpoint_dir_close(dir);
    nothing_stays("closed");
    nothing_stays("closed-too");
}

static int no_room(struct rp_storage *storage, int fd, uint64_t bytes)
{
    (void)storage;
    (void)fd;
    (void)bytes;
    return -ENOSPC;
}

static void what_fails_is_told_at_the_end(void **state)
{
    (void)state;
    struct rp_storage storage = fast_storage();
    struct rp_error error;
    storage.reserve = no_room;
    struct rp_checkpoint_dir *dir = begin("full", NULL, &storage);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(rp_checkpoint_dir_finish_trial(dir, &error), -ENOSPC);
        assert_non_null(strstr(error.message, "a test write into the checkpoint directory failed"));
        assert_non_null(strstr(error.message, "full/"));
    }
    rp_checkpoint_dir_close(dir);
    nothing_stays("full");
}

/* Only the mirror has no room. */
static int create_in_first(struct rp_storage *storage, int dir, const char *name)
{
    struct stat asked, second;
    bool is_second = fstat(dir, &asked) == 0 && stat("small-too", &second) == 0 &&
                     asked.st_ino == second.st_ino;
    return is_second ? -ENOSPC : fast_create(storage, dir, name);
}

static void the_second_location_is_tried_too(void **state)
{
    (void)state;
    struct rp_storage storage = fast_storage();
    struct rp_error error;
    storage.create = create_in_first;
    struct rp_checkpoint_dir *dir = begin("small", "small-too", &storage);
    assert_int_equal(rp_checkpoint_dir_finish_trial(dir, &error), -ENOSPC);
    assert_non_null(strstr(error.message, "mirror"));
    assert_non_null(strstr(error.message, "small-too"));
    rp_checkpoint_dir_close(dir);
    nothing_stays("small");
    nothing_stays("small-too");
}

/* A mount of an object store without a write cache. */
static ssize_t write_in_order(struct rp_storage *storage, int fd, const void *data, size_t bytes,
                              uint64_t offset)
{
    struct stat file;
    (void)storage;
    assert_int_equal(fstat(fd, &file), 0);
    if ((uint64_t)file.st_size != offset)
        return -ESPIPE;
    ssize_t put = pwrite(fd, data, bytes, (off_t)offset);
    return put < 0 ? -errno : put;
}

static int reserve_nothing(struct rp_storage *storage, int fd, uint64_t bytes)
{
    (void)storage;
    (void)fd;
    (void)bytes;
    return 0;
}

static void a_mount_that_writes_in_order_only_is_refused(void **state)
{
    (void)state;
    struct rp_storage storage = fast_storage();
    struct rp_error error;
    storage.write = write_in_order;
    storage.reserve = reserve_nothing;
    struct rp_checkpoint_dir *dir = begin("ordered", NULL, &storage);
    assert_int_equal(rp_checkpoint_dir_finish_trial(dir, &error), -ESPIPE);
    assert_non_null(strstr(error.hint, "write cache"));
    rp_checkpoint_dir_close(dir);
    nothing_stays("ordered");
}

/* The disk takes the bytes, and does not give them back. */
static ssize_t read_nothing(struct rp_storage *storage, int fd, void *data, size_t bytes,
                            uint64_t offset)
{
    (void)storage;
    (void)fd;
    (void)data;
    (void)bytes;
    (void)offset;
    return -EIO;
}

static void what_is_written_is_read_back(void **state)
{
    (void)state;
    struct rp_storage storage = fast_storage();
    struct rp_error error;
    storage.read = read_nothing;
    struct rp_checkpoint_dir *dir = begin("unread", NULL, &storage);
    assert_int_equal(rp_checkpoint_dir_finish_trial(dir, &error), -EIO);
    rp_checkpoint_dir_close(dir);
    nothing_stays("unread");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_caller_goes_on_beside_it),
        cmocka_unit_test(closing_waits_for_it),
        cmocka_unit_test(what_fails_is_told_at_the_end),
        cmocka_unit_test(the_second_location_is_tried_too),
        cmocka_unit_test(a_mount_that_writes_in_order_only_is_refused),
        cmocka_unit_test(what_is_written_is_read_back),
    };
    return cmocka_run_group_tests_name("checkpoint_trial", tests, sample_enter_memory,
                                       sample_leave);
}
