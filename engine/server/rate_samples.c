/* SPDX-License-Identifier: Apache-2.0 */
#include "server/rate_samples.h"

#include "base/clock.h"
#include "server/cause.h"
#include "server/seats.h"

void rp_delivery_poll_rings(struct rp_delivery *delivery)
{
    for (uint32_t r = 0; r < delivery->ring_count; r++)
        (void)rp_ring_poll_release(&delivery->rings[r]);
}

struct rp_rate_sample rp_delivery_sample(const struct rp_delivery *delivery)
{
    struct rp_flow_counts counts;
    rp_flow_counts(delivery->flow, &counts);
    return (struct rp_rate_sample){
        .at_ns = rp_now_ns(),
        .counts = {[RP_RATE_TOKENS] = counts.tokens,
                   [RP_RATE_BATCHES] = rp_delivery_consumed(delivery),
                   [RP_RATE_READ_BYTES] = counts.read_bytes,
                   [RP_RATE_TAKEN_BYTES] = counts.taken_bytes,
                   [RP_RATE_BUFFERED_BYTES] = counts.buffered_bytes,
                   [RP_RATE_DIRECT_BYTES] = counts.direct_bytes},
    };
}

static const struct rp_rate_sample *sample_of(const struct rp_rate_samples *samples,
                                              uint64_t number)
{
    return &samples->samples[number % RP_RATE_SAMPLES];
}

uint64_t rp_rate_last_ns(const struct rp_rate_samples *samples)
{
    return samples->count == 0 ? 0 : sample_of(samples, samples->count - 1)->at_ns;
}

void rp_rate_note(struct rp_rate_samples *samples, const struct rp_rate_sample *sample)
{
    RP_ASSERT(sample->at_ns >= rp_rate_last_ns(samples));
    samples->samples[samples->count++ % RP_RATE_SAMPLES] = *sample;
}

void rp_engine_sample_rates(struct rp_engine *engine)
{
    struct rp_rate_samples *samples = &engine->watching.rates;
    uint64_t now = rp_now_ns(), last = rp_rate_last_ns(samples);
    if (last && now - last < RP_RATE_PERIOD_NS)
        return;
    rp_delivery_poll_rings(&engine->delivery);
    if (last)
        rp_engine_note_causes(engine, now - last);
    struct rp_rate_sample sample = rp_delivery_sample(&engine->delivery);
    rp_rate_note(samples, &sample);
}

double rp_rate_of(const struct rp_rate_samples *samples, const struct rp_rate_sample *now,
                  enum rp_rate_counter counter, uint64_t window_ns)
{
    uint64_t oldest = samples->count > RP_RATE_SAMPLES ? samples->count - RP_RATE_SAMPLES : 0;
    if (samples->count == 0)
        return 0;
    uint64_t number = samples->count - 1;
    while (number > oldest && now->at_ns - sample_of(samples, number)->at_ns < window_ns)
        number--;
    const struct rp_rate_sample *then = sample_of(samples, number);
    uint64_t took_ns = now->at_ns - then->at_ns;
    if (took_ns == 0 || now->counts[counter] < then->counts[counter])
        return 0;
    return (double)(now->counts[counter] - then->counts[counter]) * 1e9 / (double)took_ns;
}
