/* SPDX-License-Identifier: Apache-2.0 */
/* sim_seats.c — checks that only rp_seat_transition writes the state of a seat. The state that each
 * transition has set is kept, and compared before the next transition and whenever the engine
 * checks its seats. */
#include "server/seats.h"
#include "server/server.h"
#include "sim_wrap.h"

#define SEATS_MAX 64u

static struct kept {
    const struct rp_seat *seat;
    enum rp_seat_state state;
} kept[SEATS_MAX]; /* the running engine's */
static uint32_t kept_count;

static struct kept *find_kept(const struct rp_seat *seat)
{
    uint32_t i = 0;
    while (i < kept_count && kept[i].seat != seat)
        i++;
    if (i == SEATS_MAX)
        sim_fail("more than %u seats", SEATS_MAX);
    if (i == kept_count)
        kept[kept_count++] = (struct kept){seat, RP_SEAT_VACANT};
    return &kept[i];
}

static struct kept *compare(const struct rp_seat *seat)
{
    struct kept *found = find_kept(seat);
    if (seat->seat_state != found->state)
        sim_fail("a seat that was left %s is %s: something else has written its state",
                 rp_seat_state_name(found->state), rp_seat_state_name(seat->seat_state));
    return found;
}

WRAP(void, rp_seat_transition, struct rp_seat *seat, enum rp_seat_event event)
{
    struct kept *found = compare(seat);
    __real_rp_seat_transition(seat, event);
    found->state = seat->seat_state;
}

WRAP(void, rp_engine_check_seats, const struct rp_engine *engine)
{
    for (uint32_t s = 0; s < engine->delivery.seat_count; s++)
        (void)compare(&engine->delivery.seats[s]);
    __real_rp_engine_check_seats(engine);
}

WRAP(int, rp_engine_run, const struct rp_engine_options *options, struct rp_error *error)
{
    kept_count = 0;
    return __real_rp_engine_run(options, error);
}
