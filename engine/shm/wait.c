/* SPDX-License-Identifier: Apache-2.0 */
/* wait.c — futexes are used without PRIVATE: most words are in memory that several processes map,
 * and waits on the others are too rare for the difference to show. */
#include "shm/wait.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cpus.h"
#include "base/fail.h"

#define RP_SPIN_PAUSES 4 /* between two polls: a round trip takes 210 ns with 4 and 560 with 16 */

void rp_futex_wait(const struct rp_a32 *word, uint32_t expected, uint64_t timeout_ns)
{
    RP_ASSERT((uintptr_t)word % sizeof *word == 0);
    struct timespec timeout = {(time_t)(timeout_ns / 1000000000u),
                               (long)(timeout_ns % 1000000000u)};
    if (timeout_ns)
        syscall(SYS_futex, &word->value, FUTEX_WAIT, expected, &timeout, NULL, 0);
}

void rp_futex_wake_all(const struct rp_a32 *word)
{
    RP_ASSERT((uintptr_t)word % sizeof *word == 0);
    syscall(SYS_futex, &word->value, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* PAIRS event: the waiter counts itself, fences and checks the condition; the signaller (below)
 * makes the condition true, fences and reads the count. At least one of them sees the other. */
uint32_t rp_event_prepare(struct rp_event *event)
{
    rp_a32_add_relaxed(&event->sleepers, 1);
    rp_fence_seq_cst();
    return rp_a32_load_acquire(&event->epoch);
}

void rp_event_cancel(struct rp_event *event)
{
    rp_a32_add_relaxed(&event->sleepers, UINT32_MAX);
}

void rp_event_sleep(struct rp_event *event, uint32_t ticket, uint64_t timeout_ns)
{
    rp_futex_wait(&event->epoch, ticket, timeout_ns);
    rp_a32_add_relaxed(&event->sleepers, UINT32_MAX);
}

void rp_event_signal(struct rp_event *event)
{
    rp_fence_seq_cst(); /* PAIRS event */
    if (rp_a32_load_relaxed(&event->sleepers) == 0)
        return;
    rp_a32_add_relaxed(&event->epoch, 1);
    rp_futex_wake_all(&event->epoch);
}

static inline void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory"); /* yield is a no-op on most cores */
#endif
}

/* On one CPU the peer cannot run while this thread spins, so a spin only delays it. The CPUs that
 * this process may keep busy are counted: in a container, or under a launcher that binds processes
 * to CPUs, trainers and engine share them; and under a quota worth one CPU a spin takes the peer's
 * time. */
static bool has_one_cpu(void)
{
    static struct rp_a32 cpus; /* 0 = not counted yet; every thread stores the same */
    uint32_t count = rp_a32_load_relaxed(&cpus);
    if (count == 0) {
        count = rp_cpus_allowed();
        RP_ASSERT(count > 0);
        rp_a32_store_relaxed(&cpus, count);
    }
    return count == 1;
}

bool rp_spin(uint32_t *spins, uint32_t limit_ns)
{
    if (has_one_cpu())
        return false;
    /* The low half is enough for microseconds; 0 means "not started". */
    uint32_t now = (uint32_t)rp_now_ns() | 1;
    if (*spins == 0) {
        *spins = now;
        return true;
    }
    for (int i = 0; i < RP_SPIN_PAUSES; i++)
        pause_cpu();
    return now - *spins < limit_ns;
}
