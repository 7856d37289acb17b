/* SPDX-License-Identifier: Apache-2.0 */
#include "server/revalidate.h"

#include "base/clock.h"
#include "base/defect.h"
#include "base/log.h"

static void settle(struct rp_saving *saving, enum rp_validity validity)
{
    saving->validity = validity;
    rp_a32_store_release(&saving->saver.validity, validity); /* PAIRS saver-validity */
    rp_event_signal(&saving->saver.validity_settled);
}

void rp_engine_request_revalidation(struct rp_engine *engine)
{
    if (RP_DEFECT(leave_out_last_revalidation)) {
        settle(&engine->saving, RP_VALIDITY_UNCHANGED);
        return;
    }
    rp_flow_request_revalidation(engine->delivery.flow);
    if (engine->saving.validity == RP_VALIDITY_REQUESTED)
        return; /* a save has waited since its request */
    engine->saving.validity = RP_VALIDITY_REQUESTED;
    engine->saving.validity_until_ns = rp_now_ns() + RP_REVALIDATE_SECONDS * 1000000000ull;
}

bool rp_engine_disk_is_silent(const struct rp_engine *engine)
{
    return engine->saving.validity == RP_VALIDITY_LATE &&
           rp_flow_revalidation_result(engine->delivery.flow, NULL) == 0;
}

int rp_engine_poll_revalidation(struct rp_engine *engine)
{
    struct rp_error error;
    if (engine->saving.validity != RP_VALIDITY_REQUESTED)
        return 0;
    bool is_known = engine->life.code == -RP_E_CHANGED; /* dispatch may also have ended */
    int code = is_known ? -RP_E_CHANGED
                        : rp_flow_revalidation_result(engine->delivery.flow, &error);
    if (code == 0 && rp_now_ns() < engine->saving.validity_until_ns)
        return 0;
    settle(&engine->saving, code < 0    ? RP_VALIDITY_CHANGED
                            : code == 0 ? RP_VALIDITY_LATE
                                        : RP_VALIDITY_UNCHANGED);
    if (code == 0)
        rp_log(RP_LOG_WARNING,
               "the disk of the token files has not answered for %u seconds, so it is not known "
               "whether they have changed",
               RP_REVALIDATE_SECONDS);
    if (code >= 0 || engine->life.life_state != RP_LIFE_STOPPING)
        return 0;
    *engine->life.error = error;
    return code;
}
