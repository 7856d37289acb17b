/* SPDX-License-Identifier: Apache-2.0 */
/* threads.h — the threads of a scenario, and one step of one of them. */
#ifndef RP_TESTS_MODEL_THREADS_H
#define RP_TESTS_MODEL_THREADS_H

#include <setjmp.h>

#include "explore.h"
#include "memory.h"

#define STACK_BYTES (256u << 10)
#define DEPTH 64u /* depth of calls */

enum life { NOT_STARTED, READY, ASLEEP, WOKEN, ENDED, KILLED };

struct thread {
    jmp_buf at;
    enum life life;
    struct step step; /* the next one */
    uint64_t result;
    const uint8_t *stack; /* from here on its frames are hashed, and */
    uint8_t *lowest;      /* from here on it is in use */
    struct thread_memory memory;
    const void *callers[DEPTH];
    unsigned depth;
};

struct bell {
    unsigned rung;
    struct knowledge told;
};

/* Everything of one run. */
struct run {
    const struct model_scenario *scenario;
    struct thread threads[MODEL_THREADS];
    struct bell bells[MODEL_BELLS];
    unsigned thread_count, kills_left, preemptions_left;
    unsigned last;       /* the thread that had its turn */
    const char *failure; /* the fault */
};
extern struct run model_run;

/** The place of the threads' stacks. */
extern uint8_t model_stacks[MODEL_THREADS][STACK_BYTES];

void thread_start(unsigned index, const struct thread_memory *from);
bool thread_can_go(const struct thread *t);
/** The next step of a thread, and on to the one after it. */
void thread_take_turn(unsigned index);
void thread_kill(struct thread *t);
/** Add its stack to a snapshot. */
void thread_save(unsigned index);

#endif
