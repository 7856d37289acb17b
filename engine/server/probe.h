/* SPDX-License-Identifier: Apache-2.0 */
/* probe.h — a plan of the engine itself, which checks state tokens and finds the state of a row. */
#ifndef RP_SERVER_PROBE_H
#define RP_SERVER_PROBE_H

#include "server/engine.h"
#include "server/rejoin_decide.h"

/** Is a state token of the stream that is served? Moves the probe plan. */
enum rp_stream_of rp_engine_stream_of(struct rp_engine *engine, const void *token, size_t bytes);
/** Move the probe plan to `row`, from the nearest state at or before it. `token` may be NULL;
 * behind the end of the stream it must be the last one. -EINPROGRESS: the row is far from every
 * state at hand; engine->far wants it now, and when that is near it is to be tried again. */
RP_MUST_CHECK int rp_engine_probe_row(struct rp_engine *engine, uint64_t row, const void *token,
                                      size_t bytes, struct rp_error *error);
/** The same for the first row of a micro-batch; behind the end of the stream it stands at the end.
 */
RP_MUST_CHECK int rp_engine_probe_batch(struct rp_engine *engine, uint64_t batch,
                                        struct rp_error *error);

#endif
