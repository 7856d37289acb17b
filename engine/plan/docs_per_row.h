/* SPDX-License-Identifier: Apache-2.0 */
/* docs_per_row.h — max_docs_per_row where the user gives none, and what a value costs.
 *
 * Both follow from document lengths alone: up to 4096 of each source are looked at, at places that
 * depend on the number of its documents only, so every node of a run finds the same. The default
 * decides the stream; STREAM.md, section 1, is its specification. The cost is an estimate for
 * people. */
#ifndef RP_PLAN_DOCS_PER_ROW_H
#define RP_PLAN_DOCS_PER_ROW_H

#include "plan/plan.h"

struct rp_docs_per_row {
    uint32_t standard; /* the default */
    uint32_t wanted;   /* the same without the bound of best_fit: rows of short documents fill up */
    /* With config->max_docs_per_row, or with `standard` where that is 0: the share of the tokens of
     * full rows that is padding only because the row has no room for another document; 0 .. 1. */
    double cost;
};

/** -ENOMEM, or 0. config->max_docs_per_row may be 0; all else is as rp_plan_open wants it. */
RP_MUST_CHECK int rp_docs_per_row(struct rp_docs_per_row *docs_per_row,
                                  const struct rp_plan_config *config,
                                  const struct rp_plan_source *sources, uint32_t source_count,
                                  struct rp_error *error);

#endif
