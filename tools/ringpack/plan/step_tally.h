/* SPDX-License-Identifier: Apache-2.0 */
/* step_tally.h — the contents of the steps and micro-batches of a plan: rows and micro-batches
 * without a label, and the share of one document in a step.
 *
 * Rows are counted in order, the first of a run being a step boundary. A micro-batch is batch_size
 * rows, whichever rank gets it. Both sizes are of the stage (base/numbering.h). */
#ifndef RP_TOOLS_STEP_TALLY_H
#define RP_TOOLS_STEP_TALLY_H

#include <jansson.h>

#include "config/config.h"
#include "corpus/corpus.h"
#include "plan/plan.h"

struct rp_step_counts {
    uint64_t rows, batches; /* with tokens, but without a label */
};

/* A document that is longer than a row, in the step that is being counted. */
struct rp_step_document {
    uint64_t document, tokens;
    uint32_t source;
};

struct rp_step_tally {
    const struct rp_config *config;
    const struct rp_corpus *corpus;
    const struct rp_plan *plan;    /* knows the skipped steps */
    struct rp_numbering numbering; /* from the first row on */
    uint64_t batch_end, step_end;  /* rows: of the unfinished micro-batch and step */
    struct rp_step_counts unlabelled;
    uint64_t padding_batches; /* the last step's with only rows after the end */
    /* The run's steps, also without a token; the skipped ones; batches that a rank gets. */
    uint64_t run_steps, skipped_steps, run_batches;
    uint64_t steps, filled; /* counted; filled: one document has more than half of the tokens */
    double largest_share;   /* sum over the steps of the share of their largest document */
    /* the unfinished step's, and the unfinished micro-batch's */
    uint64_t rows, next_row, step_tokens, batch_tokens, batch_labels, largest;
    struct rp_step_counts step_unlabelled;
    /* Version 1: [lanes] the document that each of them is cutting. Version 2: a hash table of the
     * documents of the step; free places have 0 tokens */
    struct rp_step_document *documents;
    uint32_t document_count; /* places of it; version 2: a power of two */
};

RP_MUST_CHECK int rp_step_tally_open(struct rp_step_tally *tally, const struct rp_config *config,
                                     const struct rp_corpus *corpus, const struct rp_plan *plan,
                                     struct rp_error *error);
void rp_step_tally_close(struct rp_step_tally *tally);

/** Count the next row, which has seq_len places, and in which `labels` tokens have a label. */
void rp_step_tally_add(struct rp_step_tally *tally, const struct rp_row *row, uint32_t seq_len,
                       uint64_t labels);

/** After the last row. is_complete: the stream ended with it. */
void rp_step_tally_end(struct rp_step_tally *tally, bool is_complete);

/** Lines of the report, with warnings. */
void rp_step_tally_print(const struct rp_step_tally *tally);
/** The same as fields of a JSON object. */
void rp_step_tally_json(const struct rp_step_tally *tally, json_t *report);

#endif
