/* SPDX-License-Identifier: Apache-2.0 */
/* rebuild.h — a ring gets new memory while the flow runs. */
#ifndef RP_SERVER_REBUILD_H
#define RP_SERVER_REBUILD_H

#include "server/engine.h"

/** Can the ring be rebuilt beside the flow? Then the flow goes on at the batch that is its next one
 * now: with seat `replica` at `batch`, the lowest position of all seats is in the ring. */
bool rp_engine_rebuilds_beside(const struct rp_engine *engine, uint32_t ring, uint32_t replica,
                               uint64_t batch);
/** Rebuild the ring so. Other rings are delivered meanwhile, but for the time of a copy of what is
 * packed and not published. If the ring cannot be made nothing has changed; if packers cannot be
 * started again flow_running is false, and the engine has to fail. */
RP_MUST_CHECK int rp_engine_rebuild_beside(struct rp_engine *engine, uint32_t ring,
                                           uint32_t replica, uint64_t batch,
                                           struct rp_error *error);

#endif
