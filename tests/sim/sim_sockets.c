/* SPDX-License-Identifier: Apache-2.0 */
/* sim_sockets.c — Unix sockets of type SOCK_SEQPACKET, with descriptors in messages. When a process
 * dies its ends are closed; the other side reads the sent bytes, and then end of file. */
#include "sim_wrap.h"

#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "sim_files.h"

#define MESSAGES_MAX 32u
#define BACKLOG_MAX 16u
#define FDS_MAX 4u

struct message {
    struct message *next;
    size_t bytes;
    struct sim_node *nodes[FDS_MAX];
    unsigned node_count;
    uint8_t data[];
};

struct sim_channel {
    struct sim_channel *peer; /* NULL = closed, or not connected */
    struct message *first, **end;
    unsigned count;
    bool reset; /* the peer was closed before it had read all messages */
    int peer_pid;
    struct sim_node *backlog[BACKLOG_MAX]; /* a listener's */
    unsigned backlog_count;
};

static struct sim_channel *channel_new(void)
{
    struct sim_channel *channel = sim_take(sizeof *channel, 16);
    memset(channel, 0, sizeof *channel);
    channel->end = &channel->first;
    return channel;
}

static struct message *take_message(struct sim_channel *channel)
{
    struct message *message = channel->first;
    channel->first = message->next;
    if (!channel->first)
        channel->end = &channel->first;
    channel->count--;
    return message;
}

void sim_channel_close(struct sim_node *node)
{
    struct sim_channel *channel = node->channel;
    node->channel = NULL;
    for (unsigned i = 0; i < channel->backlog_count; i++)
        sim_node_close(channel->backlog[i]);
    if (channel->peer) {
        channel->peer->reset = channel->count > 0;
        channel->peer->peer = NULL;
    }
    while (channel->first) {
        struct message *message = take_message(channel);
        for (unsigned i = 0; i < message->node_count; i++)
            sim_node_close(message->nodes[i]);
        sim_give(message);
    }
    sim_give(channel);
    sim_poke();
}

void sim_connection_break(struct sim_node *node)
{
    struct sim_channel *channel = node->channel;
    if (channel->peer)
        channel->peer->peer = NULL;
    channel->peer = NULL;
}

/* ---- making connections ---------------------------------------------------------------------- */

WRAP(int, socket, int domain, int type, int protocol)
{
    (void)domain;
    (void)protocol;
    sim_step();
    struct sim_node *node = sim_node_new(SIM_CONNECTION);
    node->channel = channel_new();
    return sim_descriptor_new(node, type & SOCK_NONBLOCK);
}

/* The engine addresses a socket in an open directory N as /proc/self/fd/N/NAME. */
static struct sim_node *directory_of(const struct sockaddr *address, char name_out[64])
{
    const char *path = ((const struct sockaddr_un *)(const void *)address)->sun_path;
    int fd = -1;
    if (sscanf(path, "/proc/self/fd/%d/%63s", &fd, name_out) != 2)
        sim_fail("a socket at %s is not simulated", path);
    return sim_node_of(fd);
}

WRAP(int, bind, int fd, const struct sockaddr *address, socklen_t bytes)
{
    (void)bytes;
    char name[64];
    sim_step();
    struct sim_node *directory = directory_of(address, name);
    if (sim_entry_find(directory, name))
        return fail_with(EADDRINUSE);
    struct sim_node *place = sim_node_new(SIM_SOCKET_NAME);
    place->listener = sim_node_of(fd);
    place->count = place->listener->number;
    sim_entry_add(directory, name, place);
    return 0;
}

WRAP(int, listen, int fd, int backlog)
{
    (void)backlog;
    sim_step();
    sim_node_of(fd)->kind = SIM_LISTENER;
    return 0;
}

/* The listener of a socket's name, or NULL if it was closed. */
static struct sim_channel *listener_at(const struct sim_node *place)
{
    const struct sim_node *listener = place && place->kind == SIM_SOCKET_NAME ? place->listener
                                                                              : NULL;
    bool same = listener && listener->kind == SIM_LISTENER && listener->number == place->count;
    return same ? listener->channel : NULL;
}

