/* SPDX-License-Identifier: Apache-2.0 */
/* masked_tally.h — counts of trained tokens in planned rows. */
#ifndef RP_TOOLS_MASKED_TALLY_H
#define RP_TOOLS_MASKED_TALLY_H

#include <jansson.h>

#include "corpus/corpus.h"
#include "plan/plan.h"

struct rp_masked_counts {
    uint64_t labels;    /* in all rows: tokens_loss */
    uint64_t untrained; /* documents with no trained token */
    uint64_t cut_off;   /* documents whose trained tokens are all after their kept part, and
                           whole documents that are dropped although they have some */
};
struct rp_masked_tally {
    bool is_masked; /* a source has a mask */
    struct rp_masked_counts all;
    struct rp_masked_counts *sources; /* [sources] */
    struct rp_row_form form;          /* form of the rows; set before the first one */
    uint32_t seq_len_max;             /* the longest row's */
    struct rp_span *spans;            /* [rp_spans_max(seq_len_max + 1)] */
    uint64_t row_labels;              /* the last counted row's */
};

RP_MUST_CHECK int rp_masked_tally_open(struct rp_masked_tally *tally,
                                       const struct rp_corpus *corpus, uint32_t seq_len_max,
                                       struct rp_error *error);
void rp_masked_tally_close(struct rp_masked_tally *tally);

/** Count a row. is_cut: documents are cut to seq_len tokens (long_doc: truncate). */
RP_MUST_CHECK int rp_masked_tally_add(struct rp_masked_tally *tally, const struct rp_corpus *corpus,
                                      const struct rp_row *row, uint32_t seq_len, bool is_cut,
                                      struct rp_error *error);

/** For a stream that was counted to its end, and that drops documents of more than seq_len tokens:
 * count them, as often as there are epochs. Examines every document. */
RP_MUST_CHECK int rp_masked_tally_dropped(struct rp_masked_tally *tally,
                                          const struct rp_corpus *corpus, uint32_t seq_len,
                                          uint64_t epochs, struct rp_error *error);

/** After the last row: add up the sources. */
void rp_masked_tally_sum(struct rp_masked_tally *tally, const struct rp_corpus *corpus);

/** Lines of a report: the trained part of each source that has a mask. source_tokens: of its tokens
 * in the rows, by source. */
void rp_masked_tally_print(const struct rp_masked_tally *tally, const struct rp_corpus *corpus,
                           const uint64_t *source_tokens);
/** The counts in all, and of each source that has a mask. A new reference. */
json_t *rp_masked_tally_json(const struct rp_masked_tally *tally, const struct rp_corpus *corpus);

#endif
