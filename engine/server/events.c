/* SPDX-License-Identifier: Apache-2.0 */
/* events — see events.h. */
#include "server/events.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/bits.h"
#include "flow/descriptors.h"
#include "server/connections.h"
#include "server/server.h"
#include "server/signals.h"

#define TABLE_DESCRIPTORS 8192u /* 64 KiB of pointers: two descriptors for each of 4096 files */

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

/* Rings and seats have descriptors of their own. If these cannot all be made, that is found out
 * before thousands of them are. */
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
                   least, config->rank_count, config->dp_world_size, config->replicas, limit);
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
    engine->loop.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    engine->saving.saver.done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    engine->stream.planner.done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    engine->loop.signal_fd = rp_loop_take_signals(&engine->loop);
    if (engine->loop.epoll_fd < 0 || engine->loop.wake_fd < 0 || engine->saving.saver.done_fd < 0 ||
        engine->stream.planner.done_fd < 0 || engine->loop.signal_fd < 0)
        return rp_fail(error, -errno, "raise the limit of open files (`ulimit -n`)",
                       "cannot make the engine's descriptors: %s", rp_strerror(-errno));
    enlarge_table(engine->loop.epoll_fd, files.rlim_cur);
    return watch_descriptors(engine, error);
}
