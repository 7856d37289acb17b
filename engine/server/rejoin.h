/* SPDX-License-Identifier: Apache-2.0 */
/* rejoin.h — where a trainer goes on, and what that means for the others. */
#ifndef RP_SERVER_REJOIN_H
#define RP_SERVER_REJOIN_H

#include "server/engine.h"

/** Make a ring stand so that a trainer can take the seat where the request wants to go on;
 * *batch_out is its number. names_row: the trainer named the row itself, else it is its token's. If
 * it fails the engine goes on as it was, unless flow_running is false: then it cannot. */
RP_MUST_CHECK int rp_engine_place_ring(struct rp_engine *engine, struct rp_seat *seat,
                                       const struct rp_request *request, bool names_row,
                                       const void *token, uint64_t *batch_out,
                                       struct rp_error *error);

/** Let seats that nobody has taken give way to a trainer that waits for its next batch. */
void rp_engine_skip_absent(struct rp_engine *engine);

#endif
