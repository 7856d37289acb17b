/* SPDX-License-Identifier: Apache-2.0 */
/* write_side.h — the sections of side columns. Packers write them by the rules of write_row.h. */
#ifndef RP_FLOW_WRITE_SIDE_H
#define RP_FLOW_WRITE_SIDE_H

#include "flow/write_row.h"

/** Write column c of a transfer: its stored entries (rp_transfer_stored of them), and zeros in its
 * other places. */
void rp_write_side(const struct rp_pack_target *target, uint8_t *slot,
                   const struct rp_transfer *transfer, uint32_t c, const uint8_t *entries,
                   uint32_t align);

/** Write column c of a transfer, a number of its document. */
void rp_write_number(const struct rp_pack_target *target, uint8_t *slot,
                     const struct rp_transfer *transfer, uint32_t c, uint64_t number);

/** Write zeros into all columns after the last fragment of a row. */
void rp_write_sides_end(const struct rp_pack_target *target, uint8_t *slot,
                        const struct rp_row_end *end);

#endif
