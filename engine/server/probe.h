/* SPDX-License-Identifier: Apache-2.0 */
/* probe.h — the probe: a plan of the engine's thread, which checks state tokens and finds the state
 * of a row. The flow's plans never serve this purpose while the flow runs.
 *
 * Invariants: no code depends on the probe's row between two requests; each use moves it first. No
 * call plans more than RP_NEAR_ROWS rows (far_plan.h), because all consumers wait for this thread.
 */
#ifndef RP_SERVER_PROBE_H
#define RP_SERVER_PROBE_H

#include "server/engine.h"
#include "server/rejoin_decide.h"

/** Is a state token of the stream that is served? Moves the probe. */
enum rp_stream_of rp_engine_stream_of(struct rp_engine *engine, const void *token, size_t bytes);
/** Move the probe to `row`, from the nearest state at or before it, or from `token`, which must be
 * of that row, or, past the end of the stream, of the end. -EINPROGRESS: the row is far from every
 * known state; engine->stream.far wants it now. The caller tries again when engine->stream.far is
 * near. */
RP_MUST_CHECK int rp_engine_probe_row(struct rp_engine *engine, uint64_t row, const void *token,
                                      size_t bytes, struct rp_error *error);
/** The same for the first row of a batch; past the end of the stream the probe is at the end. */
RP_MUST_CHECK int rp_engine_probe_batch(struct rp_engine *engine, uint64_t batch,
                                        struct rp_error *error);
/** Keep a copy of this state as stream->kept_state, which it replaces: the probe can plan from it,
 * wherever the flow's own states are. */
RP_MUST_CHECK int rp_engine_keep_state(struct rp_stream *stream, const struct rp_row_state *state,
                                       struct rp_error *error);
/** As rp_engine_keep_state, of the state of the probe. */
RP_MUST_CHECK int rp_engine_keep_probe_state(struct rp_stream *stream, struct rp_error *error);

/** Prepare the start of a flow at a batch: load `state`, of the first row of the batch, into the
 * flow's plan; and set *before, the argument of rp_flow_start. Its token is NULL unless the batch
 * is inside a step, and a state near enough before the step is known. Valid until the next call on
 * the engine. */
RP_MUST_CHECK int rp_engine_load_plan(const struct rp_engine *engine, struct rp_plan *plan,
                                      struct rp_row_state state, uint64_t batch,
                                      struct rp_row_state *before, struct rp_error *error);

#endif
