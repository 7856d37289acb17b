/* SPDX-License-Identifier: Apache-2.0 */
/* hash — XXH3 as published by libxxhash 0.8; its output is fixed since 0.8.0. */
#include "base/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <xxhash.h>

#include "base/fail.h"

uint64_t rp_hash64(const void *data, size_t bytes)
{
    return XXH3_64bits(data, bytes);
}

struct rp_hash128 rp_hash128(const void *data, size_t bytes)
{
    XXH128_hash_t hash = XXH3_128bits(data, bytes);
    return (struct rp_hash128){hash.low64, hash.high64};
}

struct rp_hasher *rp_hasher_open(void)
{
    XXH3_state_t *state = XXH3_createState();
    if (state)
        XXH3_128bits_reset(state);
    return (struct rp_hasher *)state;
}

void rp_hasher_add(struct rp_hasher *hasher, const void *data, size_t bytes)
{
    XXH_errorcode code = XXH3_128bits_update((XXH3_state_t *)hasher, data, bytes);
    RP_ASSERT(code == XXH_OK);
}

struct rp_hash128 rp_hasher_finish(struct rp_hasher *hasher)
{
    XXH128_hash_t hash = XXH3_128bits_digest((XXH3_state_t *)hasher);
    XXH3_freeState((XXH3_state_t *)hasher);
    return (struct rp_hash128){hash.low64, hash.high64};
}

char *rp_hash128_hex(struct rp_hash128 hash, char text[RP_HASH_HEX_BYTES])
{
    snprintf(text, RP_HASH_HEX_BYTES, "%016" PRIx64 "%016" PRIx64, hash.high, hash.low);
    return text;
}
