/* SPDX-License-Identifier: Apache-2.0 */
/* sim_events.c — poll, epoll, eventfd and signalfd. Each change wakes all waiting fibers, which
 * then check again. The order of events is random. */
#include "sim_wrap.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "sim_files.h"

#define WATCHES_MAX 256

struct watch {
    const struct sim_node *epoll, *node;
    struct epoll_event event;
};
static struct watch watches[WATCHES_MAX];
static uint32_t watch_count;

void sim_watches_forget(const struct sim_node *node)
{
    for (uint32_t i = watch_count; i-- > 0;)
        if (watches[i].node == node || watches[i].epoll == node)
            watches[i] = watches[--watch_count];
}

void sim_watches_reset(void)
{
    watch_count = 0;
}

static uint64_t deadline_of(int timeout_ms)
{
    return timeout_ms < 0 ? SIM_NEVER : sim.now_ns + (uint64_t)timeout_ms * SIM_MS;
}

WRAP(int, epoll_create1, int flags)
{
    (void)flags;
    return sim_descriptor_new(sim_node_new(SIM_EPOLL), 0);
}

WRAP(int, epoll_ctl, int epoll_fd, int operation, int fd, struct epoll_event *event)
{
    sim_step();
    struct sim_node *epoll = sim_node_of(epoll_fd), *node = sim_node_of(fd);
    if (!epoll || !node)
        return -1;
    if (operation == EPOLL_CTL_ADD) {
        if (watch_count == WATCHES_MAX)
            sim_fail("more than %d descriptors are watched", WATCHES_MAX);
        watches[watch_count++] = (struct watch){epoll, node, *event};
        return 0;
    }
    for (uint32_t i = watch_count; i-- > 0;)
        if (watches[i].epoll == epoll && watches[i].node == node)
            watches[i] = watches[--watch_count];
    return 0;
}

static int collect(const struct sim_node *epoll, struct epoll_event *events, int most)
{
    int count = 0;
    uint32_t first = watch_count ? (uint32_t)sim_below(&sim.random, watch_count) : 0;
    for (uint32_t i = 0; i < watch_count && count < most; i++) {
        const struct watch *watch = &watches[(first + i) % watch_count];
        if (watch->epoll != epoll)
            continue;
        uint32_t ready = sim_ready(watch->node, sim.current->process) &
                         (watch->event.events | EPOLLHUP);
        if (ready)
            events[count++] = (struct epoll_event){.events = ready, .data = watch->event.data};
    }
    return count;
}

WRAP(int, epoll_wait, int fd, struct epoll_event *events, int most, int timeout_ms)
{
    sim_step();
    const struct sim_node *epoll = sim_node_of(fd);
    if (!epoll)
        return -1;
    if (sim_fault(sim_faults.interrupted, "EINTR in epoll_wait"))
        return fail_with(EINTR);
    for (uint64_t deadline = deadline_of(timeout_ms);;) {
        int count = collect(epoll, events, most);
        if (count || sim.now_ns >= deadline)
            return count;
        if (!sim_wait_poke(deadline)) {
            sim.timeouts++;
            sim_trace("a wait for events of %d ms ends without one", timeout_ms);
        }
    }
}

WRAP(int, poll, struct pollfd *entries, nfds_t count, int timeout_ms)
{
    if (entries->fd == STDERR_FILENO) /* the log: not a step, as in write */
        return entries->revents = POLLOUT, 1;
    sim_step();
    if (timeout_ms && sim_fault(sim_faults.interrupted, "EINTR in poll"))
        return fail_with(EINTR);
    for (uint64_t deadline = deadline_of(timeout_ms);;) {
        int found = 0;
        for (nfds_t i = 0; i < count; i++) {
            const struct sim_node *node = entries[i].fd < 0 ? NULL : sim_node_of(entries[i].fd);
            uint32_t ready = node ? sim_ready(node, sim.current->process) : 0;
            uint32_t wanted = (uint32_t)(uint16_t)entries[i].events | EPOLLHUP;
            entries[i].revents = (short)(ready & wanted);
            found += entries[i].revents != 0;
        }
        if (found || sim.now_ns >= deadline)
            return found;
        (void)sim_wait_poke(deadline);
    }
}

WRAP(int, eventfd, unsigned count, int flags)
{
    (void)flags;
    struct sim_node *node = sim_node_new(SIM_EVENTFD);
    node->count = count;
    return sim_descriptor_new(node, 0);
}

WRAP(int, signalfd, int fd, const sigset_t *signals, int flags)
{
    (void)fd;
    (void)signals;
    (void)flags;
    struct sim_node *node = sim_node_new(SIM_SIGNALFD);
    node->process = sim.current->process;
    return sim_descriptor_new(node, 0);
}

WRAP(int, kill, pid_t pid, int number)
{
    struct sim_process *process = sim_find(pid);
    if (!process || process->dead)
        return fail_with(ESRCH);
    if (number == SIGKILL)
        sim_kill(process);
    else
        process->signals |= 1u << number;
    sim_poke();
    return 0;
}
