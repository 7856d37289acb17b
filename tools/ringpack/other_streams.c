/* SPDX-License-Identifier: Apache-2.0 */
#include "other_streams.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "cmd_config.h"
#include "config/keys.h"
#include "shm/socket.h"

#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC (1u << 2)
#endif

#define SECOND_NS UINT64_C(1000000000)
#define DEATHS_MAX 10u
#define YOUNG_NS (60 * SECOND_NS)
#define NAME_NS (45 * SECOND_NS)     /* for an engine that has the name; see LEFT_WAIT_NS of it */
#define ENDS_SOON_NS (2 * SECOND_NS) /* for an engine that ends without a trainer to wait for */
#define END_NS (60 * SECOND_NS)      /* for children, which save nothing */
#define PAUSE_NS (SECOND_NS / 10)

/* The engine of a stream. pid 0: it is to be started at due_ns. */
struct child {
    const char *name;
    char *run;
    struct rp_words words;
    pid_t pid;
    int lifeline_fd, ready_fd; /* -1: none */
    bool was_ready;            /* this one, or one before it */
    bool is_given_up;
    unsigned deaths;
    uint64_t began_ns, due_ns, named_ns; /* named_ns: another engine was first seen; 0: none */
};

/* The first line is guarded by the mutex; the rest is the thread's until it has ended. */
struct rp_other_streams {
    bool ends, at_once, is_settled, has_failed; /* is_settled: no child starts for the first time */
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* is_settled is set */
    pthread_t thread;
    int wake_fd;   /* eventfd: `ends` is set */
    int config_fd; /* a config that has no file, or -1 */
    const char *run_dir;
    struct child *children;
    size_t count;
};

bool rp_other_streams_is_for(const struct rp_cmd_line *line)
{
    return line->config->streams.count > 1 && !line->config->stream;
}

static bool is_main(const struct rp_config *config, size_t number)
{
    return config->streams.chosen == number + 1;
}

int rp_other_streams_check(const struct rp_cmd_line *line, struct rp_error *error)
{
    const struct rp_config_streams *streams = &line->config->streams;
    int code = 0;
    for (uint32_t i = 0; i < streams->count && code >= 0; i++) {
        struct rp_config config;
        struct rp_cmd_line other = *line;
        if (is_main(line->config, i))
            continue;
        rp_config_init(&config);
        config.is_kept = true; /* warnings were given */
        other.config = &config;
        code = rp_config_set(&config, "stream", streams->streams[i].name, error);
        if (code >= 0)
            code = rp_cmd_config_read(&other, error);
        if (code >= 0)
            code = rp_keys_finish(&config, error);
        if (code < 0)
            code = rp_fail_context(error, code, "stream %s", streams->streams[i].name);
        rp_config_free(&config);
    }
    return code;
}

/* ---- one child ------------------------------------------------------------------------------- */

static void end_as_program(const struct rp_other_streams *engines, const struct child *child,
                           int lifeline, int ready)
{
    char numbers[2][16], *argv[RP_JOB_WORDS_MAX + 8];
    char lifeline_word[] = "--lifeline", ready_word[] = "--ready-fd";
    size_t count = child->words.count;
    sigset_t none;
    memcpy(argv, child->words.word, count * sizeof *argv);
    snprintf(numbers[0], sizeof numbers[0], "%d", lifeline);
    snprintf(numbers[1], sizeof numbers[1], "%d", ready);
    argv[count++] = lifeline_word;
    argv[count++] = numbers[0];
    argv[count++] = ready_word;
    argv[count++] = numbers[1];
    argv[count] = NULL;
    (void)setpgid(0, 0); /* signals of the terminal are for the parent */
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    (void)syscall(SYS_close_range, STDERR_FILENO + 1, ~0u, CLOSE_RANGE_CLOEXEC);
    fcntl(lifeline, F_SETFD, 0);
    fcntl(ready, F_SETFD, 0);
    if (engines->config_fd >= 0)
        fcntl(engines->config_fd, F_SETFD, 0);
    execv("/proc/self/exe", argv);
    _exit(127);
}

