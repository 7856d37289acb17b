/* SPDX-License-Identifier: Apache-2.0 */
/* wait.h — futexes and events. The only callers of futex(2) are in wait.c.
 *
 * A waiter sleeps only if it has no work, and a signal is a syscall only if a waiter sleeps. */
#ifndef RP_SHM_WAIT_H
#define RP_SHM_WAIT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/atomic.h"

/** Sleep while the 32-bit word still holds `expected`, at most timeout_ns (0 = not at all). Works
 * on read-only mappings and across processes. Spurious returns are normal: the caller checks again.
 */
void rp_futex_wait(const struct rp_a32 *word, uint32_t expected, uint64_t timeout_ns);
void rp_futex_wake_all(const struct rp_a32 *word);
/* The low half of a 64-bit word, as a futex word. */
static inline const struct rp_a32 *rp_a64_low(const struct rp_a64 *word)
{
    return (const struct rp_a32 *)(const void *)word;
}

/* An event that many may wait for and many may signal, in private or shared memory. `sleepers` is a
 * hint: a waiter killed in its sleep leaves it too high, which only costs needless syscalls. */
struct rp_event {
    struct rp_a32 epoch;
    struct rp_a32 sleepers;
};
/** Use: ticket = rp_event_prepare(e); if (condition) rp_event_cancel(e); else rp_event_sleep(e,
 * ticket, ns). */
uint32_t rp_event_prepare(struct rp_event *event);
void rp_event_cancel(struct rp_event *event);
void rp_event_sleep(struct rp_event *event, uint32_t ticket, uint64_t timeout_ns);
/** The second half of that use, with a bound on the harm of a wake-up that is lost. */
static inline void rp_event_sleep_unless(struct rp_event *event, uint32_t ticket, bool condition)
{
    if (condition)
        rp_event_cancel(event);
    else
        rp_event_sleep(event, ticket, 100000000);
}
/** Call after the stores that make the condition true. */
void rp_event_signal(struct rp_event *event);

#define RP_SPIN_NS 20000u /* about the cost of a sleep and a wake-up */
/** One step of a spin of limit_ns in total: returns true while it is worth spinning on. *spins
 * starts at 0. On a machine with one CPU it never spins. */
bool rp_spin(uint32_t *spins, uint32_t limit_ns);

#endif
