/* SPDX-License-Identifier: Apache-2.0 */
/* contents.h — tokens of prefetched rows that a checkpoint holds, so that the first batches need no
 * corpus. They are used in place, in the bytes of the checkpoint, without a copy.
 *
 * Contents are kept by (row, token offset in the row), independent of ranks, batch sizes and rings,
 * so a run may come back with another topology and still use them. They are a cache: missing tokens
 * are read from the corpus. An engine keeps them as long as it runs, because a trainer may request
 * their rows again. */
#ifndef RP_FLOW_CONTENTS_H
#define RP_FLOW_CONTENTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"

/* `count` tokens of `width` bytes, from token `offset` of row `row` on; they are at `byte_offset`
 * of the bytes. */
struct rp_content_run {
    uint64_t row, byte_offset;
    uint32_t offset, count, width;
    uint32_t reserved;
};

struct rp_contents;

/** Make an empty collection of runs over `bytes`. The caller owns `bytes` and does not change them
 * until the collection is cleared or freed. NULL when out of memory. */
struct rp_contents *rp_contents_new(const void *bytes, size_t size);
void rp_contents_free(struct rp_contents *contents);
/** Drop all runs and the reference to their bytes. No flow that uses the collection may run. */
void rp_contents_clear(struct rp_contents *contents);

/** Add a run whose tokens are at `tokens`. Runs must ascend by (row, offset), not overlap, and be
 * inside the bytes of the collection; others are refused (-RP_E_CORRUPT), so that a damaged file
 * cannot do harm. */
RP_MUST_CHECK int rp_contents_add(struct rp_contents *contents, uint64_t row, uint32_t offset,
                                  uint32_t count, uint32_t width, const void *tokens);

/** The run that holds all of tokens [offset, offset + count) of a row, or NULL. */
const struct rp_content_run *rp_contents_find(const struct rp_contents *contents, uint64_t row,
                                              uint32_t offset, uint32_t count);
/** The bytes that hold all runs. */
const uint8_t *rp_contents_bytes(const struct rp_contents *contents, uint64_t *bytes_out);

#endif
