/* SPDX-License-Identifier: Apache-2.0 */
/* Saving: every call of the storage fails once and for ever, the process is killed at every call
 * and at random moments, the directory is busy, read-only, gone, full or planted with links.
 * Earlier saves stay. */
#include "checkpoint_sample.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "storage_fakes.h"

#define WRITE_BYTES 8192u /* at a time: so that one save takes several writes */

static struct rp_checkpoint_dir *open_dir(const char *path, struct rp_storage *storage)
{
    struct rp_error error;
    struct rp_checkpoint_dir *dir;
    if (sample_open_with(&dir, path, 3, NULL, storage, WRITE_BYTES, &error) < 0)
        fail_msg("%s", error.message);
    return dir;
}

/* ---- faults ---------------------------------------------------------------------------------- */

static unsigned calls_of_a_save(void)
{
    struct rp_error error;
    struct faulty faulty;
    faulty_init(&faulty);
    struct rp_checkpoint_dir *dir = open_dir("count", &faulty.storage);
    faulty_arm(&faulty, FAULT_CODE, -EIO, UINT32_MAX, false);
    assert_int_equal(sample_save(dir, 10, NULL, &error), 0);
    rp_checkpoint_dir_close(dir);
    remove_directory("count");
    return faulty.calls;
}

/* One save with one fault, after two good ones. Returns the result of the save; `read_back` is the
 * result of reading it back. */
static int read_back;
static struct rp_error read_back_error;

static int save_with_fault(enum fault fault, int code, unsigned at, bool for_ever,
                           struct rp_error *error)
{
    struct faulty faulty;
    faulty_init(&faulty);
    struct rp_checkpoint_dir *dir = open_dir("fault", &faulty.storage);
    assert_int_equal(sample_save(dir, 10, NULL, error), 0);
    assert_int_equal(sample_save(dir, 20, NULL, error), 0);

    faulty_arm(&faulty, fault, code, at, for_ever);
    int result = sample_save(dir, 30, NULL, error);
    faulty.armed = false;
    read_back = sample_read_back;
    read_back_error = sample_read_back_error;
    assert_true(faulty.creates <= 3);
    assert_true(faulty.syncs_max <= 1); /* never again on an inode that failed */
    if (for_ever || at < 5)
        assert_true(faulty.hits > 0);

    uint64_t row = newest_row("fault");
    assert_true(result == 0 ? row == 30 : row == 20 || row == 30);
    assert_true(read_back == 0 || fault == FAULT_LIE || read_back == code || read_back == -EIO);
    if (read_back < 0) {
        assert_non_null(strstr(read_back_error.message, "fault/checkpoint-"));
        assert_non_null(strstr(read_back_error.hint, "earlier checkpoints are untouched"));
    }
    assert_int_equal(access("fault/checkpoint-000000000001.rpc", R_OK), 0);
    assert_int_equal(access("fault/checkpoint-000000000002.rpc", R_OK), 0);
    if (result < 0) {
        assert_non_null(strstr(error->message, "fault/"));
        /* reported if there were others: a full disk is not tried again */
        assert_int_equal(strstr(error->message, "attempt") != NULL, result == -EIO);
        assert_non_null(strstr(error->hint, "earlier checkpoints are untouched"));
    }
    struct rp_error after; /* the disk is well again */
    assert_int_equal(sample_save(dir, 40, NULL, &after), 0);
    assert_int_equal(newest_row("fault"), 40);
    rp_checkpoint_dir_close(dir);
    rp_checkpoint_dir_close(open_dir("fault", &faulty.storage));
    assert_int_equal(count_names("fault", ".tmp"), 0);
    remove_directory("fault");
    return result;
}

