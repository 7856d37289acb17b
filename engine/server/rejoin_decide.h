/* SPDX-License-Identifier: Apache-2.0 */
/* rejoin_decide.h — where a consumer that attaches gets its first batch, and what that means for
 * the rings: a pure function of a few facts. rejoin.c gathers the facts and carries out the
 * decision.
 *
 * Rows and batches. A consumer asks for a row of the stream. The engine counts batches from
 * `base_row`: batch k begins at row base_row + k * batch_rows. A row is *numbered* if a batch
 * begins there. Steps begin at base_row, and at every step_rows-th row from it.
 *
 * The row asked for. A consumer that names a row gets that row. One that brings a state token and
 * names none gets the row of the token; but behind the last row the state does not change while
 * padding fills the step, so a token of the end of the stream does not tell how much padding its
 * consumer has had. If nobody else is attached, the stream is finished for it: it gets no batch,
 * and is placed behind that step. Beside others it ends with them: the seat's position is taken if
 * it is in that step, else the first batch behind the last row. A consumer that brings neither goes
 * on at the seat's position; if that is unknown (seat.h) it gets the row at which the engine
 * started, because it has released nothing.
 *
 * The action:
 *
 *   KEEP         the ring has the batch, or will have it next, and no earlier consumer of this seat
 *                can still read the ring's memory: nothing changes
 *   REBUILD      the ring gets new memory and a copy of its unreleased batches. This seat is at the
 *                batch asked for, the others stay where they are, and attached ones migrate. If the
 *                batch was released already the new ring begins there, and has no batches yet
 *   MOVE_RING    the ring gets new memory, and all of its seats are at the batch asked for, which
 * is behind its last one. Nobody is attached to it MOVE_ALL     all rings get new memory and are at
 * the row asked for. Nobody is attached. Batches are counted from a new base row unless the row is
 * numbered already REFUSE       nothing changes
 *
 * While another consumer is attached, batches are counted as before, so rows that are not numbered
 * are refused; and so are state tokens of a stream whose weights changed at other rows.
 *
 * Steps begin where the consumers count them, so that the engines of all nodes agree: a consumer
 * that names its row was attached to an earlier engine or ring, and sends a row at which a step
 * began (a step_row that cannot be one is ignored); else a state token that is brought to an engine
 * before any consumer of that engine has released a batch begins a step. */
#ifndef RP_SERVER_REJOIN_DECIDE_H
#define RP_SERVER_REJOIN_DECIDE_H

#include <stdbool.h>
#include <stdint.h>

/* Of the token of a consumer, compared with the stream that is served. UNKNOWN: its row is too far
 * from those whose states are at hand. */
enum rp_stream_of { RP_STREAM_OURS, RP_STREAM_OTHER, RP_STREAM_UNKNOWN };

/* What follows the row of a state token. */
enum rp_token_follows {
    RP_FOLLOWS_NO_TOKEN, /* there is no token */
    RP_FOLLOWS_ROW,      /* a row */
    RP_FOLLOWS_END,      /* nothing: the token is of the end of the stream */
    RP_FOLLOWS_DAMAGE    /* a row whose index entry cannot be read */
};

/* What the decision depends on, and nothing else does. */
struct rp_rejoin_facts {
    /* of the engine */
    uint64_t base_row, start_row;
    uint64_t batch_rows, step_rows; /* step_rows is a multiple of batch_rows */
    bool has_failed;                /* it publishes nothing any more */
    bool has_consumed;              /* a consumer that has left had released a batch */
    bool has_consumer;              /* now, at any ring */

    /* of the ring */
    bool ring_has_consumer; /* in another seat */
    uint64_t release, tail;
    uint64_t lowest_other; /* position of its other seats, or UINT64_MAX */

    /* of the seat */
    bool position_is_known;
    bool memory_may_be_read; /* of the ring, by the process of the seat's last consumer */
    uint64_t position;

    /* of the request */
    bool names_row;
    uint64_t row;      /* named, or the token's; RP_NEXT_ROW_ANY where there is neither */
    uint64_t step_row; /* where a step began, or any other number */
    enum rp_token_follows follows;
    enum rp_stream_of stream; /* OURS without a token */
};

enum rp_placement_action {
    RP_PLACEMENT_REFUSE,
    RP_PLACEMENT_KEEP,
    RP_PLACEMENT_REBUILD,
    RP_PLACEMENT_MOVE_RING,
    RP_PLACEMENT_MOVE_ALL
};

enum rp_refusal {
    RP_REFUSAL_NONE,
    RP_REFUSAL_FAILED,       /* the engine has failed: it makes no ring, and publishes nothing */
    RP_REFUSAL_OTHER_STREAM, /* others are attached to a stream with other weights */
    RP_REFUSAL_NOT_NUMBERED  /* others are attached, and no batch of theirs begins at the row */
};

struct rp_placement {
    enum rp_placement_action action;
    enum rp_refusal refusal; /* of REFUSE */
    uint64_t row;            /* the row asked for */
    uint64_t base_row;       /* as batches are counted from now on */
    uint64_t batch;          /* row = base_row + batch * batch_rows, but for NOT_NUMBERED */
    bool begins_stream;      /* the token's state is the start of the stream from now on */
    bool forgets_contents;   /* a checkpoint's prefetched rows may be of another stream */
};

struct rp_placement rp_rejoin_decide(const struct rp_rejoin_facts *facts);

#endif
