/* SPDX-License-Identifier: Apache-2.0 */
/* prefill.h — the filler: a thread that fetches into the cache the blocks that the plan needs after
 * the readers' own.
 *
 *     readers:  [ window ][ read ahead ]
 *     filler:                           [ the next blocks of each lane and source, nearest first ]
 *
 * The plan determines the position of each lane and source (next_use.h), so a run that resumes
 * fills from its state token on. A filler requests the same ranges as a reader, so a block costs
 * the same requests, only earlier.
 *
 * Low priority: a fill begins only while no reader has a request at the server, and while the cache
 * has free room: a fill evicts no chunk. A reader that wants a range under fill waits for the fill
 * (cache.h), at most 5 seconds. A filler fetches about RP_PREFILL_AHEAD_BYTES beyond the readers,
 * in vain if the run ends: no block is begun beyond them, the last one is fetched whole, and the
 * size of a block is estimated from the mean document of its source.
 *
 * Thread: its own. Reads that fail are left to the reader, which reports them. */
#ifndef RP_FLOW_PREFILL_H
#define RP_FLOW_PREFILL_H

#include "cache/cache.h"
#include "corpus/corpus.h"
#include "flow/next_use.h"
#include "io/io.h"

#define RP_PREFILL_AHEAD_BYTES (1ull << 30)
/* Memory and descriptors that it takes at most. */
#define RP_PREFILL_BYTES (RP_CACHE_PREFILLS_MAX * (8ull << 20))
#define RP_PREFILL_DESCRIPTORS (3u * RP_CACHE_PREFILLS_MAX + 4u)

struct rp_prefill;
/** Start a prefill, if the order of documents has blocks; otherwise *prefill_out is NULL. The cache
 * and next_use, with its corpus, are borrowed; *io is copied. */
RP_MUST_CHECK int rp_prefill_open(struct rp_prefill **prefill_out, const struct rp_io_chosen *io,
                                  struct rp_cache *cache, const struct rp_next_use *next_use,
                                  const struct rp_plan_blocks *blocks, struct rp_error *error);
/** Stop it, without waiting for a server. NULL is fine. */
void rp_prefill_close(struct rp_prefill *prefill);

#endif
