/* SPDX-License-Identifier: Apache-2.0 */
/* See shutdown.h. */
#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/last_look.h"
#include "server/seats.h"
#include "server/shutdown.h"

#define ABSENT_WAIT_MINUTES 10u /* enough for a long step, or to start a rank by hand */

void rp_engine_begin_stop(struct rp_engine *engine, enum rp_shutdown shutdown)
{
    if (engine->life.shutdown == RP_SHUTDOWN_NONE)
        engine->life.shutdown = shutdown;
    rp_life_transition(&engine->life, RP_LIFE_STOP);
    engine->saving.is_wanted = engine->saving.checkpoints != NULL;
    if (!rp_life_has_failed(&engine->life))
        rp_engine_ask_look(engine);
}

void rp_engine_error_text(const struct rp_error *error, char text[RP_ENGINE_TEXT_BYTES])
{
    snprintf(text, RP_ENGINE_TEXT_BYTES, "%s\n%s", error->message, error->hint);
}

void rp_engine_fail(struct rp_engine *engine, int code)
{
    char text[RP_ENGINE_TEXT_BYTES];
    rp_life_fail(&engine->life, code);
    rp_engine_error_text(engine->life.error, text);
    rp_log_event(RP_EVENT_failed, "%s", engine->life.error->message);
    for (uint32_t r = 0; r < engine->delivery.ring_count; r++)
        if (engine->delivery.rings[r]
                .data.data) /* else the failure is that the ring could not be made */
            rp_ring_set_status(&engine->delivery.rings[r], RP_RING_FAILED, (uint64_t)(int64_t)code,
                               text);
    engine->life.failed_ns = rp_now_ns();
}

/* Has every seat's consumer got all batches? */
enum delivery {
    IN_USE,          /* batches will follow, or a consumer is attached, or has not released all */
    AWAITS_ABSENT,   /* a seat's consumer is not attached: it may be late, or done */
    DELIVERED_TO_ALL /* every seat's consumer has released all batches */
};

/* *missing: the first seat of which it is unknown what its consumer has released. That consumer may
 * be done since an earlier engine, or late. A consumer that has finished may attach again (seat.h),
 * but the end of the stream does not wait for it. */
static enum delivery delivery_of(const struct rp_delivery *delivery, const struct rp_seat **missing)
{
    *missing = NULL;
    if (delivery->state != RP_DELIVERY_ENDED || !delivery->had_consumer)
        return IN_USE;
    for (uint32_t s = 0; s < delivery->seat_count; s++) {
        const struct rp_seat *seat = &delivery->seats[s];
        switch (seat->seat_state) {
        case RP_SEAT_ATTACHED:
        case RP_SEAT_MIGRATING:
        case RP_SEAT_STATES:
            return IN_USE;
        case RP_SEAT_ABSENT_KNOWN:
        case RP_SEAT_FINISHED:
            if (rp_seat_position(seat) < seat->ring->tail)
                return IN_USE;
            break;
        case RP_SEAT_VACANT:
        case RP_SEAT_ABSENT_UNKNOWN:
            *missing = *missing ? *missing : seat;
            break;
        case RP_SEAT_FINISHED_UNKNOWN:
            break;
        }
    }
    return *missing ? AWAITS_ABSENT : DELIVERED_TO_ALL;
}

static bool has_waited_long(struct rp_delivery *delivery, const struct rp_seat *missing)
{
    RP_ASSERT(missing && delivery->state == RP_DELIVERY_ENDED && !rp_seat_is_attached(missing));
    if (delivery->absent_wait_ns == 0) {
        char name[RP_SEAT_NAME_BYTES];
        delivery->absent_wait_ns = rp_now_ns();
        rp_log(RP_LOG_INFO,
               "the stream has ended, and %s has not attached: waiting %u minutes for it",
               rp_seat_name(missing, name), ABSENT_WAIT_MINUTES);
    }
    return rp_now_ns() - delivery->absent_wait_ns >= ABSENT_WAIT_MINUTES * 60 * 1000000000ull;
}

void rp_engine_stop_when_delivered(struct rp_engine *engine)
{
    const struct rp_seat *missing;
    enum delivery delivery = delivery_of(&engine->delivery, &missing);
    RP_ASSERT(rp_life_is_running(&engine->life));
    if (delivery == IN_USE)
        engine->delivery.absent_wait_ns = 0;
    if (delivery == IN_USE || (missing && !has_waited_long(&engine->delivery, missing)))
        return;
    rp_log_event(RP_EVENT_stream_ended, "the stream has ended and every rank has had all of it");
    rp_engine_begin_stop(engine, RP_SHUTDOWN_STREAM);
}
