/* SPDX-License-Identifier: Apache-2.0 */
/* hash.c — XXH3 of libxxhash, whose output is fixed since version 0.8.0. */
#include "base/hash.h"

#include <inttypes.h>
#include <stdio.h>

#define XXH_STATIC_LINKING_ONLY /* for the size of the state; only public functions are called */
#include <xxhash.h>

#include "base/bits.h"
#include "base/fail.h"
#include "base/hash_avx2.h"
#include "base/simd.h"

RP_STATIC_ASSERT(sizeof(struct rp_hasher) == sizeof(XXH3_state_t), "room for libxxhash's state");
RP_STATIC_ASSERT(_Alignof(struct rp_hasher) == _Alignof(XXH3_state_t), "and aligned as it is");

/* ---- by the library -------------------------------------------------------------------------- */

static uint64_t hash64_library(const void *data, size_t bytes)
{
    return XXH3_64bits(data, bytes);
}

static struct rp_hash128 hash128_library(const void *data, size_t bytes)
{
    XXH128_hash_t hash = XXH3_128bits(data, bytes);
    return (struct rp_hash128){hash.low64, hash.high64};
}

static XXH3_state_t *state_of(struct rp_hasher *hasher)
{
    return (XXH3_state_t *)(void *)hasher;
}

static void hasher_begin_library(struct rp_hasher *hasher)
{
    XXH3_INITSTATE(state_of(hasher));
    XXH3_128bits_reset(state_of(hasher));
}

static void hasher_add_library(struct rp_hasher *hasher, const void *data, size_t bytes)
{
    XXH_errorcode code = XXH3_128bits_update(state_of(hasher), data, bytes);
    RP_ASSERT(code == XXH_OK);
}

static struct rp_hash128 hasher_finish_library(const struct rp_hasher *hasher)
{
    XXH128_hash_t hash = XXH3_128bits_digest((const XXH3_state_t *)(const void *)hasher);
    return (struct rp_hash128){hash.low64, hash.high64};
}

/* ---- by what the processor has --------------------------------------------------------------- */

/* Distributions build the library for what every x86-64 processor has, SSE2; on other processors it
 * is as fast as can be. */
#ifdef __x86_64__
#define CALL(name, ...)                                                                            \
    (rp_simd_has(RP_SIMD_AVX2) ? rp_##name##_avx2(__VA_ARGS__) : name##_library(__VA_ARGS__))
#else
#define CALL(name, ...) name##_library(__VA_ARGS__)
#endif

uint64_t rp_hash64(const void *data, size_t bytes)
{
    return CALL(hash64, data, bytes);
}

struct rp_hash128 rp_hash128(const void *data, size_t bytes)
{
    return CALL(hash128, data, bytes);
}

void rp_hasher_begin(struct rp_hasher *hasher)
{
    CALL(hasher_begin, hasher);
}

void rp_hasher_add(struct rp_hasher *hasher, const void *data, size_t bytes)
{
    CALL(hasher_add, hasher, data, bytes);
}

struct rp_hash128 rp_hasher_finish(const struct rp_hasher *hasher)
{
    return CALL(hasher_finish, hasher);
}

char *rp_hash128_hex(struct rp_hash128 hash, char text[RP_HASH_HEX_BYTES])
{
    snprintf(text, RP_HASH_HEX_BYTES, "%016" PRIx64 "%016" PRIx64, hash.high, hash.low);
    return text;
}
