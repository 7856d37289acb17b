/* SPDX-License-Identifier: Apache-2.0 */
/* socket.h — find an engine by its run name, and hand memory over.
 *
 * Run directory (run_dir.h): --run-dir, else $XDG_RUNTIME_DIR/ringpack or, if that cannot be used,
 * /tmp/ringpack-UID; owned by us, writable by no other user, not a symlink; made with mode 0700. In
 * it NAME.sock (SEQPACKET) and NAME.lock (held with flock while the engine lives: a socket file
 * without a lock holder is left over from a kill, and is replaced silently by the next start). A
 * forked child that lives on must close the listener's and the connections' descriptors: the kernel
 * reports an end only when the last copy is closed. */
#ifndef RP_SHM_SOCKET_H
#define RP_SHM_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"
#include "shm/layout.h"

/* The engine's end. */
struct rp_listener {
    int fd, lock_fd, guard_fd; /* -1 when closed; guard_fd also where there is no guard */
    int directory_fd;
    char *run, *run_dir;    /* as in the config; run_dir "": the default ones */
    char *path;             /* the directory that was taken */
    bool is_made;           /* the directory is to be removed at close when it is empty */
    bool is_watched;        /* its names had our descriptors' inode numbers when they were made */
    uint64_t socket_number; /* inode of NAME.sock: the socket's own is another */
    uint64_t compare_at_ns, date_at_ns; /* when rp_listener_check does each next */
};
#define RP_LISTENER_CLOSED                                                                         \
    {                                                                                              \
        .fd = -1, .lock_fd = -1, .guard_fd = -1, .directory_fd = -1                                \
    }
/** Take the name and listen (non-blocking, CLOEXEC). A live engine of that name: -RP_E_BUSY with
 * its pid. */
RP_MUST_CHECK int rp_listener_open(struct rp_listener *listener, const char *run_dir,
                                   const char *run, struct rp_error *error);
/** Check the names in the run directory: false if one was removed or belongs to another file now.
 * Checks once a second, however often it is called, and updates the names' timestamps every ten
 * minutes. */
bool rp_listener_check(struct rp_listener *listener, uint64_t now_ns);
/** Make the names again, in the first run directory that can be used now. All connections that wait
 * must have been accepted: the old socket is closed. listener->fd is another one afterwards, or -1
 * on a failure, after which rp_listener_check stays false. */
RP_MUST_CHECK int rp_listener_renew(struct rp_listener *listener, struct rp_error *error);
/** Accept one connection of our own uid (others are closed and logged). Returns a non-blocking fd,
 * -EAGAIN, or a code. */
RP_MUST_CHECK int rp_listener_accept(struct rp_listener *listener, struct rp_error *error);
/** Remove socket, lock and, if it is ours and empty, the directory. */
void rp_listener_close(struct rp_listener *listener);

/** Whether a process holds the name: a live engine, or one that starts or ends and does not listen.
 */
bool rp_run_is_held(const char *run_dir, const char *run);

/** Connect to an engine (blocking socket). -RP_E_GONE if none runs under that name (the hint says
 * how to start one), or if it accepts no connection for some seconds. */
RP_MUST_CHECK int rp_socket_connect(const char *run_dir, const char *run, struct rp_error *error);
/** The same, but wait at most patience_ns (at least a millisecond, at most five seconds) for an
 * engine to accept. The limit also holds for each message that is sent on the connection. */
RP_MUST_CHECK int rp_socket_connect_within(const char *run_dir, const char *run,
                                           uint64_t patience_ns, struct rp_error *error);

/** Whether the process at the other end of a connection is of our own user. */
bool rp_socket_peer_is_ours(int fd);

/** Whether the other side has hung up: it closed the socket or died, and so did every child that
 * has a copy of it. */
bool rp_socket_hung_up(int fd);

/* A header and a body, and up to two descriptors. */
struct rp_message {
    const void *header, *body;
    size_t header_bytes, body_bytes;
    const int *fds;
    unsigned fd_count;
};
/** Waits for room on blocking sockets only: -EAGAIN from a peer that does not read its reply. */
RP_MUST_CHECK int rp_socket_send(int fd, const struct rp_message *message, struct rp_error *error);
/** Receive one message and up to two fds (unused ones are -1, surplus ones closed). The caller
 * frees the message, which has room for one byte more. Returns its length, 0 if the peer hung up,
 * -EAGAIN if no message has arrived, or a code. timeout_ms < 0 = the socket's own blocking mode;
 * otherwise wait at most that long (-RP_E_TIMEOUT). */
RP_MUST_CHECK int64_t rp_socket_receive_message(int fd, uint8_t **message_out, int fds[2],
                                                int timeout_ms, struct rp_error *error);

#endif
