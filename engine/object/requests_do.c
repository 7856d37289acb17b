/* SPDX-License-Identifier: Apache-2.0 */
/* requests_do.c — do requests while the caller waits, until all are answered or the process is to
 * end (requests.h). */
#include "base/bits.h"
#include "base/stop.h"
#include "object/requests.h"

static bool is_stopping(void *context)
{
    (void)context;
    return rp_stop_is_wanted();
}

int rp_requests_do(struct rp_object_request *requests, size_t count, uint32_t depth,
                   struct rp_error *error)
{
    struct rp_patience patience = rp_patience_standard(true);
    patience.stopper.is_stopping = is_stopping;
    struct rp_requests *all;
    depth = (uint32_t)rp_min_u64(depth, rp_max_u64(count, 1));
    int code = rp_requests_open(&all, depth, &patience, error);
    if (code < 0)
        return code;
    const struct rp_requests_wait wait = {.wait_min = 1, .is_stopping = is_stopping};
    for (size_t started = 0, finished = 0; finished < count && code == 0;) {
        struct rp_object_request *done;
        while (started < count && started - finished < depth)
            rp_requests_start(all, &requests[started++]);
        finished += rp_requests_wait(all, &done, 1, &wait);
        if (finished < count)
            code = rp_stop_check(error);
    }
    rp_requests_close(all);
    if (code < 0 && count == 1)
        code = rp_fail_context(error, code, "%s", rp_object_name(requests[0].object));
    return code;
}
