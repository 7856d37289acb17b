/* SPDX-License-Identifier: Apache-2.0 */
/* placing.h — trainers whose row is far: each waits, unanswered, until its row has been planned to.
 *
 * Such a trainer owns nothing. It has no seat, so whoever asks for the same seat and is ready first
 * gets it; it is not attached, so others may move the stream meanwhile. When its row is near its
 * request is served from the beginning, by what is true then. A request that nobody can fulfil, for
 * a row that somebody made up, ends with its connection or with the engine. */
#ifndef RP_SERVER_PLACING_H
#define RP_SERVER_PLACING_H

#include "server/engine.h"

struct rp_placing {
    struct rp_request request;
    struct rp_far_row far;
    uint8_t token[]; /* [request.state_bytes] */
};

/** The request waits in the connection until `far`, which moves there, is near. */
RP_MUST_CHECK int rp_engine_postpone(struct rp_engine *engine, struct rp_connection *connection,
                                     const struct rp_request *request, const void *token,
                                     struct rp_far_row *far, struct rp_error *error);
/** The connection waits no longer. Without a request in it, does nothing. */
void rp_engine_forget_placing(struct rp_engine *engine, struct rp_connection *connection);
/** The stream becomes another one: what was planned towards far rows is not of it. */
void rp_engine_forget_far(struct rp_engine *engine);
/** Plan towards the wanted row that has the fewest rows left, if any is wanted. */
void rp_engine_plan_far(struct rp_engine *engine);

#endif
