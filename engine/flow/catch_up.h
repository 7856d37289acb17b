/* SPDX-License-Identifier: Apache-2.0 */
/* catch_up.h — a ring that is far behind gets its batches from a small flow of its own, the
 * catch-up flow, while the main flow serves the other rings.
 *
 * Each batch is planned, read and packed by the one flow that delivers it, so consumers of the
 * other rings neither wait for the ring that is behind nor cause a second read. Several rings may
 * be behind at a time, each with an independent catch-up flow. For each of them:
 *
 *     flow       rows of the ring  ──left out──────────────┐ joins at batch M ──packed──►
 *     catch-up   rows of the ring  ──from the ring's tail──┴─ends at batch M
 *
 *   1. BEHIND: pack_from of the ring is RP_PACK_NONE. The catch-up flow may deliver up to the
 *      highest tail of the rings that the main flow serves, but at least to the first batch whose
 *      rows for the ring the main flow has planned since it started. Whenever it gets there, the
 *      limit is renewed.
 *   2. JOINING, once the ring is at most its size behind that limit X: pack_from is
 *      RP_PACK_JOIN(X), and the catch-up flow waits at X.
 *   3. JOINED: dispatch has replaced the word by M >= X, the first batch whose rows for the ring it
 *      plans again, and has woken the engine's thread. The catch-up flow delivers up to M. Its
 *      packers are joined, and the rest of it ends in the background (ending.h).
 *   Once dispatch has planned the whole stream (planned_all), it joins no ring. M is then past the
 *   end: the catch-up flow delivers all remaining batches, and the ring's end.
 *
 * Parts of the corpus that the page cache holds when a catch-up flow is made are read through the
 * page cache by that flow, even if the main flow reads past it.
 *
 * Invariants:
 *
 *   - One flow at a time reads and writes the words of a ring: its catch-up flow if
 *     deliver.is_left_out of the ring is set, else the main flow.
 *   - At most RP_CATCH_UPS_MAX rings catch up, and the main flow serves at least one ring: the
 *     others catch up with its batches, and without a ring to serve it would plan to the end of the
 *     stream at once.
 *   - The tail of the ring is at most M, or X while M is not known. Packers of the flow cannot
 *     write to the ring before the catch-up flow's are joined, because free_until is 0.
 *   - Tickets of batches below M may have transfers of the ring, which were planned before it was
 *     left out. They are not packed.
 */
#ifndef RP_FLOW_CATCH_UP_H
#define RP_FLOW_CATCH_UP_H

#include "flow/flow.h"

/* Catch-up flows that may be ending at a time. If one more has to end, the first is waited for. */
#define RP_ENDINGS_MAX 2u
#define RP_CATCH_UPS_MAX 4u
/* Plans in use at a time: by catch-up flows, by those that are ending, and one for the
 * next. */
#define RP_CATCH_UP_PLANS_MAX (RP_CATCH_UPS_MAX + RP_ENDINGS_MAX + 1)

/** The number of a flow's rings that may catch up at a time. */
static inline uint32_t rp_flow_catch_ups_max(uint32_t rank_count)
{
    return rank_count - 1 < RP_CATCH_UPS_MAX ? rank_count - 1 : RP_CATCH_UPS_MAX;
}

/** Private memory of one catch-up flow of a flow with these options, whose packer is a thread; 0 if
 * there is one ring, which cannot fall behind others. Reads the options that rp_flow_memory_bytes
 * reads. */
uint64_t rp_flow_catch_up_memory_bytes(const struct rp_flow_options *main);

/** Make the flow of a ring that is far behind, without starting it. If it is never started, the
 * caller closes it. */
RP_MUST_CHECK int rp_flow_make_catch_up(struct rp_flow **made, const struct rp_flow *flow,
                                        uint32_t ring, struct rp_error *error);
/** The main flow leaves the ring out from here on, while packers are paused. Call this once the
 * ring has new memory, and before any state is read: rp_flow_state_at goes by the tails of the
 * rings that the main flow serves. Then start the ring's catch-up flow, or stop the flow. */
void rp_flow_leave_out(struct rp_flow *flow, uint32_t ring);
/** Start the catch-up flow of a ring that is left out, at its tail, while packers are paused.
 * `plan` must be positioned at the first row of that micro-batch; `before` is as for rp_flow_start.
 * The plan is borrowed for as long as rp_flow_uses_plan returns true. `flow` owns `made` from here
 * on. If this fails, the caller stops the flow. A stop ends catching up; the next start begins at
 * the lowest tail. */
RP_MUST_CHECK int rp_flow_start_catch_up(struct rp_flow *flow, struct rp_flow *made, uint32_t ring,
                                         struct rp_plan *plan, const struct rp_row_state *before,
                                         struct rp_error *error);
/** End the catch-up flow of a ring that is about to get new memory, if it has one. Then, before
 * packers are resumed, another one has to be started for it, or the flow stopped. Only while
 * packers are paused. */
void rp_flow_drop_catch_up(struct rp_flow *flow, uint32_t ring);
/** Does a catch-up flow use the plan? It may do so after its ring has caught up. */
bool rp_flow_uses_plan(const struct rp_flow *flow, const struct rp_plan *plan);
bool rp_flow_is_catching_up(const struct rp_flow *flow, uint32_t ring);
/** How many rings catch up. */
uint32_t rp_flow_catch_ups(const struct rp_flow *flow);

#endif
