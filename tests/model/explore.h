/* SPDX-License-Identifier: Apache-2.0 */
/* explore.h — between the hooks, which run on the threads of a scenario, and the explorer. */
#ifndef RP_TESTS_MODEL_EXPLORE_H
#define RP_TESTS_MODEL_EXPLORE_H

#include "model.h"

enum step_kind {
    STEP_LOAD,
    STEP_STORE,
    STEP_ADD,
    STEP_OR,
    STEP_SWAP,
    STEP_FENCE,
    STEP_WAKE,  /* futex */
    STEP_SLEEP, /* futex: value is the expected word, order whether there is a timeout */
    STEP_RING,
    STEP_HEAR,
    STEP_START,
    STEP_JOIN,
    STEP_LOOK, /* has a thread ended? */
    STEP_END,
    STEP_KINDS,
};

/* The next step of a thread, when it is its turn. Without padding: it is on a stack that is hashed.
 */
struct step {
    enum step_kind kind;
    int order; /* __ATOMIC_… */
    uint64_t bytes;
    const void *at; /* a word; of bells and threads the number is in value */
    uint64_t value;
    const void *site; /* where in the engine; explore_step sets it */
};

#define WEAKENED (-1) /* an order: none at all */

/** The number of a branch, below `count`. */
unsigned explore_choose(unsigned count);
/** A step is about to come: its site is noted, its order taken away if that was requested. */
void explore_note(struct step *step);
void explore_trace(unsigned thread, const struct step *step, uint64_t result);

/** Let the explorer choose; returns when it is this thread's turn and the step is done. */
uint64_t explore_step(struct step step);
/** Data, not atomic: checked at once; a process may be killed here. */
void explore_access(const void *at, size_t bytes, bool write);
/** A function is called from `site`, and returns. */
void explore_enter(const void *site);
void explore_leave(void);
/** Whether a thread of a scenario runs, and not `begin` or `end`. */
bool explore_in_thread(void);

#endif
