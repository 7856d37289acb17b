/* SPDX-License-Identifier: Apache-2.0 */
#include "alerts/keeper.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "alerts/command.h"
#include "alerts/findings.h"
#include "alerts/watcher.h"
#include "base/bits.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/spawn.h"
#include "base/side_thread.h"

#define SECOND_NS UINT64_C(1000000000)
#define DEATHS_MAX 10u
#define YOUNG_NS (600 * SECOND_NS)
#define END_NS (8 * SECOND_NS)   /* for a watcher, whose commands get 5 of these seconds */
#define DEATH_NS (SECOND_NS / 2) /* until a process that was killed is gone */

/* `task.known` and `end` are guarded by the mutex of `side`; the rest is constant, or the thread's.
 */
struct rp_alert_keeper {
    struct rp_side_thread side; /* the first member: keeper_main() casts back from it */
    struct rp_engine_observer observer;
    bool watches;    /* the config enables an alert */
    bool is_started; /* the thread is: the engine's thread's */
    struct rp_alert_task task;
    char *end;       /* the last message; NULL: the engine runs */
    int wake_fd;     /* eventfd: `end` is set */
    uint64_t end_ns; /* the thread's: when it took `end`, or 0 */
};

/* A watcher that runs. */
struct child {
    pid_t pid;
    int fd; /* the socket's */
    uint64_t began_ns;
};

/* ---- one watcher ----------------------------------------------------------------------------- */

static int start_child(struct rp_alert_keeper *keeper, struct child *child)
{
    char name[] = "ringpack", verb[] = RP_ALERT_WATCHER;
    char *const words[] = {name, verb, keeper->task.run, NULL};
    int ends[2];
    child->began_ns = rp_now_ns();
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return -errno;
    child->fd = ends[0];
    struct rp_alert_task *task = &keeper->task;
    int code = send(ends[0], task, sizeof *task, MSG_NOSIGNAL) == sizeof *task ? 0 : -errno;
    const struct rp_spawn what = {"/proc/self/exe", words, environ, ends[1], true};
    if (code == 0)
        code = -rp_spawn(&child->pid, &what);
    close(ends[1]);
    if (code < 0)
        close(child->fd);
    return code;
}

