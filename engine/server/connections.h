/* SPDX-License-Identifier: Apache-2.0 */
/* connections.h — the peers on the socket: event registration, accepting, replies and closing. */
#ifndef RP_SERVER_CONNECTIONS_H
#define RP_SERVER_CONNECTIONS_H

#include "server/engine.h"

/** Wake the loop when fd is readable. Closing fd ends it. Returns 0 or -errno. */
int rp_engine_watch(struct rp_engine *engine, int fd, enum rp_watch watch, uint32_t index);
/** Take in whoever has connected; those for whom there is no descriptor at a later call. */
void rp_engine_accept(struct rp_engine *engine);
/** Close it, if it is open, and detach its consumer, if it has one. */
void rp_engine_close_connection(struct rp_engine *engine, struct rp_connection *connection);
/** The same for a consumer whose ring is rebuilt, and which has been told so. */
void rp_engine_migrate_consumer(struct rp_engine *engine, struct rp_connection *connection);
void rp_engine_reply(struct rp_engine *engine, struct rp_connection *connection, uint32_t kind,
                     int code, const char *text);
/** End every connection but those that wait for the end of all of it, or (waiting) these. */
void rp_engine_close_connections(struct rp_engine *engine, bool waiting);

#endif
