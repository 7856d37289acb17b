/* SPDX-License-Identifier: Apache-2.0 */
/* rings.h — rebuilds rings, and starts and stops the flow at their tails.
 *
 * Invariants:
 *
 *   - A ring is replaced only while no packer that writes to it runs: the flow is stopped, or its
 *     packers are paused (rebuild.h). Packers and flow/deliver.c use the ring's addresses.
 *   - A ring's tail is the first batch that is not published in it. The flow starts at the lowest
 *     tail of all rings: the first batch that some ring lacks. A ring with a higher tail has the
 *     batches below its tail already, and is not written until the flow reaches that batch:
 *
 *         batch     0 1 2 3 4 5 6 7 8 9
 *         ring 0    # # # # # # # #        tail 8 (#: published, and kept)
 *         ring 1    # # # # #              tail 5
 *         flow                1 1 1 * *    starts at 5 (1: packs for ring 1 only; *: for both)
 *
 *   - All rings have the base row of the engine. */
#ifndef RP_SERVER_RINGS_H
#define RP_SERVER_RINGS_H

#include "server/engine.h"

#define RP_ALL_SEATS UINT32_MAX
/** Make a ring for the first time, or again, while the flow is stopped or its packers are paused
 * (rp_engine_rebuild decides which). Seat `replica`, or all seats, are then at `batch`, counted
 * from the engine's base row. Batches that were not released are copied, and attached consumers
 * migrate. If no process can read the old memory any more, it is reused. After a failure all rings
 * are unchanged. */
RP_MUST_CHECK int rp_engine_make_ring(struct rp_engine *engine, uint32_t ring, uint32_t replica,
                                      uint64_t batch, struct rp_error *error);
/** Copy the slots of the batches from `first` up to `end`. */
void rp_rings_copy(const struct rp_ring *from, const struct rp_ring *to, uint64_t first,
                   uint64_t end);
/** Replace a ring by `fresh`, which is complete. Consumers of the old ring migrate. */
void rp_engine_swap_ring(struct rp_engine *engine, uint32_t ring, const struct rp_ring *fresh);
/** Is the present contract in the ring's header? A record of documents changes the contract while
 * the engine runs, and attached consumers keep their ring. */
bool rp_engine_has_contract(const struct rp_engine *engine, const struct rp_ring *ring);
/** The lowest position of all seats of the ring if `replica` were at `batch`. */
uint64_t rp_rings_lowest_position(const struct rp_ring *ring, uint32_t replica, uint64_t batch);
/** The first batch of the next flow: the first one that some ring lacks. */
uint64_t rp_delivery_lowest_tail(const struct rp_delivery *delivery);
/** Open the flow over the corpus of the stream; the plan is at the row of its start. */
RP_MUST_CHECK int rp_engine_open_flow(struct rp_engine *engine, struct rp_error *error);
/** Replace the stopped flow by a new one, over another corpus. The counts continue, the states of
 * rows are lost. */
RP_MUST_CHECK int rp_engine_replace_flow(struct rp_engine *engine, struct rp_error *error);
/** Start the flow at the lowest tail of all rings. The probe must be at that row. */
RP_MUST_CHECK int rp_engine_start_flow(struct rp_engine *engine, struct rp_error *error);
/** Let the end of a packer process wake the engine's loop. To be called whenever packer processes
 * were started. */
void rp_engine_watch_packers(struct rp_engine *engine);
/** Wait for the copy of a save under way, and stop the flow. It keeps its states of rows. */
void rp_engine_stop_flow(struct rp_engine *engine);
/** Stop the flow, if it runs, and start it at the lowest tail of all rings. */
RP_MUST_CHECK int rp_engine_restart_flow(struct rp_engine *engine, struct rp_error *error);

#endif
