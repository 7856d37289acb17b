/* SPDX-License-Identifier: Apache-2.0 */
/* connections.h — the peers on the socket: event registration, accepting, replies and closing. */
#ifndef RP_SERVER_CONNECTIONS_H
#define RP_SERVER_CONNECTIONS_H

#include "server/engine.h"

/** Accept all peers that have connected. If descriptors run out, a later call accepts the rest. */
void rp_engine_accept(struct rp_engine *engine);
/** If the socket file of the run was removed, make a new one. Trainers that wait at the old one are
 * accepted first. */
void rp_engine_check_socket(struct rp_engine *engine);
/** Close the connection, if it is open, and detach its consumer, if it has one. */
void rp_engine_close_connection(struct rp_engine *engine, struct rp_connection *connection);
/** Close the connection of a consumer that is to migrate. Its ring's status is STOPPED already. */
void rp_delivery_migrate_consumer(struct rp_delivery *delivery, struct rp_connection *connection);
#define RP_ENGINE_TEXT_BYTES (sizeof(struct rp_error)) /* room for both texts of an error */
/** Write an error as "message\nhint", for a trainer. */
void rp_engine_error_text(const struct rp_error *error, char text[RP_ENGINE_TEXT_BYTES]);
void rp_engine_reply(struct rp_engine *engine, struct rp_connection *connection, uint32_t kind,
                     int code, const char *text);
/** The engine ends: close each connection whose peer has not requested the stop. */
void rp_engine_close_connections(struct rp_engine *engine);
/** The engine has ended: answer the peers that requested the stop, and close their connections. */
void rp_engine_answer_stops(struct rp_engine *engine);

#endif
