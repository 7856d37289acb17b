/* SPDX-License-Identifier: Apache-2.0 */
#include "base/stop.h"

#include <stdatomic.h>

static bool (*_Atomic is_wanted)(void);

void rp_stop_when(bool (*function)(void))
{
    atomic_store(&is_wanted, function);
}

bool rp_stop_is_wanted(void)
{
    bool (*function)(void) = atomic_load(&is_wanted);
    return function && function();
}

int rp_stop_check(struct rp_error *error)
{
    return rp_stop_is_wanted()
               ? rp_fail(error, -RP_E_STOPPED,
                         "run the command again: finished parts are kept, and no output is half "
                         "written",
                         "interrupted")
               : 0;
}
