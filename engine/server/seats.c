/* SPDX-License-Identifier: Apache-2.0 */
#include "base/bits.h"
#include "server/seats.h"
#include "shm/peer.h"

static uint32_t count_connections(const struct rp_peers *peers, const struct rp_seat *seat,
                                  const struct rp_connection **found)
{
    uint32_t count = 0;
    const struct rp_connection *connection;
    for (uint32_t i = 0; (connection = rp_peers_next(peers, &i));) {
        if (connection->seat != seat)
            continue;
        count++;
        *found = connection;
    }
    return count;
}

const struct rp_connection *rp_seat_connection(const struct rp_peers *peers,
                                               const struct rp_seat *seat)
{
    const struct rp_connection *connection = NULL;
    (void)count_connections(peers, seat, &connection);
    return connection;
}

/* The control page of the seat's consumer. NULL: there is no consumer, or it is quarantined. */
static const struct rp_ring_control *control_page(const struct rp_seat *seat)
{
    return seat->ring->seats[seat->replica].words;
}

struct rp_waits rp_seat_waits(const struct rp_seat *seat)
{
    struct rp_waits waits = seat->waits;
    if (control_page(seat))
        rp_waits_add(&waits, control_page(seat));
    return waits;
}

uint64_t rp_seat_waits_since_ns(const struct rp_seat *seat)
{
    return control_page(seat) ? rp_a64_load_relaxed(&control_page(seat)->wait_begin_ns) : 0;
}

bool rp_delivery_has_consumer(const struct rp_delivery *delivery, const struct rp_ring *ring)
{
    for (uint32_t s = 0; s < delivery->seat_count; s++)
        if ((!ring || delivery->seats[s].ring == ring) && rp_seat_is_attached(&delivery->seats[s]))
            return true;
    return false;
}

bool rp_delivery_consumer_waits(const struct rp_delivery *delivery)
{
    for (uint32_t s = 0; s < delivery->seat_count && delivery->state != RP_DELIVERY_ENDED; s++) {
        const struct rp_seat *seat = &delivery->seats[s];
        bool has_no_batch = rp_seat_position(seat) >= seat->ring->tail;
        if (rp_seat_is_attached(seat) &&
            (has_no_batch || rp_ring_is_awaited(seat->ring, seat->replica)))
            return true;
    }
    return false;
}

uint64_t rp_delivery_consumed(const struct rp_delivery *delivery)
{
    uint64_t lowest = UINT64_MAX;
    for (uint32_t r = 0; r < delivery->ring_count; r++)
        lowest = rp_min_u64(lowest, delivery->rings[r].release);
    return lowest;
}

uint64_t rp_delivery_furthest(const struct rp_delivery *delivery)
{
    uint64_t furthest = 0;
    for (uint32_t s = 0; s < delivery->seat_count; s++)
        furthest = rp_max_u64(furthest, rp_seat_position(&delivery->seats[s]));
    return furthest;
}

/* Has a consumer attached to the seat from a state token in the present rollback epoch? */
static bool is_of_epoch(const struct rp_delivery *delivery, const struct rp_seat *seat)
{
    return delivery->rollback_epoch > 0 && seat->rollback_epoch == delivery->rollback_epoch;
}

void rp_delivery_move_seat(const struct rp_delivery *delivery, struct rp_seat *seat)
{
    rp_seat_transition(seat, is_of_epoch(delivery, seat) ? RP_SEAT_MOVE_OWN : RP_SEAT_MOVE);
}

void rp_delivery_end_migrations(struct rp_delivery *delivery)
{
    for (uint32_t s = 0; s < delivery->seat_count; s++)
        if (delivery->seats[s].seat_state == RP_SEAT_MIGRATING)
            rp_seat_transition(&delivery->seats[s], RP_SEAT_MIGRATE_END);
}

/* Consumers that attach from state tokens of one row, each seat once, form one rollback epoch. The
 * next epoch begins when a consumer attaches from another row, or a seat a second time. */
void rp_delivery_note_rollback(struct rp_delivery *delivery, struct rp_seat *seat, uint64_t row)
{
    RP_ASSERT(rp_seat_is_attached(seat) && seat->rollback_epoch <= delivery->rollback_epoch);
    bool joins = row == delivery->rollback_row && seat->rollback_epoch < delivery->rollback_epoch;
    delivery->rollback_epoch += !joins;
    delivery->rollback_row = row;
    seat->rollback_epoch = delivery->rollback_epoch;
    for (uint32_t s = 0; s < delivery->seat_count; s++) {
        struct rp_seat *other = &delivery->seats[s];
        bool is_own = is_of_epoch(delivery, other);
        rp_seat_transition(other, is_own ? RP_SEAT_ROLLBACK_OWN : RP_SEAT_ROLLBACK);
    }
}

void rp_engine_check_seats(const struct rp_engine *engine)
{
    const struct rp_delivery *delivery = &engine->delivery;
    for (uint32_t s = 0; s < delivery->seat_count; s++) {
        const struct rp_seat *seat = &delivery->seats[s];
        const struct rp_connection *found;
        bool is_attached = rp_seat_is_attached(seat);
        RP_ASSERT(rp_ring_is_taken(seat->ring, seat->replica) == is_attached);
        RP_ASSERT(count_connections(&engine->peers, seat, &found) == is_attached);
        RP_ASSERT(seat->seat_state != RP_SEAT_MIGRATING);
        RP_ASSERT(!is_attached || delivery->had_consumer);
        RP_ASSERT(!is_attached || seat->ring->seats[seat->replica].reader_fd != RP_PEER_NONE);
        RP_ASSERT(seat->rollback_epoch <= delivery->rollback_epoch);
        RP_ASSERT(!seat->ring->seats[seat->replica].is_skipped || !rp_seat_position_is_known(seat));
        if (seat->seat_state != RP_SEAT_VACANT)
            continue;
        RP_ASSERT(seat->rollback_epoch == 0 && !is_attached);
        RP_ASSERT(rp_delivery_row(delivery, rp_seat_position(seat)) == engine->stream.start_row);
    }
}
