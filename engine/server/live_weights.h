/* SPDX-License-Identifier: Apache-2.0 */
/* live_weights.h — other weights from a step on, in the running engine: `ringpack weights`
 * (STREAM2.md sections 9.4, 12.5). */
#ifndef RP_SERVER_LIVE_WEIGHTS_H
#define RP_SERVER_LIVE_WEIGHTS_H

#include "server/engine.h"

/** Serve a request, JSON: {"step": STEP, "weights": {NAME: "DECIMAL", …}}; a source without one
 * gets 0. On success the record is in the run journal, and every plan of the engine has it; the
 * caller frees *answer. After a refusal nothing is changed. If the flow cannot be started again, or
 * the journal may have the record or not, the engine has failed. */
RP_MUST_CHECK int rp_engine_set_weights(struct rp_engine *engine, const uint8_t *body,
                                        uint64_t bytes, char **answer, struct rp_error *error);

/** At a start, with the plan at the row of the start: append the weights of the run journal.
 * *appended: the checkpoint did not have some of them. */
RP_MUST_CHECK int rp_engine_take_weights(struct rp_engine *engine, bool *appended,
                                         struct rp_error *error);

/** Describe the stream of the engine's plan: the contract and its identity. */
RP_MUST_CHECK int rp_engine_describe(struct rp_engine *engine, struct rp_error *error);

#endif
