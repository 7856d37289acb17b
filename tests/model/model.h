/* SPDX-License-Identifier: Apache-2.0 */
/* model.h — the parts of a scenario of the model checker.
 *
 * The engine's own sources are compiled as for ThreadSanitizer, so that every access to memory and
 * every atomic operation calls a hook, and are linked with the checker instead of its runtime. The
 * checker runs a scenario again and again, each time with another choice of the next thread, of the
 * store that a load sees (of those that C11 allows), and of the place of a kill, until none is
 * left. Wrong is: two unordered accesses, at least one of them a write, a sleep for ever, a
 * requirement of the scenario that does not hold. */
#ifndef RP_TESTS_MODEL_H
#define RP_TESTS_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MODEL_THREADS 6u
#define MODEL_BELLS 4u
#define MODEL_KNOWN 3u
#define MODEL_BELL_FD 1000 /* write(2) to this descriptor + n rings bell n */

struct model_thread {
    const char *name;
    void (*run)(void);
    bool killable; /* by SIGKILL, at every access to shared memory and in its sleep */
    bool waits;    /* it is started by model_start, not at the beginning */
    bool rings;    /* bell 0 when it ends or is killed: as a socket's end wakes who polls it */
};

struct model_scenario {
    const char *name;
    void (*begin)(void); /* without threads, before every run */
    void (*end)(void);   /* when every thread has ended; may be NULL */
    struct model_thread threads[MODEL_THREADS];
    void *state; /* all that its threads keep outside of their stacks and of shared memory */
    size_t state_bytes;
    struct {
        void *at;
        size_t bytes;
    } known[MODEL_KNOWN]; /* further memory of theirs, whose contents follow from the state */
    unsigned kills;       /* in one run, at most */
    unsigned preemptions; /* most preemptions of runnable threads; twice in long; 0: no limit */
    bool timeouts;        /* if no other thread can run, a sleep may end by its timeout */
};

extern const struct model_scenario *const model_scenarios[]; /* ends with NULL */

#define MODEL_REQUIRE(e) ((e) ? (void)0 : model_fail("this does not hold: " #e))
void model_fail(const char *what);

/** Shared memory, zeroed, for this run. */
void *model_memory(size_t bytes);

/** A descriptor that is written to and polled: ringing and hearing go through the kernel. */
void model_bell_ring(unsigned bell);
void model_bell_wait(unsigned bell); /* until it has rung since the last wait */

/** Begin a thread of the scenario that `waits`. */
void model_start(unsigned thread);
/** Wait for the end of a thread; true if it was killed. As by waitpid, it is proof: all that the
 * thread has stored is seen from here on. */
bool model_wait_end(unsigned thread);
/** Whether it has ended: the kernel's answer, seen at once. */
bool model_has_ended(unsigned thread);

/** The scenario's. */
unsigned model_kills(void);

/** Larger scenarios are explored: more batches, more kills. */
extern bool model_long;

#endif
