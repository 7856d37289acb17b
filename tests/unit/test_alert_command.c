/* SPDX-License-Identifier: Apache-2.0 */
/* Commands of alerts: their environment, and the end of commands that hang, fail or are not there;
 * and free space on a disk that does not answer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "alerts/command.h"
#include "alerts/disk_watch.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"

#define MS UINT64_C(1000000)

static const struct rp_alert_patience long_patience = {60000 * MS, 60000 * MS},
                                      short_patience = {200 * MS, 100 * MS},
                                      ending_patience = {60000 * MS, 100 * MS};
static char folder[] = "/tmp/rp-alert-XXXXXX";

static char *path_of(const char *name)
{
    char *path = rp_asprintf("%s/%s", folder, name);
    assert_non_null(path);
    return path;
}

/* A program of that name; the caller frees its path. */
static char *write_program(const char *name, const char *text)
{
    char *path = path_of(name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(close(fd), 0);
    return path;
}

/* The text of a file that a program renames to this name when it is whole. */
static char *wait_for(const char *name)
{
    char *path = path_of(name), *text = NULL;
    size_t bytes;
    while (rp_file_read_all(path, 1 << 20, &text, &bytes, NULL) < 0)
        rp_sleep_ns(5 * MS);
    unlink(path);
    free(path);
    return text;
}

static struct rp_alert_command *open_command(const char *text,
                                             const struct rp_alert_patience *patience)
{
    struct rp_alert_command *command = NULL;
    struct rp_error error = {0};
    char *program;
    if (rp_alert_command_find(&program, text, &error) < 0 ||
        rp_alert_command_open(&command, text, program, patience, -1, &error) < 0)
        fail_msg("%s", error.message);
    free(program);
    return command;
}

static void run(struct rp_alert_command *command, enum rp_alert_kind kind)
{
    char **variables = calloc(3, sizeof *variables);
    assert_non_null(variables);
    variables[0] = rp_asprintf("RINGPACK_ALERT=%s", rp_alert_name(kind));
    variables[1] = rp_asprintf("RINGPACK_ALERT_MESSAGE=%s", "it's $HOME; \"so\"");
    rp_alert_command_run(command, kind, variables);
}

static void wait_failures(struct rp_alert_command *command, enum rp_alert_kind kind, uint64_t count)
{
    while (rp_alert_command_counts(command, kind).failures < count)
        rp_sleep_ns(5 * MS);
    assert_int_equal(rp_alert_command_counts(command, kind).failures, count);
}

static void a_command_gets_what_it_needs_and_no_more(void **state)
{
    (void)state;
    char *program = write_program(
        "tell",
        "#!/bin/sh\ncd \"${0%/*}\"\n{ echo \"$#|$1|$2\"; env | grep RINGPACK | LC_ALL=C sort\n"
        "test ! -e /proc/$$/fd/77 && readlink /proc/$$/fd/0\n"
        "sed -nE 's/(SigBlk|SigIgn).*(.......)$/\\1 \\2/p' /proc/self/status; } > new\n"
        "mv new told\n");
    char *text = rp_asprintf("%s,a b;$(c),", program);
    struct rp_alert_command *command = open_command(text, &long_patience);
    assert_int_equal(setenv("RINGPACK_ALERT_OLD", "1", 1), 0);
    assert_int_equal(dup2(STDIN_FILENO, 77), 77); /* without close-on-exec */
    sigset_t term, before;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &term, &before);
    signal(SIGPIPE, SIG_IGN);
    run(command, RP_ALERT_SKEW);
    char *told = wait_for("told");
    signal(SIGPIPE, SIG_DFL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    close(77);
    unsetenv("RINGPACK_ALERT_OLD");
    const char *lines = "2|a b;$(c)|\n"
                        "RINGPACK_ALERT=skew\nRINGPACK_ALERT_MESSAGE=it's $HOME; \"so\"\n"
                        "/dev/null\nSigBlk 0000000\nSigIgn 0000000\n";
    assert_string_equal(told, lines);
    rp_alert_command_close(command);
    free(told);
    free(text);
    free(program);
}

/* Returns when the process is gone, or a zombie. */
static void wait_gone(pid_t pid)
{
    char *path = rp_asprintf("/proc/%d/cmdline", (int)pid), byte;
    for (ssize_t bytes = 1; bytes > 0; rp_sleep_ns(5 * MS)) { /* empty for a zombie */
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        bytes = fd >= 0 ? read(fd, &byte, 1) : 0;
        if (fd >= 0)
            close(fd);
    }
    free(path);
}

static void what_hangs_is_killed_with_its_children(void **state)
{
    (void)state;
    char *program = write_program("hang", "#!/bin/sh\nsleep 1000 &\ncd \"${0%/*}\"\n"
                                          "echo $! > new && mv new told\nwait\n");
    struct rp_alert_command *command = open_command(program, &short_patience);
    run(command, RP_ALERT_STARVED);
    char *told = wait_for("told");
    pid_t child = (pid_t)strtol(told, NULL, 10);
    wait_failures(command, RP_ALERT_STARVED, 1);
    wait_gone(child);
    run(command, RP_ALERT_STARVED); /* the next one is run all the same */
    wait_failures(command, RP_ALERT_STARVED, 2);
    free(told);
    told = wait_for("told");
    rp_alert_command_close(command);
    free(told);
    free(program);
}

/* A second command of the kind is started once the first one has ended. */
static void what_has_left_its_process_group_is_killed(void **state)
{
    (void)state;
    char *program = write_program("leader", "#!/usr/bin/perl\nsetpgrp(0, getpgrp(getppid));\n"
                                            "sleep 1000;\n");
    struct rp_alert_command *command = open_command(program, &short_patience);
    run(command, RP_ALERT_SKEW);
    wait_failures(command, RP_ALERT_SKEW, 1);
    run(command, RP_ALERT_SKEW);
    wait_failures(command, RP_ALERT_SKEW, 2);
    rp_alert_command_close(command);
    free(program);
}

static void at_the_end_what_is_wanted_is_run(void **state)
{
    (void)state;
    char *program = write_program("last", "#!/bin/sh\ncd \"${0%/*}\"\nsleep 0.2\n"
                                          "echo $RINGPACK_ALERT > new && mv new told\n");
    struct rp_alert_command *command = open_command(program, &long_patience);
    run(command, RP_ALERT_ENGINE_FAILED);
    rp_alert_command_close(command);
    char *told = wait_for("told");
    assert_string_equal(told, "engine_failed\n");
    free(told);
    free(program);
}

static void what_takes_longer_at_the_end_is_killed_with_its_children(void **state)
{
    (void)state;
    char *program = write_program("long", "#!/bin/sh\ncd \"${0%/*}\"\n(sleep 5; echo > late) &\n"
                                          "echo $! > new && mv new told\nwait\n");
    struct rp_alert_command *command = open_command(program, &ending_patience);
    run(command, RP_ALERT_STARVED);
    char *told = wait_for("told");
    pid_t child = (pid_t)strtol(told, NULL, 10);
    pid_t pid;
    while ((pid = rp_alert_command_counts(command, RP_ALERT_STARVED).pid) == 0)
        rp_sleep_ns(5 * MS);
    assert_int_equal(getpgid(child), pid);
    rp_alert_command_close(command);
    wait_gone(child);
    wait_gone(pid);
    char *late = path_of("late");
    assert_int_equal(access(late, F_OK), -1);
    free(late);
    free(told);
    free(program);
}

static void a_program_that_cannot_be_run_is_named(void **state)
{
    static const char *const texts[] = {"no-such-program", "/no/such,-x", "", ",x", "mail -s x"};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct rp_error error = {0};
        char *found;
        assert_int_equal(rp_alert_command_find(&found, texts[i], &error), -RP_E_CONFIG);
        char *named = rp_asprintf("no program `%.*s`", (int)strcspn(texts[i], ","), texts[i]);
        assert_non_null(strstr(error.message, named));
        free(named);
    }
    char *program = write_program("fails", "#!/bin/sh\nexit 3\n");
    struct rp_alert_command *command = open_command(program, &long_patience);
    run(command, RP_ALERT_SKEW);
    wait_failures(command, RP_ALERT_SKEW, 1);
    unlink(program);
    run(command, RP_ALERT_SKEW);
    wait_failures(command, RP_ALERT_SKEW, 2);
    free(write_program("fails", "echo no shell\n"));
    run(command, RP_ALERT_SKEW);
    wait_failures(command, RP_ALERT_SKEW, 3);
    assert_int_equal(rp_alert_command_counts(command, RP_ALERT_STARVED).failures, 0);
    rp_alert_command_close(command);
    unlink(program);
    free(program);
}

