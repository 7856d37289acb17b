/* SPDX-License-Identifier: Apache-2.0 */
/* seat.h — a seat is the engine's record of one consumer: a replica of a rank.
 *
 * A seat lasts as long as the engine, while consumers attach to it and detach. Its `seat_state` is
 * the engine's knowledge of the consumer, and only rp_seat_transition writes it (tests/tidy checks
 * that). In every state the seat has a position: the batch that its consumer releases next or, if
 * none is attached, the first batch of the next consumer.
 *
 *   VACANT            no consumer has attached since the engine started; the position is the batch
 *                     of the engine's start row
 *   ATTACHED          a consumer is attached; the position follows its release watermark
 *   MIGRATING         the attach of another consumer has rebuilt the ring, so this seat's consumer
 *                     was disconnected, and will attach to the new ring. A seat is in this state
 *                     only while the engine serves the attach of the other consumer
 *   ABSENT_KNOWN      the consumer has detached; the position follows its last released batch
 *   ABSENT_UNKNOWN    no consumer is attached, and the row that the next one needs is unknown
 *   FINISHED          the consumer has detached after it released the last batch of the stream
 *   FINISHED_UNKNOWN  as FINISHED, but the consumer may attach again and request an older row
 *
 * The state after each event (-: the event cannot happen in this state, which is asserted):
 *
 *                          VACANT  ATTACHED  MIGRATING  ABSENT_  ABSENT_  FINISHED  FINISHED_
 *                                                       KNOWN    UNKNOWN            UNKNOWN
 *   ATTACH                 att     -         -          att      att      att       att
 *   DETACH                 -       known     -          -        -        -         -
 *   DETACH_CONSUMED        -       fin       -          -        -        -         -
 *   MIGRATE                -       migr      -          -        -        -         -
 *   MIGRATE_END            -       -         known      -        -        -         -
 *   ROLLBACK               vacant  att       migr       unknown  unknown  unknown   unknown
 *   ROLLBACK_OWN           -       att       migr       unknown  unknown  fin-unkn  fin-unkn
 *   MOVE                   unknown -         -          unknown  unknown  unknown   unknown
 *   MOVE_OWN               -       -         -          unknown  unknown  fin-unkn  fin-unkn
 *   SKIP                   unknown -         -          -        unknown  -         fin-unkn
 *   REBUILD                vacant  -         migr       known    unknown  fin       fin-unkn
 *
 * Assumptions of the engine:
 *
 *   - A consumer that has detached may be dead or late. ABSENT_KNOWN assumes that the consumer
 *     attaches again at its position, or never: checkpoints count the batches that it has released,
 *     and the ring keeps the others for it.
 *   - A consumer that attaches from a state token (ROLLBACK) may be the first of a whole job that
 *     restarts from that state, or the only one that has restarted. An absent consumer may belong
 *     to that job: the batch that it will request is unknown until it attaches, and no checkpoint
 *     counts its releases. An attached consumer is alive, so it did not restart. The consumer of a
 *     VACANT seat has released no batch that a checkpoint could count.
 *   - A consumer that attached in the present rollback epoch (the OWN events) and has finished may
 *     be done while others of its job are late; or the job may restart a second time from the same
 *     state. The engine cannot distinguish them. So the end of the stream does not wait for this
 *     consumer (FINISHED_UNKNOWN), and no checkpoint counts its releases.
 *   - The engine may change the position of an absent seat because of other consumers: MOVE, the
 *     ring begins at another row; SKIP, the ring was full and others waited. The new position is no
 *     sign of this seat's releases.
 *
 * Two facts are kept apart from the state, because they change at other times than the state does:
 *
 *   rollback_epoch  the rollback epoch in which a consumer last attached to this seat from a state
 *                   token, 0 for none. Invariant: at most the engine's epoch; 0 while VACANT.
 *   reader_fd       (in shm/ring.h) the process that last mapped the ring for this seat. In every
 *                   state that process may still read its leases, though its connection has ended.
 *                   Invariant: not RP_PEER_NONE while ATTACHED. */
#ifndef RP_SERVER_SEAT_H
#define RP_SERVER_SEAT_H

#include "shm/ring.h"
#include "shm/waits.h"

