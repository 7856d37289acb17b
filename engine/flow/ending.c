/* SPDX-License-Identifier: Apache-2.0 */
#include "flow/ending.h"

#include <sys/prctl.h>

#include "base/file.h"
#include "base/thread.h"
#include "flow/descriptors.h"

static void *ender_main(void *argument)
{
    struct rp_flow *ended = argument;
    prctl(PR_SET_NAME, "end");
    rp_flow_join_threads(ended);
    rp_a32_store_release(&ended->has_ended, 1); /* PAIRS flow-ended */
    rp_fd_wake(ended->wake_fd);
    return NULL;
}

/* Wait for its threads, and free it. */
static void finish(struct rp_flow *flow, struct rp_flow *ended)
{
    if (ended->has_ender)
        pthread_join(ended->ender, NULL);
    else
        rp_flow_join_threads(ended);
    if (flow->caught_up_error.code == 0)
        (void)!rp_revalidation_result(&ended->revalidation, &flow->caught_up_error);
    rp_flow_add_counts(ended, &flow->earlier_counts);
    rp_flow_free(ended);
}

void rp_ending_begin(struct rp_flow *flow, struct rp_flow *ended)
{
    uint32_t i = 0;
    while (i < RP_ENDINGS_MAX && flow->ending[i])
        i++;
    if (i == RP_ENDINGS_MAX)
        finish(flow, flow->ending[i = 0]);
    flow->ending[i] = NULL;
    bool is_tight = ended->options.descriptors_max <= RP_DESCRIPTORS_MIN;
    ended->has_ender = !is_tight && rp_thread_try(&ended->ender, ender_main, ended) == 0;
    if (ended->has_ender)
        flow->ending[i] = ended;
    else
        finish(flow, ended);
}

static bool has_ended(const struct rp_flow *ended)
{
    return rp_a32_load_acquire(&ended->has_ended); /* PAIRS flow-ended */
}

void rp_ending_collect(struct rp_flow *flow, bool waits)
{
    for (uint32_t i = 0; i < RP_ENDINGS_MAX; i++) {
        if (!flow->ending[i] || (!waits && !has_ended(flow->ending[i])))
            continue;
        finish(flow, flow->ending[i]);
        flow->ending[i] = NULL;
    }
}

/* A dispatch that a lost file has ended gives no result: rp_mapped_lost reports the loss. */
int rp_ending_revalidation_result(const struct rp_flow *flow, struct rp_error *error)
{
    int result = 1;
    for (uint32_t i = 0; i < RP_ENDINGS_MAX && result > 0; i++) {
        const struct rp_flow *ended = flow->ending[i];
        bool answers_no_more = ended && has_ended(ended); /* before the result is read */
        result = ended ? rp_revalidation_result(&ended->revalidation, error) : 1;
        if (result == 0 && answers_no_more)
            result = 1;
    }
    return result;
}
