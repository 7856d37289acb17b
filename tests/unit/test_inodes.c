/* SPDX-License-Identifier: Apache-2.0 */
/* A file system that has bytes, and no inodes: no file can be made. A save says so, and the alert
 * of a full disk counts it as full. */
#include "checkpoint_sample.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "alerts/disk_watch.h"

#define NOT_HERE 77

/* Runs in a child, which has a tmpfs of its own. Returns 0, NOT_HERE, or the number of
 * the step. */
static int use_up_inodes(void)
{
    struct rp_error error;
    struct rp_checkpoint_dir *dir;
    struct rp_disk_room room;
    char name[32];
    if (mkdir("few", 0700) < 0 || unshare(CLONE_NEWNS) < 0 ||
        mount("none", "/", "", MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("none", "few", "tmpfs", 0, "size=8m,nr_inodes=16") < 0)
        return NOT_HERE;
    if (sample_open(&dir, "few", 3, NULL, &error) < 0 || sample_save(dir, 10, NULL, &error) < 0)
        return 1;
    if (rp_disk_room("few", &room) < 0 || room.lacks_inodes || room.bytes == 0)
        return 2;
    for (int i = 0, fd = 0; fd >= 0; i++) {
        snprintf(name, sizeof name, "few/x%d", i);
        fd = open(name, O_CREAT | O_WRONLY, 0600);
        if (fd >= 0)
            close(fd);
    }
    if (rp_disk_room("few", &room) < 0 || !room.lacks_inodes || room.bytes != 0)
        return 3;
    if (sample_save(dir, 20, NULL, &error) != -ENOSPC || newest_row("few") != 10)
        return 4;
    if (!strstr(error.message, "no inodes are free") || !strstr(error.hint, "df -i"))
        return 5;
    rp_checkpoint_dir_close(dir);
    return 0;
}

static void a_save_without_inodes_says_so(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0)
        _exit(use_up_inodes());
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == NOT_HERE) {
        puts("  skipped: no right to mount a small tmpfs in a namespace of its own");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_save_without_inodes_says_so)};
    return cmocka_run_group_tests_name("inodes", tests, sample_enter, sample_leave);
}
