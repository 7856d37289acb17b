/* SPDX-License-Identifier: Apache-2.0 */
/* turn.h — a lock that most threads only try: a thread that does not get it leaves the work to the
 * one that has it.
 *
 * The holder checks once more for work after giving it back. PAIRS turn: a thread makes
 * its work visible, fences, and tries; the holder gives back, fences, and checks. At least one of
 * them sees the other. */
#ifndef RP_FLOW_TURN_H
#define RP_FLOW_TURN_H

#include <stdbool.h>

#include "base/atomic.h"
#include "shm/wait.h"

struct rp_turn {
    struct rp_a32 taken;
    struct rp_event given_back;
};

static inline bool rp_turn_try(struct rp_turn *turn)
{
    return rp_a32_load_relaxed(&turn->taken) == 0 &&
           rp_a32_exchange_acquire(&turn->taken, 1) == 0; /* PAIRS turn */
}

static inline void rp_turn_take(struct rp_turn *turn)
{
    while (!rp_turn_try(turn)) {
        uint32_t epoch = rp_event_prepare(&turn->given_back);
        if (rp_a32_load_relaxed(&turn->taken) == 0)
            rp_event_cancel(&turn->given_back);
        else
            rp_event_sleep(&turn->given_back, epoch, 100000000);
    }
}

static inline void rp_turn_give_back(struct rp_turn *turn)
{
    rp_a32_store_release(&turn->taken, 0); /* PAIRS turn */
    rp_event_signal(&turn->given_back);    /* fences */
}

#endif
