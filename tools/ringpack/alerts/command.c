/* SPDX-License-Identifier: Apache-2.0 */
#include "alerts/command.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/spawn.h"
#include "base/side_thread.h"

#define POLL_NS UINT64_C(20000000)      /* between two checks of commands that run */
#define IDLE_NS UINT64_C(3600000000000) /* until it is woken */
#define LAST_NS UINT64_C(500000000)     /* until a command that is left over has been killed */
#define WORDS_MAX 64u

struct slot {
    char **wanted;     /* the variables of the command that is to be started; NULL = none */
    pid_t pid;         /* 0 = none runs; written by the thread */
    uint64_t began_ns; /* the thread's */
    bool is_killed;    /* the thread's */
    uint64_t failures;
};

/* `slots` is guarded by the mutex of `side`, except the thread's fields; the rest is constant. */
struct rp_alert_command {
    struct rp_side_thread side; /* the first member: command_main() casts back from it */
    char *text, *program;
    char *words[WORDS_MAX + 1]; /* in text, with a NULL after them */
    struct rp_alert_patience patience;
    int changed_fd;
    struct slot slots[RP_ALERT_KINDS];
};

/* ---- the program ----------------------------------------------------------------------------- */

static bool can_be_run(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode) && access(path, X_OK) == 0;
}

