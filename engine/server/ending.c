/* SPDX-License-Identifier: Apache-2.0 */
/* See ending.h. */
#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/ending.h"
#include "server/seat.h"

#define ABSENT_WAIT_MINUTES 10u /* a long step, or until somebody starts the next rank by hand */

void rp_engine_begin_stop(struct rp_engine *engine)
{
    if (engine->phase != RP_ENGINE_DONE)
        engine->phase = RP_ENGINE_STOPPING;
    engine->save_wanted = engine->checkpoints != NULL;
}

void rp_engine_error_text(const struct rp_error *error, char text[RP_ENGINE_TEXT_BYTES])
{
    snprintf(text, RP_ENGINE_TEXT_BYTES, "%s\n%s", error->message, error->hint);
}

void rp_engine_fail(struct rp_engine *engine, int code)
{
    char text[RP_ENGINE_TEXT_BYTES];
    rp_engine_error_text(engine->error, text);
    rp_log(RP_LOG_ERROR, "%s", engine->error->message);
    engine->exit_code = code;
    for (uint32_t r = 0; r < engine->ring_count; r++)
        if (engine->rings[r].data.data) /* it could not be made: that is then the failure */
            rp_ring_set_status(&engine->rings[r], RP_RING_FAILED, (uint64_t)(int64_t)code, text);
    engine->failed_ns = rp_now_ns();
    if (engine->phase == RP_ENGINE_RUNNING)
        engine->phase = RP_ENGINE_FAILED;
}

/* Has the last trainer of the seat come in the newest return and had everything? It need not come
 * again. (It does if all go back to the state from which it came: that cannot be told from a return
 * in which the others are late. So no checkpoint counts on it while it is in doubt.) */
static bool is_done(const struct rp_engine *engine, const struct rp_seat *seat)
{
    return seat->consumed_all && seat->rollback_epoch > 0 &&
           seat->rollback_epoch == engine->rollback_epoch;
}

/* Who has not been here may have had everything from the engine before this one, or be in a long
 * step: he is waited for, but not for ever. */
bool rp_engine_has_delivered_all(struct rp_engine *engine)
{
    const struct rp_seat *missing = NULL;
    bool was_used = false, is_used = !engine->flow_ended;
    for (uint32_t s = 0; s < engine->seat_count && !is_used; s++) {
        const struct rp_seat *seat = &engine->seats[s];
        bool is_known = seat->ever_attached && !seat->position_unknown;
        is_used = rp_seat_is_attached(seat) ||
                  (is_known && rp_seat_position(seat) < seat->ring->tail);
        was_used |= seat->ever_attached;
        missing = missing || is_known || is_done(engine, seat) ? missing : seat;
    }
    if (is_used || !was_used) {
        engine->left_ns = 0;
        return false;
    }
    if (!missing)
        return true;
    if (engine->left_ns == 0) {
        char name[RP_SEAT_NAME_BYTES];
        engine->left_ns = rp_now_ns();
        rp_log(RP_LOG_INFO,
               "the stream has ended, and %s has not attached: waiting %u minutes for it",
               rp_seat_name(missing, name), ABSENT_WAIT_MINUTES);
    }
    return rp_now_ns() - engine->left_ns >= ABSENT_WAIT_MINUTES * 60 * 1000000000ull;
}
