/* SPDX-License-Identifier: Apache-2.0 */
/* memory_socket.h — a socket whose other end has sent one message before any request, and keeps the
 * messages to it. The linker puts these in the place of the kernel's calls. */
#ifndef RP_TESTS_MEMORY_SOCKET_H
#define RP_TESTS_MEMORY_SOCKET_H

#include <poll.h>
#include <sys/socket.h>

#include "fuzz.h"

#define PEER_BYTES_MAX (1u << 16)

/* The other end. */
static struct peer {
    int fd; /* the socket: a file in memory, which counts who has it */
    uint8_t message[PEER_BYTES_MAX];
    size_t bytes;
    int fds[3]; /* that come with the message */
    unsigned fd_count;
    size_t doorbells;                /* bytes that follow the message */
    bool has_sent, hung_up, is_deaf; /* deaf: it has no room for messages to it */
    uint8_t got[PEER_BYTES_MAX];
    size_t got_bytes;
    unsigned got_messages, got_fd_count;
    int got_fds[3];
} peer;

/* Another one, which has been there for long and is silent, until it goes. */
static struct neighbour {
    int fd;
    bool hung_up;
} neighbour = {.fd = -1};

/* A new connection. Returns the socket. */
FUZZ int peer_connect(void)
{
    peer.has_sent = peer.hung_up = peer.is_deaf = false;
    peer.got_bytes = peer.got_messages = peer.got_fd_count = 0;
    return peer.fd = open(fuzz_file("socket", "", 0), O_RDWR);
}

/* A long message comes with its body, the bytes after `head_bytes`, in the last descriptor. */
FUZZ void peer_move_body(size_t head_bytes)
{
    head_bytes = rp_min_u64(head_bytes, peer.bytes);
    const char *path = fuzz_file("body", peer.message + head_bytes, peer.bytes - head_bytes);
    peer.fds[peer.fd_count++] = open(path, O_RDONLY);
    peer.bytes = head_bytes;
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags)
{
    (void)flags;
    FUZZ_REQUIRE(fd == peer.fd && fuzz_opened(fd) == 1);
    errno = peer.hung_up ? EPIPE : EAGAIN;
    if (peer.hung_up || peer.is_deaf)
        return -1;
    peer.got_bytes = 0;
    peer.got_messages++;
    for (size_t i = 0; i < message->msg_iovlen; i++) {
        FUZZ_REQUIRE(message->msg_iov[i].iov_len <= PEER_BYTES_MAX - peer.got_bytes);
        memcpy(peer.got + peer.got_bytes, message->msg_iov[i].iov_base,
               message->msg_iov[i].iov_len);
        peer.got_bytes += message->msg_iov[i].iov_len;
    }
    const struct cmsghdr *entry = CMSG_FIRSTHDR(message);
    size_t fd_bytes = entry ? entry->cmsg_len - CMSG_LEN(0) : 0;
    FUZZ_REQUIRE(fd_bytes <= sizeof peer.got_fds);
    if (entry)
        memcpy(peer.got_fds, CMSG_DATA(entry), fd_bytes);
    peer.got_fd_count = (unsigned)(fd_bytes / sizeof *peer.got_fds);
    return (ssize_t)peer.got_bytes;
}

ssize_t __wrap_send(int fd, const void *data, size_t bytes, int flags);
ssize_t __wrap_send(int fd, const void *data, size_t bytes, int flags)
{
    (void)data, (void)flags;
    FUZZ_REQUIRE(fd == peer.fd && fuzz_opened(fd) == 1);
    errno = EPIPE;
    return peer.hung_up ? -1 : (ssize_t)bytes;
}

ssize_t __wrap_recv(int fd, void *buffer, size_t bytes, int flags);
ssize_t __wrap_recv(int fd, void *buffer, size_t bytes, int flags)
{
    (void)flags;
    if (fd == neighbour.fd) {
        errno = EAGAIN;
        return neighbour.hung_up ? 0 : -1;
    }
    FUZZ_REQUIRE(fd == peer.fd && fuzz_opened(fd) == 1);
    size_t rings = rp_min_u64(peer.doorbells, bytes);
    if (rings)
        memset(buffer, 'r', rings);
    peer.doorbells -= rings;
    errno = EAGAIN;
    return rings ? (ssize_t)rings : peer.hung_up ? 0 : -1;
}

static void give_descriptors(struct msghdr *message)
{
    struct cmsghdr *entry = CMSG_FIRSTHDR(message);
    size_t bytes = peer.fd_count * sizeof *peer.fds;
    message->msg_controllen = bytes ? CMSG_SPACE(bytes) : 0;
    if (bytes == 0)
        return;
    entry->cmsg_level = SOL_SOCKET;
    entry->cmsg_type = SCM_RIGHTS;
    entry->cmsg_len = CMSG_LEN(bytes);
    memcpy(CMSG_DATA(entry), peer.fds, bytes);
    for (unsigned i = 0; i < peer.fd_count; i++)
        (void)dup(peer.fds[i]); /* has the same number */
}

ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags)
{
    (void)flags;
    FUZZ_REQUIRE(fd == peer.fd && fuzz_opened(fd) == 1 && message->msg_iovlen == 1);
    message->msg_flags = 0;
    if (peer.has_sent) { /* it is the last one */
        message->msg_controllen = 0;
        errno = EAGAIN;
        return peer.hung_up ? 0 : -1;
    }
    peer.has_sent = true;
    FUZZ_REQUIRE(message->msg_iov->iov_len >= peer.bytes);
    memcpy(message->msg_iov->iov_base, peer.message, peer.bytes);
    give_descriptors(message);
    return (ssize_t)peer.bytes;
}

int __wrap_poll(struct pollfd *entries, nfds_t count, int timeout_ms);
int __wrap_poll(struct pollfd *entries, nfds_t count, int timeout_ms)
{
    (void)timeout_ms;
    FUZZ_REQUIRE(count == 1 && entries->fd == peer.fd && fuzz_opened(peer.fd) == 1);
    int ready = (peer.has_sent && !peer.hung_up ? 0 : POLLIN) | (peer.hung_up ? POLLHUP : 0);
    entries->revents = (short)(ready & (entries->events | POLLHUP));
    return entries->revents != 0;
}

#endif
