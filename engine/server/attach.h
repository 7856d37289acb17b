/* SPDX-License-Identifier: Apache-2.0 */
/* attach.h — what peers on the socket ask for. */
#ifndef RP_SERVER_ATTACH_H
#define RP_SERVER_ATTACH_H

#include "server/engine.h"

/** Something came in on a connection. */
void rp_engine_serve_connection(struct rp_engine *engine, struct rp_connection *connection);

#endif
