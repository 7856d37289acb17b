/* SPDX-License-Identifier: Apache-2.0 */
/* peer.c — the kernel's handle on the process that connected: SO_PEERPIDFD (Linux 6.5), or, before
 * that, a handle made from the process number that the kernel noted at connect.
 *
 * The number may be another process's by now. But a process that connected and has not hung up has
 * not ended, and keeps its number: so the connection is checked after the handle was made. A
 * connection that has hung up by then is no proof, and its process stays unknown. */
#include "shm/peer.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fail.h"
#include "shm/socket.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

struct ucred rp_peer_of(int socket_fd)
{
    struct ucred peer;
    socklen_t length = sizeof peer;
    bool is_known = getsockopt(socket_fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0;
    return is_known ? peer : (struct ucred){0, (uid_t)-1, (gid_t)-1};
}

static int open_by_number(int socket_fd)
{
    struct ucred peer = rp_peer_of(socket_fd);
    if (peer.pid <= 0)
        return RP_PEER_UNKNOWN;
    int pidfd = (int)syscall(SYS_pidfd_open, peer.pid, 0);
    if (pidfd < 0)
        return RP_PEER_UNKNOWN;
    if (!rp_socket_hung_up(socket_fd))
        return pidfd;
    close(pidfd);
    return RP_PEER_UNKNOWN;
}

int rp_peer_open(int socket_fd)
{
    RP_ASSERT(socket_fd >= 0);
    int pidfd = -1;
    socklen_t length = sizeof pidfd;
    if (getsockopt(socket_fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length) == 0 && pidfd >= 0)
        return pidfd;
    return open_by_number(socket_fd);
}

bool rp_peer_has_ended(int pidfd)
{
    struct pollfd entry = {.fd = pidfd, .events = POLLIN};
    RP_ASSERT(pidfd != RP_PEER_NONE);
    return pidfd >= 0 && poll(&entry, 1, 0) == 1 && (entry.revents & POLLIN) != 0;
}

void rp_peer_close(int pidfd)
{
    if (pidfd >= 0)
        close(pidfd);
}
