/* SPDX-License-Identifier: Apache-2.0 */
/* loop.c — the descriptors that wake the engine's thread, and the signals that end an engine.
 *
 *   S1  A signal that was ignored when the engine was started stays ignored. nohup, a shell without
 *       job control that puts a command into the background, and some batch systems ignore a signal
 *       so that the command survives the end of its session.
 *
 *   S2  A signal that is not meant for an engine does not end it, even if its default action is to
 *       kill: batch systems, libraries and terminals send signals to whole process groups. A
 *       handler that is there already, for instance a profiler's, is left in its place.
 *
 *   S3  Signals are taken before any thread is started, so that all threads inherit the mask. */
#include "server/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/bits.h"
#include "flow/descriptors.h"
#include "server/server.h"

#define TABLE_DESCRIPTORS 8192u /* 64 KiB of pointers: two descriptors for each of 4096 files */

int rp_loop_watch(const struct rp_loop *loop, int fd, enum rp_watch watch, uint32_t index)
{
    /* a peer that waits for a free descriptor, or a dead packer, must not keep the loop awake */
    uint32_t once = watch == RP_WATCH_LISTENER || watch == RP_WATCH_PACKER ? EPOLLET : 0;
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | once,
                                .data.u64 = (uint64_t)watch << 32 | index};
    return epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

int rp_loop_watch_end(const struct rp_loop *loop, int socket_fd, int pidfd, uint32_t index)
{
    struct epoll_event closed = {.events = EPOLLRDHUP, .data.u32 = index};
    struct epoll_event ended = {.events = EPOLLIN | EPOLLONESHOT, .data.u32 = index};
    int code = epoll_ctl(loop->ends_fd, EPOLL_CTL_ADD, socket_fd, &closed);
    if (code == 0 && pidfd >= 0)
        code = epoll_ctl(loop->ends_fd, EPOLL_CTL_ADD, pidfd, &ended);
    if (code == 0)
        return 0;
    code = -errno;
    rp_log(RP_LOG_WARNING,
           "a trainer is turned away, because its end cannot be watched: %s; raise "
           "/proc/sys/fs/epoll/max_user_watches",
           rp_strerror(code));
    return code;
}

uint32_t rp_loop_ended(const struct rp_loop *loop, uint32_t indexes[RP_ENDED_MAX])
{
    struct epoll_event events[RP_ENDED_MAX];
    int count;
    do
        count = epoll_wait(loop->ends_fd, events, RP_ENDED_MAX, 0);
    while (count < 0 && errno == EINTR);
    for (int i = 0; i < count; i++)
        indexes[i] = events[i].data.u32;
    return count > 0 ? (uint32_t)count : 0;
}

/* ---- signals --------------------------------------------------------------------------------- */

static bool is_ignored(int number)
{
    struct sigaction found;
    return sigaction(number, NULL, &found) == 0 && found.sa_handler == SIG_IGN;
}

static sigset_t set_of_ending_signals(void)
{
    static const int ending[] = {SIGTERM, SIGINT, SIGHUP};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < RP_ARRAY_COUNT(ending); i++)
        if (!is_ignored(ending[i])) /* S1 */
            sigaddset(&set, ending[i]);
    return set;
}

static void ignore_unless_handled(int number) /* S2 */
{
    struct sigaction found;
    if (sigaction(number, NULL, &found) == 0 && found.sa_handler == SIG_DFL)
        signal(number, SIG_IGN);
}

