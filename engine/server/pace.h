/* SPDX-License-Identifier: Apache-2.0 */
/* pace.h — how fast a run has gone recently: the engine's counters, sampled about ten times a
 * second for a minute, and what they have grown by over a window. */
#ifndef RP_SERVER_PACE_H
#define RP_SERVER_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define RP_PACE_PERIOD_NS 100000000u
#define RP_PACE_SAMPLES 640u /* a minute, and some more */

enum rp_pace_counter {
    RP_PACE_TOKENS,         /* published */
    RP_PACE_BATCHES,        /* micro-batches that all local ranks have released */
    RP_PACE_READ_BYTES,     /* from files or stores */
    RP_PACE_TAKEN_BYTES,    /* of tokens, read or mapped */
    RP_PACE_BUFFERED_BYTES, /* of those, read through the page cache, or from a store */
    RP_PACE_DIRECT_BYTES,   /* of those, read past the page cache */
    RP_PACE_COUNTERS
};

struct rp_pace_sample {
    uint64_t at_ns;
    uint64_t counts[RP_PACE_COUNTERS];
};

/* Zero at the start. The samples are a ring: number n is in slot n mod RP_PACE_SAMPLES. */
struct rp_pace {
    uint64_t count; /* of all samples so far */
    struct rp_pace_sample samples[RP_PACE_SAMPLES];
};

/** When the newest sample was taken; 0: there is none. */
uint64_t rp_pace_last_ns(const struct rp_pace *pace);
/** Keep a sample; times ascend. */
void rp_pace_note(struct rp_pace *pace, const struct rp_pace_sample *sample);
/** What a counter has grown by, a second: from the newest sample that is at least as old as the
 * window, or the oldest one that is kept, to `now`. A counter that was set back grows by nothing.
 */
double rp_pace_speed(const struct rp_pace *pace, const struct rp_pace_sample *now,
                     enum rp_pace_counter counter, uint64_t window_ns);

#endif
