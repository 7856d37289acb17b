/* SPDX-License-Identifier: Apache-2.0 */
/* wait_history.h — what the trainers of a node waited for, over the life of the engine, in memory
 * that does not grow: at most RP_HISTORY_PERIODS periods of equal length. When they are all used,
 * each two become one, and periods are twice as long from then on. */
#ifndef RP_SERVER_WAIT_HISTORY_H
#define RP_SERVER_WAIT_HISTORY_H

#include "server/seat.h"

#define RP_HISTORY_PERIODS 64u /* even */
#define RP_HISTORY_FIRST_NS UINT64_C(1000000000)

/* Zero at the start. */
struct rp_wait_history {
    uint64_t begin_ns;  /* of the first period; 0 = nothing was noted */
    uint64_t period_ns; /* 0 = nothing was noted */
    uint32_t count;     /* of periods that have begun */
    uint64_t waited_ns[RP_HISTORY_PERIODS][RP_CAUSES];
};

/** The engine takes a sample at `now_ns`, which never goes back. */
void rp_wait_history_begin(struct rp_wait_history *history, uint64_t now_ns);
/** A trainer has waited for this cause for `waited_ns` until that sample. */
void rp_wait_history_add(struct rp_wait_history *history, enum rp_cause cause, uint64_t waited_ns);

#endif
