/* SPDX-License-Identifier: Apache-2.0 */
/* XXH3 of libxxhash, whose output is fixed since version 0.8.0. */
#include "base/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define XXH_STATIC_LINKING_ONLY /* for the size of the state; only public functions are called */
#ifdef RP_XXHASH_DISPATCHES
/* Names of xxhash.h become functions that choose AVX2 or AVX-512 at run time. The others are
 * compiled for SSE2: a tenth of the speed (bench/bench_hash.cc). */
#include <xxh_x86dispatch.h>
#endif
#include <xxhash.h>

#include "base/bits.h"
#include "base/fail.h"

RP_STATIC_ASSERT(sizeof(struct rp_hasher) == sizeof(XXH3_state_t), "room for libxxhash's state");
RP_STATIC_ASSERT(_Alignof(struct rp_hasher) == _Alignof(XXH3_state_t), "and aligned as it is");

static struct rp_hash128 hash_of(XXH128_hash_t hash)
{
    return (struct rp_hash128){hash.low64, hash.high64};
}

static XXH3_state_t *state_of(struct rp_hasher *hasher)
{
    return (XXH3_state_t *)(void *)hasher;
}

uint64_t rp_hash64(const void *data, size_t bytes)
{
    return XXH3_64bits(data, bytes);
}

struct rp_hash128 rp_hash128(const void *data, size_t bytes)
{
    return hash_of(XXH3_128bits(data, bytes));
}

void rp_hasher_begin(struct rp_hasher *hasher)
{
    XXH3_INITSTATE(state_of(hasher));
    XXH3_128bits_reset(state_of(hasher));
}

void rp_hasher_add(struct rp_hasher *hasher, const void *data, size_t bytes)
{
    XXH_errorcode code = XXH3_128bits_update(state_of(hasher), data, bytes);
    RP_ASSERT(code == XXH_OK);
}

struct rp_hash128 rp_hasher_finish(const struct rp_hasher *hasher)
{
    return hash_of(XXH3_128bits_digest((const XXH3_state_t *)(const void *)hasher));
}

char *rp_hash128_hex(struct rp_hash128 hash, char text[RP_HASH_HEX_BYTES])
{
    snprintf(text, RP_HASH_HEX_BYTES, "%016" PRIx64 "%016" PRIx64, hash.high, hash.low);
    return text;
}

bool rp_hash128_parse(const char *text, struct rp_hash128 *hash)
{
    char again[RP_HASH_HEX_BYTES];
    bool is_hash = text && sscanf(text, "%16" SCNx64 "%16" SCNx64, &hash->high, &hash->low) == 2 &&
                   !strcmp(rp_hash128_hex(*hash, again), text);
    if (!is_hash)
        *hash = (struct rp_hash128){0, 0};
    return is_hash;
}
