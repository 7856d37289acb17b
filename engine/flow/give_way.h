/* SPDX-License-Identifier: Apache-2.0 */
/* give_way.h — the threads of a flow that has just begun yield the processor after each
 * micro-batch.
 *
 * They fill the rings without a break, while the trainer that wants the first batch, and the
 * engine's thread that is to answer it, wait for a processor: with as many threads as processors
 * that is a tick of the kernel. Later these threads sleep often enough. The time is limited,
 * because where other processes want the processor a yield costs the rest of a slice. No batch
 * depends on it. */
#ifndef RP_FLOW_GIVE_WAY_H
#define RP_FLOW_GIVE_WAY_H

#include <sched.h>

#include "base/clock.h"

#define RP_GIVES_WAY_NS 20000000u /* since the flow began */

static inline void rp_give_way(uint64_t until_ns)
{
    if (rp_now_ns() < until_ns)
        sched_yield();
}

#endif
