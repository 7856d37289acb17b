/* SPDX-License-Identifier: Apache-2.0 */
/* rebuild.h — a ring gets new memory, or other positions, in the way that disturbs other consumers
 * least: while the flow runs; with a flow of its own, until it has caught up; or, if neither is
 * possible, while the flow is stopped. */
#ifndef RP_SERVER_REBUILD_H
#define RP_SERVER_REBUILD_H

#include "server/engine.h"

/* A ring that gets new memory. Its seat `replica`, or all its seats (RP_ALL_SEATS), are then at
 * `batch`. */
struct rp_rebuild {
    uint32_t ring, replica;
    uint64_t batch;
    const void *token; /* a state token of the first row of `batch`; NULL: none */
    size_t token_bytes;
};

/** Rebuild the ring. -EINPROGRESS: its first row is far (far_plan.h). On failure rings
 * and seats are as they were, or the flow is STOPPED and the engine has to fail. */
RP_MUST_CHECK int rp_engine_rebuild(struct rp_engine *engine, const struct rp_rebuild *rebuild,
                                    struct rp_error *error);

#endif
