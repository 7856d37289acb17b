/* SPDX-License-Identifier: Apache-2.0 */
/* contents.h — tokens that a checkpoint brought along, so that the first batches need no corpus.
 *
 * Contents are kept by (row, token offset in the row), independent of ranks, batch sizes and rings,
 * so a run may come back with another topology and still use them. They are a cache: what they lack
 * is read from the corpus. An engine keeps them as long as it runs, because a trainer may ask for
 * their rows again. */
#ifndef RP_FLOW_CONTENTS_H
#define RP_FLOW_CONTENTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"

/* `count` tokens of `width` bytes that stand at token `offset` of row `row`; their bytes lie at
 * `byte_offset`. */
struct rp_content_run {
    uint64_t row, byte_offset;
    uint32_t offset, count, width;
    uint32_t reserved;
};

struct rp_contents;

/** Make an empty collection. */
struct rp_contents *rp_contents_new(void); /* NULL when out of memory */
void rp_contents_free(struct rp_contents *contents);
/** Forget all runs. While no flow that uses them runs. */
void rp_contents_clear(struct rp_contents *contents);

/** Add a run, copying its bytes. Runs must ascend by (row, offset) and not overlap; others are
 * refused (-RP_E_CORRUPT), so that a damaged file cannot do harm. */
RP_MUST_CHECK int rp_contents_add(struct rp_contents *contents, uint64_t row, uint32_t offset,
                                  uint32_t count, uint32_t width, const void *tokens);

/** The run that holds all of tokens [offset, offset + count) of a row, or NULL. */
const struct rp_content_run *rp_contents_find(const struct rp_contents *contents, uint64_t row,
                                              uint32_t offset, uint32_t count);
const uint8_t *rp_contents_bytes(const struct rp_contents *contents, uint64_t *bytes_out);

#endif
