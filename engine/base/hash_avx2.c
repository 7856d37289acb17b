/* SPDX-License-Identifier: Apache-2.0 */
/* hash_avx2.c — XXH3 from the header of libxxhash, compiled for AVX2 (engine/CMakeLists.txt). The
 * library itself is built for SSE2, and takes about twice as long for bytes in the processor's
 * cache (bench/bench_hash.cc).
 *
 * A hasher that one of these functions began is only ever given to these functions: the library
 * that is loaded may be of another version than the header, and may keep its state in another way.
 */
#ifdef __x86_64__
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/fail.h"
#include "base/hash_avx2.h"

static struct rp_hash128 hash_of(XXH128_hash_t hash)
{
    return (struct rp_hash128){hash.low64, hash.high64};
}

static XXH3_state_t *state_of(struct rp_hasher *hasher)
{
    return (XXH3_state_t *)(void *)hasher;
}

uint64_t rp_hash64_avx2(const void *data, size_t bytes)
{
    return XXH3_64bits(data, bytes);
}

struct rp_hash128 rp_hash128_avx2(const void *data, size_t bytes)
{
    return hash_of(XXH3_128bits(data, bytes));
}

void rp_hasher_begin_avx2(struct rp_hasher *hasher)
{
    XXH3_INITSTATE(state_of(hasher));
    XXH3_128bits_reset(state_of(hasher));
}

void rp_hasher_add_avx2(struct rp_hasher *hasher, const void *data, size_t bytes)
{
    XXH_errorcode code = XXH3_128bits_update(state_of(hasher), data, bytes);
    RP_ASSERT(code == XXH_OK);
}

struct rp_hash128 rp_hasher_finish_avx2(const struct rp_hasher *hasher)
{
    return hash_of(XXH3_128bits_digest((const XXH3_state_t *)(const void *)hasher));
}
#else
typedef int rp_no_avx2; /* C does not allow an empty file */
#endif
