/* SPDX-License-Identifier: Apache-2.0 */
/* sim_threads.c — pthreads, futexes, the clock, signals, and waiting for processes. The first word
 * of a mutex is 1 while it is held. */
#include "sim_wrap.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CLOCK_CALL_NS 700u
#ifndef SYS_cachestat
#define SYS_cachestat 451
#endif

/* ---- time ------------------------------------------------------------------------------------ */

WRAP(int, clock_gettime, clockid_t clock, struct timespec *out)
{
    if (!sim.current)
        return __real_clock_gettime(clock, out);
    sim.now_ns += CLOCK_CALL_NS;
    *out = (struct timespec){(time_t)(sim.now_ns / SIM_S), (long)(sim.now_ns % SIM_S)};
    sim_step();
    return 0;
}

WRAP(int, nanosleep, const struct timespec *time, struct timespec *left)
{
    (void)left;
    uint64_t until = sim.now_ns + (uint64_t)time->tv_sec * SIM_S + (uint64_t)time->tv_nsec;
    static const char never_woken;
    while (sim.now_ns < until)
        (void)sim_wait(&never_woken, until);
    return 0;
}

/* ---- threads --------------------------------------------------------------------------------- */

/* Not of the simulator itself. */
WRAP(int, nice, int increment)
{
    (void)increment;
    sim_step();
    return 0;
}

WRAP(int, pthread_create, pthread_t *thread, const pthread_attr_t *attributes,
     void *(*entry)(void *), void *argument)
{
    (void)attributes;
    sim_step();
    *thread = sim_fiber_start(sim.current->process, entry, argument)->serial;
    return 0;
}

WRAP(int, pthread_join, pthread_t thread, void **result)
{
    (void)result;
    sim_step();
    for (uint32_t i = 0; i < SIM_FIBERS_MAX; i++)
        while (sim.fibers[i].alive && sim.fibers[i].serial == thread)
            (void)sim_wait(&sim.fibers[i], SIM_NEVER);
    return 0;
}

static uint32_t *held(pthread_mutex_t *mutex)
{
    return (uint32_t *)(void *)mutex;
}

WRAP(int, pthread_mutex_init, pthread_mutex_t *mutex, const pthread_mutexattr_t *attributes)
{
    (void)attributes;
    *held(mutex) = 0;
    return 0;
}

WRAP(int, pthread_mutex_lock, pthread_mutex_t *mutex)
{
    sim_step();
    while (*held(mutex))
        (void)sim_wait(mutex, SIM_NEVER);
    *held(mutex) = 1;
    return 0;
}

WRAP(int, pthread_mutex_unlock, pthread_mutex_t *mutex)
{
    if (!*held(mutex))
        sim_fail("a mutex that is not locked is unlocked");
    *held(mutex) = 0;
    sim_wake(mutex, UINT32_MAX);
    sim_step();
    return 0;
}

WRAP(int, pthread_mutex_destroy, pthread_mutex_t *mutex)
{
    return *held(mutex) ? EBUSY : 0;
}

WRAP(int, pthread_cond_init, pthread_cond_t *condition, const pthread_condattr_t *attributes)
{
    (void)condition;
    (void)attributes;
    return 0;
}

WRAP(int, pthread_cond_wait, pthread_cond_t *condition, pthread_mutex_t *mutex)
{
    *held(mutex) = 0; /* no step before the wait, because unlocking and waiting are atomic */
    sim_wake(mutex, UINT32_MAX);
    (void)sim_wait(condition, SIM_NEVER);
    return __wrap_pthread_mutex_lock(mutex);
}

WRAP(int, pthread_cond_signal, pthread_cond_t *condition)
{
    sim_step();
    sim_wake(condition, 1);
    return 0;
}

WRAP(int, pthread_cond_broadcast, pthread_cond_t *condition)
{
    sim_step();
    sim_wake(condition, UINT32_MAX);
    return 0;
}

WRAP(int, pthread_cond_destroy, pthread_cond_t *condition)
{
    (void)condition;
    return 0;
}

WRAP(int, pthread_setname_np, pthread_t thread, const char *name)
{
    (void)thread;
    (void)name;
    return 0;
}

WRAP(int, pthread_sigmask, int how, const sigset_t *set, sigset_t *old)
{
    (void)how;
    (void)set;
    (void)old;
    return 0;
}