WRAP(int, connect, int fd, const struct sockaddr *address, socklen_t bytes)
{
    (void)bytes;
    char name[64];
    sim_step();
    struct sim_node *directory = directory_of(address, name);
    const struct sim_node *place = directory ? sim_entry_find(directory, name) : NULL;
    if (!place)
        return fail_with(ENOENT);
    struct sim_channel *listener = listener_at(place);
    if (!listener)
        return fail_with(ECONNREFUSED);
    if (listener->backlog_count == BACKLOG_MAX)
        return fail_with(EAGAIN);
    struct sim_node *far = sim_node_new(SIM_CONNECTION), *near = sim_node_of(fd);
    far->channel = channel_new();
    far->channel->peer = near->channel;
    far->channel->peer_pid = sim.current->process->pid;
    near->channel->peer = far->channel;
    far->descriptors = 1; /* held by the backlog */
    listener->backlog[listener->backlog_count++] = far;
    sim_poke();
    return 0;
}

WRAP(int, accept4, int fd, struct sockaddr *address, socklen_t *bytes, int flags)
{
    (void)address;
    (void)bytes;
    sim_step();
    struct sim_node *node = sim_node_of(fd);
    if (!node || !node->channel)
        return fail_with(EINVAL);
    struct sim_channel *listener = node->channel;
    if (listener->backlog_count == 0)
        return fail_with(EAGAIN);
    struct sim_node *far = listener->backlog[0];
    listener->backlog_count--;
    memmove(listener->backlog, listener->backlog + 1, listener->backlog_count * sizeof far);
    int accepted = sim_descriptor_new(far, flags & SOCK_NONBLOCK);
    far->descriptors--;
    return accepted;
}

WRAP(int, getsockopt, int fd, int level, int name, void *value, socklen_t *bytes)
{
    (void)level;
    const struct sim_node *node = sim_node_of(fd);
    if (!node || name != SO_PEERCRED)
        return fail_with(ENOPROTOOPT);
    struct ucred peer = {node->channel->peer_pid, geteuid(), 0};
    memcpy(value, &peer, *bytes);
    return 0;
}

WRAP(int, setsockopt, int fd, int level, int name, const void *value, socklen_t bytes)
{
    (void)level;
    (void)name;
    (void)value;
    (void)bytes;
    return sim_node_of(fd) ? 0 : -1;
}

/* ---- messages -------------------------------------------------------------------------------- */