static sem_t asked, may_answer;

static int hang(const char *path, struct rp_disk_room *room)
{
    room->bytes = strlen(path);
    sem_post(&asked);
    while (sem_wait(&may_answer) < 0)
        continue;
    return 0;
}

static void nobody_waits_for_a_disk_that_hangs(void **state)
{
    struct rp_disk_watch *watch;
    (void)state;
    sem_init(&asked, 0, 0);
    sem_init(&may_answer, 0, 1);
    assert_int_equal(rp_disk_watch_open(&watch, "/away", MS, hang, NULL), 0);
    sem_wait(&asked); /* the first query, which is answered */
    sem_wait(&asked); /* the second one hangs */
    assert_int_equal(rp_disk_watch_answer(watch).free_bytes, 5);
    assert_true(rp_disk_watch_answer(watch).at_ns > 0);
    rp_disk_watch_close(watch);
    sem_post(&may_answer); /* the thread ends, and frees its memory */
    rp_sleep_ns(20 * MS);
}

static int refuse(const char *path, struct rp_disk_room *room)
{
    (void)path;
    room->bytes = 1;
    sem_post(&asked);
    return -EIO;
}

static void a_look_that_fails_is_no_answer(void **state)
{
    struct rp_disk_watch *watch;
    struct rp_disk_answer answer;
    struct rp_disk_room room;
    (void)state;
    sem_init(&asked, 0, 0);
    assert_int_equal(rp_disk_watch_open(&watch, "/", MS, refuse, NULL), 0);
    sem_wait(&asked);
    sem_wait(&asked);
    assert_int_equal(rp_disk_watch_answer(watch).at_ns, 0);
    rp_disk_watch_close(watch);
    assert_int_equal(rp_disk_watch_open(&watch, "/", MS, rp_disk_room, NULL), 0);
    while ((answer = rp_disk_watch_answer(watch)).at_ns == 0)
        rp_sleep_ns(MS);
    rp_disk_watch_close(watch);
    assert_int_equal(rp_disk_room("/no/such", &room), -ENOENT);
}

static int open_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char *command = rp_asprintf("rm -r %s", folder);
    int status = command ? system(command) : -1;
    free(command);
    return status;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_command_gets_what_it_needs_and_no_more),
        cmocka_unit_test(what_hangs_is_killed_with_its_children),
        cmocka_unit_test(what_has_left_its_process_group_is_killed),
        cmocka_unit_test(at_the_end_what_is_wanted_is_run),
        cmocka_unit_test(what_takes_longer_at_the_end_is_killed_with_its_children),
        cmocka_unit_test(a_program_that_cannot_be_run_is_named),
        cmocka_unit_test(nobody_waits_for_a_disk_that_hangs),
        cmocka_unit_test(a_look_that_fails_is_no_answer),
    };
    return cmocka_run_group_tests(tests, open_folder, remove_folder);
}
