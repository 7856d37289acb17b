/* SPDX-License-Identifier: Apache-2.0 */
/* ending.h — ends catch-up flows without a wait for their disk.
 *
 * A reader of such a flow may have reads in flight, and dispatch may be checking a file: a slow
 * disk answers after seconds. So a thread of its own, the ender, joins them, and the engine's
 * thread frees the flow once that thread has ended.
 *
 * Invariants:
 *
 *   - The packers of an ending flow have ended, so it writes to no ring. Its plan, corpus and
 *     numbering are in use until it is collected, its calls of the plan included.
 *   - At most RP_ENDINGS_MAX flows are ending. If one more has to end, the first one is waited for.
 *     If the limit of descriptors leaves a flow the least only, its end is waited for.
 *   - A stop of the main flow returns only after all of them have ended. */
#ifndef RP_FLOW_ENDING_H
#define RP_FLOW_ENDING_H

#include "flow/flow_struct.h"

/** A catch-up flow of `flow`, which owns it, has been told to stop, and its packers are joined. */
void rp_ending_begin(struct rp_flow *flow, struct rp_flow *ended);
/** Free the flows that have ended, and keep their counts and failures; waits: all flows. */
void rp_ending_collect(struct rp_flow *flow, bool waits);
/** The result of a revalidation by all ending flows, as of rp_revalidation_result. */
RP_MUST_CHECK int rp_ending_revalidation_result(const struct rp_flow *flow, struct rp_error *error);

#endif
