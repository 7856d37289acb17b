/* SPDX-License-Identifier: Apache-2.0 */
/* looks.h — requests to revalidate token files without hashes: are they unchanged since they were
 * opened?
 *
 * Dispatch owns the files, and checks them twice a second while it plans. The engine's thread
 * requests a check between two periodic ones: before copied tokens count, as contents of a
 * checkpoint or as the end of the stream. The result "no file has changed" holds for every token
 * that was copied from a file before the request.
 *
 * The engine's thread never waits for a result: a disk that hangs gives none. Dispatch wakes it. */
#ifndef RP_FLOW_LOOKS_H
#define RP_FLOW_LOOKS_H

#include <stdbool.h>

#include "base/atomic.h"
#include "base/fail.h"

struct rp_files;

struct rp_looks {
    struct rp_a64 asked;    /* number of requests. Writer: the engine's thread */
    struct rp_a64 answered; /* number of answered requests. Writer: dispatch. PAIRS look-answer */
    /* 1: a file has changed, or fstat of it failed; never 0 again. Writer: dispatch.
     * PAIRS look-failed */
    struct rp_a32 has_failed;
    struct rp_error error; /* written before has_failed, and never again */
};

/* ---- the engine's thread --------------------------------------------------------------------- */

/** Request a check. The caller wakes dispatch. */
static inline void rp_looks_ask(struct rp_looks *looks)
{
    rp_a64_store_release(&looks->asked, rp_a64_load_relaxed(&looks->asked) + 1);
}
/** The result of the requests so far: 1: no file has changed; 0: the last request has no answer
 * yet; negative: *error names a file that has changed, found by any check. */
RP_MUST_CHECK static inline int rp_looks_result(const struct rp_looks *looks,
                                                struct rp_error *error)
{
    bool is_answered = rp_a64_load_acquire(&looks->answered) == /* PAIRS look-answer */
                       rp_a64_load_relaxed(&looks->asked);
    if (!rp_a32_load_acquire(&looks->has_failed)) /* PAIRS look-failed */
        return is_answered;
    if (error)
        *error = looks->error;
    return looks->error.code;
}

/* ---- dispatch -------------------------------------------------------------------------------- */

static inline bool rp_looks_are_asked_for(const struct rp_looks *looks)
{
    return rp_a64_load_acquire(&looks->asked) != rp_a64_load_relaxed(&looks->answered);
}
/** Check the files, and answer all requests so far. Tickets below `retired` are retired. wake_fd is
 * an eventfd of the engine's thread. */
void rp_looks_answer(struct rp_looks *looks, struct rp_files *files, uint64_t retired, int wake_fd);

#endif
