/* SPDX-License-Identifier: Apache-2.0 */
/* sha256.c — see sha256.h. Names of variables as in FIPS 180-4, section 6.2. */
#include "base/sha256.h"

#include <string.h>

#include "base/bits.h"

#define BLOCK_BYTES 64u

static const uint32_t k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

struct state {
    uint32_t h[8];
    uint8_t block[BLOCK_BYTES];
    uint64_t bytes; /* taken so far */
};

static uint32_t rotate(uint32_t x, unsigned n)
{
    return x >> n | x << (32 - n);
}

static uint32_t load_big(const uint8_t *p)
{
    return __builtin_bswap32(rp_load_u32(p));
}

static void mix(struct state *s)
{
    uint32_t w[64], v[8];
    for (unsigned t = 0; t < 16; t++)
        w[t] = load_big(s->block + 4 * (size_t)t);
    for (unsigned t = 16; t < 64; t++) {
        uint32_t low = rotate(w[t - 15], 7) ^ rotate(w[t - 15], 18) ^ w[t - 15] >> 3;
        uint32_t high = rotate(w[t - 2], 17) ^ rotate(w[t - 2], 19) ^ w[t - 2] >> 10;
        w[t] = high + w[t - 7] + low + w[t - 16];
    }
    memcpy(v, s->h, sizeof v); /* a … h are v[0] … v[7] */
    for (unsigned t = 0; t < 64; t++) {
        uint32_t t1 = v[7] + (rotate(v[4], 6) ^ rotate(v[4], 11) ^ rotate(v[4], 25)) +
                      ((v[4] & v[5]) ^ (~v[4] & v[6])) + k[t] + w[t];
        uint32_t t2 = (rotate(v[0], 2) ^ rotate(v[0], 13) ^ rotate(v[0], 22)) +
                      ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof v[0]);
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (unsigned i = 0; i < 8; i++)
        s->h[i] += v[i];
}

static void begin(struct state *s)
{
    *s = (struct state){.h = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
                              0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

static void add(struct state *s, const void *data, size_t bytes)
{
    const uint8_t *from = data;
    for (size_t i = 0; i < bytes; i++) {
        s->block[s->bytes++ % BLOCK_BYTES] = from[i];
        if (s->bytes % BLOCK_BYTES == 0)
            mix(s);
    }
}

static void finish(struct state *s, uint8_t digest[RP_SHA256_BYTES])
{
    static const uint8_t padding[BLOCK_BYTES] = {0x80};
    uint64_t bits = __builtin_bswap64(s->bytes * 8);
    size_t used = s->bytes % BLOCK_BYTES;
    add(s, padding, (used < 56 ? 56 : 120) - used);
    add(s, &bits, sizeof bits);
    for (unsigned i = 0; i < 8; i++) {
        uint32_t big = __builtin_bswap32(s->h[i]);
        memcpy(digest + 4 * (size_t)i, &big, sizeof big);
    }
}

void rp_sha256(const void *data, size_t bytes, uint8_t digest[RP_SHA256_BYTES])
{
    struct state s;
    begin(&s);
    add(&s, data, bytes);
    finish(&s, digest);
}

void rp_hmac_sha256(const void *key, size_t key_bytes, const void *data, size_t bytes,
                    uint8_t digest[RP_SHA256_BYTES])
{
    uint8_t inner[BLOCK_BYTES] = {0}, outer[BLOCK_BYTES];
    struct state s;
    if (key_bytes > BLOCK_BYTES)
        rp_sha256(key, key_bytes, inner);
    else
        memcpy(inner, key, key_bytes);
    for (unsigned i = 0; i < BLOCK_BYTES; i++) {
        outer[i] = inner[i] ^ 0x5c;
        inner[i] ^= 0x36;
    }
    begin(&s);
    add(&s, inner, sizeof inner);
    add(&s, data, bytes);
    finish(&s, digest);
    begin(&s);
    add(&s, outer, sizeof outer);
    add(&s, digest, RP_SHA256_BYTES);
    finish(&s, digest);
}

void rp_sha256_hex(const uint8_t digest[RP_SHA256_BYTES], char text[2 * RP_SHA256_BYTES + 1])
{
    static const char digits[] = "0123456789abcdef";
    for (unsigned i = 0; i < RP_SHA256_BYTES; i++) {
        text[2 * i] = digits[digest[i] >> 4];
        text[2 * i + 1] = digits[digest[i] & 15];
    }
    text[2 * RP_SHA256_BYTES] = '\0';
}
