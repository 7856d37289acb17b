/* SPDX-License-Identifier: Apache-2.0 */
#include "alerts/watcher.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "alerts/command.h"
#include "alerts/disk_watch.h"
#include "alerts/findings.h"
#include "base/bits.h"
#include "base/clock.h"
#include "base/mem.h"
#include "cmd.h"
#include "watch/watch.h"

#define ENGINE_FD STDOUT_FILENO
#define ANSWER_NS UINT64_C(1000000000) /* to wait for an answer */
/* A watcher that was stopped itself has seen no more silence than this. */
#define SEEN_NS UINT64_C(2000000000)
#define DISK_PERIOD_NS UINT64_C(10000000000)
#define HURRIED_NS UINT64_C(100000000) /* from a failed save to the check after it */
#define END_BYTES 65536u
#define VARIABLES 7u

static const struct rp_alert_patience patience = {.run_ns = UINT64_C(60000000000),
                                                  .end_ns = UINT64_C(5000000000)};

struct watcher {
    struct rp_alert_task task;
    struct rp_alert_known told; /* the last message to the engine's process */
    struct rp_watch watch;
    struct rp_alert_command *command; /* NULL = alerts are only logged */
    struct rp_disk_watch *disks[RP_ALERT_DISKS_MAX];
    uint64_t failures_before[RP_ALERT_KINDS]; /* counts of commands of earlier watchers */
    uint64_t failures_of_disks;               /* failures that the disks were checked for */
    uint64_t checked_ns, silent_ns;
    int changed_fd; /* eventfd: a command has begun or ended */
};

/* ---- commands -------------------------------------------------------------------------------- */

/* Without memory, a variable is left out. */
static void add(char **variables, char *variable)
{
    size_t count = 0;
    while (variables[count])
        count++;
    RP_ASSERT(count < VARIABLES);
    variables[count] = variable;
}

static void run_command(const struct watcher *watcher, enum rp_alert_kind kind)
{
    const struct rp_alert_task *task = &watcher->task;
    const struct rp_alert_report *report = &task->known.reports[kind];
    char **variables = watcher->command ? rp_calloc(VARIABLES + 1, sizeof *variables) : NULL;
    if (!watcher->command)
        return;
    if (variables) {
        add(variables, rp_asprintf("RINGPACK_ALERT=%s", rp_alert_name(kind)));
        add(variables, rp_asprintf("RINGPACK_ALERT_MESSAGE=%s", report->message));
        add(variables, rp_asprintf("RINGPACK_ALERT_RUN=%s", task->run));
        add(variables, rp_asprintf("RINGPACK_ALERT_PID=%d", (int)task->engine));
        add(variables, rp_asprintf("RINGPACK_ALERT_VALUE=%" PRIu64, report->value));
        add(variables, rp_asprintf("RINGPACK_ALERT_LIMIT=%" PRIu64, report->limit));
        add(variables, rp_asprintf("RINGPACK_ALERT_CAUSE=%s", report->cause));
    }
    rp_alert_command_run(watcher->command, kind, variables);
}

static void do_step(struct watcher *watcher, enum rp_alert_kind kind, enum rp_alert_step step,
                    const struct rp_alert_findings *found)
{
    struct rp_alert_report *report = &watcher->task.known.reports[kind];
    switch (step) {
    case RP_ALERT_NOTHING:
        return;
    case RP_ALERT_RAISE:
    case RP_ALERT_RAISE_AND_RUN:
        *report = rp_alert_report(found, kind, &watcher->task);
        rp_log_event(RP_EVENT_alert, "alert %s: %s", rp_alert_name(kind), report->message);
        if (step == RP_ALERT_RAISE_AND_RUN)
            run_command(watcher, kind);
        return;
    case RP_ALERT_RUN:
        run_command(watcher, kind);
        return;
    case RP_ALERT_CLEAR:
        rp_log_event(RP_EVENT_alert_cleared, "alert %s is over", rp_alert_name(kind));
        return;
    }
}

/* ---- disks ----------------------------------------------------------------------------------- */

/* The engine's answers have the place of the cache. */
static void add_cache(struct watcher *watcher, const json_t *stat)
{
    struct rp_alert_known *known = &watcher->task.known;
    const char *directory = json_string_value(json_object_get(stat, "cache_dir"));
    if (!directory || known->disk_count == RP_ALERT_DISKS_MAX)
        return;
    for (size_t i = 0; i < known->disk_count; i++)
        if (!strcmp(known->disks[i].directory, directory))
            return;
    snprintf(known->disks[known->disk_count++].directory, PATH_MAX, "%s", directory);
}

