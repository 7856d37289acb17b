/* SPDX-License-Identifier: Apache-2.0 */
/* rebuild.h — a ring gets new memory while the flow runs. */
#ifndef RP_SERVER_REBUILD_H
#define RP_SERVER_REBUILD_H

#include "server/engine.h"

/** Can the ring be rebuilt while the flow runs, with seat `replica` at `batch`? It can if the
 * lowest position of the ring's seats is then in the ring, so that the flow's next batch stays the
 * same. */
bool rp_engine_rebuilds_beside(const struct rp_engine *engine, uint32_t ring, uint32_t replica,
                               uint64_t batch);
/** Rebuild the ring while the flow runs. Batches are delivered to all rings meanwhile, except while
 * packers are paused and the batches that are packed and not published are copied. If the ring
 * cannot be made nothing has changed. If packers cannot be started again, flow_running is false and
 * the engine has to fail. */
RP_MUST_CHECK int rp_engine_rebuild_beside(struct rp_engine *engine, uint32_t ring,
                                           uint32_t replica, uint64_t batch,
                                           struct rp_error *error);

#endif
