/* SPDX-License-Identifier: Apache-2.0 */
/* See pace.h. */
#include "server/pace.h"

#include "base/fail.h"

static const struct rp_pace_sample *sample_of(const struct rp_pace *pace, uint64_t number)
{
    return &pace->samples[number % RP_PACE_SAMPLES];
}

uint64_t rp_pace_last_ns(const struct rp_pace *pace)
{
    return pace->count == 0 ? 0 : sample_of(pace, pace->count - 1)->at_ns;
}

void rp_pace_note(struct rp_pace *pace, const struct rp_pace_sample *sample)
{
    RP_ASSERT(pace->count == 0 || sample->at_ns >= sample_of(pace, pace->count - 1)->at_ns);
    pace->samples[pace->count++ % RP_PACE_SAMPLES] = *sample;
}

double rp_pace_speed(const struct rp_pace *pace, const struct rp_pace_sample *now,
                     enum rp_pace_counter counter, uint64_t window_ns)
{
    uint64_t oldest = pace->count > RP_PACE_SAMPLES ? pace->count - RP_PACE_SAMPLES : 0;
    if (pace->count == 0)
        return 0;
    uint64_t number = pace->count - 1;
    while (number > oldest && now->at_ns - sample_of(pace, number)->at_ns < window_ns)
        number--;
    const struct rp_pace_sample *then = sample_of(pace, number);
    uint64_t took_ns = now->at_ns - then->at_ns;
    if (took_ns == 0 || now->counts[counter] < then->counts[counter])
        return 0;
    return (double)(now->counts[counter] - then->counts[counter]) * 1e9 / (double)took_ns;
}
