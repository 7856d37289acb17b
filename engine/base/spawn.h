/* SPDX-License-Identifier: Apache-2.0 */
/* spawn.h — programs that an engine or a command starts for its user: commands of alerts, programs
 * that give keys. They inherit only the environment and the place for errors: default signals,
 * /dev/null as input, no descriptor beyond the first three, and a process group of their own, so
 * that they and their children can be killed. Threads: any. */
#ifndef RP_BASE_SPAWN_H
#define RP_BASE_SPAWN_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/fail.h"

struct rp_spawn {
    const char *program; /* its path */
    char *const *words;  /* with the name of the program, and a NULL at the end */
    char *const *environment;
    int output;          /* a descriptor; -1: where errors go */
    bool begins_session; /* a session that its children share, in any process group */
};
/** 0, or an errno that is positive, as of posix_spawn. */
RP_MUST_CHECK int rp_spawn(pid_t *pid, const struct rp_spawn *what);

/** Kill it and its children. False: it may not be killed, because it runs as another user. It is
 * still to be waited for. */
bool rp_spawn_kill(pid_t pid);

/** Kill the processes of the session that this process began. To be called before it is waited for,
 * so that no other process has its number. */
void rp_spawn_kill_session(pid_t pid);

#endif
