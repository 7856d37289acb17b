/* SPDX-License-Identifier: Apache-2.0 */
/* See alert_command.h. */
#include "server/alert_command.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/defect.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "server/side_thread.h"

#define LOOK_NS UINT64_C(20000000)      /* between two checks of commands that run */
#define IDLE_NS UINT64_C(3600000000000) /* until it is woken */
#define WORDS_MAX 64u
#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC (1u << 2)
#endif

struct slot {
    char **wanted;     /* the variables of the command that is to be started; NULL = none */
    pid_t pid;         /* 0 = none runs; the thread's */
    uint64_t began_ns; /* the thread's */
    bool is_killed;    /* the thread's */
    uint64_t failures;
};

/* `slots` is guarded by the mutex of `side`, but for what is the thread's; the rest is constant. */
struct rp_alert_command {
    struct rp_side_thread side; /* the first member: command_main() casts back from it */
    char *text, *program;
    char *words[WORDS_MAX + 1]; /* in text, with a NULL after them */
    struct rp_alert_patience patience;
    struct slot slots[RP_ALERT_KINDS];
};

/* ---- the program ----------------------------------------------------------------------------- */

static bool can_be_run(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode) && access(path, X_OK) == 0;
}

/* The file that the word means, on the heap; NULL = there is none. */
static char *find_program(const char *word)
{
    const char *path = getenv("PATH");
    if (strchr(word, '/'))
        return can_be_run(word) ? strdup(word) : NULL;
    while (path && *path && *word) {
        size_t length = strcspn(path, ":");
        char *file = rp_format("%.*s/%s", (int)length, path, word);
        if (file && length > 0 && can_be_run(file))
            return file;
        free(file);
        path += length + (path[length] == ':');
    }
    return NULL;
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* The environment of the engine without variables of alerts, and those of this one. */
static char **environment_of(char **variables)
{
    size_t own = 0, count = 0, kept = 0;
    while (variables[own])
        own++;
    while (environ[count])
        count++;
    char **all = rp_calloc(own + count + 1, sizeof *all);
    for (size_t i = 0; all && i < count; i++)
        if (strncmp(environ[i], "RINGPACK_ALERT", sizeof "RINGPACK_ALERT" - 1) != 0)
            all[kept++] = environ[i];
    for (size_t i = 0; all && i < own; i++)
        all[kept++] = variables[i];
    return all;
}

static int spawn(pid_t *pid, const struct rp_alert_command *command, char **environment)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
    posix_spawnattr_init(&how);
    posix_spawnattr_setsigdefault(&how, &all);
    posix_spawnattr_setsigmask(&how, &none);
    posix_spawnattr_setpgroup(&how, 0);
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK |
                                       POSIX_SPAWN_SETPGROUP);
    /* descriptors that the engine was started with, and that nobody else needs after an exec */
    syscall(SYS_close_range, STDERR_FILENO + 1, ~0u, CLOSE_RANGE_CLOEXEC);
    struct rp_thread_tries tries = {0};
    int failed;
    do
        failed = posix_spawn(pid, command->program, &files, &how, command->words, environment);
    while (rp_thread_again(&tries, failed));
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&how);
    return failed;
}

static void note_failure(struct rp_alert_command *command, struct slot *slot)
{
    pthread_mutex_lock(&command->side.mutex);
    slot->failures++;
    pthread_mutex_unlock(&command->side.mutex);
}

static void start(struct rp_alert_command *command, struct slot *slot, char **variables)
{
    char **environment = environment_of(variables);
    int failed = environment ? spawn(&slot->pid, command, environment) : ENOMEM;
    slot->began_ns = rp_now_ns();
    slot->is_killed = false;
    free(environment);
    rp_alert_variables_free(variables);
    if (failed == 0)
        return;
    slot->pid = 0;
    note_failure(command, slot);
    rp_log_event(RP_EVENT_alert_command_failed, "alert_command: %s cannot be run: %s%s",
                 command->program, rp_strerror(-failed),
                 failed == ENOEXEC ? "; there is no shell: a script begins with #!" : "");
}

