/* SPDX-License-Identifier: Apache-2.0 */
/* seats.h — what concerns all seats of an engine, and what they, connections and rings have in
 * common. */
#ifndef RP_SERVER_SEATS_H
#define RP_SERVER_SEATS_H

#include "server/engine.h"

/** The process that is attached to a seat, as it said; 0 if none is. */
int32_t rp_seat_pid(const struct rp_engine *engine, const struct rp_seat *seat);
/** Is a consumer attached to this ring (or, NULL, to any)? */
bool rp_engine_has_consumer(const struct rp_engine *engine, const struct rp_ring *ring);
/** Does an attached consumer wait for its next batch? */
bool rp_engine_consumer_waits(const struct rp_engine *engine);
/** Every local rank has released the batches below it. */
uint64_t rp_engine_consumed(const struct rp_engine *engine);
/** The engine changes the position of this seat for another consumer, or for one that has yet to
 * attach. */
void rp_engine_move_seat(const struct rp_engine *engine, struct rp_seat *seat);
/** The attach for which rings were rebuilt has been served. */
void rp_engine_end_migrations(struct rp_engine *engine);
/** A consumer has attached to `seat` from the state token at `row`, and begins a rollback epoch or
 * joins the present one. Tells the other seats. */
void rp_engine_note_rollback(struct rp_engine *engine, struct rp_seat *seat, uint64_t row);
/** Assert, between two requests, what must hold whatever has happened: a seat is ATTACHED if and
 * only if one connection has it and its ring has a control page for it; none is MIGRATING; a VACANT
 * one is at the row at which the engine started; only seats of which nothing is known are skipped;
 * no rollback epoch is ahead of the engine's. */
void rp_engine_check_seats(const struct rp_engine *engine);

#endif
