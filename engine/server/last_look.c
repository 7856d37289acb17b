/* SPDX-License-Identifier: Apache-2.0 */
/* See last_look.h. */
#include "server/last_look.h"

#include "base/clock.h"
#include "base/defect.h"
#include "base/log.h"

static void settle(struct rp_saving *saving, enum rp_look look)
{
    saving->look = look;
    rp_a32_store_release(&saving->saver.look, look); /* PAIRS saver-look */
    rp_event_signal(&saving->saver.look_settled);
}

void rp_engine_ask_look(struct rp_engine *engine)
{
    if (RP_DEFECT(leave_out_last_look)) {
        settle(&engine->saving, RP_LOOK_UNCHANGED);
        return;
    }
    rp_flow_ask_look(engine->delivery.flow);
    engine->saving.look = RP_LOOK_ASKED;
    engine->saving.look_until_ns = rp_now_ns() + RP_LOOK_SECONDS * 1000000000ull;
}

int rp_engine_follow_look(struct rp_engine *engine)
{
    struct rp_error error;
    if (engine->saving.look != RP_LOOK_ASKED)
        return 0;
    bool is_known = engine->life.code == -RP_E_CHANGED; /* dispatch may have ended, too */
    int code = is_known ? -RP_E_CHANGED : rp_flow_look_result(engine->delivery.flow, &error);
    if (code == 0 && rp_now_ns() < engine->saving.look_until_ns)
        return 0;
    settle(&engine->saving, code < 0    ? RP_LOOK_CHANGED
                            : code == 0 ? RP_LOOK_LATE
                                        : RP_LOOK_UNCHANGED);
    if (code == 0)
        rp_log(RP_LOG_WARNING,
               "the disk of the token files has not answered for %u seconds, so it is not known "
               "whether they have changed",
               RP_LOOK_SECONDS);
    if (code >= 0 || engine->life.life_state != RP_LIFE_STOPPING)
        return 0;
    *engine->life.error = error;
    return code;
}
