/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"

#include <errno.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"

#define PAUSE_MIN_NS UINT64_C(5000000)
#define PAUSE_MAX_NS UINT64_C(200000000)

uint64_t rp_thread_patience_ns = UINT64_C(5000000000);

bool rp_thread_again(struct rp_thread_tries *tries, int failed)
{
    if (failed != EAGAIN)
        return false;
    uint64_t now = rp_now_ns();
    if (!tries->pause_ns)
        *tries = (struct rp_thread_tries){.began_ns = now, .pause_ns = PAUSE_MIN_NS};
    if (now - tries->began_ns >= rp_thread_patience_ns)
        return false;
    rp_sleep_ns(tries->pause_ns);
    tries->pause_ns = rp_min_u64(2 * tries->pause_ns, PAUSE_MAX_NS);
    return true;
}

int rp_thread_try(pthread_t *thread, void *(*main)(void *), void *argument)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    int failed = pthread_attr_setstacksize(&attributes, RP_STACK_BYTES);
    if (!failed)
        failed = pthread_create(thread, &attributes, main, argument);
    pthread_attr_destroy(&attributes);
    return failed;
}

int rp_thread_start(pthread_t *thread, void *(*main)(void *), void *argument)
{
    struct rp_thread_tries tries = {0};
    int failed;
    do
        failed = rp_thread_try(thread, main, argument);
    while (rp_thread_again(&tries, failed));
    return failed;
}

pid_t rp_fork(void)
{
    struct rp_thread_tries tries = {0};
    pid_t pid;
    do
        pid = fork();
    while (pid < 0 && rp_thread_again(&tries, errno));
    return pid;
}
