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

/* The engine of a stream. Its pid 0: it is to be started at due_ns. */
struct child {
    const char *name;
    char *run;
    struct rp_words words;
    struct rp_child engine;
    bool was_ready; /* this one, or one before it */
    bool is_given_up;
    unsigned deaths;
    uint64_t due_ns, named_ns; /* named_ns: another engine was first seen; 0: none */
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

/* In the child, before it runs the program. */
static void begin(const void *context)
{
    const struct rp_other_streams *engines = context;
    sigset_t none;
    (void)setpgid(0, 0); /* signals of the terminal are for the parent */
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    (void)syscall(SYS_close_range, STDERR_FILENO + 1, ~0u, CLOSE_RANGE_CLOEXEC);
    if (engines->config_fd >= 0)
        fcntl(engines->config_fd, F_SETFD, 0);
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
    struct rp_error error;
    if (child->engine.pid > 0 || child->is_given_up || rp_now_ns() < child->due_ns)
        return;
    bool is_busy = is_taken(engines, child);
    if (is_busy ||
        rp_child_serve(&child->engine, "/proc/self/exe", &child->words, begin, engines, &error) < 0)
        child->due_ns = rp_now_ns() + PAUSE_NS;
    if (!is_busy && child->engine.pid == 0)
        rp_log(RP_LOG_WARNING, "stream %s: %s; trying again", child->name, error.message);
}

/* The child has ended, which is not the end of this process. */
static void note_death(struct rp_other_streams *engines, struct child *child)
{
    int status = child->engine.status;
    uint64_t now = rp_now_ns();
    bool is_first = !child->was_ready && WIFEXITED(status) && WEXITSTATUS(status) != 0;
    child->deaths = now - child->engine.started_ns < YOUNG_NS ? child->deaths + 1 : 1;
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

static bool has_just_ended(struct child *child)
{
    return child->engine.pid > 0 && !rp_child_runs(&child->engine);
}

static void note_ready(struct child *child)
{
    char bytes[16];
    if (read(child->engine.ready_fd, bytes, sizeof bytes) > 0)
        child->was_ready = true;
    else
        close_fd(&child->engine.ready_fd);
}

/* Wait until a child becomes ready or ends (its end of the pipe is closed), one is due, or this
 * process ends. */
static void wait_for_change(struct rp_other_streams *engines)
{
    struct pollfd entries[RP_STREAMS_MAX + 1];
    bool is_due = false;
    for (size_t i = 0; i < engines->count; i++) {
        const struct child *child = &engines->children[i];
        entries[i] = (struct pollfd){.fd = child->engine.ready_fd, .events = POLLIN};
        is_due |= !child->is_given_up && (child->engine.pid == 0 || child->engine.ready_fd < 0);
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
        if (child->engine.pid > 0 && at_once)
            kill(child->engine.pid, SIGTERM);
        close_fd(&child->engine.lifeline_fd);
    }
    while (living > 0) {
        living = 0;
        for (size_t i = 0; i < engines->count; i++) {
            struct child *child = &engines->children[i];
            living += rp_child_runs(&child->engine);
            if (child->engine.pid > 0 && rp_now_ns() >= until_ns)
                kill(child->engine.pid, SIGKILL);
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
            if (has_just_ended(&engines->children[i]) && !has_ended(engines, &at_once))
                note_death(engines, &engines->children[i]);
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
    *child = (struct child){.name = name, .engine = RP_NO_CHILD};
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
