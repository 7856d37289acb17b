/* SPDX-License-Identifier: Apache-2.0 */
/* peer.h — the process at the other end of a connection, and proof of its death.
 *
 * The end of a connection proves that a trainer releases no more batches. It does not prove that
 * its reads have ended: a process may lose its socket and live. A pidfd proves it: it is readable
 * when every thread of the process has ended, and the kernel takes a thread's memory before it
 * reports the thread's end. */
#ifndef RP_SHM_PEER_H
#define RP_SHM_PEER_H

#include <stdbool.h>
#include <sys/socket.h>

#define RP_PEER_NONE (-1)    /* there is no such process */
#define RP_PEER_UNKNOWN (-2) /* it exists, but no pidfd could be opened */

/** The process and user at the other end; {0, -1, -1} if they are unknown. pid 0: it is in another
 * process namespace. */
struct ucred rp_peer_of(int socket_fd);
/** A pidfd of the process that connected this socket, or RP_PEER_UNKNOWN. */
int rp_peer_open(int socket_fd);
/** Is it proven that the process has ended? Never for RP_PEER_UNKNOWN. */
bool rp_peer_has_ended(int pidfd);
/** Close a pidfd; RP_PEER_NONE and RP_PEER_UNKNOWN are fine. */
void rp_peer_close(int pidfd);

#endif
