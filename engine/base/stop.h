/* SPDX-License-Identifier: Apache-2.0 */
/* stop.h — the request that this process ends. Work that may take long and that a person waits for
 * (a start, an index) checks for it between two pieces, and gives up. Its unfinished files are
 * removed, as after any other error. Threads: any. */
#ifndef RP_BASE_STOP_H
#define RP_BASE_STOP_H

#include <stdbool.h>

#include "base/fail.h"

/** Poll this function from now on; NULL, the initial value: never stop. */
void rp_stop_when(bool (*is_wanted)(void));
bool rp_stop_is_wanted(void);
/** -RP_E_STOPPED with "interrupted" if the process is to end, else 0. */
RP_MUST_CHECK int rp_stop_check(struct rp_error *error);

/* The callback polled during a wait: true = the wait is in vain. */
struct rp_stopper {
    bool (*is_stopping)(void *context); /* NULL = never stopped */
    void *context;
};
static inline bool rp_stopper_asks(const struct rp_stopper *stopper)
{
    return stopper->is_stopping && stopper->is_stopping(stopper->context);
}

#endif
