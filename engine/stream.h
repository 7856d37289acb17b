/* SPDX-License-Identifier: Apache-2.0 */
/* stream.h — the corpus and the plan that a config describes, for the engine and for every tool
 * that examines a stream without serving it. The modules config, corpus and plan do not know each
 * other: they meet here. */
#ifndef RP_STREAM_H
#define RP_STREAM_H

#include <stdbool.h>
#include <stddef.h>

#include "base/contract.h"
#include "base/fail.h"
#include "config/config.h"
#include "corpus/corpus.h"
#include "io/io.h"
#include "plan/docs_per_row.h"
#include "plan/plan.h"

#define RP_STREAM_WHY_BYTES 352u

/* A max_docs_per_row that costs more than this share of the tokens gets a warning. */
#define RP_DOCS_PER_ROW_COST_MAX 0.01

/** The sources of a finished config as the corpus module wants them. The caller frees the array;
 * strings are the config's. NULL when out of memory. */
struct rp_source_spec *rp_stream_sources(const struct rp_config *config);

/** Open the corpus of a finished config. allow_missing: token files may be gone where an index or a
 *  sidecar is left (a run that begins with the contents of a checkpoint). */
RP_MUST_CHECK int rp_stream_open_corpus(struct rp_corpus **corpus_out,
                                        const struct rp_config *config, bool allow_missing,
                                        struct rp_error *error);
/** The same, with a gate before work that may take long (corpus.h); NULL = none. run: the stream
 * record of the run that continues, which has the documents that bounds of percent gave; NULL = it
 * begins, or its record is not known. */
RP_MUST_CHECK int rp_stream_open_corpus_with(struct rp_corpus **corpus_out,
                                             const struct rp_config *config, bool allow_missing,
                                             const struct rp_record *run,
                                             const struct rp_corpus_gate *gate,
                                             struct rp_error *error);

/** How the corpus is read: files as the config's `io` says (rp_io_choose), objects in stores by
 * libcurl. A corpus that would take a request for each document is refused. why:
 * RP_STREAM_WHY_BYTES. */
RP_MUST_CHECK int rp_stream_choose_io(struct rp_io_chosen *chosen, const struct rp_config *config,
                                      const struct rp_corpus *corpus, char *why,
                                      struct rp_error *error);

/** A plan of the whole stream, at row 0. The corpus must outlive it. A config without
 * max_docs_per_row gets the default of this corpus: rp_plan_max_docs_per_row. */
RP_MUST_CHECK int rp_stream_open_plan(struct rp_plan **plan_out, const struct rp_config *config,
                                      const struct rp_corpus *corpus, struct rp_error *error);

/** The same, with the result of rp_stream_docs_per_row, which would otherwise read the lengths of
 * thousands of documents again for each plan. */
RP_MUST_CHECK int rp_stream_open_plan_with(struct rp_plan **plan_out,
                                           const struct rp_config *config,
                                           const struct rp_corpus *corpus,
                                           const struct rp_docs_per_row *found,
                                           struct rp_error *error);

/** The contract of a run (base/contract.h): the plan's stream record and the config's delivery
 * record. *contract_out is a view of *text_out, which the caller frees. */
RP_MUST_CHECK int rp_stream_make_contract(char **text_out, struct rp_contract *contract_out,
                                          const struct rp_config *config,
                                          const struct rp_corpus *corpus,
                                          const struct rp_plan *plan, struct rp_error *error);

/** -RP_E_MISMATCH if a side column has other content than a column of the same name had when the
 * earlier contract was made. Columns may come and go. */
RP_MUST_CHECK int rp_stream_check_columns(const struct rp_contract *had,
                                          const struct rp_contract *has, struct rp_error *error);

/** Every token id of a batch is smaller: vocab_size, or the number of values of token_dtype. */
uint64_t rp_stream_token_limit(const struct rp_config *config);

/** The cost of max_docs_per_row of the config, or of its default for this corpus. */
RP_MUST_CHECK int rp_stream_docs_per_row(struct rp_docs_per_row *found,
                                         const struct rp_config *config,
                                         const struct rp_corpus *corpus, struct rp_error *error);

/** The message to the user about it; false if the cost is too small for one. */
bool rp_stream_docs_per_row_text(const struct rp_docs_per_row *found,
                                 const struct rp_config *config, char *text, size_t bytes);

/** The part of a source that no read compares with a hash. */
struct rp_source_part rp_stream_unverified(const struct rp_config *config,
                                           const struct rp_corpus *corpus, uint32_t source);

/* The share of delivered tokens that no hash verifies, by the weights of the sources: 0 to 1. */
struct rp_unverified_share {
    double tokens, bytes; /* shares of the tokens, and of the bytes that they are read from */
};
struct rp_unverified_share rp_stream_unverified_share(const struct rp_config *config,
                                                      const struct rp_corpus *corpus);

#endif
