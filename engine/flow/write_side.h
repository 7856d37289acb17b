/* SPDX-License-Identifier: Apache-2.0 */
/* write_side.h — the sections of side columns. Packers write them by the rules of write_row.h. */
#ifndef RP_FLOW_WRITE_SIDE_H
#define RP_FLOW_WRITE_SIDE_H

#include "flow/write_row.h"

/* The entries of a fragment and their places: `bytes` of the stored entries (rp_transfer_stored of
 * them), which begin `skip` bytes into these. */
struct rp_side_span {
    uint8_t *to;
    uint64_t skip, bytes;
};

/** Write zeros into the places of column c of a transfer that have no entry. The caller copies the
 * entries to the others. */
struct rp_side_span rp_write_side_zeros(const struct rp_pack_target *target, uint8_t *slot,
                                        const struct rp_transfer *transfer, uint32_t c,
                                        uint32_t align);

/** Write column c of a transfer, a number of its document. */
void rp_write_number(const struct rp_pack_target *target, uint8_t *slot,
                     const struct rp_transfer *transfer, uint32_t c, uint64_t number);

/** Write zeros into all columns after the last fragment of a row. */
void rp_write_sides_end(const struct rp_pack_target *target, uint8_t *slot,
                        const struct rp_row_end *end);

#endif