static int watch_disks(struct watcher *watcher, const json_t *stat, struct rp_error *error)
{
    const struct rp_alert_known *known = &watcher->task.known;
    int code = 0;
    if (watcher->task.limits.free_bytes == 0)
        return 0;
    add_cache(watcher, stat);
    for (size_t i = 0; i < known->disk_count && code == 0; i++)
        if (!watcher->disks[i])
            code = rp_disk_watch_open(&watcher->disks[i], known->disks[i].directory, DISK_PERIOD_NS,
                                      rp_disk_room, error);
    return code;
}

static void take_disks(struct watcher *watcher)
{
    struct rp_alert_known *known = &watcher->task.known;
    for (size_t i = 0; i < RP_ALERT_DISKS_MAX && watcher->disks[i]; i++) {
        struct rp_disk_answer answer = rp_disk_watch_answer(watcher->disks[i]);
        known->disks[i].at_ns = answer.at_ns;
        known->disks[i].free_bytes = answer.free_bytes;
        known->disks[i].lacks_inodes = answer.lacks_inodes;
    }
}

/* After a save or a copy that failed, a disk may be full. True if one failed since the last check:
 * the next check follows soon. */
static bool hurry_disks(struct watcher *watcher)
{
    const struct rp_alert_known *known = &watcher->task.known;
    uint64_t failures = known->save_failures + known->copy_failures;
    bool has_failed = failures != watcher->failures_of_disks;
    for (size_t i = 0; i < RP_ALERT_DISKS_MAX && has_failed; i++)
        if (watcher->disks[i])
            rp_disk_watch_hurry(watcher->disks[i]);
    watcher->failures_of_disks = failures;
    return has_failed;
}

/* ---- checks ---------------------------------------------------------------------------------- */

/* Whoever serves the run by now, an answer of another engine is not about this one. */
static const json_t *answer_of(struct watcher *watcher)
{
    struct rp_watched *run = &watcher->watch.runs[0];
    if (rp_watch_poll(&watcher->watch, ANSWER_NS, NULL) < 0)
        return NULL;
    uint64_t now = rp_now_ns(), passed_ns = now - watcher->checked_ns;
    bool is_silent = run->state == RP_WATCH_SILENT && watcher->command;
    watcher->silent_ns = is_silent ? watcher->silent_ns + rp_min_u64(passed_ns, SEEN_NS) : 0;
    watcher->checked_ns = now;
    bool answers = run->state == RP_WATCH_RUNNING &&
                   rp_watch_number(run->stat, "pid") == (double)watcher->task.engine;
    return answers ? run->stat : NULL;
}

static void do_steps(struct watcher *watcher, const struct rp_alert_findings *found)
{
    struct rp_alert_known *known = &watcher->task.known;
    uint64_t now = rp_now_ns();
    for (enum rp_alert_kind kind = 0; kind < RP_ALERT_KINDS; kind++) {
        enum rp_alert_sign sign = rp_alert_sign(kind, &watcher->task.limits, &found->view);
        do_step(watcher, kind, rp_alert_evaluate(&known->alerts[kind], kind, sign, now), found);
    }
}

