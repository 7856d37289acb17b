/* SPDX-License-Identifier: Apache-2.0 */
/* waits.h — how long a trainer waited for its batches.
 *
 * A wait begins when a trainer asks for a batch that is not there, and ends with that batch: a call
 * that gives up goes on with the same wait in the next one. A batch that is there at once is no
 * wait. Waits are counted by length in buckets: bucket 0 has those of less than 1 us, bucket i
 * those of 2^(i-1) us to less than 2^i us, the last one also all longer ones.
 *
 * The trainer alone writes the words of its control page, none of them for a batch that is there.
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
/** No wait of this bucket is as long as that; UINT64_MAX for the last one. */
uint64_t rp_waits_bucket_end_ns(uint32_t bucket);

/** The trainer's end: count a wait that has ended. */
void rp_waits_note(struct rp_ring_control *words, uint64_t ns);

/** The engine's end: add what a trainer has written, which may be anything. */
void rp_waits_add(struct rp_waits *waits, const struct rp_ring_control *words);
uint64_t rp_waits_count(const struct rp_waits *waits);
/** At least `percent` of 100 waits were no longer than this: the end of their bucket, or the
 * longest wait. 0 where there was none. */
uint64_t rp_waits_percentile_ns(const struct rp_waits *waits, uint32_t percent);

#endif
