/* SPDX-License-Identifier: Apache-2.0 */
#include "interrupt.h"

#include <signal.h>
#include <stdatomic.h>

#include "base/bits.h"
#include "base/stop.h"

/* Set by a signal handler, and read by any thread. */
static atomic_bool interrupted;
_Static_assert(ATOMIC_BOOL_LOCK_FREE == 2, "a signal handler must not wait for a lock");

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = true;
}

static const int ending[] = {SIGINT, SIGTERM, SIGHUP};

/* An engine blocks its signals when it starts, and reads them when it serves. */
static bool is_pending(void)
{
    sigset_t pending;
    bool found = interrupted;
    if (sigpending(&pending) == 0)
        for (size_t i = 0; i < RP_ARRAY_COUNT(ending); i++)
            found |= sigismember(&pending, ending[i]) == 1;
    return found;
}

static void catch_with(int flags)
{
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = flags};
    for (size_t i = 0; i < RP_ARRAY_COUNT(ending); i++) {
        struct sigaction inherited;
        if (sigaction(ending[i], NULL, &inherited) == 0 && inherited.sa_handler != SIG_IGN)
            sigaction(ending[i], &action, NULL);
    }
    rp_stop_when(is_pending);
}

void rp_interrupt_catch(void)
{
    catch_with(0); /* no SA_RESTART: waits end */
}

void rp_interrupt_catch_once(void)
{
    catch_with((int)SA_RESETHAND);
}

void rp_interrupt_release(void)
{
    for (size_t i = 0; i < RP_ARRAY_COUNT(ending); i++) {
        struct sigaction found;
        if (sigaction(ending[i], NULL, &found) == 0 && found.sa_handler == on_interrupt)
            signal(ending[i], SIG_DFL);
    }
}

bool rp_interrupted(void)
{
    return interrupted;
}

int rp_interrupt_check(const char *safe, struct rp_error *error)
{
    return interrupted ? rp_fail(error, -RP_E_STOPPED, NULL, "interrupted; %s", safe) : 0;
}
