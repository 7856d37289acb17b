/* SPDX-License-Identifier: Apache-2.0 */
/* attach.h — what peers on the socket ask for. */
#ifndef RP_SERVER_ATTACH_H
#define RP_SERVER_ATTACH_H

#include "server/engine.h"

/** Something came in on a connection. */
void rp_engine_serve_connection(struct rp_engine *engine, struct rp_connection *connection);
/** Serve the requests that waited for a row which is near by now; all of them, when the stream has
 * failed or the engine is stopping. */
void rp_engine_retry_placing(struct rp_engine *engine);

#endif
