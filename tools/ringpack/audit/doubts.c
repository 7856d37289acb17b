/* SPDX-License-Identifier: Apache-2.0 */
/* doubts.c — the list of rows that are not proven. */
#include <errno.h>

#include "audit/digests.h"
#include "base/bits.h"
#include "base/mem.h"

int rp_audit_doubt_add(struct rp_audit_doubts *doubts, enum rp_audit_reason reason,
                       uint64_t first_row, uint64_t row, struct rp_error *error)
{
    struct rp_audit_doubt *last = doubts->count ? &doubts->list[doubts->count - 1] : NULL;
    if (last && last->reason == reason && first_row <= last->row && row >= last->first_row) {
        last->first_row = rp_min_u64(last->first_row, first_row);
        last->row = rp_max_u64(last->row, row);
        return 0;
    }
    if (!RP_GROW(doubts->list, doubts->room, doubts->count + 1))
        return rp_fail(error, -ENOMEM, NULL, "no memory for the rows that are not proven");
    doubts->list[doubts->count++] = (struct rp_audit_doubt){reason, first_row, row};
    return 0;
}
