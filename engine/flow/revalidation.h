/* SPDX-License-Identifier: Apache-2.0 */
/* revalidation.h — requests to check that token files without hashes are unchanged since they were
 * opened.
 *
 * Dispatch owns the files, and checks them twice a second while it plans. The engine's thread
 * requests a check between two periodic ones: before copied tokens count, as contents of a
 * checkpoint or as the end of the stream. The result "no file has changed" holds for every token
 * that was copied from a file before the request.
 *
 * The engine's thread never waits for a result: a disk that hangs gives none. Dispatch wakes it. */
#ifndef RP_FLOW_REVALIDATION_H
#define RP_FLOW_REVALIDATION_H

#include <stdbool.h>

#include "base/atomic.h"
#include "base/fail.h"

struct rp_files;

struct rp_revalidation {
    struct rp_a64 requested; /* number of requests. Writer: the engine's thread */
    struct rp_a64 answered;  /* number of answered requests. Writer: dispatch. PAIRS revalidated */
    /* 1: a file has changed, or fstat of it failed; never 0 again. Writer: dispatch.
     * PAIRS revalidation-failed */
    struct rp_a32 has_failed;
    struct rp_error error; /* written before has_failed, and never again */
};

/* ---- the engine's thread --------------------------------------------------------------------- */

/** Request a check. The caller wakes dispatch. */
static inline void rp_revalidation_request(struct rp_revalidation *r)
{
    rp_a64_store_release(&r->requested, rp_a64_load_relaxed(&r->requested) + 1);
}
/** The result of all requests: 1: no file has changed; 0: the last request has no answer yet;
 * negative: any check has found that a file has changed, and *error names it. */
RP_MUST_CHECK static inline int rp_revalidation_result(const struct rp_revalidation *r,
                                                       struct rp_error *error)
{
    bool is_answered = rp_a64_load_acquire(&r->answered) == /* PAIRS revalidated */
                       rp_a64_load_relaxed(&r->requested);
    if (!rp_a32_load_acquire(&r->has_failed)) /* PAIRS revalidation-failed */
        return is_answered;
    if (error)
        *error = r->error;
    return r->error.code;
}

/* ---- dispatch -------------------------------------------------------------------------------- */

static inline bool rp_revalidation_is_requested(const struct rp_revalidation *r)
{
    return rp_a64_load_acquire(&r->requested) != rp_a64_load_relaxed(&r->answered);
}
/** Check the files, and answer all requests so far. Tickets below `retired` are retired. wake_fd is
 * an eventfd of the engine's thread. */
void rp_revalidation_answer(struct rp_revalidation *r, struct rp_files *files, uint64_t retired,
                            int wake_fd);

#endif