WRAP(int, sigprocmask, int how, const sigset_t *set, sigset_t *old)
{
    (void)how;
    (void)set;
    (void)old;
    return 0;
}

WRAP(sighandler_t, signal, int number, sighandler_t handler)
{
    return sim.current ? SIG_DFL : __real_signal(number, handler);
}

/* ---- futexes and processes ------------------------------------------------------------------- */

static long futex(const uint32_t *word, int operation, uint32_t value, const struct timespec *time)
{
    sim_step();
    if (operation == FUTEX_WAKE)
        return sim_wake(word, value);
    if (__atomic_load_n(word, __ATOMIC_RELAXED) != value)
        return fail_with(EAGAIN);
    uint64_t ns = (uint64_t)time->tv_sec * SIM_S + (uint64_t)time->tv_nsec;
    if (sim_wait(word, sim.now_ns + ns))
        return 0;
    sim.timeouts++;
    sim_trace("a wait of %u ms ends without a wake-up", (unsigned)(ns / SIM_MS));
    return fail_with(ETIMEDOUT);
}

static long open_pidfd(int pid)
{
    struct sim_process *process = sim_find(pid);
    if (!process || process->reaped)
        return fail_with(ESRCH);
    struct sim_node *node = sim_node_new(SIM_PIDFD);
    node->process = process;
    return sim_descriptor_new(node, 0);
}

WRAP(long, syscall, long number, ...)
{
    va_list arguments;
    va_start(arguments, number);
    long a = va_arg(arguments, long), b = va_arg(arguments, long), c = va_arg(arguments, long),
         d = va_arg(arguments, long);
    va_end(arguments);
    if (!sim.current)
        return __real_syscall(number, a, b, c, d);
    struct sim_node *node;
    switch (number) {
    case SYS_futex:
        return futex((const uint32_t *)a, (int)b, (uint32_t)c, (const struct timespec *)d);
    case SYS_cachestat:
        sim_step();
        return sim_cachestat((int)a, (const uint64_t *)b, (uint64_t *)c);
    case SYS_pidfd_open:
        return open_pidfd((int)a);
    case SYS_pidfd_send_signal:
        node = sim_node_of((int)a);
        if (node && b == SIGKILL)
            sim_kill(node->process);
        return node ? 0 : -1;
    default:
        sim_fail("system call %ld is not simulated", number);
    }
}

WRAP(pid_t, getpid, void)
{
    return sim.current ? sim.current->process->pid : __real_getpid();
}

WRAP(int, waitid, idtype_t type, id_t pid, siginfo_t *info, int options)
{
    (void)type;
    (void)options;
    const struct sim_process *process = sim_find((int)pid);
    if (!process || process->reaped)
        return fail_with(ECHILD);
    if (process->dead) {
        info->si_code = process->killed ? CLD_KILLED : CLD_EXITED;
        info->si_status = process->killed ? SIGKILL : process->status;
    }
    return 0;
}

WRAP(pid_t, waitpid, pid_t pid, int *status, int options)
{
    if (!sim.current)
        return __real_waitpid(pid, status, options);
    struct sim_process *process = sim_find(pid);
    if (!process || process->reaped)
        return fail_with(ECHILD);
    while (!process->dead)
        (void)sim_wait_poke(SIM_NEVER);
    process->reaped = true;
    return pid;
}

WRAP(void, _exit, int status)
{
    if (sim.current)
        sim_exit(status);
    __real__exit(status);
    __builtin_unreachable();
}

WRAP(void, abort, void)
{
    if (sim.current)
        sim_fail("%s aborted: see its last message", sim.current->process->name);
    __real_abort();
    __builtin_unreachable();
}

/* ---- the machine ----------------------------------------------------------------------------- */

WRAP(ssize_t, getrandom, void *buffer, size_t bytes, unsigned flags)
{
    (void)flags;
    for (size_t i = 0; i < bytes; i++)
        ((uint8_t *)buffer)[i] = (uint8_t)sim_below(&sim.random, 256);
    return (ssize_t)bytes;
}

WRAP(long, sysconf, int name)
{
    if (sim.current && name == _SC_PAGESIZE)
        return SIM_PAGE_BYTES; /* so that a short file has many */
    return name == _SC_NPROCESSORS_ONLN ? 2 : __real_sysconf(name);
}

WRAP(uint32_t, rp_cpus_allowed, void)
{
    return 2; /* a constant, so that a seed is the same story on every machine */
}