static int start(const struct rp_other_streams *engines, struct child *child)
{
    int lifeline[2], ready[2];
    if (pipe2(lifeline, O_CLOEXEC) < 0)
        return -errno;
    int code = pipe2(ready, O_CLOEXEC) < 0 ? -errno : 0;
    if (code == 0) {
        child->pid = rp_fork();
        if (child->pid == 0)
            end_as_program(engines, child, lifeline[0], ready[1]);
        code = child->pid < 0 ? -errno : 0;
        close(ready[1]);
        child->ready_fd = ready[0];
    }
    close(lifeline[0]);
    child->lifeline_fd = lifeline[1];
    child->began_ns = rp_now_ns();
    if (code < 0)
        child->pid = 0;
    return code;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* Does another engine have the name of this stream's? A child of a parent that was killed may still
 * be ending. */
static bool is_taken(const struct rp_other_streams *engines, struct child *child)
{
    if (!rp_run_is_held(engines->run_dir, child->run)) {
        child->named_ns = 0;
        return false;
    }
    if (child->named_ns == 0)
        child->named_ns = rp_now_ns();
    return rp_now_ns() - child->named_ns < NAME_NS; /* after that its start gives the error */
}

static void start_when_due(const struct rp_other_streams *engines, struct child *child)
{
    if (child->pid > 0 || child->is_given_up || rp_now_ns() < child->due_ns)
        return;
    int code = is_taken(engines, child) ? -EBUSY : start(engines, child);
    if (code < 0)
        child->due_ns = rp_now_ns() + PAUSE_NS;
    if (code < 0 && code != -EBUSY)
        rp_log(RP_LOG_WARNING, "the engine of stream %s cannot be started: %s; trying again",
               child->name, rp_strerror(code));
}

/* The child has ended, which is not the end of this process. */
static void note_death(struct rp_other_streams *engines, struct child *child, int status)
{
    uint64_t now = rp_now_ns();
    bool is_first = !child->was_ready && WIFEXITED(status) && WEXITSTATUS(status) != 0;
    child->deaths = now - child->began_ns < YOUNG_NS ? child->deaths + 1 : 1;
    child->is_given_up = is_first || child->deaths > DEATHS_MAX;
    child->due_ns = now + (child->deaths - 1) * SECOND_NS;
    if (is_first) {
        pthread_mutex_lock(&engines->mutex);
        engines->has_failed = true;
        pthread_mutex_unlock(&engines->mutex);
        rp_log(RP_LOG_WARNING, "the engine of stream %s could not start", child->name);
    } else if (child->is_given_up) {
        rp_log(RP_LOG_ERROR,
               "the engine of stream %s died %u times: it is not served until this "
               "engine is started again",
               child->name, child->deaths);
    } else {
        rp_log(RP_LOG_WARNING, "the engine of stream %s %s: it is started again", child->name,
               WIFSIGNALED(status) ? "was killed" : "ended");
    }
}

/* ---- the thread ------------------------------------------------------------------------------ */

static bool has_ended(struct rp_other_streams *engines, bool *at_once)
{
    pthread_mutex_lock(&engines->mutex);
    bool ends = engines->ends;
    *at_once = engines->at_once;
    pthread_mutex_unlock(&engines->mutex);
    return ends;
}

/* Whether the child has ended, and how. */
static bool reap(struct child *child, int *status)
{
    if (child->pid <= 0 || waitpid(child->pid, status, WNOHANG) != child->pid)
        return false;
    child->pid = 0;
    close_fd(&child->lifeline_fd);
    close_fd(&child->ready_fd);
    return true;
}

static void note_ready(struct child *child)
{
    char bytes[16];
    if (read(child->ready_fd, bytes, sizeof bytes) > 0)
        child->was_ready = true;
    else
        close_fd(&child->ready_fd);
}

/* Wait until a child becomes ready or ends (its end of the pipe is closed), one is due, or this
 * process ends. */
static void wait_for_change(struct rp_other_streams *engines)
{
    struct pollfd entries[RP_STREAMS_MAX + 1];
    bool is_due = false;
    for (size_t i = 0; i < engines->count; i++) {
        const struct child *child = &engines->children[i];
        entries[i] = (struct pollfd){.fd = child->ready_fd, .events = POLLIN};
        is_due |= !child->is_given_up && (child->pid == 0 || child->ready_fd < 0);
    }
    entries[engines->count] = (struct pollfd){.fd = engines->wake_fd, .events = POLLIN};
    if (poll(entries, engines->count + 1, is_due ? (int)(PAUSE_NS / 1000000) : -1) <= 0)
        return;
    for (size_t i = 0; i < engines->count; i++)
        if (entries[i].revents)
            note_ready(&engines->children[i]);
}

static void end_children(struct rp_other_streams *engines, bool at_once)
{
    uint64_t until_ns = rp_now_ns() + END_NS;
    size_t living = engines->count;
    for (size_t i = 0; i < engines->count; i++) {
        struct child *child = &engines->children[i];
        if (child->pid > 0 && at_once)
            kill(child->pid, SIGTERM);
        close_fd(&child->lifeline_fd);
    }
    while (living > 0) {
        int status;
        living = 0;
        for (size_t i = 0; i < engines->count; i++) {
            struct child *child = &engines->children[i];
            living += child->pid > 0 && !reap(child, &status);
            if (child->pid > 0 && rp_now_ns() >= until_ns)
                kill(child->pid, SIGKILL);
        }
        if (living > 0)
            rp_sleep_ns(PAUSE_NS / 20);
    }
}

/* Let the process continue once each child has started, has failed, or waits long for its name. */
static void settle(struct rp_other_streams *engines)
{
    bool is_settled = true;
    for (size_t i = 0; i < engines->count; i++) {
        const struct child *child = &engines->children[i];
        bool waits = child->named_ns && rp_now_ns() - child->named_ns > ENDS_SOON_NS;
        is_settled &= child->was_ready || child->is_given_up || waits;
    }
    if (!is_settled)
        return;
    pthread_mutex_lock(&engines->mutex);
    engines->is_settled = true;
    pthread_cond_signal(&engines->changed);
    pthread_mutex_unlock(&engines->mutex);
}

static void *other_streams_main(void *argument)
{
    struct rp_other_streams *engines = argument;
    bool at_once = true;
    prctl(PR_SET_NAME, "streams");
    while (!has_ended(engines, &at_once)) {
        for (size_t i = 0; i < engines->count; i++)
            start_when_due(engines, &engines->children[i]);
        wait_for_change(engines);
        for (size_t i = 0; i < engines->count; i++) {
            int status;
            if (reap(&engines->children[i], &status) && !has_ended(engines, &at_once))
                note_death(engines, &engines->children[i], status);
        }
        settle(engines);
    }
    end_children(engines, at_once);
    return NULL;
}

/* ---- the process ----------------------------------------------------------------------------- */

static void free_engines(struct rp_other_streams *engines)
{
    for (size_t i = 0; i < engines->count; i++) {
        free(engines->children[i].run);
        rp_words_free(&engines->children[i].words);
    }
    if (engines->wake_fd >= 0)
        close(engines->wake_fd);
    free(engines->children);
    free(engines);
}

static int describe(struct child *child, const struct rp_cmd_line *line, const char *name)
{
    *child = (struct child){.name = name, .lifeline_fd = -1, .ready_fd = -1};
    child->run = rp_asprintf("%s.%s", line->config->run, name);
    rp_words_add(&child->words, "ringpack");
    rp_words_add(&child->words, "serve");
    rp_cmd_config_given_words(line, &child->words);
    rp_words_add(&child->words, "--stream=%s", name);
    return child->run && !child->words.failed ? 0 : -ENOMEM;
}

int rp_other_streams_open(struct rp_other_streams **out, const struct rp_cmd_line *line,
                          struct rp_error *error)
{
    const struct rp_config *config = line->config;
    struct rp_other_streams *engines = rp_calloc(1, sizeof *engines);
    struct child *children = rp_calloc(config->streams.count, sizeof *children);
    int code = engines && children ? 0 : -ENOMEM;
    if (code < 0) {
        free(engines);
        free(children);
        return rp_fail(error, code, NULL, "no memory for the engines of the streams");
    }
    *engines = (struct rp_other_streams){.mutex = PTHREAD_MUTEX_INITIALIZER,
                                         .changed = PTHREAD_COND_INITIALIZER,
                                         .wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
                                         .config_fd = -1,
                                         .run_dir = config->run_dir,
                                         .children = children};
    if (line->path && sscanf(line->path, "/proc/self/fd/%d", &engines->config_fd) != 1)
        engines->config_fd = -1;
    for (uint32_t i = 0; i < config->streams.count && code == 0; i++)
        if (!is_main(config, i))
            code = describe(&children[engines->count++], line, config->streams.streams[i].name);
    if (code == 0 && engines->wake_fd < 0)
        code = -errno;
    sigset_t all, before; /* the engine's thread takes the signals of the process */
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    if (code == 0)
        code = -rp_thread_start(&engines->thread, other_streams_main, engines);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code < 0) {
        free_engines(engines);
        return rp_fail(error, code, NULL, "the engines of the streams cannot be started: %s",
                       rp_strerror(code));
    }
    *out = engines;
    pthread_mutex_lock(&engines->mutex);
    while (!engines->is_settled)
        pthread_cond_wait(&engines->changed, &engines->mutex);
    bool has_failed = engines->has_failed;
    pthread_mutex_unlock(&engines->mutex);
    return has_failed ? RP_OTHER_STREAM_FAILED : 0;
}

void rp_other_streams_close(struct rp_other_streams *engines, bool at_once)
{
    if (!engines)
        return;
    pthread_mutex_lock(&engines->mutex);
    engines->ends = true;
    engines->at_once = at_once;
    pthread_mutex_unlock(&engines->mutex);
    (void)eventfd_write(engines->wake_fd, 1);
    pthread_join(engines->thread, NULL);
    free_engines(engines);
}
