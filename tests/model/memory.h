/* SPDX-License-Identifier: Apache-2.0 */
/* memory.h — C11's memory model as an operation: what a load may see, what a thread knows.
 *
 * Every word keeps all stores it ever got, in modification order. A thread *knows* of each word the
 * oldest store that it may still see, and of each thread how far what it did is ordered before now.
 * A release store carries what its thread knows; an acquire load of it adds that to the reader's. A
 * load picks any store that is not older than what its thread knows: stale reads, delayed stores
 * and reordering all come out of this. A fence joins what its thread knows with all fences before.
 *
 * Modification order is the order in which stores are made: nothing is lost by that, as each word
 * has one writer at a time, or only read-modify-writes. Not covered: a store that is seen before a
 * load in front of it (load buffering); such a load of data is found as a race, though. */
#ifndef RP_TESTS_MODEL_MEMORY_H
#define RP_TESTS_MODEL_MEMORY_H

#include "model.h"

#define MODEL_WORDS 48u
#define MODEL_STORES 250u

struct knowledge {
    uint8_t seen[MODEL_WORDS];     /* index of a store */
    uint16_t clock[MODEL_THREADS]; /* of the other threads' steps */
};

/* What a thread knows; what it has read but not acquired; what its last fence lets it publish. */
struct thread_memory {
    struct knowledge now, read, fenced;
};

/** Forget everything; zero what was written. */
void memory_reset(void);
void memory_start_thread(struct thread_memory *m, unsigned self, const struct thread_memory *from);
bool memory_is_shared(const void *at);

/* The index of a word, by its address. */
unsigned memory_word(const void *at, unsigned bytes);
/** Stores that a load may see: `*oldest` .. the number returned, less one. */
unsigned memory_stores(const struct thread_memory *m, unsigned word, unsigned *oldest);
uint64_t memory_load(struct thread_memory *m, unsigned self, unsigned word, unsigned store,
                     bool acquire);
void memory_store(struct thread_memory *m, unsigned self, unsigned word, uint64_t value,
                  bool release);
/** Add or or: the newest store is what it sees. Returns the value before. */
uint64_t memory_change(struct thread_memory *m, unsigned self, unsigned word, uint64_t value,
                       bool replace, bool acquire, bool release);
void memory_fence(struct thread_memory *m, unsigned self);
/** Half of a fence: what others have fenced is seen. */
void memory_look(struct thread_memory *m);
/** Through the kernel: all that `from` knows. */
void memory_learn(struct thread_memory *m, const struct knowledge *from);
/** Time has passed: the newest stores are seen, but order nothing. */
void memory_wait(struct thread_memory *m);
void memory_tell(struct knowledge *to, const struct thread_memory *m);

/** An access that is not atomic. Returns what is wrong with it, or NULL. */
const char *memory_access(struct thread_memory *m, unsigned self, const void *at, size_t bytes,
                          bool write);
/** It is written to in `begin`. */
void memory_touch(const void *at, size_t bytes);

/** A hash of all that decides what happens next: the values that can still be seen, who can see
 * which, what of the data is not ordered for whom, and the contents. `active`: what the threads
 * know that go on; `others`: what else can be learnt (NULL: nothing). Numbers of stores and of
 * steps are left out as far as only their order matters, so that runs meet again. */
uint64_t memory_hash(const struct knowledge *const *active, unsigned active_count,
                     const struct knowledge *const *others, unsigned other_count);
static inline uint64_t model_mix(uint64_t a, uint64_t b)
{
    uint64_t x = (a ^ b) * UINT64_C(0x9e3779b97f4a7c15) + b;
    x ^= x >> 29;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    return x ^ x >> 32;
}

#endif