/* A message that finds no room follows after the next check. */
static void tell(struct watcher *watcher)
{
    struct rp_alert_known *known = &watcher->task.known;
    for (enum rp_alert_kind kind = 0; watcher->command && kind < RP_ALERT_KINDS; kind++) {
        struct rp_alert_command_counts counts = rp_alert_command_counts(watcher->command, kind);
        known->command_failures[kind] = watcher->failures_before[kind] + counts.failures;
        known->pids[kind] = counts.pid;
    }
    if (memcmp(known, &watcher->told, sizeof *known) != 0 &&
        send(ENGINE_FD, known, sizeof *known, MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof *known)
        watcher->told = *known;
}

/* Returns when to check again. */
static int check(struct watcher *watcher, uint64_t *pause_ns, struct rp_error *error)
{
    struct rp_alert_task *task = &watcher->task;
    const json_t *stat = answer_of(watcher);
    int code = watch_disks(watcher, stat, error);
    take_disks(watcher);
    struct rp_alert_findings found = rp_alert_find(stat, task, rp_now_ns());
    found.view.silent_ns = watcher->silent_ns;
    bool is_hurried = hurry_disks(watcher);
    do_steps(watcher, &found);
    tell(watcher);
    *pause_ns = is_hurried ? HURRIED_NS
                           : rp_alert_pause_ns(&task->limits, &found.view, task->known.alerts);
    return code;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* The last message of the engine; NULL: it ended without one. */
static json_t *take_end(void)
{
    static char text[END_BYTES];
    ssize_t bytes = recv(ENGINE_FD, text, sizeof text - 1, 0);
    text[bytes > 0 ? bytes : 0] = '\0';
    return bytes > 0 ? json_loads(text, 0, NULL) : NULL;
}

static void end(struct watcher *watcher)
{
    json_t *stat = take_end();
    struct rp_alert_findings found = rp_alert_find(stat, &watcher->task, rp_now_ns());
    found.view.engine_failed |= !stat && watcher->command;
    do_steps(watcher, &found);
    tell(watcher);
    rp_alert_command_close(watcher->command);
    json_decref(stat);
}

/* Whether a message is there, or the engine is gone. The pids of commands are told at once: a
 * watcher that is killed cannot kill them. */
static bool sleep_until_end(struct watcher *watcher, uint64_t pause_ns)
{
    uint64_t until = rp_now_ns() + pause_ns, count;
    for (;;) {
        struct pollfd entries[] = {{.fd = ENGINE_FD, .events = POLLIN},
                                   {.fd = watcher->changed_fd, .events = POLLIN}};
        uint64_t now = rp_now_ns();
        uint64_t left_ms = now < until ? rp_div_up(until - now, 1000000u) : 0;
        if (poll(entries, 2, (int)left_ms) <= 0)
            return false;
        if (entries[0].revents)
            return true;
        (void)!read(watcher->changed_fd, &count, sizeof count);
        tell(watcher);
    }
}

/* ---- the process ----------------------------------------------------------------------------- */

static int open_watcher(struct watcher *watcher, struct rp_error *error)
{
    const struct rp_alert_task *task = &watcher->task;
    static const int engines[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGPIPE, SIGTTOU};
    for (size_t i = 0; i < RP_ARRAY_COUNT(engines); i++)
        signal(engines[i], SIG_IGN);
    rp_log_set_format(task->log_format);
    char run[RP_RUN_NAME_BYTES];
    const char *name = run, *run_dir = task->run_dir[0] ? task->run_dir : NULL;
    snprintf(run, sizeof run, "%s", task->run);
    watcher->changed_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int code = watcher->changed_fd < 0
                   ? rp_fail(error, -errno, NULL, "no descriptor: %s", rp_strerror(-errno))
                   : rp_watch_open(&watcher->watch, run_dir, &name, 1, error);
    if (code == 0 && task->program[0])
        code = rp_alert_command_open(&watcher->command, task->command, task->program, &patience,
                                     watcher->changed_fd, error);
    memcpy(watcher->failures_before, task->known.command_failures, sizeof watcher->failures_before);
    watcher->checked_ns = rp_now_ns();
    watcher->failures_of_disks = task->known.save_failures + task->known.copy_failures;
    return code;
}

int rp_cmd_watch_alerts(int argc, char **argv)
{
    struct rp_error error = {0};
    struct watcher *watcher = rp_calloc(1, sizeof *watcher);
    (void)argc;
    if (!watcher)
        return RP_EXIT_TROUBLE;
    ssize_t got = recv(ENGINE_FD, &watcher->task, sizeof watcher->task, 0);
    if (got != sizeof watcher->task) {
        free(watcher);
        (void)rp_fail(&error, -RP_E_USAGE, "`ringpack serve` starts it, if the config has alerts",
                      "%s is only for `ringpack serve`", argv[0]);
        return rp_cmd_report(&error);
    }
    uint64_t pause_ns = 0;
    int code = open_watcher(watcher, &error);
    while (code == 0 && !sleep_until_end(watcher, pause_ns))
        code = check(watcher, &pause_ns, &error);
    if (code == 0)
        end(watcher);
    else
        rp_log(RP_LOG_ERROR, "alerts: %s", error.message);
    /* threads that wait for a disk end with the process */
    _exit(code == 0 ? RP_EXIT_FINE : RP_EXIT_TROUBLE);
}