static void test_every_call_fails_once_and_for_ever(void **state)
{
    (void)state;
    static const int codes[] = {-EIO, -ENOSPC, -EDQUOT};
    struct rp_error error;
    unsigned calls = calls_of_a_save(), failures = 0, cures = 0, late = 0;
    assert_true(calls >= 14);
    for (unsigned i = 0; i < RP_ARRAY_COUNT(codes); i++) {
        for (unsigned at = 0; at < calls; at++) {
            int once = save_with_fault(FAULT_CODE, codes[i], at, false, &error);
            failures += once < 0;
            cures += once == 0;
            if (codes[i] == -EIO)
                assert_int_equal(once, 0); /* one bad moment is cured by a new inode */
            int for_ever = save_with_fault(FAULT_CODE, codes[i], at, true, &error);
            const char *message = for_ever < 0 ? error.message : read_back_error.message;
            assert_int_equal(for_ever < 0 ? for_ever : read_back, codes[i]);
            assert_non_null(strstr(message, rp_strerror(codes[i])));
            late += for_ever == 0;
        }
    }
    assert_true(failures > 0 && cures > 0 && late > 0);
}

static void test_short_writes_and_reads_are_no_fault(void **state)
{
    (void)state;
    struct rp_error error;
    unsigned calls = calls_of_a_save();
    for (unsigned at = 0; at < calls; at++) {
        assert_int_equal(save_with_fault(FAULT_SHORT, 0, at, false, &error), 0);
        assert_int_equal(save_with_fault(FAULT_SHORT, 0, at, true, &error), 0);
        assert_int_equal(save_with_fault(FAULT_NOTHING, 0, at, false, &error), 0);
    }
    assert_int_equal(save_with_fault(FAULT_NOTHING, 0, 0, true, &error), -EIO); /* and no hang */
}

/* NFS may report only now that it could not write. */
static unsigned closes, bad_close;
static int bad_close_at(struct rp_storage *storage, int fd)
{
    int code = rp_storage_system.close(storage, fd);
    return ++closes % 2 == bad_close ? -EDQUOT : code;
}

static void test_a_close_that_fails_is_a_failure(void **state)
{
    (void)state;
    static const char *const verbs[] = {"close the file that was read back", "close the file:"};
    struct rp_error error;
    struct rp_checkpoint_dir *dir;
    struct rp_storage storage = fast_storage();
    storage.close = bad_close_at;
    for (bad_close = 0; bad_close < 2; bad_close++) { /* one of the two in each attempt */
        closes = 0;
        assert_int_equal(sample_open_with(&dir, "close", 3, NULL, &storage, WRITE_BYTES, &error),
                         -EDQUOT);
        assert_non_null(strstr(error.message, verbs[bad_close]));
    }
}

static void test_a_disk_that_lies_is_found_out(void **state)
{
    (void)state;
    struct rp_error error;
    unsigned calls = calls_of_a_save(), found = 0;
    for (unsigned at = 0; at < calls; at++) {
        assert_int_equal(save_with_fault(FAULT_LIE, 0, at, false, &error), 0);
        found += read_back == -RP_E_CORRUPT;
    }
    assert_true(found > 0);
    assert_int_equal(save_with_fault(FAULT_LIE, 0, 0, true, &error), 0);
    assert_int_equal(read_back, -RP_E_CORRUPT);
    assert_non_null(strstr(read_back_error.message, "other bytes than were written"));
    assert_non_null(strstr(read_back_error.message, "bytes from 0 on"));
}

static ssize_t read_nothing(struct rp_storage *storage, int fd, void *data, size_t bytes,
                            uint64_t offset)
{
    (void)storage, (void)fd, (void)data, (void)bytes, (void)offset;
    return 0;
}

/* The bytes to write are still in the writer's buffer: they are not the returned ones. */
static void test_a_file_that_comes_back_empty_is_not_trusted(void **state)
{
    (void)state;
    struct rp_storage storage = fast_storage();
    struct rp_checkpoint_dir *dir;
    struct rp_error error;
    assert_int_equal(sample_open_with(&dir, "empty", 3, NULL, &storage, 1 << 20, &error), 0);
    storage.read = read_nothing;
    assert_int_equal(sample_save(dir, 10, NULL, &error), 0);
    assert_int_equal(sample_read_back, -EIO);
    rp_checkpoint_dir_close(dir);
}

