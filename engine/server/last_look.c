/* SPDX-License-Identifier: Apache-2.0 */
/* See last_look.h. */
#include "server/last_look.h"

#include "base/clock.h"
#include "base/defect.h"
#include "base/log.h"

static void settle(struct rp_engine *engine, enum rp_look look)
{
    engine->look = look;
    rp_a32_store_release(&engine->saver.look, look); /* PAIRS saver-look */
    rp_event_signal(&engine->saver.look_settled);
}

void rp_engine_ask_look(struct rp_engine *engine)
{
    if (RP_DEFECT(leave_out_last_look)) {
        settle(engine, RP_LOOK_UNCHANGED);
        return;
    }
    rp_flow_request_revalidation(engine->flow);
    engine->look = RP_LOOK_ASKED;
    engine->look_until_ns = rp_now_ns() + RP_LOOK_SECONDS * 1000000000ull;
}

int rp_engine_follow_look(struct rp_engine *engine)
{
    struct rp_error error;
    if (engine->look != RP_LOOK_ASKED)
        return 0;
    bool is_known = engine->exit_code == -RP_E_CHANGED; /* dispatch may have ended, too */
    int code = is_known ? -RP_E_CHANGED : rp_flow_revalidation_result(engine->flow, &error);
    if (code == 0 && rp_now_ns() < engine->look_until_ns)
        return 0;
    settle(engine, code < 0 ? RP_LOOK_CHANGED : code == 0 ? RP_LOOK_LATE : RP_LOOK_UNCHANGED);
    if (code == 0)
        rp_log(RP_LOG_WARNING,
               "the disk of the token files has not answered for %u seconds, so it is not known "
               "whether they have changed",
               RP_LOOK_SECONDS);
    if (code >= 0 || engine->phase != RP_ENGINE_STOPPING || engine->exit_code != 0)
        return 0;
    *engine->error = error;
    return code;
}
