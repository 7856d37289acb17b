/* SPDX-License-Identifier: Apache-2.0 */
/* socket.c — messages and descriptors. SEQPACKET keeps message boundaries and reports a hang-up at
 * once. */
#include "shm/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/mem.h"

#define RP_FDS_GIVEN 2                 /* with a message, or none */
#define RP_FDS_KEPT (RP_FDS_GIVEN + 1) /* and the body, if it has one of its own */
#define RP_BODY_INLINE_MAX 65536u      /* a packet is sent whole, and sockets' buffers are small */
#define RP_PACKET_BYTES_MAX (RP_BODY_INLINE_MAX + RP_PAGE_BYTES)
#define RP_BODY_SEALS (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW)
#define RP_FDS_MAX 16 /* more than the kernel may return: it drops the rest and says so */

bool rp_socket_hung_up(int fd)
{
    struct pollfd entry = {.fd = fd, .events = POLLRDHUP};
    return poll(&entry, 1, 0) == 1 && (entry.revents & (POLLHUP | POLLRDHUP | POLLERR | POLLNVAL));
}

static void attach_fds(struct msghdr *message, void *control, size_t control_bytes, const int *fds,
                       unsigned count)
{
    if (count == 0)
        return;
    RP_ASSERT(fds && control_bytes >= CMSG_SPACE(count * sizeof(int)));
    message->msg_control = control;
    message->msg_controllen = control_bytes;
    struct cmsghdr *entry = CMSG_FIRSTHDR(message);
    entry->cmsg_level = SOL_SOCKET;
    entry->cmsg_type = SCM_RIGHTS;
    entry->cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(entry), fds, count * sizeof(int));
    message->msg_controllen = CMSG_SPACE(count * sizeof(int));
}

/* A sealed memfd with the body in it. Returns it, or a code. */
static int wrap_body(const uint8_t *body, size_t bytes)
{
    int fd = rp_memfd("ringpack-message");
    int code = fd < 0 ? fd : 0;
    for (size_t done = 0; code == 0 && done < bytes;) {
        ssize_t put = write(fd, body + done, bytes - done);
        if (put >= 0)
            done += (size_t)put;
        else if (errno != EINTR)
            code = -errno;
    }
    if (code == 0 && fcntl(fd, F_ADD_SEALS, RP_BODY_SEALS) != 0)
        code = -errno;
    if (code < 0 && fd >= 0)
        close(fd);
    return code < 0 ? code : fd;
}

/* Put the body that came as a descriptor after the `bytes` of its message. Returns the length of
 * both, or a code. A descriptor that is not sealed may be anything, and reading it may wait for
 * ever. */
static int64_t unwrap_body(int fd, uint8_t **message, size_t bytes)
{
    struct stat info;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & RP_BODY_SEALS) != RP_BODY_SEALS || fstat(fd, &info) != 0 ||
        (uint64_t)info.st_size > RP_MESSAGE_BYTES_MAX - bytes)
        return -RP_E_PROTOCOL;
    size_t end = bytes + (size_t)info.st_size, at = bytes;
    uint8_t *grown = realloc(*message, end + 1);
    if (!grown)
        return -ENOMEM;
    *message = grown;
    while (at < end) {
        ssize_t got = pread(fd, grown + at, end - at, (off_t)(at - bytes));
        if (got <= 0 && errno != EINTR)
            return -RP_E_PROTOCOL;
        at += got > 0 ? (size_t)got : 0;
    }
    return (int64_t)end;
}

static int send_parts(int fd, struct iovec parts[2], const int *fds, unsigned fd_count,
                      struct rp_error *error)
{
    _Alignas(struct cmsghdr) uint8_t control[CMSG_SPACE(RP_FDS_KEPT * sizeof(int))] = {0};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = parts[1].iov_len ? 2 : 1};
    attach_fds(&message, control, sizeof control, fds, fd_count);
    size_t bytes = parts[0].iov_len + parts[1].iov_len;
    ssize_t sent;
    do
        sent = sendmsg(fd, &message, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    if (sent < 0 && (errno == EPIPE || errno == ECONNRESET))
        return rp_fail(error, -RP_E_GONE, NULL, "socket: the other side has hung up");
    if (sent < 0)
        return rp_fail(error, -errno, NULL, "socket: sending %zu bytes: %s", bytes,
                       strerror(errno));
    return (size_t)sent == bytes
               ? 0
               : rp_fail(error, -RP_E_PROTOCOL, NULL,
                         "socket: %zu bytes expected to be sent, %zd were", bytes, sent);
}

int rp_socket_send(int fd, const struct rp_message *message, struct rp_error *error)
{
    const unsigned fd_count = message->fd_count;
    RP_ASSERT(fd_count <= RP_FDS_GIVEN);
    RP_ASSERT(message->header && (message->body || message->body_bytes == 0));
    struct iovec parts[2] = {{(void *)(uintptr_t)message->header, message->header_bytes},
                             {(void *)(uintptr_t)message->body, message->body_bytes}};
    if (message->body_bytes <= RP_BODY_INLINE_MAX)
        return send_parts(fd, parts, message->fds, fd_count, error);
    int all[RP_FDS_KEPT], wrapped = wrap_body(message->body, message->body_bytes);
    if (wrapped < 0)
        return rp_fail(error, wrapped, NULL, "socket: memory for a message of %zu bytes: %s",
                       message->body_bytes, rp_strerror(wrapped));
    for (unsigned i = 0; i < fd_count; i++)
        all[i] = message->fds[i];
    all[fd_count] = wrapped;
    parts[1].iov_len = 0;
    int code = send_parts(fd, parts, all, fd_count + 1, error);
    close(wrapped);
    return code;
}

