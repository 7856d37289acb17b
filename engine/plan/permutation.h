/* SPDX-License-Identifier: Apache-2.0 */
/* permutation.h — a keyed permutation of 0 … n-1 that is computed, not stored (STREAM.md section
 * 2).
 *
 * A Feistel network over Philox, applied until the value is below n (cycle walking). Any value is
 * computed in O(1) time and memory, and so is the inverse. The generator is Random123's, so no
 * value depends on the machine, the compiler or libc. */
#ifndef RP_PLAN_PERMUTATION_H
#define RP_PLAN_PERMUTATION_H

#include <stdint.h>

/* The base key of all permutations of one epoch of one source. */
struct rp_epoch_key {
    uint32_t word[2];
};
struct rp_epoch_key rp_epoch_key_make(uint64_t seed, uint32_t source, uint64_t epoch);
/** The same of one pass of an epoch of a source, by the XXH3-64 of its name (STREAM2.md section 3).
 */
struct rp_epoch_key rp_pass_key_make(uint64_t seed, uint64_t name_hash, uint32_t epoch,
                                     uint32_t pass);

#define RP_PERMUTATION_ROUNDS 6
#define RP_GENERATOR_ROUNDS 7 /* philox2x32's, in each of them */

struct rp_permutation {
    uint64_t n;
    uint32_t key[RP_PERMUTATION_ROUNDS];
    uint32_t low_bits; /* a value has a low and a high half; the high one may have one bit more */
    uint32_t low_mask, high_mask;
};

/** The permutation of 0 … n-1 (1 <= n < 2^63) for a stage and an index. */
struct rp_permutation rp_permutation_make(uint64_t n, struct rp_epoch_key epoch, uint32_t stage,
                                          uint64_t index);

uint64_t rp_permute(const struct rp_permutation *permutation, uint64_t x);
uint64_t rp_permute_inverse(const struct rp_permutation *permutation, uint64_t y);

#define RP_PERMUTE_MANY_MAX 256u

/** rp_permute on each of `count` <= RP_PERMUTE_MANY_MAX values in place; several times faster,
 * because the multiplications of different values overlap. Up to half of the values walk on after
 * each pass, so the last passes have few values: the more at once, the less a value costs. */
void rp_permute_many(const struct rp_permutation *permutation, uint64_t *values, uint32_t count);

#endif
