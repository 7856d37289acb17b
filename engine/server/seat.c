/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>

#include "base/fail.h"
#include "server/seat.h"

enum {
    V = RP_SEAT_VACANT,
    A = RP_SEAT_ATTACHED,
    M = RP_SEAT_MIGRATING,
    K = RP_SEAT_ABSENT_KNOWN,
    U = RP_SEAT_ABSENT_UNKNOWN,
    F = RP_SEAT_FINISHED,
    D = RP_SEAT_FINISHED_UNKNOWN,
    X = RP_SEAT_STATES
};

/* clang-format off */
static const uint8_t next_states[RP_SEAT_EVENTS][RP_SEAT_STATES] = {
    /*                           V  A  M  K  U  F  D */
    [RP_SEAT_ATTACH]          = {A, X, X, A, A, A, A},
    [RP_SEAT_DETACH]          = {X, K, X, X, X, X, X},
    [RP_SEAT_DETACH_CONSUMED] = {X, F, X, X, X, X, X},
    [RP_SEAT_MIGRATE]         = {X, M, X, X, X, X, X},
    [RP_SEAT_MIGRATE_END]     = {X, X, K, X, X, X, X},
    [RP_SEAT_ROLLBACK]        = {V, A, M, U, U, U, U},
    [RP_SEAT_ROLLBACK_OWN]    = {X, A, M, U, U, D, D},
    [RP_SEAT_MOVE]            = {U, X, X, U, U, U, U},
    [RP_SEAT_MOVE_OWN]        = {X, X, X, U, U, D, D},
    [RP_SEAT_SKIP]            = {U, X, X, X, U, X, D},
    [RP_SEAT_REBUILD]         = {V, X, M, K, U, F, D},
};
/* clang-format on */

enum rp_seat_state rp_seat_next_state(enum rp_seat_state state, enum rp_seat_event event)
{
    RP_ASSERT(state < RP_SEAT_STATES && event < RP_SEAT_EVENTS);
    return (enum rp_seat_state)next_states[event][state];
}

void rp_seat_transition(struct rp_seat *seat, enum rp_seat_event event)
{
    enum rp_seat_state next = rp_seat_next_state(seat->seat_state, event);
    RP_ASSERT(next != RP_SEAT_STATES);
    seat->seat_state = next;
}

const char *rp_seat_state_name(enum rp_seat_state state)
{
    static const char *const names[RP_SEAT_STATES] = {
        [V] = "VACANT",         [A] = "ATTACHED", [M] = "MIGRATING",       [K] = "ABSENT_KNOWN",
        [U] = "ABSENT_UNKNOWN", [F] = "FINISHED", [D] = "FINISHED_UNKNOWN"};
    RP_ASSERT(state < RP_SEAT_STATES);
    return names[state];
}

const char *rp_seat_name(const struct rp_seat *seat, char text[RP_SEAT_NAME_BYTES])
{
    const struct rp_ring *ring = seat->ring;
    if (ring->replicas == 1)
        snprintf(text, RP_SEAT_NAME_BYTES, "rank %" PRIu32, ring->geometry.rank);
    else
        snprintf(text, RP_SEAT_NAME_BYTES, "rank %" PRIu32 ", replica %" PRIu32,
                 ring->geometry.rank, seat->replica);
    return text;
}
