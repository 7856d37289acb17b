/* SPDX-License-Identifier: Apache-2.0 */
/* packing_concat.c — documents one after another, cut at the end of each row. */
#include "base/bits.h"
#include "plan/packing.h"

int rp_concat_row(struct rp_lane *lane, struct rp_draft *row, struct rp_error *error)
{
    struct rp_piece *pending = &lane->pending;
    while (rp_draft_has_room(row, lane)) {
        if (pending->length == 0) {
            int delivered = rp_piece_source_next(&lane->piece_source, pending, &lane->counts,
                                                 error);
            if (delivered <= 0)
                return delivered;
        }
        rp_draft_take(row, lane, pending, (uint32_t)rp_min_u64(row->gap, pending->length));
    }
    return 0;
}
