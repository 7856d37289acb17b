/* SPDX-License-Identifier: Apache-2.0 */
/* attach.h — serves the requests of peers on the socket. */
#ifndef RP_SERVER_ATTACH_H
#define RP_SERVER_ATTACH_H

#include "server/engine.h"

/** A connection is readable: serve a request, or read doorbells, or close it. */
void rp_engine_serve_connection(struct rp_engine *engine, struct rp_connection *connection);
/** Serve again the attach requests whose far row is near by now; all of them, when the stream has
 * failed or the engine is stopping. */
void rp_engine_retry_deferred(struct rp_engine *engine);

#endif
