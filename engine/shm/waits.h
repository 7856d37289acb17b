/* SPDX-License-Identifier: Apache-2.0 */
/* waits.h — the durations of a trainer's waits for its batches.
 *
 * A wait begins when a trainer wants a batch that is not published, and ends with that batch: after
 * a call that times out, the next call continues the same wait. A batch that is there at once is no
 * wait. Waits are counted by length in buckets: bucket 0 is below 1 us, bucket i is from 2^(i-1) us
 * to below 2^i us, and the last one also has all longer waits.
 *
 * Only the trainer writes the words of its control page, none of them for a batch that was ready.
 * The engine reads them without order: a sum may lack a wait that its bucket has. */
#ifndef RP_SHM_WAITS_H
#define RP_SHM_WAITS_H

#include "shm/layout.h"

struct rp_waits {
    uint64_t total_ns, longest_ns;
    uint64_t counts[RP_WAIT_BUCKETS];
};

/** The bucket of a wait. */
uint32_t rp_waits_bucket(uint64_t ns);
/** The exclusive upper bound of the bucket; UINT64_MAX for the last one. */
uint64_t rp_waits_bucket_end_ns(uint32_t bucket);

/** The trainer's end: count a wait that has ended. */
void rp_waits_note(struct rp_ring_control *words, uint64_t ns);

/** The engine's end: add a trainer's counts, which are untrusted. */
void rp_waits_add(struct rp_waits *waits, const struct rp_ring_control *words);
uint64_t rp_waits_count(const struct rp_waits *waits);
/** At least `percent` of 100 waits were no longer than this: the end of their bucket, or the
 * longest wait. 0 if there was no wait. */
uint64_t rp_waits_percentile_ns(const struct rp_waits *waits, uint32_t percent);

#endif
