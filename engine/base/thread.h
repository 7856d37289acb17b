/* SPDX-License-Identifier: Apache-2.0 */
/* thread.h — starts threads and child processes, and retries while a limit leaves no room for one.
 *
 * A limit on processes (pids.max of a cgroup, `ulimit -u`) also counts threads, and other programs
 * of the same user or container use it up for a moment: EAGAIN. So the start of a needed thread or
 * process is retried, with pauses, for rp_thread_patience_ns.
 *
 * A thread has a stack of RP_STACK_BYTES. The default would be the limit of the main thread's stack
 * (`ulimit -s`), which batch systems set to 64 KiB or to several GiB. */
#ifndef RP_BASE_THREAD_H
#define RP_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define RP_STACK_BYTES ((size_t)2 << 20)

/* 5 seconds. Tests change it, before there are threads: glibc also reports missing memory as
 * EAGAIN. */
extern uint64_t rp_thread_patience_ns;

/** pthread_create for a thread that is needed. Returns 0 or an errno value. */
int rp_thread_start(pthread_t *thread, void *(*main)(void *), void *argument);
/** The same for a thread without which the caller does the work itself: its start is tried once. */
int rp_thread_try(pthread_t *thread, void *(*main)(void *), void *argument);
/** fork for a process that is needed. Returns as fork does. */
pid_t rp_fork(void);

/** The tries of another call that starts a process. Zeroed = no try so far. */
struct rp_thread_tries {
    uint64_t began_ns, pause_ns;
};
/** After a try that failed with the errno value `failed`: true, after a pause, if the next one may
 * succeed. */
bool rp_thread_again(struct rp_thread_tries *tries, int failed);

#endif
