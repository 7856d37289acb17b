/* SPDX-License-Identifier: Apache-2.0 */
/* rejoin.h — a consumer attaches, for the first time or after a restart: facts are gathered, a
 * placement is decided (rejoin_decide.h) and applied. */
#ifndef RP_SERVER_REJOIN_H
#define RP_SERVER_REJOIN_H

#include "server/engine.h"

/** Attach the consumer of a request to a seat without one. Returns its first batch.
 * names_row: the request names the row, else next_row is the token's row (or RP_NEXT_ROW_ANY
 * without one). On failure seats and rings are unchanged, or the flow is stopped and the engine has
 * to fail. */
RP_MUST_CHECK int64_t rp_engine_rejoin(struct rp_engine *engine, struct rp_seat *seat,
                                       const struct rp_request *request, bool names_row,
                                       const void *token, struct rp_error *error);

/** Advance the unknown positions of absent seats, if attached consumers have waited long because of
 * them. To be called while the engine is idle. */
void rp_delivery_skip_absent(struct rp_delivery *delivery);

/** If the last consumer of a repeated stream has left: go back to the start row, and prefetch the
 * rows of the next pass. If that fails the engine fails. */
void rp_engine_rewind(struct rp_engine *engine);

#endif
