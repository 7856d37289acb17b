/* SPDX-License-Identifier: Apache-2.0 */
/* memory.h — C11's memory model as an operation: the stores that a load may see, the knowledge of a
 * thread.
 *
 * Every word keeps all stores it ever got, in modification order. A thread *knows* of each word the
 * oldest store that it may still see, and of each thread how far its accesses are ordered before
 * now. A release store carries its thread's knowledge; an acquire load of it adds that to the
 * reader's. A load picks any store that is not older than its thread's knowledge: stale reads,
 * delayed stores and reordering all come out of this. A fence joins its thread's knowledge with all
 * fences before.
 *
 * Modification order is the order of the stores in the run: that excludes no behaviour, as each
 * word has one writer at a time, or only read-modify-writes. Not covered: a store that is seen
 * before a load in front of it (load buffering); such a load of data is found as a race, though. */
#ifndef RP_TESTS_MODEL_MEMORY_H
#define RP_TESTS_MODEL_MEMORY_H

#include "model.h"

#define MODEL_WORDS 48u
#define MODEL_STORES 250u

struct knowledge {
    uint8_t seen[MODEL_WORDS];     /* index of a store */
    uint16_t clock[MODEL_THREADS]; /* steps of the other threads */
};

/* The knowledge of a thread; its reads that are not acquired; the part that its last fence lets it
 * publish. */
struct thread_memory {
    struct knowledge now, read, fenced;
};

/** Forget everything; zero the written words. */
void memory_reset(void);
/** Add the state of the shared memory to a snapshot. */
void memory_save(void);
/** Restore the snapshot, and the shared memory with it. */
void memory_restore(void);
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
/** Add or or: it sees the newest store. Returns the value before. */
uint64_t memory_change(struct thread_memory *m, unsigned self, unsigned word, uint64_t value,
                       bool replace, bool acquire, bool release);
void memory_fence(struct thread_memory *m, unsigned self);
/** Half of a fence: the fences of others are seen. */
void memory_look(struct thread_memory *m);
/** Through the kernel: all that `from` knows. */
void memory_learn(struct thread_memory *m, const struct knowledge *from);
/** Time has passed: the newest stores are seen, without an order. */
void memory_wait(struct thread_memory *m);
void memory_tell(struct knowledge *to, const struct thread_memory *m);

/** An access that is not atomic. Returns the fault, or NULL. */
const char *memory_access(struct thread_memory *m, unsigned self, const void *at, size_t bytes,
                          bool write);
/** It is written to in `begin`. */
void memory_touch(const void *at, size_t bytes);

/** A hash of all that decides the next steps: the values that can still be seen, and by which
 * threads, the data that is not yet ordered for a thread, and the contents. `active`: the knowledge
 * of the live threads; `others`: further knowledge to acquire (NULL: none). Numbers of stores and
 * of steps are left out as far as only their order matters, so that runs meet again. */
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
