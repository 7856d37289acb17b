/* SPDX-License-Identifier: Apache-2.0 */
/* One round is seven dependent multiplications, so a single value is bound by their latency (about
 * 80 ns a pass). rp_permute_many computes many values side by side, in vectors. */
#include "plan/permutation.h"

#include <string.h>

#include <Random123/philox.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "base/bits.h"
#include "base/fail.h"
#include "base/simd.h"

static uint32_t low_word(uint64_t x)
{
    return (uint32_t)x;
}
static uint32_t high_word(uint64_t x)
{
    return (uint32_t)(x >> 32);
}

static struct rp_epoch_key key_of(uint64_t seed, philox4x32_ctr_t counter)
{
    philox4x32_key_t key = {{low_word(seed), high_word(seed)}};
    philox4x32_ctr_t word = philox4x32(counter, key);
    return (struct rp_epoch_key){{word.v[0], word.v[1]}};
}

struct rp_epoch_key rp_epoch_key_make(uint64_t seed, uint32_t source, uint64_t epoch)
{
    philox4x32_ctr_t counter = {{low_word(epoch), high_word(epoch), source, 0}};
    return key_of(seed, counter);
}

struct rp_epoch_key rp_pass_key_make(uint64_t seed, uint64_t name_hash, uint32_t epoch,
                                     uint32_t pass)
{
    philox4x32_ctr_t counter = {{epoch, pass, low_word(name_hash), high_word(name_hash)}};
    return key_of(seed, counter);
}

struct rp_permutation rp_permutation_make(uint64_t n, struct rp_epoch_key epoch, uint32_t stage,
                                          uint64_t index)
{
    RP_ASSERT(n >= 1 && n < UINT64_C(1) << 63);
    uint32_t bits = n > 4 ? 64 - (uint32_t)__builtin_clzll(n - 1) : 2;
    uint32_t low_bits = bits / 2, high_bits = bits - low_bits;

    philox4x32_key_t key = {{epoch.word[0], epoch.word[1]}};
    philox4x32_ctr_t first = {{low_word(index), high_word(index), stage, 0}};
    philox4x32_ctr_t second = {{low_word(index), high_word(index), stage, 1}};
    first = philox4x32(first, key);
    second = philox4x32(second, key);
    return (struct rp_permutation){
        .n = n,
        .key = {first.v[0], first.v[1], first.v[2], first.v[3], second.v[0], second.v[1]},
        .low_bits = low_bits,
        .low_mask = low_word((UINT64_C(1) << low_bits) - 1),
        .high_mask = low_word((UINT64_C(1) << high_bits) - 1),
    };
}

/* F(round, half) of STREAM.md section 2. */
static inline uint32_t scramble(const struct rp_permutation *p, uint32_t round, uint32_t half)
{
    philox2x32_key_t key = {{p->key[round]}};
    philox2x32_ctr_t counter = {{half, round}};
    return philox2x32_R(RP_GENERATOR_ROUNDS, counter, key).v[0];
}

static uint64_t join(const struct rp_permutation *p, uint32_t high, uint32_t low)
{
    return ((uint64_t)high << p->low_bits) | low;
}

uint64_t rp_permute(const struct rp_permutation *p, uint64_t x)
{
    RP_DASSERT(x < p->n);
    if (p->n == 1)
        return 0;
    do {
        uint32_t high = low_word(x >> p->low_bits), low = low_word(x) & p->low_mask;
        for (uint32_t round = 0; round < RP_PERMUTATION_ROUNDS; round += 2) {
            high ^= scramble(p, round, low) & p->high_mask;
            low ^= scramble(p, round + 1, high) & p->low_mask;
        }
        x = join(p, high, low);
    } while (x >= p->n);
    return x;
}

uint64_t rp_permute_inverse(const struct rp_permutation *p, uint64_t y)
{
    RP_DASSERT(y < p->n);
    if (p->n == 1)
        return 0;
    do {
        uint32_t high = low_word(y >> p->low_bits), low = low_word(y) & p->low_mask;
        for (uint32_t round = RP_PERMUTATION_ROUNDS; round > 0; round -= 2) {
            low ^= scramble(p, round - 1, high) & p->low_mask;
            high ^= scramble(p, round - 2, low) & p->high_mask;
        }
        y = join(p, high, low);
    } while (y >= p->n);
    return y;
}

/* ---- many at once ---------------------------------------------------------------------------- */

#define PASS_NAME pass
#define PASS_TARGET
#define PASS_VECTOR_BYTES 16
#define PASS_GROUP 16
#ifdef __SSE2__
#define PASS_MULTIPLY(a, b) (vector) _mm_mul_epu32((__m128i)(a), (__m128i)(b))
#else
#define PASS_MULTIPLY(a, b) (((a)&UINT32_MAX) * ((b)&UINT32_MAX))
#endif
#include "plan/permutation_pass.inc"

#ifdef __x86_64__
#define PASS_NAME pass_avx2
#define PASS_TARGET __attribute__((target("avx2")))
#define PASS_VECTOR_BYTES 32
#define PASS_GROUP 16
#define PASS_MULTIPLY(a, b) (vector) _mm256_mul_epu32((__m256i)(a), (__m256i)(b))
#include "plan/permutation_pass.inc"

/* AVX-512 is used with vectors of 32 bytes, for its 32 registers and its three-way xor: vectors of
 * 64 bytes were no faster. */
#define PASS_NAME pass_avx512
#define PASS_TARGET __attribute__((target("avx512f,avx512vl")))
#define PASS_VECTOR_BYTES 32
#define PASS_GROUP 32
#define PASS_MULTIPLY(a, b) (vector) _mm256_mul_epu32((__m256i)(a), (__m256i)(b))
#include "plan/permutation_pass.inc"
#endif

static void pass_here(const struct rp_permutation *p, uint64_t *values, uint32_t count)
{
#ifdef __x86_64__
    if (count > 16 && rp_simd_has(RP_SIMD_AVX512VL)) { /* its groups have 32 values */
        pass_avx512(p, values, count);
        return;
    }
    if (rp_simd_has(RP_SIMD_AVX2)) {
        pass_avx2(p, values, count);
        return;
    }
#endif
    pass(p, values, count);
}

void rp_permute_many(const struct rp_permutation *p, uint64_t *values, uint32_t count)
{
    RP_DASSERT(count <= RP_PERMUTE_MANY_MAX);
    _Alignas(64) uint64_t x[RP_PERMUTE_MANY_MAX] = {0};
    uint32_t place[RP_PERMUTE_MANY_MAX]; /* indices of the values that are not below n yet */
    uint32_t walking = 0;                /* how many those are */
    memcpy(x, values, count * sizeof *values);
    pass_here(p, x, count);
    for (uint32_t i = 0; i < count; i++) {
        values[i] = x[i];
        place[walking] = i;
        walking += x[i] >= p->n;
    }
    while (walking > 0) {
        for (uint32_t i = 0; i < walking; i++)
            x[i] = values[place[i]];
        pass_here(p, x, walking);
        uint32_t kept = 0;
        for (uint32_t i = 0; i < walking; i++) {
            values[place[i]] = x[i];
            place[kept] = place[i];
            kept += x[i] >= p->n;
        }
        walking = kept;
    }
}
