/* SPDX-License-Identifier: Apache-2.0 */
#include "base/spawn.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/thread.h"

#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC (1u << 2)
#endif

int rp_spawn(pid_t *pid, const struct rp_spawn *what)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, what->output < 0 ? STDERR_FILENO : what->output,
                                     STDOUT_FILENO);
    posix_spawnattr_init(&how);
    posix_spawnattr_setsigdefault(&how, &all);
    posix_spawnattr_setsigmask(&how, &none);
    posix_spawnattr_setpgroup(&how, 0);
    short group = what->begins_session ? POSIX_SPAWN_SETSID : POSIX_SPAWN_SETPGROUP;
    posix_spawnattr_setflags(&how, (short)(POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | group));
    /* descriptors that the engine was started with, and that no program needs after an exec */
    syscall(SYS_close_range, STDERR_FILENO + 1, ~0u, CLOSE_RANGE_CLOEXEC);
    struct rp_thread_tries tries = {0};
    int failed;
    do
        failed = posix_spawn(pid, what->program, &files, &how, what->words, what->environment);
    while (rp_thread_again(&tries, failed));
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&how);
    return failed;
}

bool rp_spawn_kill(pid_t pid)
{
    (void)kill(-pid, SIGKILL);      /* its children */
    return kill(pid, SIGKILL) == 0; /* itself, if it has left its process group */
}

void rp_spawn_kill_session(pid_t pid)
{
    DIR *processes = opendir("/proc");
    for (const struct dirent *entry; processes && (entry = readdir(processes));) {
        pid_t found = (pid_t)strtol(entry->d_name, NULL, 10); /* 0: no process */
        if (found > 0 && found != pid && getsid(found) == pid)
            (void)kill(found, SIGKILL);
    }
    if (processes)
        closedir(processes);
}
