/* SPDX-License-Identifier: Apache-2.0 */
/* side_reads.h — the reads that bring the side columns of a transfer.
 *
 * A transfer and its columns are placed in one ticket, or not at all: room for all of their bytes
 * is found before the first of them is placed. Thread: dispatch's own. */
#ifndef RP_FLOW_SIDE_READS_H
#define RP_FLOW_SIDE_READS_H

#include "flow/reads.h"

/** Place the side entries of the ticket's next transfer. After PLACED there is room for its tokens
 * as well, so placing these cannot fail. Otherwise as rp_reads_place. `has_contents`: the tokens
 * are in a checkpoint. */
RP_MUST_CHECK int rp_sidereads_place(struct rp_reads *reads, const struct rp_transfer *transfer,
                                     const struct rp_extent *extent, bool has_contents,
                                     struct rp_error *error);

/** Set the document columns of the ticket's next transfer. */
RP_MUST_CHECK int rp_sidereads_numbers(struct rp_reads *reads, const struct rp_transfer *transfer,
                                       struct rp_error *error);

/** Bytes of the data that the longest transfer takes, with its columns. */
uint64_t rp_sidereads_transfer_bytes(const struct rp_flow_options *options);
/** Bytes of the longest part of a transfer, tokens or a column, with the blocks around it. */
uint64_t rp_sidereads_part_bytes(const struct rp_flow_options *options);

#endif
