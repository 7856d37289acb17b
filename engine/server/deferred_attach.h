/* SPDX-License-Identifier: Apache-2.0 */
/* deferred_attach.h — attach requests for rows that are far (far_plan.h). A trainer gets no reply
 * until the engine has planned to its row.
 *
 * Such a trainer owns no part of the engine. It has no seat, so another trainer may attach to the
 * seat first; it is not attached, so other consumers may move the stream. When its row is near, its
 * request is served from the beginning, with the facts of that moment. A request for a row that
 * does not exist waits until its connection or the engine ends. */
#ifndef RP_SERVER_DEFERRED_ATTACH_H
#define RP_SERVER_DEFERRED_ATTACH_H

#include "server/engine.h"

struct rp_deferred_attach {
    struct rp_request request;
    struct rp_far_row far;
    uint8_t token[]; /* [request.state_bytes] */
};

/** Keep the request, and the far row that it waits for, in the connection. *far is moved there. */
RP_MUST_CHECK int rp_peers_defer_attach(struct rp_peers *peers, struct rp_connection *connection,
                                        const struct rp_request *request, const void *token,
                                        struct rp_far_row *far, struct rp_error *error);
/** Free the request that waits in the connection, if there is one. */
void rp_engine_forget_deferred(struct rp_engine *engine, struct rp_connection *connection);
/** The engine is about to serve another stream: forget the states that were planned towards far
 * rows. The requests for these rows are served again. */
void rp_engine_forget_far(struct rp_engine *engine);
/** Plan towards the wanted row that has the fewest rows left, if any is wanted. */
void rp_engine_plan_far(struct rp_engine *engine);

#endif
