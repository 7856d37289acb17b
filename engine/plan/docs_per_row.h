/* SPDX-License-Identifier: Apache-2.0 */
/* docs_per_row.h — the default of max_docs_per_row, and the padding that a value costs.
 *
 * Both follow from a sample of up to 4096 document lengths of each source. The choice of documents
 * depends on only their number, so every node of a run computes the same. The default decides the
 * stream; STREAM.md, section 1, specifies it. The cost is an estimate for people. */
#ifndef RP_PLAN_DOCS_PER_ROW_H
#define RP_PLAN_DOCS_PER_ROW_H

#include "plan/plan.h"

struct rp_docs_per_row {
    uint32_t standard; /* the default */
    uint32_t wanted;   /* the default without the bound of best_fit: with it, rows have few gaps */
    /* Share of rows that is padding only because a row reached the limit, 0 .. 1. The limit is
     * config->max_docs_per_row, or `standard` if that is 0. */
    double cost;
};

/** Returns 0 or -ENOMEM. config->max_docs_per_row may be 0; all else must be valid for
 * rp_plan_open.
 */
RP_MUST_CHECK int rp_docs_per_row(struct rp_docs_per_row *docs_per_row,
                                  const struct rp_plan_config *config,
                                  const struct rp_plan_source *sources, uint32_t source_count,
                                  struct rp_error *error);

/* The sample: all documents, or 64 evenly spread runs of neighbours, whose lengths share pages of
 * the index. The first and the last document are among them. */
#define RP_SAMPLE_RUN 64u
#define RP_SAMPLE_MAX (64u * RP_SAMPLE_RUN)
/** Document `i` of the sample of `documents` documents, below the smaller of that and
 * RP_SAMPLE_MAX. */
static inline uint64_t rp_sample_document(uint64_t documents, uint64_t i)
{
    if (documents <= RP_SAMPLE_MAX)
        return i;
    /* run * last / gaps, which could overflow */
    uint64_t run = i / RP_SAMPLE_RUN, last = documents - RP_SAMPLE_RUN;
    uint64_t gaps = RP_SAMPLE_MAX / RP_SAMPLE_RUN - 1;
    return last / gaps * run + last % gaps * run / gaps + i % RP_SAMPLE_RUN;
}

/** The default where rows want room for that many documents. open_rows: those that best_fit keeps
 * in a state token; 0: another packing. */
uint32_t rp_docs_standard(uint32_t seq_len, uint64_t wanted, uint64_t open_rows);

/** How many documents a row must have room for, so that it has a gap only if nearly all of its
 * documents are among the shortest, which together hold one hundredth of the tokens. `sizes`: the
 * documents' places in a row, each at most seq_len. */
uint64_t rp_docs_wanted(const uint32_t *sizes, uint32_t count, uint32_t seq_len);

#endif
