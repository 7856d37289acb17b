/* SPDX-License-Identifier: Apache-2.0 */
/* link.h — the plan digest behind a row, from the one before it. Two hashes, of the fragments where
 * they are and of a record of fixed size, are cheaper than one whose parts would have to be joined.
 */
#ifndef RP_PLAN_LINK_H
#define RP_PLAN_LINK_H

#include "plan/plan.h"

static inline struct rp_hash128 rp_plan_link(struct rp_hash128 before, uint64_t row,
                                             const struct rp_fragment *fragments, uint32_t count,
                                             uint32_t padding)
{
    struct {
        struct rp_hash128 before;
        uint64_t row;
        uint32_t fragments, padding;
        struct rp_hash128 content;
    } const link = {before, row, count, padding, rp_hash128(fragments, count * sizeof *fragments)};
    RP_STATIC_ASSERT(sizeof link == 48, "STREAM.md section 7, STREAM2.md section 15");
    return rp_hash128(&link, sizeof link);
}

#endif
