/* SPDX-License-Identifier: Apache-2.0 */
/* seats.h — functions over all seats of an engine, or over a seat and its connection or ring. */
#ifndef RP_SERVER_SEATS_H
#define RP_SERVER_SEATS_H

#include "server/engine.h"

/** The connection of the attached consumer; NULL if none is attached. */
const struct rp_connection *rp_seat_connection(const struct rp_peers *peers,
                                               const struct rp_seat *seat);
/** The waits of all consumers that the seat has had. */
struct rp_waits rp_seat_waits(const struct rp_seat *seat);
/** The time at which the attached consumer began to wait for a batch; 0: it does not wait. */
uint64_t rp_seat_waits_since_ns(const struct rp_seat *seat);
/** Is a consumer attached to this ring? NULL: to any ring. */
bool rp_delivery_has_consumer(const struct rp_delivery *delivery, const struct rp_ring *ring);
/** Does an attached consumer wait for its next batch? */
bool rp_delivery_consumer_waits(const struct rp_delivery *delivery);
/** The first batch that some local rank has not released. */
uint64_t rp_delivery_consumed(const struct rp_delivery *delivery);
/** The highest position of all seats. */
uint64_t rp_delivery_furthest(const struct rp_delivery *delivery);
/** Event MOVE or MOVE_OWN: the engine changes the position of this seat, for another consumer or
 * for the one that is about to attach here. */
void rp_delivery_move_seat(const struct rp_delivery *delivery, struct rp_seat *seat);
/** Event MIGRATE_END for every MIGRATING seat: the attach that rebuilt rings has been served. */
void rp_delivery_end_migrations(struct rp_delivery *delivery);
/** A consumer has attached to `seat` from the state token at `row`, and begins a rollback epoch or
 * joins the present one. Each seat gets the event ROLLBACK or ROLLBACK_OWN. */
void rp_delivery_note_rollback(struct rp_delivery *delivery, struct rp_seat *seat, uint64_t row);
/** Assert the invariants of all seats, which hold between any two requests:
 *
 *   - A seat is ATTACHED if and only if one connection has it and its ring has a control page for
 *     it. No seat is MIGRATING.
 *   - The position of a VACANT seat is the batch of the engine's start row.
 *   - Only a seat whose position is unknown is skipped.
 *   - No seat's rollback epoch is higher than the engine's. */
void rp_engine_check_seats(const struct rp_engine *engine);

#endif
