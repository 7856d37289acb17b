/* SPDX-License-Identifier: Apache-2.0 */
#include "read_row.h"

#include <inttypes.h>
#include <stdio.h>

#define IDS_SHOWN 8u

struct rp_cmd_row rp_cmd_row_view(const struct rp_geometry *g, const struct rp_batch *batch,
                                  uint32_t i)
{
    const struct rp_row_info *info = rp_batch_section(batch, RP_SECTION_ROWS);
    const int32_t *lengths = rp_batch_section(batch, RP_SECTION_DOC_LENS);
    const uint8_t *ids = rp_batch_section(batch, RP_SECTION_INPUT_IDS);
    const struct rp_section_layout *layout = &g->sections[RP_SECTION_INPUT_IDS];
    const struct rp_row_plan *plans = rp_batch_section(batch, RP_SECTION_ROW_PLANS);
    struct rp_cmd_row row = {.info = info[i],
                             .ids = ids + i * (layout->bytes / g->rows),
                             .dtype = (enum rp_dtype)layout->dtype};
    row.planned = plans ? plans[i].planned : row.info.row;
    row.hash = rp_row_hash(
        &(struct rp_row_tokens){.lengths = lengths + (uint64_t)i * g->max_docs_per_row,
                                .fragments = row.info.fragments,
                                .align = plans ? plans[i].align : 1,
                                .tokens = row.ids,
                                .dtype = row.dtype});
    return row;
}

static int64_t id_at(const struct rp_cmd_row *row, uint32_t i)
{
    switch (row->dtype) {
    case RP_DTYPE_U16:
        return ((const uint16_t *)(const void *)row->ids)[i];
    case RP_DTYPE_I32:
        return ((const int32_t *)(const void *)row->ids)[i];
    default:
        return ((const int64_t *)(const void *)row->ids)[i];
    }
}

void rp_cmd_row_print(const struct rp_cmd_row *row)
{
    char hash[RP_HASH_HEX_BYTES];
    printf("row %" PRIu64 "  fragments %" PRIu32 "  tokens %" PRIu32 "  hash %s  ids",
           row->info.row, row->info.fragments, row->info.tokens, rp_hash128_hex(row->hash, hash));
    uint32_t shown = row->info.tokens < IDS_SHOWN ? row->info.tokens : IDS_SHOWN;
    for (uint32_t i = 0; i < shown; i++)
        printf(" %" PRId64, id_at(row, i));
    puts(shown < row->info.tokens ? " ..." : "");
}