/* Memory that changes while it is written is found out like a disk that returns other bytes. */
static struct sample *moving;
static int moving_create(struct rp_storage *storage, int dir, const char *name)
{
    moving->contents[1].tokens[0]++;
    return rp_storage_system.create(storage, dir, name);
}

static void test_memory_that_changes_is_not_saved_as_good(void **state)
{
    (void)state;
    struct rp_error error;
    struct sample sample;
    struct rp_storage storage = fast_storage();
    struct rp_checkpoint_dir *dir = open_dir("moving", &storage);
    sample_make(&sample, 10);
    moving = &sample;
    storage.create = moving_create;
    assert_int_equal(rp_checkpoint_save(dir, &sample.info, sample.parts, 3, NULL, &error), 0);
    assert_int_equal(rp_checkpoint_read_back_save(dir, &error), -RP_E_CORRUPT);
    assert_non_null(strstr(error.message, "other bytes than were written"));
    rp_checkpoint_dir_close(dir);
}

/* ---- kill -9 --------------------------------------------------------------------------------- */

/* Rows of the newest save that returned, shared with the child that is killed. */
static uint64_t *shared_acknowledged(void)
{
    uint64_t *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(page != MAP_FAILED);
    return page;
}

static void save_until_killed(struct rp_storage *storage, uint64_t *acknowledged)
{
    struct rp_checkpoint_dir *dir;
    if (sample_open_with(&dir, "kill", 2, NULL, storage, WRITE_BYTES, NULL) < 0)
        _exit(1);
    __atomic_store_n(&acknowledged[1], 1, __ATOMIC_RELEASE); /* the saving begins */
    for (uint64_t row = __atomic_load_n(acknowledged, __ATOMIC_RELAXED) + 10;; row += 10) {
        if (sample_save(dir, row, NULL, NULL) < 0)
            _exit(2);
        __atomic_store_n(acknowledged, row, __ATOMIC_RELEASE);
    }
}

static void check_after_kill(pid_t child, const uint64_t *acknowledged)
{
    int status;
    struct rp_storage storage = fast_storage();
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_true(newest_row("kill") >= *acknowledged);
    rp_checkpoint_dir_close(
        open_dir("kill", &storage)); /* the dead process's lock is gone with it */
    assert_int_equal(count_names("kill", ".tmp"), 0);
    assert_true(newest_row("kill") >= *acknowledged);
}

static void test_killed_at_every_call(void **state)
{
    (void)state;
    uint64_t *acknowledged = shared_acknowledged();
    unsigned calls = calls_of_a_save() * 2 +
                     4; /* opening with its test write, and a save that prunes */
    for (unsigned at = 0; at < calls * 2; at++) {
        pid_t child = fork();
        if (child == 0) {
            struct faulty faulty;
            faulty_init(&faulty);
            faulty_arm(&faulty, at % 2 ? FAULT_KILL_AFTER : FAULT_KILL_BEFORE, 0, at / 2, false);
            save_until_killed(&faulty.storage, acknowledged);
        }
        check_after_kill(child, acknowledged);
    }
    assert_true(*acknowledged > 0);
    munmap(acknowledged, 4096);
    remove_directory("kill");
}

static void test_killed_at_random(void **state)
{
    (void)state;
    uint64_t *acknowledged = shared_acknowledged();
    unsigned seed = (unsigned)getpid();
    printf("  seed %u\n", seed);
    for (unsigned i = 0; i < 200; i++) {
        acknowledged[1] = 0;
        pid_t child = fork();
        if (child == 0) {
            struct rp_storage storage = fast_storage();
            save_until_killed(&storage, acknowledged);
        }
        uint64_t before = __atomic_load_n(&acknowledged[0], __ATOMIC_ACQUIRE);
        while (!__atomic_load_n(&acknowledged[1], __ATOMIC_ACQUIRE) ||
               (i % 8 == 0 && __atomic_load_n(&acknowledged[0], __ATOMIC_ACQUIRE) == before))
            usleep(50); /* until it has begun; every eighth, until it has saved once more */
        usleep((unsigned)rand_r(&seed) % 2000);
        kill(child, SIGKILL);
        check_after_kill(child, acknowledged);
    }
    printf("  200 kills, %u saves were acknowledged\n", (unsigned)(*acknowledged / 10));
    assert_true(*acknowledged > 0);
    munmap(acknowledged, 4096);
    remove_directory("kill");
}

