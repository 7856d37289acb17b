/* SPDX-License-Identifier: Apache-2.0 */
/* guard.h — the name of a run, held in a place that no other process can remove. Private to
 * engine/shm.
 *
 * The lock in the run directory is a file: once the directory is emptied, a second engine of that
 * name could start. So an engine also binds a socket in the kernel's table of abstract addresses,
 * under a name that follows from user, run directory and run. It lives as long as the process that
 * holds it. That table belongs to a network namespace: for containers that share a run directory
 * and no network, only the lock holds. */
#ifndef RP_SHM_GUARD_H
#define RP_SHM_GUARD_H

#include <sys/types.h>

#include "base/fail.h"

/** Take the name, trying for half a second while its holder may be a process that has just been
 * killed. Returns a descriptor; -1 if this system has no abstract sockets, or a process of another
 * user holds the name; or -RP_E_BUSY, with the pid in *holder, or 0 if the pid is not known. */
RP_MUST_CHECK int rp_guard_take(const char *directory, const char *run, pid_t *holder);

#endif