/* The file that the word means, on the heap; NULL if none exists. */
static char *find_program(const char *word)
{
    const char *path = getenv("PATH");
    if (strchr(word, '/'))
        return can_be_run(word) ? strdup(word) : NULL;
    while (path && *path && *word) {
        size_t length = strcspn(path, ":");
        char *file = rp_asprintf("%.*s/%s", (int)length, path, word);
        if (file && length > 0 && can_be_run(file))
            return file;
        free(file);
        path += length + (path[length] == ':');
    }
    return NULL;
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void free_variables(char **variables)
{
    for (size_t i = 0; variables && variables[i]; i++)
        free(variables[i]);
    free(variables);
}

/* The environment of the engine without variables of alerts, and the variables of this one. */
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

static void say_changed(const struct rp_alert_command *command)
{
    if (command->changed_fd >= 0)
        rp_fd_wake(command->changed_fd);
}

static void set_pid(struct rp_alert_command *command, struct slot *slot, pid_t pid)
{
    pthread_mutex_lock(&command->side.mutex);
    slot->pid = pid;
    pthread_mutex_unlock(&command->side.mutex);
    say_changed(command);
}

static void note_failure(struct rp_alert_command *command, struct slot *slot)
{
    pthread_mutex_lock(&command->side.mutex);
    slot->failures++;
    pthread_mutex_unlock(&command->side.mutex);
    say_changed(command);
}

static void start(struct rp_alert_command *command, struct slot *slot, char **variables)
{
    char **environment = environment_of(variables);
    const struct rp_spawn what = {command->program, command->words, environment, -1, false};
    pid_t pid;
    int failed = environment ? rp_spawn(&pid, &what) : ENOMEM;
    slot->began_ns = rp_now_ns();
    slot->is_killed = false;
    free(environment);
    free_variables(variables);
    if (failed == 0) {
        set_pid(command, slot, pid);
        return;
    }
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

/* Check a command that runs. `is_over`: it may run no longer. */
static void follow(struct rp_alert_command *command, struct slot *slot, bool is_over)
{
    int status = 0;
    pid_t ended = waitpid(slot->pid, &status, WNOHANG);
    if (ended > 0)
        say_end(command, slot, status);
    if (ended > 0 ||
        (ended < 0 && errno == ECHILD)) { /* SIGCHLD is ignored: the status is not known */
        set_pid(command, slot, 0);
        return;
    }
    uint64_t ran_ns = rp_now_ns() - slot->began_ns;
    if (slot->is_killed || (ran_ns < command->patience.run_ns && !is_over))
        return;
    bool is_killed = rp_spawn_kill(slot->pid);
    slot->is_killed = true;
    note_failure(command, slot);
    rp_log_event(RP_EVENT_alert_command_failed,
                 "alert_command: %s had not ended after %.3g seconds, and %s%s", command->program,
                 (double)ran_ns * 1e-9,
                 is_killed ? "was killed" : "may not be killed: it runs as another user",
                 is_over ? "; the engine has ended" : "");
}

static char **take_wanted(struct rp_alert_command *command, struct slot *slot)
{
    pthread_mutex_lock(&command->side.mutex);
    char **variables = slot->wanted;
    slot->wanted = NULL;
    pthread_mutex_unlock(&command->side.mutex);
    return variables;
}

/* Follow running commands and start wanted ones. Returns whether any runs. */
static bool poll_command(struct rp_alert_command *command, bool is_over)
{
    bool runs = false;
    for (size_t i = 0; i < RP_ALERT_KINDS; i++) {
        struct slot *slot = &command->slots[i];
        if (slot->pid)
            follow(command, slot, is_over);
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
        bool is_over = end_ns && rp_now_ns() >= end_ns;
        bool runs = poll_command(command, is_over);
        pthread_mutex_lock(&side->mutex);
        if (!is_wanted(command) && !side->stop)
            (void)rp_side_thread_sleep_locked(side, runs ? POLL_NS : IDLE_NS);
        bool is_idle = !is_wanted(command), stop = side->stop;
        pthread_mutex_unlock(&side->mutex);
        if (!stop)
            continue;
        end_ns = end_ns ? end_ns : rp_now_ns() + command->patience.end_ns;
        if (is_idle && (!runs || rp_now_ns() >= end_ns + LAST_NS))
            return;
        rp_sleep_ns(POLL_NS);
    }
}

/* ---- from outside ---------------------------------------------------------------------------- */

static void free_command(struct rp_side_thread *side)
{
    struct rp_alert_command *command = (struct rp_alert_command *)side;
    for (size_t i = 0; i < RP_ALERT_KINDS; i++)
        free_variables(command->slots[i].wanted);
    free(command->program);
    free(command->text);
    free(command);
}

int rp_alert_command_find(char **program, const char *text, struct rp_error *error)
{
    size_t words = 1;
    for (const char *at = text; *at; at++)
        words += *at == ',';
    if (words > WORDS_MAX)
        return rp_fail(error, -RP_E_CONFIG, "put them into a script",
                       "alert_command: more than %u words", WORDS_MAX);
    char *word = strndup(text, strcspn(text, ","));
    *program = word ? find_program(word) : NULL;
    int code = 0;
    if (!word)
        code = rp_fail(error, -ENOMEM, NULL, "out of memory at start");
    else if (!*program)
        code = rp_fail(error, -RP_E_CONFIG,
                       "a command is a list, as in [/usr/local/bin/page, --to, ops]; there is no "
                       "shell. Give the path of the program, and make it executable",
                       "alert_command: there is no program `%.200s` that can be run", word);
    free(word);
    return code;
}

int rp_alert_command_open(struct rp_alert_command **out, const char *text, const char *program,
                          const struct rp_alert_patience *patience, int changed_fd,
                          struct rp_error *error)
{
    struct rp_alert_command *command = rp_calloc(1, sizeof *command);
    if (!command)
        return rp_fail(error, -ENOMEM, NULL, "out of memory at start");
    command->patience = *patience;
    command->changed_fd = changed_fd;
    command->side.main = command_main;
    command->side.release = free_command;
    command->text = strdup(text);
    command->program = strdup(program);
    char *rest = command->text;
    for (size_t i = 0; rest && i < WORDS_MAX; i++)
        command->words[i] = strsep(&rest, ",");
    int code = command->text && command->program ? rp_side_thread_start(&command->side) : -ENOMEM;
    if (code == 0) {
        *out = command;
        return 0;
    }
    free_command(&command->side);
    return rp_fail(error, code, NULL, "cannot start the thread that runs alert_command: %s",
                   rp_strerror(code));
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
    free_variables(older);
}

struct rp_alert_command_counts rp_alert_command_counts(struct rp_alert_command *command,
                                                       enum rp_alert_kind kind)
{
    const struct slot *slot = &command->slots[kind];
    pthread_mutex_lock(&command->side.mutex);
    struct rp_alert_command_counts counts = {slot->failures, slot->pid};
    pthread_mutex_unlock(&command->side.mutex);
    return counts;
}

void rp_alert_command_close(struct rp_alert_command *command)
{
    /* the thread waits for commands by itself; a second more is for a program on a slow disk */
    if (command)
        rp_side_thread_end(&command->side, command->patience.end_ns + UINT64_C(1000000000));
}
