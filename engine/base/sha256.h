/* SPDX-License-Identifier: Apache-2.0 */
/* sha256.h — SHA-256 (FIPS 180-4) and HMAC (RFC 2104) with it, for signed URLs and for files whose
 * lines are chained. Texts of a few hundred bytes: plain code, and no library that a machine may
 * lack. */
#ifndef RP_BASE_SHA256_H
#define RP_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define RP_SHA256_BYTES 32u

void rp_sha256(const void *data, size_t bytes, uint8_t digest[RP_SHA256_BYTES]);
void rp_hmac_sha256(const void *key, size_t key_bytes, const void *data, size_t bytes,
                    uint8_t digest[RP_SHA256_BYTES]);
/** Lower-case hexadecimal digits and a NUL. */
void rp_sha256_hex(const uint8_t digest[RP_SHA256_BYTES], char text[2 * RP_SHA256_BYTES + 1]);

#endif
