/* SPDX-License-Identifier: Apache-2.0 */
/* cause.h — the cause of a trainer's wait, decided from the stage of the oldest ticket.
 *
 * Tickets are delivered in order, so each ring without a batch waits for the oldest ticket that is
 * not delivered, whatever later tickets do; and that ticket is at one stage:
 *
 *   waits  stage (flow.h)   cause    holder
 *   -----  ---------------  -------  ----------------------------
 *   no                      NONE
 *   yes    NONE             ENGINE
 *   yes    UNPLANNED        PLAN
 *   yes    UNPLANNED_HELD   SAVE
 *   yes    AT_FILE          DISK
 *   yes    AT_SERVER        NETWORK
 *   yes    READ             PACK
 *   yes    READ_HELD        SAVE
 *   yes    READ_FULL        TRAINER  the last seat of the full ring
 *   yes    PACKED           PACK     (about to be delivered)
 *
 * ENGINE: the engine moves the stream to another row, has failed, or has delivered all of it.
 * PLAN includes pages of an index that come from a disk; with mapped files, which are read as they
 * are packed, PACK includes their pages. */
#ifndef RP_SERVER_CAUSE_H
#define RP_SERVER_CAUSE_H

#include "flow/flow.h"
#include "server/seat.h"

struct rp_delivery;
struct rp_engine;

/** The cause, by the table above, of a trainer in whose ring the oldest ticket is at this stage. */
enum rp_cause rp_decide_cause(bool waits, enum rp_oldest_stage stage);
/** "disk", "trainer" and the like. */
const char *rp_cause_name(enum rp_cause cause);

struct rp_seat_cause {
    enum rp_cause cause;
    const struct rp_seat *holder; /* for TRAINER, the seat of that trainer; else NULL */
};
/** Why the trainer of the seat waits now. */
struct rp_seat_cause rp_seat_cause(const struct rp_delivery *delivery, const struct rp_seat *seat);
/** For each trainer that waits now, add `passed_ns`, the time since the last sample, to its cause.
 */
void rp_engine_note_causes(struct rp_engine *engine, uint64_t passed_ns);

/* ---- the history ----------------------------------------------------------------------------- */

/* How long the trainers of a node waited for each cause, over the life of the engine, in memory
 * that does not grow: at most RP_HISTORY_PERIODS periods of equal length. When all are used, each
 * two become one, and periods are twice as long from then on. */
#define RP_HISTORY_PERIODS 64u /* even */
#define RP_HISTORY_FIRST_NS UINT64_C(1000000000)

/* Zero at the start. */
struct rp_wait_history {
    uint64_t begin_ns;  /* the first period's; 0 = no wait was noted */
    uint64_t period_ns; /* 0 = no wait was noted */
    uint32_t count;     /* periods that have begun */
    uint64_t waited_ns[RP_HISTORY_PERIODS][RP_CAUSES];
};

/** The engine takes a sample at `now_ns`, which never goes back. */
void rp_wait_history_begin(struct rp_wait_history *history, uint64_t now_ns);
/** A trainer has waited for this cause for `waited_ns` until that sample. */
void rp_wait_history_add(struct rp_wait_history *history, enum rp_cause cause, uint64_t waited_ns);

#endif