/* Send the last message once it is there. */
static void send_end(struct rp_alert_keeper *keeper, const struct child *child)
{
    pthread_mutex_lock(&keeper->side.mutex);
    bool is_new = keeper->end && keeper->end_ns == 0;
    pthread_mutex_unlock(&keeper->side.mutex);
    if (!is_new)
        return;
    keeper->end_ns = rp_now_ns();
    (void)!send(child->fd, keeper->end, strlen(keeper->end), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* False: the watcher has ended. */
static bool take_known(struct rp_alert_keeper *keeper, const struct child *child)
{
    struct rp_alert_known known;
    ssize_t bytes = recv(child->fd, &known, sizeof known, MSG_DONTWAIT);
    if (bytes != sizeof known)
        return bytes < 0 && (errno == EAGAIN || errno == EINTR);
    pthread_mutex_lock(&keeper->side.mutex);
    keeper->task.known = known;
    pthread_mutex_unlock(&keeper->side.mutex);
    return true;
}

/* Milliseconds for poll(2) until a watcher has had its time after the end of the engine. */
static int patience_ms(const struct rp_alert_keeper *keeper)
{
    uint64_t passed_ns = keeper->end_ns ? rp_now_ns() - keeper->end_ns : 0;
    if (keeper->end_ns == 0)
        return -1;
    return passed_ns < END_NS ? (int)((END_NS - passed_ns) / 1000000 + 1) : 0;
}

/* Returns when the watcher has ended, or has to. */
static void follow_child(struct rp_alert_keeper *keeper, const struct child *child)
{
    for (;;) {
        struct pollfd entries[] = {{.fd = child->fd, .events = POLLIN},
                                   {.fd = keeper->wake_fd, .events = POLLIN}};
        send_end(keeper, child);
        int found = poll(entries, keeper->end_ns ? 1 : 2, patience_ms(keeper));
        if (found == 0 || (entries[0].revents && !take_known(keeper, child)))
            return;
    }
}

/* Whether it ended by itself. Otherwise its commands are killed: also one that it had begun and not
 * reported yet. A watcher that waits for a disk may outlive its SIGKILL: it is left. */
static bool bury_child(const struct child *child)
{
    siginfo_t end = {.si_pid = 0};
    (void)rp_spawn_kill(child->pid);
    uint64_t begin = rp_now_ns();
    while (waitid(P_PID, (id_t)child->pid, &end, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           end.si_pid == 0) {
        if (rp_now_ns() - begin > DEATH_NS)
            return false;
        rp_sleep_ns(SECOND_NS / 1000);
    }
    bool is_good = end.si_code == CLD_EXITED && end.si_status == 0;
    if (!is_good)
        rp_spawn_kill_session(child->pid);
    (void)waitpid(child->pid, NULL, WNOHANG);
    return is_good;
}

/* Commands that the watcher has left. */
static void kill_commands(struct rp_alert_keeper *keeper)
{
    struct rp_alert_known *known = &keeper->task.known;
    pthread_mutex_lock(&keeper->side.mutex);
    for (enum rp_alert_kind kind = 0; kind < RP_ALERT_KINDS; kind++) {
        if (known->pids[kind] > 0 && rp_spawn_kill(known->pids[kind]))
            known->command_failures[kind]++;
        known->pids[kind] = 0;
    }
    pthread_mutex_unlock(&keeper->side.mutex);
}

/* ---- one after the other --------------------------------------------------------------------- */

static bool has_ended(struct rp_alert_keeper *keeper)
{
    pthread_mutex_lock(&keeper->side.mutex);
    bool is_over = keeper->end != NULL;
    pthread_mutex_unlock(&keeper->side.mutex);
    return is_over;
}

/* A pause that grows; the end of the engine cuts it. */
static void pause_after(struct rp_alert_keeper *keeper, unsigned deaths, int code)
{
    struct pollfd entry = {.fd = keeper->wake_fd, .events = POLLIN};
    if (code < 0)
        rp_log_event(RP_EVENT_watcher_replaced,
                     "the process that raises alerts cannot be started: %s; trying again",
                     rp_strerror(code));
    else
        rp_log_event(RP_EVENT_watcher_replaced,
                     "the process that raises alerts died; it is started again");
    (void)poll(&entry, 1, (int)(deaths - 1) * 1000);
}

static void keeper_main(struct rp_side_thread *side)
{
    struct rp_alert_keeper *keeper = (struct rp_alert_keeper *)side;
    unsigned deaths = 0;
    prctl(PR_SET_NAME, "alerts");
    for (;;) {
        struct child child;
        int code = start_child(keeper, &child);
        if (code == 0) {
            follow_child(keeper, &child);
            if (!bury_child(&child))
                kill_commands(keeper);
            close(child.fd);
        }
        if (keeper->end_ns || (code < 0 && has_ended(keeper)))
            return;
        deaths = rp_now_ns() - child.began_ns < YOUNG_NS ? deaths + 1 : 1;
        if (deaths > DEATHS_MAX) {
            rp_log_event(RP_EVENT_watcher_lost,
                         "the process that raises alerts died %u times: no alerts until the engine "
                         "is started again",
                         deaths);
            return;
        }
        pause_after(keeper, deaths, code);
    }
}

/* ---- the engine's thread --------------------------------------------------------------------- */

static void note_ready(void *context)
{
    struct rp_alert_keeper *keeper = context;
    int code = keeper->watches ? rp_side_thread_start(&keeper->side) : 0;
    keeper->is_started = keeper->watches && code == 0;
    if (code < 0)
        rp_log_event(RP_EVENT_watcher_lost, "no alerts: cannot start their thread: %s",
                     rp_strerror(code));
}

static void add_to_stat(void *context, json_t *stat)
{
    struct rp_alert_keeper *keeper = context;
    if (keeper->is_started)
        pthread_mutex_lock(&keeper->side.mutex);
    rp_alert_add_to_stat(stat, keeper->watches ? &keeper->task : NULL, rp_now_ns());
    if (keeper->is_started)
        pthread_mutex_unlock(&keeper->side.mutex);
}

static void note_end(void *context, const json_t *stat)
{
    struct rp_alert_keeper *keeper = context;
    char *text = json_dumps(stat, JSON_COMPACT);
    if (!keeper->is_started) {
        free(text);
        return;
    }
    pthread_mutex_lock(&keeper->side.mutex);
    keeper->end = text ? text : strdup("{}");
    pthread_mutex_unlock(&keeper->side.mutex);
    rp_fd_wake(keeper->wake_fd);
}

/* ---- opening --------------------------------------------------------------------------------- */

static void free_keeper(struct rp_side_thread *side)
{
    struct rp_alert_keeper *keeper = (struct rp_alert_keeper *)side;
    close(keeper->wake_fd);
    free(keeper->end);
    free(keeper);
}

static int copy_text(char *room, size_t bytes, const char *text, const char *key,
                     struct rp_error *error)
{
    if (text && strlen(text) >= bytes)
        return rp_fail(error, -RP_E_CONFIG, "shorten it, or put words into a script",
                       "%s: more than %zu bytes, and there are alerts", key, bytes - 1);
    snprintf(room, bytes, "%s", text ? text : "");
    return 0;
}

static int set_task(struct rp_alert_task *task, const struct rp_config *config,
                    struct rp_error *error)
{
    char *program = NULL;
    task->limits = (struct rp_alert_limits){.starved_ns = config->alert_starved_ms *
                                                          UINT64_C(1000000),
                                            .skew_rows = config->alert_skew_rows,
                                            .free_bytes = config->alert_disk_free};
    task->engine = getpid();
    task->log_format = config->log_format;
    int code = config->alert_command ? rp_alert_command_find(&program, config->alert_command, error)
                                     : 0;
    const struct {
        char *room;
        size_t bytes;
        const char *text, *key;
    } texts[] = {
        {task->run, sizeof task->run, config->run, "run"},
        {task->run_dir, sizeof task->run_dir, config->run_dir, "run_dir"},
        {task->known.disks[0].directory, PATH_MAX, config->checkpoint_dir, "checkpoint_dir"},
        {task->known.disks[1].directory, PATH_MAX, config->checkpoint_mirror_dir,
         "checkpoint_mirror_dir"},
        {task->program, sizeof task->program, program, "alert_command"},
        {task->command, sizeof task->command, config->alert_command, "alert_command"},
    };
    for (size_t i = 0; i < RP_ARRAY_COUNT(texts) && code == 0; i++)
        code = copy_text(texts[i].room, texts[i].bytes, texts[i].text, texts[i].key, error);
    if (config->alert_disk_free > 0) /* without checkpoints there are no copies */
        task->known.disk_count = config->checkpoint_mirror_dir ? 2 : config->checkpoint_dir ? 1 : 0;
    free(program);
    return code;
}

int rp_alert_keeper_open(struct rp_alert_keeper **out, const struct rp_config *config,
                         struct rp_error *error)
{
    struct rp_alert_keeper *keeper = rp_calloc(1, sizeof *keeper);
    int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!keeper || wake_fd < 0) {
        free(keeper);
        return rp_fail(error, wake_fd < 0 ? -errno : -ENOMEM, NULL,
                       "no memory or descriptor for alerts");
    }
    keeper->wake_fd = wake_fd;
    keeper->side.main = keeper_main;
    keeper->side.release = free_keeper;
    keeper->observer = (struct rp_engine_observer){keeper, note_ready, add_to_stat, note_end};
    keeper->watches = config->alert_command || config->alert_starved_ms > 0 ||
                      config->alert_skew_rows > 0 || config->alert_disk_free > 0;
    int code = keeper->watches ? set_task(&keeper->task, config, error) : 0;
    if (code < 0)
        free_keeper(&keeper->side);
    else
        *out = keeper;
    return code;
}

const struct rp_engine_observer *rp_alert_keeper_observer(struct rp_alert_keeper *keeper)
{
    return &keeper->observer;
}

void rp_alert_keeper_close(struct rp_alert_keeper *keeper)
{
    if (!keeper)
        return;
    if (keeper->is_started)
        (void)rp_side_thread_end(&keeper->side, END_NS + 2 * SECOND_NS);
    else
        free_keeper(&keeper->side);
}
