/* SPDX-License-Identifier: Apache-2.0 */
/* hash_avx2.h — the functions of hash.h for processors with AVX2, with the same results. */
#ifndef RP_BASE_HASH_AVX2_H
#define RP_BASE_HASH_AVX2_H

#include "base/hash.h"

uint64_t rp_hash64_avx2(const void *data, size_t bytes);
struct rp_hash128 rp_hash128_avx2(const void *data, size_t bytes);
void rp_hasher_begin_avx2(struct rp_hasher *hasher);
void rp_hasher_add_avx2(struct rp_hasher *hasher, const void *data, size_t bytes);
struct rp_hash128 rp_hasher_finish_avx2(const struct rp_hasher *hasher);

#endif
