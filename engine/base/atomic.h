/* SPDX-License-Identifier: Apache-2.0 */
/* atomic.h — words that threads or processes share.
 *
 * They are plain integers in a struct, so that they are accessed only by functions that name a
 * memory order, and so that the shared layouts compile as C11 and as C++17 (_Atomic does not).
 *
 * In the build for tests/sim, the simulator may run another thread or kill the process at each use.
 */
#ifndef RP_BASE_ATOMIC_H
#define RP_BASE_ATOMIC_H

#include <stdbool.h>
#include <stdint.h>

#ifdef RP_SIMULATION
void rp_simulation_step(void);
#else
#define rp_simulation_step() ((void)0)
#endif

struct rp_a32 {
    uint32_t value;
};
struct rp_a64 {
    uint64_t value;
};

static inline uint32_t rp_a32_load_relaxed(const struct rp_a32 *a)
{
    rp_simulation_step();
    return __atomic_load_n(&a->value, __ATOMIC_RELAXED);
}
static inline uint32_t rp_a32_load_acquire(const struct rp_a32 *a)
{
    rp_simulation_step();
    return __atomic_load_n(&a->value, __ATOMIC_ACQUIRE);
}
static inline void rp_a32_store_relaxed(struct rp_a32 *a, uint32_t v)
{
    rp_simulation_step();
    __atomic_store_n(&a->value, v, __ATOMIC_RELAXED);
}
static inline void rp_a32_store_release(struct rp_a32 *a, uint32_t v)
{
    rp_simulation_step();
    __atomic_store_n(&a->value, v, __ATOMIC_RELEASE);
}
static inline uint32_t rp_a32_add_relaxed(struct rp_a32 *a, uint32_t v)
{
    rp_simulation_step();
    return __atomic_fetch_add(&a->value, v, __ATOMIC_RELAXED);
}
static inline uint32_t rp_a32_exchange_acquire(struct rp_a32 *a, uint32_t v)
{
    rp_simulation_step();
    return __atomic_exchange_n(&a->value, v, __ATOMIC_ACQUIRE);
}
static inline uint64_t rp_a64_load_relaxed(const struct rp_a64 *a)
{
    rp_simulation_step();
    return __atomic_load_n(&a->value, __ATOMIC_RELAXED);
}
static inline uint64_t rp_a64_load_acquire(const struct rp_a64 *a)
{
    rp_simulation_step();
    return __atomic_load_n(&a->value, __ATOMIC_ACQUIRE);
}
static inline void rp_a64_store_relaxed(struct rp_a64 *a, uint64_t v)
{
    rp_simulation_step();
    __atomic_store_n(&a->value, v, __ATOMIC_RELAXED);
}
static inline void rp_a64_store_release(struct rp_a64 *a, uint64_t v)
{
    rp_simulation_step();
    __atomic_store_n(&a->value, v, __ATOMIC_RELEASE);
}
static inline uint64_t rp_a64_or_relaxed(struct rp_a64 *a, uint64_t v)
{
    rp_simulation_step();
    return __atomic_fetch_or(&a->value, v, __ATOMIC_RELAXED);
}
static inline uint64_t rp_a64_and_relaxed(struct rp_a64 *a, uint64_t v)
{
    rp_simulation_step();
    return __atomic_fetch_and(&a->value, v, __ATOMIC_RELAXED);
}
static inline uint64_t rp_a64_add_relaxed(struct rp_a64 *a, uint64_t v)
{
    rp_simulation_step();
    return __atomic_fetch_add(&a->value, v, __ATOMIC_RELAXED);
}
/* Store v if the word is *expected; else load the word into *expected. */
static inline bool rp_a64_replace(struct rp_a64 *a, uint64_t *expected, uint64_t v)
{
    rp_simulation_step();
    return __atomic_compare_exchange_n(&a->value, expected, v, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE);
}
/* A full fence, for a store that must be visible before a later load (shm/wait.c). ThreadSanitizer
 * does not model fences and would report false races, so its build uses a read-modify-write of a
 * dummy word, which is stronger. */
static inline void rp_fence_seq_cst(void)
{
    rp_simulation_step();
#if defined(__SANITIZE_THREAD__)
    static uint32_t dummy;
    (void)__atomic_fetch_add(&dummy, 0, __ATOMIC_SEQ_CST);
#else
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

#endif
