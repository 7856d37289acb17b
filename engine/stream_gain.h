/* SPDX-License-Identifier: Apache-2.0 */
/* stream_gain.h — the waiting that `deal: auto` would save, by the first rows of a stream: for the
 * log of a first start, and for `ringpack plan`. As stream.h, it stands above config, corpus and
 * plan. */
#ifndef RP_STREAM_GAIN_H
#define RP_STREAM_GAIN_H

#include <pthread.h>
#include <stdbool.h>

#include "config/config.h"
#include "corpus/corpus.h"

#define RP_GAIN_BYTES 400u

/** Set `text` to a sentence with both figures, if ranks that wait for each other after each
 * micro-step would be 2 % faster with `deal: auto`; otherwise to an empty one. It is empty also if
 * the config gives the key `deal`, has one rank, steps of more than 65,536 rows, or stream version
 * 1. At most 16 steps are planned, and 131,072 fragments: some 20 ms. Errors are as of
 * rp_plan_next, and -ENOMEM. */
RP_MUST_CHECK int rp_gain_text(char text[RP_GAIN_BYTES], const struct rp_config *config,
                               const struct rp_corpus *corpus, struct rp_error *error);

/* A thread that logs it, of a run that begins and keeps its deal. The first batch does not wait for
 * it, and it gives way to other threads. */
struct rp_gain_log {
    const struct rp_config *config;
    const struct rp_corpus *corpus;
    pthread_t thread;
    bool started;
};
/** Start it; config and corpus are borrowed until rp_gain_log_end. A failure here is repeated by
 * the first row. */
void rp_gain_log_start(struct rp_gain_log *log, const struct rp_config *config,
                       const struct rp_corpus *corpus);
/** Wait until it has ended. Idempotent; a zeroed struct is fine. */
void rp_gain_log_end(struct rp_gain_log *log);

#endif
