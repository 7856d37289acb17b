/* SPDX-License-Identifier: Apache-2.0 */
/* rings.h — making rings anew, and starting and stopping the flow at the row where they stand. */
#ifndef RP_SERVER_RINGS_H
#define RP_SERVER_RINGS_H

#include "server/engine.h"

#define RP_ALL_SEATS UINT32_MAX
/** Make (or make anew) a ring whose seat `replica`, or all of them, stands at `batch` of the
 * present base; copies unreleased batches. Trainers in its other seats are led over. */
RP_MUST_CHECK int rp_engine_rebuild_ring(struct rp_engine *engine, uint32_t ring, uint32_t replica,
                                         uint64_t batch, struct rp_error *error);
/** The lowest position of all seats of the ring if `replica` were at `batch`. */
uint64_t rp_ring_lowest_position(const struct rp_ring *ring, uint32_t replica, uint64_t batch);
/** The lowest tail of all rings if seat `replica` of `ring` (RP_NO_RING: of none) were moved to
 * `batch`. */
#define RP_NO_RING UINT32_MAX
uint64_t rp_engine_lowest_tail(const struct rp_engine *engine, uint32_t ring, uint32_t replica,
                               uint64_t batch);
/** Start the flow at the lowest tail of all rings; the probe plan stands there. */
RP_MUST_CHECK int rp_engine_start_flow(struct rp_engine *engine, struct rp_error *error);
/** Stop the flow, after the copy of a save under way. Kept states stay. */
void rp_engine_stop_flow(struct rp_engine *engine);
/** Stop the flow, and start it again where it was, or, after rings have changed, at their lowest
 * tail. */
RP_MUST_CHECK int rp_engine_restart_flow(struct rp_engine *engine, struct rp_error *error);

#endif
