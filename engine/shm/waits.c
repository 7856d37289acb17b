/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/waits.h"

#include "base/bits.h"
#include "base/fail.h"

/* Sums of words of this size do not overflow, whatever a trainer has written. */
#define WORD_MAX (1ull << 56)

uint32_t rp_waits_bucket(uint64_t ns)
{
    uint64_t us = ns / 1000;
    uint32_t bits = us ? 64 - (uint32_t)__builtin_clzll(us) : 0;
    return bits < RP_WAIT_BUCKETS ? bits : RP_WAIT_BUCKETS - 1;
}

uint64_t rp_waits_bucket_end_ns(uint32_t bucket)
{
    RP_ASSERT(bucket < RP_WAIT_BUCKETS);
    return bucket == RP_WAIT_BUCKETS - 1 ? UINT64_MAX : 1000ull << bucket;
}

static void grow(struct rp_a64 *word, uint64_t by)
{
    rp_a64_store_relaxed(word, rp_a64_load_relaxed(word) + by);
}

void rp_waits_note(struct rp_ring_control *words, uint64_t ns)
{
    grow(&words->wait_total_ns, ns);
    grow(&words->wait_counts[rp_waits_bucket(ns)], 1);
    if (ns > rp_a64_load_relaxed(&words->wait_longest_ns))
        rp_a64_store_relaxed(&words->wait_longest_ns, ns);
}

static uint64_t read_word(const struct rp_a64 *word)
{
    return rp_min_u64(rp_a64_load_relaxed(word), WORD_MAX);
}

void rp_waits_add(struct rp_waits *waits, const struct rp_ring_control *words)
{
    waits->total_ns = rp_min_u64(waits->total_ns + read_word(&words->wait_total_ns), WORD_MAX);
    waits->longest_ns = rp_max_u64(waits->longest_ns, read_word(&words->wait_longest_ns));
    for (uint32_t i = 0; i < RP_WAIT_BUCKETS; i++)
        waits->counts[i] = rp_min_u64(waits->counts[i] + read_word(&words->wait_counts[i]),
                                      WORD_MAX);
}

uint64_t rp_waits_count(const struct rp_waits *waits)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < RP_WAIT_BUCKETS; i++)
        count += waits->counts[i];
    return count;
}

uint64_t rp_waits_percentile_ns(const struct rp_waits *waits, uint32_t percent)
{
    uint64_t count = rp_waits_count(waits), below = 0;
    uint64_t wanted = count - count / 100 * (100 - percent) - count % 100 * (100 - percent) / 100;
    RP_ASSERT(percent <= 100 && wanted <= count);
    for (uint32_t i = 0; i < RP_WAIT_BUCKETS && count > 0; i++) {
        below += waits->counts[i];
        if (below >= wanted && waits->counts[i])
            return rp_min_u64(rp_waits_bucket_end_ns(i), waits->longest_ns);
    }
    return 0;
}
