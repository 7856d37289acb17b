/* SPDX-License-Identifier: Apache-2.0 */
/* life.h — the states of an engine, from its start to the end of its loop.
 *
 * Only rp_life_transition writes `life_state` (tests/tidy checks that).
 *
 *   STARTING         corpus, rings and flow are opened; no request is served
 *   RUNNING          batches are delivered
 *   FAILED           no batch will follow; published batches wait for consumers yet to attach
 *   STOPPING         batches are delivered until the last checkpoint is taken
 *   STOPPING_FAILED  as STOPPING, but no batch will follow
 *   DONE             the loop has ended
 *   DONE_FAILED      the loop has ended, or never began; the engine returns an error
 *
 * The state after each event (-: the event cannot happen in this state, which is asserted):
 *
 *          STARTING  RUNNING  FAILED   STOPPING  STOPPING_  DONE  DONE_
 *                                                FAILED           FAILED
 *   SERVE  run       -        -        -         -          -     -
 *   FAIL   done-f    failed   failed   stop-f    stop-f     -     -
 *   STOP   -         stop     stop-f   stop      stop-f     -     -
 *   END    -         -        -        done      done-f     -     -
 *
 * FAIL may happen twice, for instance if two packer processes crash: the engine returns the second
 * error. STOP may happen twice, for instance by a signal and the end of the lifeline: a checkpoint
 * is taken for each. A checkpoint can be requested until the last one has begun.
 *
 * Invariant: `code` is negative, and *error says why, if and only if the state is a failed one. */
#ifndef RP_SERVER_LIFE_H
#define RP_SERVER_LIFE_H

#include <stdbool.h>
#include <stdint.h>

#include "ringpack/error.h"

enum rp_life_state {
    RP_LIFE_STARTING,
    RP_LIFE_RUNNING,
    RP_LIFE_FAILED,
    RP_LIFE_STOPPING,
    RP_LIFE_STOPPING_FAILED,
    RP_LIFE_DONE,
    RP_LIFE_DONE_FAILED,
    RP_LIFE_STATES /* also: no state */
};

enum rp_life_event {
    RP_LIFE_SERVE, /* trainers can attach */
    RP_LIFE_FAIL,  /* no batch will follow, or the last checkpoint is missing or bad */
    RP_LIFE_STOP,  /* the engine is to end, after a last checkpoint if it has a directory */
    RP_LIFE_END,   /* no checkpoint is due or under way, and token files were checked */
    RP_LIFE_EVENTS
};

/* The reason of a shutdown: the first one, if there are several. */
enum rp_shutdown {
    RP_SHUTDOWN_NONE,
    RP_SHUTDOWN_SIGNAL,
    RP_SHUTDOWN_REQUEST,  /* a peer on the socket requested it */
    RP_SHUTDOWN_LIFELINE, /* the process that started the engine has ended */
    RP_SHUTDOWN_STREAM,   /* every rank has had all batches */
    RP_SHUTDOWN_FAILURE
};

struct rp_engine_life {
    enum rp_life_state life_state; /* written only by rp_life_transition */
    enum rp_shutdown shutdown;
    int code;               /* the result of rp_engine_run */
    bool stage_ended;       /* the result is RP_ENGINE_STAGE_ENDED in place of 0 */
    struct rp_error *error; /* explains a negative code */
    /* Moments of CLOCK_MONOTONIC; 0: not yet. */
    uint64_t lifeline_ended_ns;
    uint64_t failed_ns;
    uint64_t absent_since_ns; /* the engine has waited only for absent seats since then */
};

/** The state after the event, by the table above; RP_LIFE_STATES if the event cannot happen. */
enum rp_life_state rp_life_next_state(enum rp_life_state state, enum rp_life_event event);
/** Set the state to the one after the event. Asserts that the event can happen. */
void rp_life_transition(struct rp_engine_life *life, enum rp_life_event event);
/** The event FAIL: the engine returns `code`, which *life->error explains. */
void rp_life_fail(struct rp_engine_life *life, int code);

static inline bool rp_life_is_running(const struct rp_engine_life *life)
{
    return life->life_state == RP_LIFE_RUNNING;
}
static inline bool rp_life_has_failed(const struct rp_engine_life *life)
{
    return life->life_state == RP_LIFE_FAILED || life->life_state == RP_LIFE_STOPPING_FAILED ||
           life->life_state == RP_LIFE_DONE_FAILED;
}
/** Does the engine take its last checkpoint, or has it ended? */
static inline bool rp_life_is_ending(const struct rp_engine_life *life)
{
    return life->life_state >= RP_LIFE_STOPPING;
}
static inline bool rp_life_is_done(const struct rp_engine_life *life)
{
    return life->life_state >= RP_LIFE_DONE;
}

#endif
