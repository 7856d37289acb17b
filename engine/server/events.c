/* SPDX-License-Identifier: Apache-2.0 */
/* events — see events.h. */
#include "server/events.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include "base/bits.h"
#include "server/connections.h"
#include "server/signals.h"

static int watch_descriptors(struct rp_engine *engine, struct rp_error *error)
{
    const struct watched {
        int fd;
        enum rp_watch watch;
    } watched[] = {{engine->wake_fd, RP_WATCH_WAKE},
                   {engine->saver.done_fd, RP_WATCH_SAVER},
                   {engine->planner.done_fd, RP_WATCH_PLANNER},
                   {engine->signal_fd, RP_WATCH_SIGNAL}};
    for (size_t i = 0; i < RP_ARRAY_COUNT(watched); i++) {
        int code = rp_engine_watch(engine, watched[i].fd, watched[i].watch, 0);
        if (code < 0)
            return rp_fail(error, code, "raise /proc/sys/fs/epoll/max_user_watches",
                           "the engine's descriptors cannot be watched: %s", rp_strerror(code));
    }
    int lifeline = engine->options->lifeline_fd;
    int code = lifeline < 0 ? 0 : rp_engine_watch(engine, lifeline, RP_WATCH_LIFELINE, 0);
    return code < 0 ? rp_fail(error, -RP_E_USAGE, "give it one end of a pipe or of a socket",
                              "--lifeline %d: the end of this file cannot be waited for: %s",
                              lifeline, rp_strerror(code))
                    : 0;
}

int rp_engine_open_descriptors(struct rp_engine *engine, struct rp_error *error)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max; /* a corpus may have thousands of shards */
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    engine->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    engine->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    engine->saver.done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    engine->planner.done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    engine->signal_fd = rp_engine_take_signals(engine);
    if (engine->epoll_fd < 0 || engine->wake_fd < 0 || engine->saver.done_fd < 0 ||
        engine->planner.done_fd < 0 || engine->signal_fd < 0)
        return rp_fail(error, -errno, "raise the limit of open files (`ulimit -n`)",
                       "cannot make the engine's descriptors: %s", rp_strerror(-errno));
    return watch_descriptors(engine, error);
}