/* Keep the first descriptors that came along; close the others. Returns how many came. */
static unsigned take_fds(struct msghdr *message, int fds[RP_FDS_KEPT])
{
    unsigned count = 0;
    for (struct cmsghdr *entry = CMSG_FIRSTHDR(message); entry;
         entry = CMSG_NXTHDR(message, entry)) {
        if (entry->cmsg_level != SOL_SOCKET || entry->cmsg_type != SCM_RIGHTS)
            continue;
        size_t bytes = entry->cmsg_len - CMSG_LEN(0);
        for (size_t i = 0; i < bytes / sizeof(int); i++, count++) {
            int fd;
            memcpy(&fd, CMSG_DATA(entry) + i * sizeof(int), sizeof fd);
            if (count < RP_FDS_KEPT)
                fds[count] = fd;
            else
                close(fd);
        }
    }
    return count;
}

static void drop_fds(int *fds, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
        fds[i] = -1;
    }
}

/* Wait until there is something to read: 0, or -RP_E_TIMEOUT. */
static int wait_readable(int fd, int timeout_ms, struct rp_error *error)
{
    uint64_t deadline = rp_now_ns() + (uint64_t)timeout_ms * 1000000u;
    for (;;) {
        uint64_t now = rp_now_ns();
        int left = now >= deadline ? 0 : (int)rp_div_up(deadline - now, 1000000u);
        struct pollfd entry = {.fd = fd, .events = POLLIN};
        int ready = poll(&entry, 1, left);
        if (ready > 0)
            return 0;
        if (ready == 0)
            return rp_fail(error, -RP_E_TIMEOUT, NULL, "socket: no message within %d ms",
                           timeout_ms);
        if (errno != EINTR)
            return rp_fail(error, -errno, NULL, "socket: poll: %s", strerror(errno));
    }
}

static int64_t receive(int fd, uint8_t **message, int fds[2], int timeout_ms,
                       struct rp_error *error)
{
    int code = timeout_ms < 0 ? 0 : wait_readable(fd, timeout_ms, error);
    if (code < 0)
        return code;
    _Alignas(struct cmsghdr) uint8_t control[CMSG_SPACE(RP_FDS_MAX * sizeof(int))];
    struct iovec part = {*message, RP_PACKET_BYTES_MAX};
    struct msghdr packet = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = control,
                            .msg_controllen = sizeof control};
    ssize_t bytes;
    do
        bytes = recvmsg(fd, &packet, MSG_CMSG_CLOEXEC);
    while (bytes < 0 && errno == EINTR);
    if (bytes < 0 && errno == ECONNRESET)
        return 0;
    if (bytes < 0)
        return errno == EAGAIN
                   ? -EAGAIN
                   : rp_fail(error, -errno, NULL, "socket: recvmsg: %s", strerror(errno));
    int taken[RP_FDS_KEPT] = {-1, -1, -1};
    unsigned count = take_fds(&packet, taken);
    bool whole = count <= RP_FDS_KEPT && !(packet.msg_flags & (MSG_TRUNC | MSG_CTRUNC));
    int64_t length = whole ? bytes : -RP_E_PROTOCOL;
    if (whole && count % 2 == 1) /* the last one is the body */
        length = unwrap_body(taken[count - 1], message, (size_t)bytes);
    if (length >= 0 && count >= RP_FDS_GIVEN) {
        memcpy(fds, taken, RP_FDS_GIVEN * sizeof *fds);
        drop_fds(taken + RP_FDS_GIVEN, 1);
        return length;
    }
    drop_fds(taken, RP_FDS_KEPT);
    if (length == -ENOMEM)
        return rp_fail(error, -ENOMEM, NULL, "socket: no memory for a message");
    return length >= 0 ? length
                       : rp_fail(error, -RP_E_PROTOCOL, NULL,
                                 "socket: at most %zu bytes and %d descriptors expected, a longer "
                                 "message, another kind or %u found",
                                 (size_t)RP_MESSAGE_BYTES_MAX, RP_FDS_GIVEN, count);
}

int64_t rp_socket_receive_message(int fd, uint8_t **message_out, int fds[2], int timeout_ms,
                                  struct rp_error *error)
{
    uint8_t *message = malloc(RP_PACKET_BYTES_MAX + 1);
    *message_out = NULL;
    fds[0] = fds[1] = -1;
    if (!message)
        return rp_fail(error, -ENOMEM, NULL, "socket: no memory for a message");
    int64_t bytes = receive(fd, &message, fds, timeout_ms, error);
    if (bytes > 0)
        *message_out = message;
    else
        free(message);
    return bytes;
}
