/* SPDX-License-Identifier: Apache-2.0 */
/* row_digest.h — the hash of a row, and its contribution to the digest of the stream
 * (engine/plan/STREAM.md, "Digest"), for the client library, the program and the tests. */
#ifndef RP_BASE_ROW_DIGEST_H
#define RP_BASE_ROW_DIGEST_H

#include <stdint.h>

#include "base/hash.h"
#include "ringpack/batch.h"

/** Hash of a row: the lengths of its `fragments` fragments, and their tokens, which are stored as
 * `dtype` (U16, I32 or I64; ids are below 2^32). The hash does not depend on dtype. */
struct rp_hash128 rp_row_hash(const int32_t *lengths, uint32_t fragments, const void *tokens,
                              enum rp_dtype dtype);

/** H(g) of STREAM.md: the contribution of row g to the digest of a set of rows. */
struct rp_hash128 rp_row_digest(uint64_t row, struct rp_hash128 row_hash);

#endif
