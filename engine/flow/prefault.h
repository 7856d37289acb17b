/* SPDX-License-Identifier: Apache-2.0 */
/* prefault.h — the prefaulter: a thread that makes the pages of the prefetch ring, once the first
 * batch has been delivered.
 *
 * Zeroing 64 MiB takes 4 ms, and 50 to 300 ms in a virtual machine that has given its free memory
 * back to the host. The first batch needs few of these pages, and the kernel zeroes a page at its
 * first touch if the prefaulter has not reached it yet. Prefaulting earlier would delay every
 * thread that maps memory. Readers register the memory with the kernel once all of it is resident.
 *
 * If prefaulting fails, the engine is woken, and rp_prefault_check returns the error. If no thread
 * can be started, the caller's thread prefaults. */
#ifndef RP_FLOW_PREFAULT_H
#define RP_FLOW_PREFAULT_H

#include <pthread.h>
#include <stdbool.h>

#include "flow/ticket.h"

struct rp_prefault {
    struct rp_arena *arena;
    int wake_fd; /* eventfd of the engine */
    pthread_t thread;
    bool started, has_thread;
    struct rp_a32 failed; /* PAIRS prefault-failed */
    struct rp_error error;
};

RP_MUST_CHECK int rp_prefault_start(struct rp_prefault *prefault, struct rp_arena *arena,
                                    int wake_fd, struct rp_error *error);
/** 0, or the error that has ended the prefaulting. */
RP_MUST_CHECK int rp_prefault_check(const struct rp_prefault *prefault, struct rp_error *error);
/** Wait until the prefaulting is done. */
void rp_prefault_join(struct rp_prefault *prefault);

#endif
