/* SPDX-License-Identifier: Apache-2.0 */
/* atomic.h — words that two threads or two processes share.
 *
 * Plain integers in a struct, so that they cannot be touched without naming an order, and so that
 * the shared layouts compile as C11 and as C++17 alike (_Atomic does not). Every use names its
 * order.
 *
 * In the build for tests/sim each use is also a place where the simulator may let another thread
 * run or kill the process. */
#ifndef RP_BASE_ATOMIC_H
#define RP_BASE_ATOMIC_H

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
/* A full fence, for the store-then-load of the park protocol. ThreadSanitizer does not model fences
 * (it reports races that are none), so its build uses a read-modify-write on a dummy word, which is
 * stronger. */
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