static void attach_nodes(struct message *message, const struct msghdr *from)
{
    const struct cmsghdr *entry = from->msg_control ? CMSG_FIRSTHDR(from) : NULL;
    if (!entry)
        return;
    message->node_count = (unsigned)((entry->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    if (message->node_count > FDS_MAX)
        sim_fail("%u descriptors in one message", message->node_count);
    for (unsigned i = 0; i < message->node_count; i++) {
        int fd;
        memcpy(&fd, CMSG_DATA(entry) + i * sizeof fd, sizeof fd);
        message->nodes[i] = sim_node_of(fd);
        message->nodes[i]->descriptors++;
    }
}

WRAP(ssize_t, sendmsg, int fd, const struct msghdr *from, int flags)
{
    (void)flags;
    sim_step();
    struct sim_node *node = sim_node_of(fd);
    if (!node)
        return -1;
    struct sim_channel *far = node->channel ? node->channel->peer : NULL;
    if (!far)
        return fail_with(EPIPE);
    if (far->count == MESSAGES_MAX || sim_fault(sim_faults.again, "EAGAIN in a send"))
        return fail_with(EAGAIN);
    size_t bytes = 0;
    for (size_t i = 0; i < from->msg_iovlen; i++)
        bytes += from->msg_iov[i].iov_len;
    struct message *message = sim_take(sizeof *message + bytes, 16);
    *message = (struct message){.bytes = bytes};
    for (size_t i = 0, at = 0; i < from->msg_iovlen; at += from->msg_iov[i++].iov_len)
        memcpy(message->data + at, from->msg_iov[i].iov_base, from->msg_iov[i].iov_len);
    attach_nodes(message, from);
    *far->end = message;
    far->end = &message->next;
    far->count++;
    sim_poke();
    return (ssize_t)bytes;
}

WRAP(ssize_t, send, int fd, const void *data, size_t bytes, int flags)
{
    struct iovec part = {(void *)(uintptr_t)data, bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    return __wrap_sendmsg(fd, &message, flags);
}

/* The next message, NULL with errno set, or with errno 0 at the end. */
static struct message *next_message(int fd, int flags)
{
    struct sim_descriptor *d = sim_descriptor_of(fd);
    sim_step();
    if (!d)
        return NULL;
    for (;;) {
        struct sim_channel *channel = d->node->channel;
        if (channel->first)
            return take_message(channel);
        errno = channel->reset ? ECONNRESET : channel->peer ? EAGAIN : 0;
        channel->reset = false;
        if (errno != EAGAIN || (d->flags & SOCK_NONBLOCK) || (flags & MSG_DONTWAIT))
            return NULL;
        (void)sim_wait_poke(SIM_NEVER);
    }
}

WRAP(ssize_t, recvmsg, int fd, struct msghdr *to, int flags)
{
    struct message *message = next_message(fd, flags);
    if (!message)
        return errno ? -1 : 0;
    size_t bytes = message->bytes;
    if (bytes > to->msg_iov->iov_len)
        sim_fail("a message of %zu bytes does not fit", bytes);
    memcpy(to->msg_iov->iov_base, message->data, bytes);
    to->msg_flags = 0;
    size_t room = to->msg_controllen;
    to->msg_controllen = 0;
    if (message->node_count && room >= CMSG_SPACE(message->node_count * sizeof(int))) {
        to->msg_controllen = CMSG_SPACE(message->node_count * sizeof(int));
        struct cmsghdr *entry = CMSG_FIRSTHDR(to);
        *entry = (struct cmsghdr){.cmsg_len = CMSG_LEN(message->node_count * sizeof(int)),
                                  .cmsg_level = SOL_SOCKET,
                                  .cmsg_type = SCM_RIGHTS};
        for (unsigned i = 0; i < message->node_count; i++) {
            int taken = sim_descriptor_new(message->nodes[i], 0);
            memcpy(CMSG_DATA(entry) + i * sizeof taken, &taken, sizeof taken);
        }
    }
    for (unsigned i = 0; i < message->node_count; i++)
        sim_node_close(message->nodes[i]);
    sim_give(message);
    return (ssize_t)bytes;
}

WRAP(ssize_t, recv, int fd, void *data, size_t capacity, int flags)
{
    struct message *message = next_message(fd, flags);
    if (!message)
        return errno ? -1 : 0;
    size_t bytes = message->bytes < capacity ? message->bytes : capacity;
    memcpy(data, message->data, bytes);
    sim_give(message);
    return (ssize_t)bytes;
}

uint32_t sim_ready(const struct sim_node *node, const struct sim_process *process)
{
    const struct sim_channel *channel = node->channel;
    switch (node->kind) {
    case SIM_CONNECTION:
        return EPOLLOUT | (channel->first || !channel->peer ? EPOLLIN : 0) |
               (channel->peer ? 0 : EPOLLRDHUP | EPOLLHUP);
    case SIM_LISTENER:
        return channel->backlog_count ? EPOLLIN : 0;
    case SIM_EVENTFD:
        return node->count ? EPOLLIN : 0;
    case SIM_SIGNALFD:
        return process->signals ? EPOLLIN : 0;
    case SIM_PIDFD:
        return node->process->dead ? EPOLLIN : 0;
    default:
        return EPOLLIN | EPOLLOUT;
    }
}
