/* SPDX-License-Identifier: Apache-2.0 */
/* cond.h — condition variables whose timed waits count by the monotonic clock, as rp_now_ns does.
 */
#ifndef RP_BASE_COND_H
#define RP_BASE_COND_H

#include <pthread.h>
#include <time.h>

static inline void rp_cond_init(pthread_cond_t *condition)
{
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &clock);
    pthread_condattr_destroy(&clock);
}

#endif
