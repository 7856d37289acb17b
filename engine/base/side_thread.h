/* SPDX-License-Identifier: Apache-2.0 */
/* side_thread.h — a thread beside the engine for calls that may hang on a disk that does not
 * answer, so that nobody waits for them.
 *
 * What the thread uses is in one block of memory that begins with a struct rp_side_thread. A thread
 * that is told to end and does not in time is left alone with that block, and frees it when its
 * call returns; or the end of the process ends both. */
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

/** Start side->main(side). side->release(side) frees the block when the thread has ended. Returns
 * 0, or -errno, and then nothing is to be ended. */
int rp_side_thread_start(struct rp_side_thread *side);
/** Of the thread itself: sleep for `ns`, or until it is woken or told to end. True: it is to end.
 */
bool rp_side_thread_sleep(struct rp_side_thread *side, uint64_t ns);
/** The same with the mutex held, before and after. */
bool rp_side_thread_sleep_locked(struct rp_side_thread *side, uint64_t ns);
/** Tell the thread to end, and wait for it, but not for longer than `patience_ns`. The block is not
 * the caller's any more. False: the thread was left, with side->is_left set. */
bool rp_side_thread_end(struct rp_side_thread *side, uint64_t patience_ns);

#endif
