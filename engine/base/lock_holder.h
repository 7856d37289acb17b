/* SPDX-License-Identifier: Apache-2.0 */
/* lock_holder.h — which process has a lock of flock(2), for messages. */
#ifndef RP_BASE_LOCK_HOLDER_H
#define RP_BASE_LOCK_HOLDER_H

#define RP_LOCK_HOLDER_BYTES 160

/** "process PID (NAME)" of the file that is open as `fd`; of several that share the lock, the first
 * one. If no line of /proc/locks has that file, as for a process of another machine or container:
 * "a process that /proc/locks does not name". Returns `text`. */
char *rp_lock_holder(int fd, char text[RP_LOCK_HOLDER_BYTES]);

#define RP_HOST_BYTES 65
/** The name of this machine; "" if it has none. */
void rp_host_name(char text[RP_HOST_BYTES]);

#endif
