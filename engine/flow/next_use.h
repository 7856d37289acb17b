/* SPDX-License-Identifier: Apache-2.0 */
/* next_use.h — the distance to the next use of a range of a shard, by which a cache chooses the
 * chunks to evict.
 *
 *     bytes of a shard ──corpus──► documents ──► blocks ──plan/forecast.h──► distance
 *
 * If the range spans several blocks, the result is the distance of the one needed first. It is a
 * hint: a wrong one costs a request.
 * Threads: dispatch notes reads; the cache's thread looks up distances. */
#ifndef RP_FLOW_NEXT_USE_H
#define RP_FLOW_NEXT_USE_H

#include "corpus/corpus.h"
#include "flow/block_reads.h"
#include "plan/forecast.h"

struct rp_next_use {
    const struct rp_corpus *corpus;
    struct rp_forecast *forecast;
    uint32_t next_pair;    /* the pair of lane and source that is noted next */
    struct rp_a32 started; /* 1: a flow has started, so positions are the stream's */
};

RP_MUST_CHECK int rp_next_use_open(struct rp_next_use *next_use, const struct rp_corpus *corpus,
                                   const struct rp_plan *plan, struct rp_error *error);
void rp_next_use_close(struct rp_next_use *next_use);

/** A flow starts at the plan's position; its block reads (is_local: NULL without any)
 * determine the lanes that are read. */
void rp_next_use_start(struct rp_next_use *next_use, const struct rp_plan *plan,
                       const struct rp_block_reads *block_reads);
/** Some rows were planned, or a block was read: note where each lane and source is, a few of them
 * at each call. */
void rp_next_use_note(struct rp_next_use *next_use, const struct rp_plan *plan,
                      const struct rp_block_reads *block_reads);

/** The function that a cache wants (cache/cache.h); the context is the struct. */
uint64_t rp_next_use_of(void *next_use, uint32_t shard, uint64_t first, uint64_t last);
/** The epoch of the first source that the first lane reads. */
uint64_t rp_next_use_epoch(void *next_use);
/** The distance of bytes with no known next use: half an epoch. */
uint64_t rp_next_use_usual(const struct rp_next_use *next_use);

#endif
