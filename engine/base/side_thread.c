/* SPDX-License-Identifier: Apache-2.0 */
#include "base/side_thread.h"

#include <errno.h>
#include <time.h>

#include "base/clock.h"
#include "base/cond.h"
#include "base/thread.h"

#define SECOND_NS UINT64_C(1000000000)

static struct timespec moment(uint64_t after_ns)
{
    uint64_t at = rp_now_ns() + after_ns;
    return (struct timespec){(time_t)(at / SECOND_NS), (long)(at % SECOND_NS)};
}

static void destroy(struct rp_side_thread *side)
{
    pthread_cond_destroy(&side->changed);
    pthread_mutex_destroy(&side->mutex);
}

static void release(struct rp_side_thread *side)
{
    destroy(side);
    if (side->release)
        side->release(side);
}

static void *thread_main(void *argument)
{
    struct rp_side_thread *side = argument;
    side->main(side);
    pthread_mutex_lock(&side->mutex);
    side->has_ended = true;
    bool is_left = side->is_left;
    pthread_cond_broadcast(&side->changed);
    pthread_mutex_unlock(&side->mutex);
    if (is_left)
        release(side);
    return NULL;
}

int rp_side_thread_start(struct rp_side_thread *side)
{
    rp_cond_init(&side->changed);
    pthread_mutex_init(&side->mutex, NULL);
    side->stop = side->has_ended = side->is_left = false;
    int failed = rp_thread_start(&side->thread, thread_main, side);
    if (failed)
        destroy(side);
    return -failed;
}

bool rp_side_thread_sleep_locked(struct rp_side_thread *side, uint64_t ns)
{
    struct timespec until = moment(ns);
    if (!side->stop)
        (void)pthread_cond_timedwait(&side->changed, &side->mutex, &until);
    return side->stop;
}

bool rp_side_thread_sleep(struct rp_side_thread *side, uint64_t ns)
{
    pthread_mutex_lock(&side->mutex);
    bool stop = rp_side_thread_sleep_locked(side, ns);
    pthread_mutex_unlock(&side->mutex);
    return stop;
}

bool rp_side_thread_end(struct rp_side_thread *side, uint64_t patience_ns)
{
    struct timespec until = moment(patience_ns);
    pthread_mutex_lock(&side->mutex);
    side->stop = true;
    pthread_cond_broadcast(&side->changed);
    int waited = 0;
    while (!side->has_ended && waited != ETIMEDOUT)
        waited = pthread_cond_timedwait(&side->changed, &side->mutex, &until);
    bool has_ended = side->has_ended;
    pthread_t thread = side->thread; /* a thread that is left may free *side from now on */
    side->is_left = !has_ended;
    pthread_mutex_unlock(&side->mutex);
    if (!has_ended) {
        pthread_detach(thread);
        return false;
    }
    pthread_join(thread, NULL);
    release(side);
    return true;
}
