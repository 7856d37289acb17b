/* SPDX-License-Identifier: Apache-2.0 */
/* side_thread.h — a thread for calls that may hang on a disk without an answer: no other thread
 * waits for them.
 *
 * The thread uses one block of memory, which begins with a struct rp_side_thread. If it does not
 * end in time, it is left with that block, and frees it when its call returns; or the end of the
 * process ends both. */
#ifndef RP_BASE_SIDE_THREAD_H
#define RP_BASE_SIDE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct rp_side_thread {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool stop, has_ended, is_left; /* guarded by the mutex */
    void (*main)(struct rp_side_thread *side);
    void (*release)(struct rp_side_thread *side);
};

#define RP_SIDE_THREAD_FOREVER_NS (UINT64_C(1) << 62) /* 146 years */

/** Start side->main(side). side->release(side) frees the block when the thread has ended; NULL: the
 * caller does, after it has waited for the end forever. Returns 0, or -errno if no thread was
 * started. */
int rp_side_thread_start(struct rp_side_thread *side);
/** Called by the thread itself: sleep for `ns`, or until it is woken or has to end. True: it has to
 * end. */
bool rp_side_thread_sleep(struct rp_side_thread *side, uint64_t ns);
/** The same with the mutex held, before and after. */
bool rp_side_thread_sleep_locked(struct rp_side_thread *side, uint64_t ns);
/** End the thread, and wait for it at most `patience_ns`. The caller must not use a block that is
 * released after that. False: the thread was left, with side->is_left set. */
bool rp_side_thread_end(struct rp_side_thread *side, uint64_t patience_ns);

#endif
