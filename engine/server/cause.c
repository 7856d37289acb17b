/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cause.h"

#include <string.h>

#include "base/clock.h"
#include "server/seats.h"

enum rp_cause rp_decide_cause(bool waits, enum rp_oldest_stage stage)
{
    static const enum rp_cause causes[RP_OLDEST_STAGES] = {
        [RP_OLDEST_NONE] = RP_CAUSE_ENGINE,         [RP_OLDEST_UNPLANNED] = RP_CAUSE_PLAN,
        [RP_OLDEST_UNPLANNED_HELD] = RP_CAUSE_SAVE, [RP_OLDEST_AT_FILE] = RP_CAUSE_DISK,
        [RP_OLDEST_AT_SERVER] = RP_CAUSE_NETWORK,   [RP_OLDEST_READ] = RP_CAUSE_PACK,
        [RP_OLDEST_READ_HELD] = RP_CAUSE_SAVE,      [RP_OLDEST_READ_FULL] = RP_CAUSE_TRAINER,
        [RP_OLDEST_PACKED] = RP_CAUSE_PACK,
    };
    RP_ASSERT(stage < RP_OLDEST_STAGES);
    return waits ? causes[stage] : RP_CAUSE_NONE;
}

const char *rp_cause_name(enum rp_cause cause)
{
    static const char *const names[RP_CAUSES] = {
        [RP_CAUSE_NONE] = "none", [RP_CAUSE_DISK] = "disk",     [RP_CAUSE_NETWORK] = "network",
        [RP_CAUSE_PLAN] = "plan", [RP_CAUSE_PACK] = "pack",     [RP_CAUSE_TRAINER] = "trainer",
        [RP_CAUSE_SAVE] = "save", [RP_CAUSE_ENGINE] = "engine",
    };
    RP_ASSERT(cause < RP_CAUSES);
    return names[cause];
}

/* The seat of the ring that has released least; if several have, not `waiting`. */
static const struct rp_seat *last_seat(const struct rp_delivery *delivery, uint32_t ring,
                                       const struct rp_seat *waiting)
{
    const struct rp_seat *last = NULL;
    for (uint32_t s = 0; s < delivery->seat_count; s++) {
        const struct rp_seat *seat = &delivery->seats[s];
        if (seat->ring != &delivery->rings[ring])
            continue;
        if (!last || rp_seat_position(seat) < rp_seat_position(last) ||
            (last == waiting && rp_seat_position(seat) == rp_seat_position(last)))
            last = seat;
    }
    return last;
}

struct rp_seat_cause rp_seat_cause(const struct rp_delivery *delivery, const struct rp_seat *seat)
{
    bool waits = rp_seat_waits_since_ns(seat) != 0;
    struct rp_oldest_ticket oldest = {.stage = RP_OLDEST_NONE};
    if (waits && rp_delivery_runs(delivery))
        oldest = rp_flow_oldest_ticket(delivery->flow, (uint32_t)(seat->ring - delivery->rings));
    struct rp_seat_cause found = {.cause = rp_decide_cause(waits, oldest.stage)};
    if (found.cause == RP_CAUSE_TRAINER)
        found.holder = last_seat(delivery, oldest.full_ring, seat);
    return found;
}

void rp_engine_note_causes(struct rp_engine *engine, uint64_t passed_ns)
{
    rp_wait_history_begin(&engine->watching.wait_history, rp_now_ns());
    for (uint32_t s = 0; s < engine->delivery.seat_count; s++) {
        struct rp_seat *seat = &engine->delivery.seats[s];
        enum rp_cause cause = rp_seat_cause(&engine->delivery, seat).cause;
        if (cause == RP_CAUSE_NONE)
            continue;
        seat->cause_ns[cause] += passed_ns;
        rp_wait_history_add(&engine->watching.wait_history, cause, passed_ns);
    }
}

/* ---- the history ----------------------------------------------------------------------------- */

static void merge(struct rp_wait_history *history)
{
    uint64_t(*waited)[RP_CAUSES] = history->waited_ns;
    for (uint32_t i = 0; i < RP_HISTORY_PERIODS / 2; i++)
        for (uint32_t cause = 0; cause < RP_CAUSES; cause++)
            waited[i][cause] = waited[2 * i][cause] + waited[2 * i + 1][cause];
    memset(waited[RP_HISTORY_PERIODS / 2], 0, sizeof history->waited_ns / 2);
    history->period_ns *= 2;
}

void rp_wait_history_begin(struct rp_wait_history *history, uint64_t now_ns)
{
    if (history->period_ns == 0) {
        history->begin_ns = now_ns;
        history->period_ns = RP_HISTORY_FIRST_NS;
    }
    RP_ASSERT(now_ns >= history->begin_ns);
    while ((now_ns - history->begin_ns) / history->period_ns >= RP_HISTORY_PERIODS)
        merge(history);
    history->count = (uint32_t)((now_ns - history->begin_ns) / history->period_ns) + 1;
}

void rp_wait_history_add(struct rp_wait_history *history, enum rp_cause cause, uint64_t waited_ns)
{
    RP_ASSERT(history->count > 0 && cause < RP_CAUSES);
    history->waited_ns[history->count - 1][cause] += waited_ns;
}
