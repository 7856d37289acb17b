/* SPDX-License-Identifier: Apache-2.0 */
#include "server/wait_history.h"

#include <string.h>

#include "base/fail.h"

static void merge(struct rp_wait_history *history)
{
    uint64_t(*waited)[RP_CAUSES] = history->waited_ns;
    for (uint32_t i = 0; i < RP_HISTORY_PERIODS / 2; i++)
        for (uint32_t cause = 0; cause < RP_CAUSES; cause++)
            waited[i][cause] = waited[2 * i][cause] + waited[2 * i + 1][cause];
    memset(waited[RP_HISTORY_PERIODS / 2], 0, sizeof history->waited_ns / 2);
    history->period_ns *= 2;
}

void rp_wait_history_begin(struct rp_wait_history *history, uint64_t now_ns)
{
    if (history->period_ns == 0) {
        history->begin_ns = now_ns;
        history->period_ns = RP_HISTORY_FIRST_NS;
    }
    RP_ASSERT(now_ns >= history->begin_ns);
    while ((now_ns - history->begin_ns) / history->period_ns >= RP_HISTORY_PERIODS)
        merge(history);
    history->count = (uint32_t)((now_ns - history->begin_ns) / history->period_ns) + 1;
}

void rp_wait_history_add(struct rp_wait_history *history, enum rp_cause cause, uint64_t waited_ns)
{
    RP_ASSERT(history->count > 0 && cause < RP_CAUSES);
    history->waited_ns[history->count - 1][cause] += waited_ns;
}
