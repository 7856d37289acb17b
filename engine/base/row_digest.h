/* SPDX-License-Identifier: Apache-2.0 */
/* row_digest.h — the hash of a row and its share in the stream digest (engine/plan/STREAM.md,
 * "Digest").
 *
 * One definition for whoever sees rows: the trainer's library, the program, the tests. */
#ifndef RP_BASE_ROW_DIGEST_H
#define RP_BASE_ROW_DIGEST_H

#include <stdint.h>

#include "base/hash.h"
#include "ringpack/batch.h"

/** Hash of a row's content: `fragments` lengths and the tokens they add up to, stored as `dtype`
 * (U16, I32 or I64; ids are below 2^32). The same ids have the same hash whatever their dtype. */
struct rp_hash128 rp_row_hash(const int32_t *lengths, uint32_t fragments, const void *tokens,
                              enum rp_dtype dtype);

/** H(row): what this row adds to the digest of a set of rows. */
struct rp_hash128 rp_row_digest(uint64_t row, struct rp_hash128 row_hash);

#endif