/* ---- one directory, one engine --------------------------------------------------------------- */

static void test_a_second_engine_is_refused(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_checkpoint_dir *first, *second;
    int ready[2];
    assert_int_equal(sample_open(&first, "busy", 3, NULL, &error), 0);
    assert_int_equal(sample_open(&second, "busy", 3, NULL, &error), -RP_E_BUSY);
    assert_int_equal(rp_checkpoint_rewind("busy", 1, &error), -RP_E_BUSY);
    assert_null(second);
    rp_checkpoint_dir_close(first);

    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        if (sample_open(&first, "busy", 3, NULL, &error) < 0 || write(ready[1], "x", 1) != 1)
            _exit(1);
        pause();
    }
    char byte, pid[24];
    assert_int_equal(read(ready[0], &byte, 1), 1);
    snprintf(pid, sizeof pid, "process %d ", (int)child);
    assert_int_equal(sample_open(&second, "busy", 3, NULL, &error), -RP_E_BUSY);
    assert_non_null(strstr(error.message, pid));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_int_equal(sample_open(&second, "busy", 3, NULL, &error), 0);
    rp_checkpoint_dir_close(second);
    close(ready[0]), close(ready[1]);
}

/* ---- directories that do not work ------------------------------------------------------------ */

static void test_a_directory_that_cannot_be_written_is_known_at_start(void **state)
{
    (void)state;
    if (getuid() != 0) {
        puts("  skipped: only root can become somebody else");
        skip();
    }
    assert_int_equal(chmod(test_directory, 0755), 0);
    assert_int_equal(mkdir("roots", 0755), 0);
    pid_t child = fork();
    if (child == 0) {
        struct rp_error error;
        struct rp_checkpoint_dir *dir;
        if (setresgid(65534, 65534, 65534) < 0 || setresuid(65534, 65534, 65534) < 0)
            _exit(9);
        int code = sample_open(&dir, "roots", 3, NULL, &error);
        _exit(code != -EACCES                   ? 1
              : !strstr(error.message, "roots") ? 2
              : !strstr(error.hint, "writable") ? 3
                                                : 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void test_paths_that_are_no_directory(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_checkpoint_dir *dir;
    assert_int_equal(rp_file_replace("plain", "x", 1, &error), 0);
    assert_true(sample_open(&dir, "plain", 3, NULL, &error) < 0);
    assert_non_null(strstr(error.message, "plain"));
    assert_int_equal(sample_open(&dir, "few", 1, NULL, &error), -RP_E_CONFIG);
    assert_int_equal(sample_open(&dir, "many", 1001, NULL, &error), -RP_E_CONFIG);
    assert_int_equal(sample_open(&dir, "a/b/c", 3, NULL, &error), 0); /* made */
    rp_checkpoint_dir_close(dir);
}

static void test_a_directory_that_vanishes(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_checkpoint_dir *dir;
    assert_int_equal(sample_open(&dir, "vanish", 3, NULL, &error), 0);
    remove_directory("vanish");
    assert_int_equal(sample_save(dir, 10, NULL, &error), -ENOENT);
    assert_non_null(strstr(error.message, "vanish: the checkpoint directory is not there"));
    assert_non_null(strstr(error.hint, "moved, removed or mounted over"));
    rp_checkpoint_dir_close(dir);
}

static void test_planted_links_are_not_followed(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_checkpoint_dir *dir;
    struct stat info;
    uint64_t sequence;
    assert_int_equal(rp_file_replace("victim", "precious", 8, &error), 0);
    dir = open_dir("planted", &rp_storage_system);
    assert_int_equal(symlink("../victim", "planted/.checkpoint-000000000001.rpc.tmp"), 0);
    assert_int_equal(symlink("../victim", "planted/checkpoint-000000000002.rpc"), 0);
    assert_int_equal(sample_save(dir, 10, &sequence, &error), 0);
    assert_int_equal(sequence, 3); /* past both */
    assert_int_equal(newest_row("planted"), 10);
    rp_checkpoint_dir_close(dir);
    dir = open_dir("planted", &rp_storage_system); /* sweeps the link, not its target */
    rp_checkpoint_dir_close(dir);
    assert_int_equal(count_names("planted", ".tmp"), 0);
    assert_int_equal(stat("victim", &info), 0);
    assert_int_equal(info.st_size, 8);

    assert_int_equal(unlink("planted/.lock"), 0);
    assert_int_equal(symlink("../victim", "planted/.lock"), 0);
    assert_int_equal(sample_open(&dir, "planted", 3, NULL, &error), -ELOOP);
    assert_int_equal(stat("victim", &info), 0);
    assert_int_equal(info.st_size, 8);
}

/* In a child with a tmpfs of its own: 0 fine, 77 not possible here, else the number of the step. */
static int fill_a_tmpfs(void)
{
    struct rp_error error;
    struct rp_checkpoint_dir *dir;
    if (mkdir("small", 0700) < 0 || unshare(CLONE_NEWNS) < 0 ||
        mount("none", "/", "", MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("none", "small", "tmpfs", 0, "size=128k") < 0)
        return 77;
    if (sample_open(&dir, "small", 3, NULL, &error) < 0)
        return 1;
    unsigned saved = 0;
    int code = 0;
    while (saved < 10 && (code = sample_save(dir, 10 * (saved + 1), NULL, &error)) == 0)
        saved++;
    if (saved != 10) /* keep = 3 and one more fit: 4 * 24 KiB */
        return 2;
    int ballast = open("small/ballast", O_CREAT | O_WRONLY, 0600);
    for (char page[4096] = "x"; write(ballast, page, sizeof page) > 0;)
        ;
    close(ballast);
    code = sample_save(dir, 1000, NULL, &error);
    if (code != -ENOSPC || !strstr(error.hint, "make room") || newest_row("small") != 100)
        return 3;
    rp_checkpoint_dir_close(dir);
    if (sample_open(&dir, "small", 3, NULL, &error) != -ENOSPC) /* known at start */
        return 4;
    return newest_row("small") == 100 && count_names("small", ".tmp") == 0 ? 0 : 5;
}

static void test_a_full_disk(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0)
        _exit(fill_a_tmpfs());
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        puts("  skipped: no right to mount a small tmpfs in a namespace of its own");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_call_fails_once_and_for_ever),
        cmocka_unit_test(test_short_writes_and_reads_are_no_fault),
        cmocka_unit_test(test_a_close_that_fails_is_a_failure),
        cmocka_unit_test(test_a_disk_that_lies_is_found_out),
        cmocka_unit_test(test_a_file_that_comes_back_empty_is_not_trusted),
        cmocka_unit_test(test_memory_that_changes_is_not_saved_as_good),
        cmocka_unit_test(test_killed_at_every_call),
        cmocka_unit_test(test_killed_at_random),
        cmocka_unit_test(test_a_second_engine_is_refused),
        cmocka_unit_test(test_a_directory_that_cannot_be_written_is_known_at_start),
        cmocka_unit_test(test_paths_that_are_no_directory),
        cmocka_unit_test(test_a_directory_that_vanishes),
        cmocka_unit_test(test_planted_links_are_not_followed),
        cmocka_unit_test(test_a_full_disk),
    };
    return cmocka_run_group_tests_name("checkpoint_writer", tests, sample_enter_memory,
                                       sample_leave);
}
