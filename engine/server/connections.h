/* SPDX-License-Identifier: Apache-2.0 */
/* connections.h — the peers on the socket: event registration, accepting, replies and closing. */
#ifndef RP_SERVER_CONNECTIONS_H
#define RP_SERVER_CONNECTIONS_H

#include "server/engine.h"

/** Wake the loop when fd is readable. Closing fd ends it. Returns 0 or -errno. */
int rp_engine_watch(struct rp_engine *engine, int fd, enum rp_watch watch, uint32_t index);
/** Accept all peers that have connected; those for which no descriptor is free, at a later call. */
void rp_engine_accept(struct rp_engine *engine);
/** Close it, if it is open, and detach its consumer, if it has one. */
void rp_engine_close_connection(struct rp_engine *engine, struct rp_connection *connection);
/** The same for a consumer whose ring is rebuilt, and which has been told so. */
void rp_engine_migrate_consumer(struct rp_engine *engine, struct rp_connection *connection);
void rp_engine_reply(struct rp_engine *engine, struct rp_connection *connection, uint32_t kind,
                     int code, const char *text);
/** When the engine ends: close the connections of peers that asked it to stop, with an answer
 * (waiting), or all others. */
void rp_engine_close_connections(struct rp_engine *engine, bool waiting);

#endif