enum rp_seat_state {
    RP_SEAT_VACANT,
    RP_SEAT_ATTACHED,
    RP_SEAT_MIGRATING,
    RP_SEAT_ABSENT_KNOWN,
    RP_SEAT_ABSENT_UNKNOWN,
    RP_SEAT_FINISHED,
    RP_SEAT_FINISHED_UNKNOWN,
    RP_SEAT_STATES /* also: no state */
};

enum rp_seat_event {
    RP_SEAT_ATTACH,          /* a consumer has attached */
    RP_SEAT_DETACH,          /* its connection has ended */
    RP_SEAT_DETACH_CONSUMED, /* the same, after it released the last batch of the stream */
    RP_SEAT_MIGRATE,         /* its ring is rebuilt, so the engine closed its connection */
    RP_SEAT_MIGRATE_END,     /* the attach that rebuilt its ring has been served */
    RP_SEAT_ROLLBACK,        /* a consumer has attached to another seat from a state token */
    RP_SEAT_ROLLBACK_OWN,    /* the same, or to this seat, while its epoch is the engine's */
    RP_SEAT_MOVE,            /* the engine has changed its position for another consumer */
    RP_SEAT_MOVE_OWN,        /* the same, while this seat's epoch is the engine's */
    RP_SEAT_SKIP,            /* its position is advanced because other consumers wait */
    RP_SEAT_REBUILD,         /* its ring has new memory */
    RP_SEAT_EVENTS
};

/* The cause of a trainer's wait, decided by cause.h. */
enum rp_cause {
    RP_CAUSE_NONE, /* it does not wait */
    RP_CAUSE_DISK,
    RP_CAUSE_NETWORK, /* an object store */
    RP_CAUSE_PLAN,
    RP_CAUSE_PACK,
    RP_CAUSE_TRAINER, /* a trainer has not released a batch whose room is needed */
    RP_CAUSE_SAVE,    /* a save copies from the room that is needed */
    RP_CAUSE_ENGINE,
    RP_CAUSES
};

struct rp_seat {
    struct rp_ring *ring;
    uint32_t replica;
    enum rp_seat_state seat_state; /* written only by rp_seat_transition */
    uint64_t rollback_epoch;       /* see above */
    struct rp_waits waits;         /* sum over consumers that have left */
    uint64_t cause_ns[RP_CAUSES];  /* waiting time of its consumers by cause, as sampled */
};

/** The state after the event, by the table above; RP_SEAT_STATES if the event cannot happen. */
enum rp_seat_state rp_seat_next_state(enum rp_seat_state state, enum rp_seat_event event);
/** Set the state to the one after the event. Asserts that the event can happen. */
void rp_seat_transition(struct rp_seat *seat, enum rp_seat_event event);
/** "ABSENT_KNOWN" and the like, for messages and tests. */
const char *rp_seat_state_name(enum rp_seat_state state);

static inline bool rp_seat_is_attached(const struct rp_seat *seat)
{
    return seat->seat_state == RP_SEAT_ATTACHED;
}
/** Is the position the end of the last consumer's releases or, without one, the start row? */
static inline bool rp_seat_position_is_known(const struct rp_seat *seat)
{
    return seat->seat_state != RP_SEAT_ABSENT_UNKNOWN &&
           seat->seat_state != RP_SEAT_FINISHED_UNKNOWN;
}
/** May the position be advanced? Only if no checkpoint counts the seat's releases. */
static inline bool rp_seat_may_be_skipped(const struct rp_seat *seat)
{
    return rp_seat_next_state(seat->seat_state, RP_SEAT_SKIP) != RP_SEAT_STATES;
}
/** The batch that the consumer releases next; if none is attached, the next consumer's first. */
static inline uint64_t rp_seat_position(const struct rp_seat *seat)
{
    return seat->ring->seats[seat->replica].release;
}
/** Is the ring full because this seat has not released the oldest batch? */
static inline bool rp_seat_fills_ring(const struct rp_seat *seat)
{
    return rp_seat_position(seat) + seat->ring->geometry.slots == seat->ring->tail;
}

#define RP_SEAT_NAME_BYTES 40u
/** "rank 3" or, where ranks have several replicas, "rank 3, replica 1". Returns text. */
const char *rp_seat_name(const struct rp_seat *seat, char text[RP_SEAT_NAME_BYTES]);

#endif
