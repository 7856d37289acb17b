/* SPDX-License-Identifier: Apache-2.0 */
/* hash.h — XXH3 hashes, by libxxhash. They detect damage, not forgery. */
#ifndef RP_BASE_HASH_H
#define RP_BASE_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bits.h"

/* A 128-bit value, low half first; as bytes it is 16 bytes little-endian. */
struct rp_hash128 {
    uint64_t low, high;
};

/** False for zero, which stands for a hash that is not known. */
static inline bool rp_hash128_is_known(struct rp_hash128 hash)
{
    return hash.low != 0 || hash.high != 0;
}

uint64_t rp_hash64(const void *data, size_t bytes);
struct rp_hash128 rp_hash128(const void *data, size_t bytes);

/* Incremental XXH3-128. It owns no memory, so it need not be freed; it must be aligned. */
struct rp_hasher {
    uint8_t state[576] __attribute__((aligned(64))); /* libxxhash's */
};
void rp_hasher_begin(struct rp_hasher *hasher);
void rp_hasher_add(struct rp_hasher *hasher, const void *data, size_t bytes);
struct rp_hash128 rp_hasher_finish(const struct rp_hasher *hasher);

static inline bool rp_hash128_equal(struct rp_hash128 a, struct rp_hash128 b)
{
    return a.low == b.low && a.high == b.high;
}
/* Sum modulo 2^128. The digest of two disjoint sets of rows is the sum of theirs
 * (engine/plan/STREAM.md, "Digest"). */
static inline struct rp_hash128 rp_hash128_sum(struct rp_hash128 a, struct rp_hash128 b)
{
    struct rp_hash128 sum = {a.low + b.low, a.high + b.high};
    sum.high += sum.low < a.low;
    return sum;
}

/** The 16 bytes of a hash in a file, at any alignment. */
static inline void rp_hash128_store(uint8_t *bytes, struct rp_hash128 hash)
{
    rp_store_u64(bytes, hash.low);
    rp_store_u64(bytes + 8, hash.high);
}
static inline struct rp_hash128 rp_hash128_load(const uint8_t *bytes)
{
    return (struct rp_hash128){rp_load_u64(bytes), rp_load_u64(bytes + 8)};
}

#define RP_HASH_HEX_BYTES 33
/** 32 hex digits, most significant first, and a NUL. Returns `text`. */
char *rp_hash128_hex(struct rp_hash128 hash, char text[RP_HASH_HEX_BYTES]);
/** Read such a text, whole and in lower case. False: it is none, or NULL; the hash is zero then. */
bool rp_hash128_parse(const char *text, struct rp_hash128 *hash);

#endif
