/* SPDX-License-Identifier: Apache-2.0 */
/* rate_samples.h — the engine's counters, sampled about ten times a second for a minute, and their
 * growth over a window. */
#ifndef RP_SERVER_RATE_SAMPLES_H
#define RP_SERVER_RATE_SAMPLES_H

#include <stdint.h>

struct rp_delivery;
struct rp_engine;

#define RP_RATE_PERIOD_NS 100000000u
#define RP_RATE_SAMPLES 640u /* 64 seconds */

enum rp_rate_counter {
    RP_RATE_TOKENS,         /* published */
    RP_RATE_BATCHES,        /* micro-batches that all local ranks have released */
    RP_RATE_READ_BYTES,     /* from files or stores */
    RP_RATE_TAKEN_BYTES,    /* bytes of tokens, read or mapped */
    RP_RATE_BUFFERED_BYTES, /* taken bytes that were read through the page cache, or from a store */
    RP_RATE_DIRECT_BYTES,   /* taken bytes that were read past the page cache */
    RP_RATE_COUNTERS
};

struct rp_rate_sample {
    uint64_t at_ns;
    uint64_t counts[RP_RATE_COUNTERS];
};

/* Zero at the start. A ring: sample number n is in slot n mod RP_RATE_SAMPLES. */
struct rp_rate_samples {
    uint64_t count; /* all samples so far */
    struct rp_rate_sample samples[RP_RATE_SAMPLES];
};

/** Read the releases of consumers since the last step of the flow. */
void rp_delivery_poll_rings(struct rp_delivery *delivery);
/** The counters as they are. */
struct rp_rate_sample rp_delivery_sample(const struct rp_delivery *delivery);
/** Keep a sample, if one is due, and note the cause of each trainer's wait. */
void rp_engine_sample_rates(struct rp_engine *engine);
/** The time of the newest sample; 0: no sample yet. */
uint64_t rp_rate_last_ns(const struct rp_rate_samples *samples);
/** Keep a sample; times ascend. */
void rp_rate_note(struct rp_rate_samples *samples, const struct rp_rate_sample *sample);
/** The growth of a counter a second, from an earlier sample to `now`: the newest sample that is at
 * least as old as the window, or the oldest one that is kept. 0 if the counter was set back. */
double rp_rate_of(const struct rp_rate_samples *samples, const struct rp_rate_sample *now,
                  enum rp_rate_counter counter, uint64_t window_ns);

#endif