static void say_end(struct rp_alert_command *command, struct slot *slot, int status)
{
    if (slot->is_killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0))
        return; /* that it was killed has been said */
    note_failure(command, slot);
    rp_log_event(RP_EVENT_alert_command_failed, "alert_command: %s ended with %s %d",
                 command->program, WIFSIGNALED(status) ? "signal" : "status",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

/* Check a command that runs. */
static void follow(struct rp_alert_command *command, struct slot *slot)
{
    int status = 0;
    pid_t ended = waitpid(slot->pid, &status, WNOHANG);
    if (ended > 0)
        say_end(command, slot, status);
    if (ended > 0 || (ended < 0 && errno == ECHILD)) { /* SIGCHLD is ignored: nothing is known */
        slot->pid = 0;
        return;
    }
    if (slot->is_killed || rp_now_ns() - slot->began_ns < command->patience.run_ns)
        return;
    (void)kill(-slot->pid, SIGKILL);                /* its children */
    bool is_killed = kill(slot->pid, SIGKILL) == 0; /* itself, if it has left its process group */
    slot->is_killed = true;
    note_failure(command, slot);
    rp_log_event(RP_EVENT_alert_command_failed,
                 "alert_command: %s had not ended after %.3g seconds, and %s", command->program,
                 (double)command->patience.run_ns * 1e-9,
                 is_killed ? "was killed" : "may not be killed: it runs as another user");
}

static char **take_wanted(struct rp_alert_command *command, struct slot *slot)
{
    pthread_mutex_lock(&command->side.mutex);
    char **variables = slot->wanted;
    slot->wanted = NULL;
    pthread_mutex_unlock(&command->side.mutex);
    return variables;
}

/* Follow what runs and start what is wanted. Returns whether anything runs. */
static bool look_after(struct rp_alert_command *command)
{
    bool runs = false;
    for (size_t i = 0; i < RP_ALERT_KINDS; i++) {
        struct slot *slot = &command->slots[i];
        if (slot->pid)
            follow(command, slot);
        char **variables = slot->pid ? NULL : take_wanted(command, slot);
        if (variables)
            start(command, slot, variables);
        runs = runs || slot->pid;
    }
    return runs;
}

static bool is_wanted(const struct rp_alert_command *command)
{
    for (size_t i = 0; i < RP_ALERT_KINDS; i++)
        if (command->slots[i].wanted && !command->slots[i].pid)
            return true;
    return false;
}

static void command_main(struct rp_side_thread *side)
{
    struct rp_alert_command *command = (struct rp_alert_command *)side;
    prctl(PR_SET_NAME, "alert");
    for (uint64_t end_ns = 0;;) {
        bool runs = look_after(command);
        pthread_mutex_lock(&side->mutex);
        if (!is_wanted(command) && !side->stop)
            (void)rp_side_thread_sleep_locked(side, runs ? LOOK_NS : IDLE_NS);
        bool is_idle = !is_wanted(command), stop = side->stop;
        pthread_mutex_unlock(&side->mutex);
        if (!stop)
            continue;
        end_ns = end_ns ? end_ns : rp_now_ns() + command->patience.end_ns;
        if (is_idle && (!runs || rp_now_ns() >= end_ns))
            return;
        rp_sleep_ns(LOOK_NS);
    }
}

/* ---- from outside ---------------------------------------------------------------------------- */

static void free_command(struct rp_side_thread *side)
{
    struct rp_alert_command *command = (struct rp_alert_command *)side;
    for (size_t i = 0; i < RP_ALERT_KINDS; i++)
        rp_alert_variables_free(command->slots[i].wanted);
    free(command->program);
    free(command->text);
    free(command);
}

static int take_words(struct rp_alert_command *command, const char *text, struct rp_error *error)
{
    command->text = strdup(text);
    if (!command->text)
        return rp_fail(error, -ENOMEM, NULL, "out of memory at start");
    char *rest = command->text;
    size_t count = 0;
    for (char *word; (word = strsep(&rest, ",")) != NULL;) {
        if (count == WORDS_MAX)
            return rp_fail(error, -RP_E_CONFIG, "put them into a script",
                           "alert_command: more than %u words", WORDS_MAX);
        command->words[count++] = word;
    }
    command->program = find_program(command->words[0]);
    if (!command->program)
        return rp_fail(error, -RP_E_CONFIG,
                       "a command is a list, as in [/usr/local/bin/page, --to, ops]; there is no "
                       "shell. Give the path of the program, and make it executable",
                       "alert_command: there is no program `%.200s` that can be run",
                       command->words[0]);
    return 0;
}

int rp_alert_command_open(struct rp_alert_command **out, const char *text,
                          const struct rp_alert_patience *patience, struct rp_error *error)
{
    struct rp_alert_command *command = rp_calloc(1, sizeof *command);
    if (!command)
        return rp_fail(error, -ENOMEM, NULL, "out of memory at start");
    command->patience = *patience;
    command->side.main = command_main;
    command->side.release = free_command;
    int code = take_words(command, text, error);
    if (code == 0) {
        code = rp_side_thread_start(&command->side);
        if (code < 0)
            (void)rp_fail(error, code, NULL, "cannot start the thread that runs alert_command: %s",
                          rp_strerror(code));
    }
    if (code < 0)
        free_command(&command->side);
    else
        *out = command;
    return code;
}

void rp_alert_variables_free(char **variables)
{
    for (size_t i = 0; variables && variables[i]; i++)
        free(variables[i]);
    free(variables);
}

void rp_alert_command_run(struct rp_alert_command *command, enum rp_alert_kind kind,
                          char **variables)
{
    struct slot *slot = &command->slots[kind];
    RP_ASSERT(kind < RP_ALERT_KINDS);
    pthread_mutex_lock(&command->side.mutex);
    char **older = slot->wanted;
    slot->wanted = variables;
    slot->failures += !variables; /* there was no memory for them */
    pthread_cond_broadcast(&command->side.changed);
    pthread_mutex_unlock(&command->side.mutex);
    rp_alert_variables_free(older);
    bool waits = RP_DEFECT(wait_for_alert_command);
    while (waits) {
        rp_sleep_ns(LOOK_NS); /* the thread may be starting the command */
        waits = look_after(command);
    }
}

uint64_t rp_alert_command_failures(struct rp_alert_command *command, enum rp_alert_kind kind)
{
    pthread_mutex_lock(&command->side.mutex);
    uint64_t failures = command->slots[kind].failures;
    pthread_mutex_unlock(&command->side.mutex);
    return failures;
}

void rp_alert_command_close(struct rp_alert_command *command)
{
    /* the thread waits for commands by itself; a second more is for a program on a slow disk */
    if (command)
        rp_side_thread_end(&command->side, command->patience.end_ns + UINT64_C(1000000000));
}
