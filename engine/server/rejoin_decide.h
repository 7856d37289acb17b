/* SPDX-License-Identifier: Apache-2.0 */
/* rejoin_decide.h — decides the first batch of a consumer that attaches, and the changes to the
 * rings: a function of a few facts, whose only effect is on the numbering `trial`. rejoin.c gathers
 * the facts and applies the decision.
 *
 * Rows and batches. A consumer requests a row of the stream. The engine numbers batches and steps
 * (base/numbering.h). A row is *numbered* if a batch begins there.
 *
 * The requested row (enum rp_requested_by):
 *
 *   ROW      The row that it names.
 *   TOKEN    The row of the token. But the last step is filled with padding, which does not change
 *            the state; so a token of the end of the stream leaves open how much padding its
 *            consumer has released. If no other consumer is attached, the stream is finished for
 *            this one: it is placed after that step, and gets no batch. If others are attached, it
 *            ends with them. It is placed at the first of these that is in the padding of that
 *            step, or at its end: the seat's position; the lowest position of the others; the
 *            first batch after the last row.
 *   NOTHING  The seat's position; if that is unknown (seat.h), the start row of the engine,
 *            because this consumer has released nothing.
 *
 * The first line of this table whose conditions all hold has the action. "In the ring": the ring
 * has the batch, or will have it without a change, for the numbering and the stream as they are
 * (is_in_ring). "May be read": an earlier consumer of this seat may still read the ring, or
 * its header has an earlier contract.
 *
 *   engine      batch          memory        other consumers          action
 *   ----------  -------------  ------------  -----------------------  -------------------------
 *   any         in the ring    not read      any                      KEEP
 *   has failed  any            any           any                      REFUSE: FAILED
 *   runs        in the ring    may be read   any                      REBUILD
 *   runs        other stream   any           IN_RING or ELSEWHERE     REFUSE: OTHER_STREAM
 *   runs        not numbered   any           IN_RING or ELSEWHERE     REFUSE: NOT_NUMBERED
 *   runs        above tail     any           ELSEWHERE                MOVE_RING
 *   runs        any            any           IN_RING or ELSEWHERE     REBUILD
 *   runs        any            any           NONE                     MOVE_ALL
 *
 *   KEEP       Rings and seats stay as they are.
 *   REBUILD    The ring gets new memory and a copy of its unreleased batches. This seat's position
 *              is the requested batch. The ring's other seats keep theirs; those that are attached
 *              migrate. If the batch was released already, the new ring begins at it, without any
 *              batch.
 *   MOVE_RING  The ring gets new memory, and the position of all its seats is the requested batch,
 *              which is higher than any batch of the ring. No consumer is attached to the ring.
 *   MOVE_ALL   All rings get new memory and begin at the requested row. No consumer is attached to
 *              any. Batches are numbered anew unless the row is numbered already.
 *   REFUSE     Rings and seats stay as they are.
 *
 * While another consumer is attached, batches are counted as before. A row that is not numbered is
 * refused then, and so is a state token of a stream whose weights changed at other rows.
 *
 * The engines of all nodes must begin steps at the same rows, so the consumers decide where a step
 * begins:
 *
 *   - A consumer that names its row was attached before, to an earlier engine or ring. It also
 *     sends the first row of a step; a step_row that cannot be one is ignored.
 *   - A state token that comes without a named row begins a step, if no consumer of this engine has
 *     released a batch yet. */
#ifndef RP_SERVER_REJOIN_DECIDE_H
#define RP_SERVER_REJOIN_DECIDE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/numbering.h"

/* Is a consumer's state token of the stream that is served? UNKNOWN: the token's row is too far
 * from every row whose state is known. */
enum rp_stream_of { RP_STREAM_OURS, RP_STREAM_OTHER, RP_STREAM_UNKNOWN };

/* The kind of request decides which of its other fields have a value:
 *
 *              row          step_row                         follows, stream
 *   NOTHING    ROW_ANY      unused                           NO_TOKEN, OURS
 *   TOKEN      the token's  unused                           of the token
 *   ROW        named        the first row of a step;         of the token that it sends as well;
 *                           not trusted                      without one NO_TOKEN, OURS */
enum rp_requested_by { RP_BY_NOTHING, RP_BY_TOKEN, RP_BY_ROW };

/* Which consumers are attached already. */
enum rp_others {
    RP_OTHERS_NONE,
    RP_OTHERS_ELSEWHERE, /* to other rings only */
    RP_OTHERS_IN_RING    /* to another seat of this ring, and perhaps to other rings */
};

/* The successor of a state token's row. */
enum rp_token_follows {
    RP_FOLLOWS_NO_TOKEN, /* there is no token */
    RP_FOLLOWS_ROW,      /* a row */
    RP_FOLLOWS_END,      /* none: the token is of the end of the stream */
    RP_FOLLOWS_DAMAGE    /* a row whose index entry cannot be read */
};

/* All inputs of the decision. */
struct rp_rejoin_facts {
    /* the engine's */
    const struct rp_numbering *numbering;
    /* Has the same stages. If the decision renumbers, `trial` is the new numbering afterwards */
    struct rp_numbering *trial;
    uint64_t start_row;
    bool has_failed;   /* the engine publishes no more batches */
    bool has_consumed; /* some consumer released a batch and has detached */
    enum rp_others others;
    uint64_t lowest_attached; /* their lowest position; UINT64_MAX if and only if others is NONE */

    /* the ring's */
    uint64_t release, tail;
    uint64_t lowest_other; /* the lowest position of its other seats, or UINT64_MAX */

    /* the seat's */
    bool position_is_known;
    bool memory_may_be_read; /* or its header has an earlier contract */
    uint64_t position;

    /* the request's */
    enum rp_requested_by requested_by;
    uint64_t row, step_row;
    enum rp_token_follows follows;
    enum rp_stream_of stream;
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
    RP_REFUSAL_FAILED,       /* a failed engine makes no ring and publishes no batch */
    RP_REFUSAL_OTHER_STREAM, /* others are attached to a stream with other weights */
    RP_REFUSAL_NOT_NUMBERED  /* others are attached, and no batch begins at the row */
};

struct rp_placement {
    enum rp_placement_action action;
    enum rp_refusal refusal; /* the reason of REFUSE */
    uint64_t row;            /* the requested row */
    bool renumbers;          /* with MOVE_ALL: a step begins at step_row from now on */
    uint64_t step_row;       /* if it renumbers */
    uint64_t batch;          /* that begins at the row; unset for NOT_NUMBERED */
    bool begins_stream;      /* the token's state is the start of the stream from now on */
    bool forgets_contents;   /* a checkpoint's prefetched rows may be of another stream */
};

struct rp_placement rp_rejoin_decide(const struct rp_rejoin_facts *facts);

#endif
