/* SPDX-License-Identifier: Apache-2.0 */
/* signals.c — which signals end an engine, and which it has no use for.
 *
 * Invariants
 *
 *   S1  A signal that was ignored when the engine was started stays ignored. nohup, a shell without
 *       job control that puts a command into the background, and some batch systems ask in this way
 *       that the end of a session leaves the command alone.
 *
 *   S2  A signal that is not meant for an engine does not end it, even where its default action is
 *       to kill: batch systems, libraries and terminals send signals to whole process groups. A
 *       handler that is there already, for instance a profiler's, is left in its place.
 *
 *   S3  Signals are taken before any thread is started, so that all threads inherit the mask. */
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/defect.h"
#include "base/log.h"
#include "server/shutdown.h"
#include "server/signals.h"

static bool is_ignored(int number)
{
    struct sigaction found;
    return sigaction(number, NULL, &found) == 0 && found.sa_handler == SIG_IGN;
}

static sigset_t set_of_ending_signals(void)
{
    static const int ending[] = {SIGTERM, SIGINT, SIGHUP};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < RP_ARRAY_COUNT(ending); i++)
        if (!is_ignored(ending[i]) || RP_DEFECT(take_ignored_signals)) /* S1 */
            sigaddset(&set, ending[i]);
    return set;
}

static void ignore_unless_handled(int number) /* S2 */
{
    struct sigaction found;
    if (sigaction(number, NULL, &found) == 0 && found.sa_handler == SIG_DFL)
        signal(number, SIG_IGN);
}

int rp_loop_take_signals(struct rp_loop *loop)
{
    static const int meaningless[] = {SIGPIPE, SIGUSR1, SIGUSR2, SIGALRM,   SIGVTALRM,
                                      SIGPROF, SIGXFSZ, SIGIO,   SIGSTKFLT, SIGPWR};
    loop->ending_signals = set_of_ending_signals();
    sigprocmask(SIG_BLOCK, &loop->ending_signals, NULL);
    for (size_t i = 0; i < RP_ARRAY_COUNT(meaningless); i++)
        ignore_unless_handled(meaningless[i]);
    for (int number = SIGRTMIN; number <= SIGRTMAX; number++)
        ignore_unless_handled(number);
    return signalfd(-1, &loop->ending_signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

static const char *name_of(int ending) /* glibc has sigabbrev_np since 2.32 */
{
    return ending == SIGTERM ? "SIGTERM" : ending == SIGINT ? "SIGINT" : "SIGHUP";
}

void rp_engine_serve_signal(struct rp_engine *engine)
{
    struct signalfd_siginfo info;
    while (read(engine->loop.signal_fd, &info, sizeof info) == sizeof info) {
        if (engine->life
                .is_signalled) /* the second one; the last checkpoint on disk stays intact */
            _exit(128 + (int)info.ssi_signo);
        engine->life.is_signalled = true;
        rp_log_event(RP_EVENT_stopping, "%s: stopping%s", name_of((int)info.ssi_signo),
                     engine->saving.checkpoints ? " after a checkpoint" : "");
        rp_engine_begin_stop(engine, RP_SHUTDOWN_SIGNAL);
    }
}

static void end_at_once(int number)
{
    _exit(128 + number);
}

void rp_loop_let_signals_end_us(const struct rp_loop *loop)
{
    struct signalfd_siginfo info;
    struct sigaction action = {.sa_handler = end_at_once};
    while (read(loop->signal_fd, &info, sizeof info) == sizeof info)
        end_at_once((int)info.ssi_signo);
    for (int number = 1; number < SIGRTMIN; number++)
        if (sigismember(&loop->ending_signals, number) == 1)
            sigaction(number, &action, NULL);
    sigprocmask(SIG_UNBLOCK, &loop->ending_signals, NULL);
}