/* Returns a signalfd of the signals that end the engine, which are blocked; or -1 with errno. */
static int take_signals(struct rp_loop *loop)
{
    static const int meaningless[] = {SIGPIPE, SIGUSR1, SIGUSR2, SIGALRM,   SIGVTALRM,
                                      SIGPROF, SIGXFSZ, SIGIO,   SIGSTKFLT, SIGPWR};
    loop->ending_signals = set_of_ending_signals();
    sigprocmask(SIG_BLOCK, &loop->ending_signals, NULL);
    for (size_t i = 0; i < RP_ARRAY_COUNT(meaningless); i++)
        ignore_unless_handled(meaningless[i]);
    for (int number = SIGRTMIN; number <= SIGRTMAX; number++)
        ignore_unless_handled(number);
    return signalfd(-1, &loop->ending_signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void end_at_once(int number)
{
    _exit(128 + number);
}

int rp_loop_take_signal(struct rp_loop *loop)
{
    struct signalfd_siginfo info;
    if (read(loop->signal_fd, &info, sizeof info) != sizeof info)
        return 0;
    if (loop->is_signalled)
        end_at_once((int)info.ssi_signo);
    loop->is_signalled = true;
    return (int)info.ssi_signo;
}

void rp_loop_exit_at_signals(const struct rp_loop *loop)
{
    struct signalfd_siginfo info;
    struct sigaction action = {.sa_handler = end_at_once};
    while (read(loop->signal_fd, &info, sizeof info) == sizeof info)
        end_at_once((int)info.ssi_signo);
    for (int number = 1; number < SIGRTMIN; number++)
        if (sigismember(&loop->ending_signals, number) == 1)
            sigaction(number, &action, NULL);
    sigprocmask(SIG_UNBLOCK, &loop->ending_signals, NULL);
}

/* ---- descriptors ----------------------------------------------------------------------------- */

static int watch_descriptors(struct rp_engine *engine, struct rp_error *error)
{
    const struct watched {
        int fd;
        enum rp_watch watch;
    } watched[] = {{engine->loop.wake_fd, RP_WATCH_WAKE},
                   {engine->saving.saver.done_fd, RP_WATCH_SAVER},
                   {engine->stream.planner.done_fd, RP_WATCH_PLANNER},
                   {engine->loop.signal_fd, RP_WATCH_SIGNAL}};
    for (size_t i = 0; i < RP_ARRAY_COUNT(watched); i++) {
        int code = rp_loop_watch(&engine->loop, watched[i].fd, watched[i].watch, 0);
        if (code < 0)
            return rp_fail(error, code, "raise /proc/sys/fs/epoll/max_user_watches",
                           "the engine's descriptors cannot be watched: %s", rp_strerror(code));
    }
    int lifeline = engine->options->lifeline_fd;
    int code = lifeline < 0 ? 0 : rp_loop_watch(&engine->loop, lifeline, RP_WATCH_LIFELINE, 0);
    return code < 0 ? rp_fail(error, -RP_E_USAGE, "give it one end of a pipe or of a socket",
                              "--lifeline %d: the end of this file cannot be waited for: %s",
                              lifeline, rp_strerror(code))
                    : 0;
}

/* Each ring and each seat needs descriptors. Check that all of them can be made before the first
 * of thousands is. */
static int check_limit(const struct rp_config *config, uint64_t limit, struct rp_error *error)
{
    uint64_t wanted = rp_engine_descriptors(config), least = wanted + RP_DESCRIPTORS_MIN;
    char hint[160];
    if (wanted <= limit)
        return 0;
    snprintf(hint, sizeof hint,
             "raise it (`ulimit -n %" PRIu64 "`), or serve fewer ranks on this node, as with "
             "`ranks: 0-7`",
             least);
    return rp_fail(error, -RP_E_RESOURCE, hint,
                   "open files: expected a limit of at least %" PRIu64 " for %" PRIu32
                   " ranks (dp_world_size %" PRIu32 ") of %" PRIu32 " replicas, found %" PRIu64,
                   least, config->rank_count, config->dp_world_size, config->consumers_per_rank,
                   limit);
}

/* The kernel doubles the table of descriptors as it fills up. In a process of several threads each
 * doubling waits until no thread can be reading the old table (synchronize_rcu in fs/file.c), which
 * takes 10 to 20 ms. While there is one thread, a descriptor of a high number enlarges the table
 * without a wait. */
static void enlarge_table(int fd, uint64_t limit)
{
    int high = fcntl(fd, F_DUPFD_CLOEXEC, (int)rp_min_u64(TABLE_DESCRIPTORS, limit) - 1);
    if (high >= 0)
        close(high);
}

int rp_engine_open_descriptors(struct rp_engine *engine, struct rp_error *error)
{
    struct rlimit files = {.rlim_cur = RLIM_INFINITY};
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        rlim_t before = files.rlim_cur;
        files.rlim_cur = files.rlim_max; /* a corpus may have thousands of shards */
        if (setrlimit(RLIMIT_NOFILE, &files) != 0)
            files.rlim_cur = before;
    }
    int code = check_limit(engine->config, files.rlim_cur, error);
    if (code < 0)
        return code;
    engine->loop.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    engine->loop.ends_fd = epoll_create1(EPOLL_CLOEXEC);
    engine->loop.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    engine->saving.saver.done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    engine->stream.planner.done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    engine->loop.signal_fd = take_signals(&engine->loop);
    if (engine->loop.epoll_fd < 0 || engine->loop.ends_fd < 0 || engine->loop.wake_fd < 0 ||
        engine->saving.saver.done_fd < 0 || engine->stream.planner.done_fd < 0 ||
        engine->loop.signal_fd < 0)
        return rp_fail(error, -errno, "raise the limit of open files (`ulimit -n`)",
                       "cannot make the engine's descriptors: %s", rp_strerror(-errno));
    enlarge_table(engine->loop.epoll_fd, files.rlim_cur);
    return watch_descriptors(engine, error);
}
