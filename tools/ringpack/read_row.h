/* SPDX-License-Identifier: Apache-2.0 */
/* read_row.h — a row of a batch, as `ringpack read` reads it. */
#ifndef RP_TOOLS_READ_ROW_H
#define RP_TOOLS_READ_ROW_H

#include "base/row_digest.h"
#include "ringpack/client.h"

/* One row of a batch, and the hash of its content. */
struct rp_cmd_row {
    struct rp_row_info info;
    uint64_t planned; /* the number that digests use */
    const uint8_t *ids;
    enum rp_dtype dtype;
    struct rp_hash128 hash;
};

struct rp_cmd_row rp_cmd_row_view(const struct rp_geometry *g, const struct rp_batch *batch,
                                  uint32_t i);
/** Print its number, hash and first ids. */
void rp_cmd_row_print(const struct rp_cmd_row *row);

#endif
