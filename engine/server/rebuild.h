/* SPDX-License-Identifier: Apache-2.0 */
/* rebuild.h — a ring gets new memory while the flow runs. */
#ifndef RP_SERVER_REBUILD_H
#define RP_SERVER_REBUILD_H

#include "server/engine.h"

/** Can the ring be rebuilt while the flow runs, with seat `replica` at `batch`? It can if the flow
 * itself serves it and the lowest position of its seats is then in the ring, so that the flow's
 * next batch stays the same. */
bool rp_delivery_can_rebuild_running(const struct rp_delivery *delivery, uint32_t ring,
                                     uint32_t replica, uint64_t batch);
/** Rebuild the ring while the flow runs. Batches are still delivered to all rings, except while
 * packers are paused and the batches that are packed and not published are copied. If the ring
 * cannot be made nothing has changed. If packers cannot be started again, the flow is STOPPED and
 * the engine has to fail. */
RP_MUST_CHECK int rp_engine_rebuild_running(struct rp_engine *engine, uint32_t ring,
                                            uint32_t replica, uint64_t batch,
                                            struct rp_error *error);

/** Can the ring be rebuilt with seat `replica` at `batch`, and be served by a catch-up flow from
 * there? It can if it is behind already; or if it falls behind, and
 * fewer than rp_flow_catch_ups_max rings are. */
bool rp_delivery_can_catch_up(const struct rp_delivery *delivery, uint32_t ring, uint32_t replica,
                              uint64_t batch);
/** Do that. The probe is at rp_engine_tail_if_rebuilt. On failure nothing has changed, or
 * the flow is STOPPED and the engine has to fail. */
RP_MUST_CHECK int rp_engine_rebuild_behind(struct rp_engine *engine, uint32_t ring,
                                           uint32_t replica, uint64_t batch,
                                           struct rp_error *error);

#endif
