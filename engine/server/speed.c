/* SPDX-License-Identifier: Apache-2.0 */
/* See speed.h. */
#include "server/speed.h"

#include "base/clock.h"
#include "server/cause.h"
#include "server/seats.h"

void rp_delivery_poll_rings(struct rp_delivery *delivery)
{
    for (uint32_t r = 0; r < delivery->ring_count; r++)
        (void)rp_ring_poll_release(&delivery->rings[r]);
}

struct rp_pace_sample rp_delivery_pace_sample(const struct rp_delivery *delivery)
{
    struct rp_flow_counts counts;
    rp_flow_counts(delivery->flow, &counts);
    return (struct rp_pace_sample){
        .at_ns = rp_now_ns(),
        .counts = {[RP_PACE_TOKENS] = counts.tokens,
                   [RP_PACE_BATCHES] = rp_delivery_consumed(delivery),
                   [RP_PACE_READ_BYTES] = counts.read_bytes,
                   [RP_PACE_TAKEN_BYTES] = counts.taken_bytes,
                   [RP_PACE_BUFFERED_BYTES] = counts.buffered_bytes,
                   [RP_PACE_DIRECT_BYTES] = counts.direct_bytes},
    };
}

void rp_engine_note_pace(struct rp_engine *engine)
{
    uint64_t now = rp_now_ns(), last = rp_pace_last_ns(&engine->watching.pace);
    if (last && now - last < RP_PACE_PERIOD_NS)
        return;
    rp_delivery_poll_rings(&engine->delivery);
    if (last)
        rp_engine_note_causes(engine, now - last);
    struct rp_pace_sample sample = rp_delivery_pace_sample(&engine->delivery);
    rp_pace_note(&engine->watching.pace, &sample);
}
