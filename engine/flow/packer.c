/* SPDX-License-Identifier: Apache-2.0 */
/* packer.c — packers as threads and as processes.
 *
 * Invariant: packing a ticket twice writes the same bytes (pack.c), so a process that was killed is
 * replaced by another one, which does its ticket again. */
#include "flow/packer.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/mapped.h"
#include "base/thread.h"
#include "shm/peer.h"

/* A process that dies while it packs a ticket is replaced at most this many times for that ticket.
 * Then the next one would probably die as well: it is killed for memory, say, as soon as it touches
 * the tokens. */
#define REPLACEMENTS_OF_A_TICKET 10u

static void run_packer(void *argument)
{
    struct rp_packer *packer = argument;
    rp_packer_run(packer->plan, packer->index);
}

/* If a mapped file cannot be read any more (it was cut short, or its disk has failed for long), the
 * packer thread ends and its ticket is never packed; the engine notices (rp_mapped_lost) and stops
 * the stream. Until then a ticket is packed again, which writes the same bytes. */
static void *packer_thread(void *argument)
{
    prctl(PR_SET_NAME, "pack");
    (void)!rp_mapped_guard_again(run_packer, argument);
    return NULL;
}

/* The child of a threaded process: only async-signal-safe work from here on. It keeps the mappings
 * (a sealed segment can be written only through those that exist) and drops every descriptor but
 * the eventfd, so that it cannot keep a trainer's socket open after the engine has died. */
static void run_child(struct rp_packer *packer, pid_t engine)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != engine)
        _exit(0);
    sigset_t none;
    sigemptyset(&none);
    signal(SIGTERM, SIG_IGN); /* the engine decides when packers end */
    signal(SIGINT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    sigprocmask(SIG_SETMASK, &none, NULL);
    unsigned wake = (unsigned)packer->plan->wake_fd;
    if (wake > 3)
        syscall(SYS_close_range, 3, wake - 1, 0);
    syscall(SYS_close_range, wake + 1, ~0u, 0);
    _exit(rp_mapped_guard_again(run_packer, packer) ? 0 : 1);
}

static void reap(pid_t pid)
{
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        continue;
}

static int start_process(struct rp_packer *packer, struct rp_error *error)
{
    pid_t engine = getpid();
    pid_t pid = rp_fork();
    if (pid < 0)
        return rp_fail(error, -errno, "packer_processes: false needs no processes",
                       "cannot fork packer %u: %s", packer->index, rp_strerror(-errno));
    if (pid == 0)
        run_child(packer, engine);
    packer->pid = pid;
    packer->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (packer->pidfd >= 0)
        return 0;
    int code = -errno; /* without a pidfd its death would go unnoticed and the stream would hang */
    kill(pid, SIGKILL);
    reap(pid);
    return rp_fail(error, code, "packer_processes: false needs no processes",
                   "cannot watch packer process %u: pidfd_open: %s", packer->index,
                   rp_strerror(code));
}

int rp_packer_start(struct rp_packer *packer, bool as_process, struct rp_error *error)
{
    RP_ASSERT(!packer->started && packer->index < packer->plan->packers);
    packer->pidfd = -1;
    int code = 0;
    if (as_process) {
        code = start_process(packer, error);
    } else {
        int failed = rp_thread_start(&packer->thread, packer_thread, packer);
        if (failed)
            code = rp_fail(error, -failed, NULL, "cannot start packer thread %u", packer->index);
    }
    packer->started = code == 0;
    return code;
}

bool rp_packer_is_dead(const struct rp_packer *packer)
{
    return packer->started && rp_peer_has_ended(packer->pidfd);
}

/* After a crash, the replacement would crash as well. */
static bool is_crash(const siginfo_t *death)
{
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE, SIGSYS, SIGTRAP};
    bool crashed = false;
    for (size_t i = 0; i < RP_ARRAY_COUNT(crashes); i++)
        crashed |= death->si_code != CLD_EXITED && death->si_status == crashes[i];
    return crashed;
}

/* Counts the deaths at one ticket. A packer that waited for reads or trainers did not die of its
 * work: it is replaced each time. */
static bool dies_of_its_ticket(struct rp_packer *packer)
{
    uint64_t ticket;
    if (!rp_packer_has_work(packer->plan, packer->index, &ticket))
        return false;
    if (ticket != packer->ticket_at_death)
        packer->deaths = 0;
    packer->ticket_at_death = ticket;
    packer->deaths++;
    return packer->deaths > REPLACEMENTS_OF_A_TICKET;
}

static int give_up(const struct rp_packer *packer, const siginfo_t *death, struct rp_error *error)
{
    char how[96] = "of an unknown cause"; /* where SIGCHLD is ignored */
    if (death->si_pid != 0 && death->si_code == CLD_EXITED)
        snprintf(how, sizeof how, "with exit status %d", death->si_status);
    else if (death->si_pid != 0)
        snprintf(how, sizeof how, "by signal %d (%s)", death->si_status,
                 strsignal(death->si_status));
    return rp_fail(error, -EIO,
                   "delivered and saved rows are valid; `dmesg | tail` says whether it was "
                   "killed for memory (then lower prefetch_bytes); packer_processes: false is "
                   "another way",
                   "packer process %u: deaths at the same ticket: expected at most %u, found %u, "
                   "the last one %s",
                   packer->index, REPLACEMENTS_OF_A_TICKET, packer->deaths, how);
}

int rp_packer_judge_death(struct rp_packer *packer, struct rp_error *error)
{
    siginfo_t death = {0};
    if (waitid(P_PID, (id_t)packer->pid, &death, WEXITED | WNOWAIT | WNOHANG) < 0)
        death = (siginfo_t){0}; /* SIGCHLD is ignored, and the kernel has thrown the answer away */
    if (death.si_code == CLD_EXITED && death.si_status != 0 && rp_mapped_lost(error) < 0)
        return -RP_E_CHANGED;
    if (is_crash(&death))
        return rp_fail(error, -EIO, "please report this; packer_processes: false is another way",
                       "packer process %u crashed: %s", packer->index, strsignal(death.si_status));
    return dies_of_its_ticket(packer) ? give_up(packer, &death, error) : 0;
}

void rp_packer_join(struct rp_packer *packer)
{
    if (!packer->started)
        return;
    if (packer->pidfd >= 0) {
        /* it may be stopped; its ticket is packed again (I3) */
        syscall(SYS_pidfd_send_signal, packer->pidfd, SIGKILL, NULL, 0);
        reap(packer->pid);
        close(packer->pidfd);
        packer->pidfd = -1;
    } else {
        pthread_join(packer->thread, NULL);
    }
    packer->started = false;
}
