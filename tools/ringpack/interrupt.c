/* SPDX-License-Identifier: Apache-2.0 */
/* interrupt.c — see interrupt.h. */
#include "interrupt.h"

#include <signal.h>
#include <stdatomic.h>

#include "base/bits.h"

/* Set by a signal handler, and read by any thread. */
static atomic_bool interrupted;
_Static_assert(ATOMIC_BOOL_LOCK_FREE == 2, "a signal handler must not wait for a lock");

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = true;
}

void rp_interrupt_catch(void)
{
    static const int ending[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = on_interrupt}; /* no SA_RESTART: waits end */
    for (size_t i = 0; i < RP_ARRAY_COUNT(ending); i++) {
        struct sigaction inherited;
        if (sigaction(ending[i], NULL, &inherited) == 0 && inherited.sa_handler != SIG_IGN)
            sigaction(ending[i], &action, NULL);
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
