/* SPDX-License-Identifier: Apache-2.0 */
/* seat.h — a seat is the engine's record of one consumer: a replica of a rank.
 *
 * Consumers come and go; the seat stays for the life of the engine. Its `seat_state` says what the
 * engine knows of the consumer, and is written by rp_seat_transition alone (tests/tidy sees to it).
 * A seat has a position in each state: the batch that its consumer releases next, or gets first.
 *
 *   VACANT            no consumer has attached since the engine started; the position is the row
 *                     at which the engine started
 *   ATTACHED          a consumer is attached; the position is what it has released
 *   MIGRATING         its consumer was attached when another attach rebuilt the ring, and is on its
 *                     way to the new one. Only while that attach is served
 *   ABSENT_KNOWN      the consumer has left; the position is what it had released
 *   ABSENT_UNKNOWN    nobody is attached, and nobody knows which row the next consumer asks for
 *   FINISHED          the consumer has left after it had released the last batch of the stream
 *   FINISHED_UNKNOWN  as FINISHED, but it may come again, for an older row
 *
 * What each event does (- stands for a state in which it cannot happen, which is asserted):
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
 * What the engine assumes where it cannot know:
 *
 *   - A consumer that has left may be dead, or late. ABSENT_KNOWN assumes that it comes again at
 * its position, or not at all: checkpoints count what it has released, and the ring waits for it.
 *   - A consumer that attaches from a state token (ROLLBACK) may be the first of a whole job that
 *     restarts from that state, or may have restarted alone. Consumers that are absent may be part
 *     of that job; which batches they ask for is unknown until they attach, and no checkpoint
 *     counts what they had released. A consumer that is attached lives, and did not restart. One
 *     that never attached has released nothing that a checkpoint could count.
 *   - A consumer that attached in the present rollback epoch (the OWN events) and has finished may
 *     be done, while others of its job are late; or the job restarts a second time from the same
 *     state. Both look alike. The end of the stream does not wait for it (FINISHED_UNKNOWN), and no
 *     checkpoint counts on it.
 *   - A seat whose position the engine has changed for the sake of other consumers (MOVE: the ring
 *     went to another row; SKIP: they waited) holds a position of which its consumer knows nothing.
 *
 * Two facts are not part of the state, because each is of something that has a life of its own:
 *
 *   rollback_epoch  of the job: the epoch in which a consumer last attached here from a state
 *                   token, 0 for none. Invariant: at most the engine's; 0 while VACANT.
 *   reader_fd       of the ring's memory (shm/ring.h): the process that mapped it in this seat. It
 *                   may read its leases after its connection has ended, whatever the state says.
 *                   Invariant: not RP_PEER_NONE while ATTACHED. */
#ifndef RP_SERVER_SEAT_H
#define RP_SERVER_SEAT_H

#include "shm/ring.h"

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
    RP_SEAT_DETACH_CONSUMED, /* the same, and the stream has no batch that it did not release */
    RP_SEAT_MIGRATE,         /* its ring is rebuilt, and its connection closed for that */
    RP_SEAT_MIGRATE_END,     /* the attach for which its ring was rebuilt has been served */
    RP_SEAT_ROLLBACK,        /* another consumer has attached from a state token */
    RP_SEAT_ROLLBACK_OWN,    /* the same, in the epoch in which this seat's consumer attached */
    RP_SEAT_MOVE,            /* the engine has changed its position for another consumer */
    RP_SEAT_MOVE_OWN,        /* the same, in the epoch in which this seat's consumer attached */
    RP_SEAT_SKIP,            /* its position was advanced because others wait */
    RP_SEAT_REBUILD,         /* its ring has new memory */
    RP_SEAT_EVENTS
};

struct rp_seat {
    struct rp_ring *ring;
    uint32_t replica;
    enum rp_seat_state seat_state; /* written by rp_seat_transition alone */
    uint64_t rollback_epoch;       /* see above */
};

/** The table above: the state after the event, or RP_SEAT_STATES where it cannot happen. */
enum rp_seat_state rp_seat_next_state(enum rp_seat_state state, enum rp_seat_event event);
/** Asserts that the event can happen. */
void rp_seat_transition(struct rp_seat *seat, enum rp_seat_event event);
/** "ABSENT_KNOWN" and the like, for messages and tests. */
const char *rp_seat_state_name(enum rp_seat_state state);

static inline bool rp_seat_is_attached(const struct rp_seat *seat)
{
    return seat->seat_state == RP_SEAT_ATTACHED;
}
/** Is the position what the last consumer released, or the start row if there was none? */
static inline bool rp_seat_position_is_known(const struct rp_seat *seat)
{
    return seat->seat_state != RP_SEAT_ABSENT_UNKNOWN &&
           seat->seat_state != RP_SEAT_FINISHED_UNKNOWN;
}
/** May the position be advanced, because no consumer has released anything that counts? */
static inline bool rp_seat_may_be_skipped(const struct rp_seat *seat)
{
    return rp_seat_next_state(seat->seat_state, RP_SEAT_SKIP) != RP_SEAT_STATES;
}
/** The batch that its consumer releases next; where nobody is attached, that it gets first. */
static inline uint64_t rp_seat_position(const struct rp_seat *seat)
{
    return seat->ring->seats[seat->replica].release;
}
/** Has its ring no room for another batch because of this seat? */
static inline bool rp_seat_fills_ring(const struct rp_seat *seat)
{
    return rp_seat_position(seat) + seat->ring->geometry.slots == seat->ring->tail;
}

#define RP_SEAT_NAME_BYTES 40u
/** "rank 3", or where there are several "rank 3, replica 1". Returns text. */
const char *rp_seat_name(const struct rp_seat *seat, char text[RP_SEAT_NAME_BYTES]);

#endif
