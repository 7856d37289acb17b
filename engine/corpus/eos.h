/* SPDX-License-Identifier: Apache-2.0 */
/* eos.h — whether the declared EOS can be the token that divides documents.
 *
 * In raw, npy and llm.c files only the EOS divides the tokens into documents. A wrong EOS makes a
 * few huge documents, or very many tiny ones: no borders, no shuffle, and no error. `index`,
 * `inspect`, `plan`, `doctor` and the start of a run all use this one judgement. */
#ifndef RP_CORPUS_EOS_H
#define RP_CORPUS_EOS_H

#include "corpus/corpus.h"

struct rp_eos_facts {
    int64_t eos; /* RP_EOS_NONE: the format has borders of its own, and there is no doubt */
    uint64_t documents, tokens;
    uint64_t longest; /* tokens of the longest document; 0 = not known */
    uint64_t shards;  /* number of the documents' shards */
};

/** The EOS if documents of this format end with one, else RP_EOS_NONE. */
int64_t rp_eos_dividing(enum rp_format format, int64_t eos);

/** Whether the EOS is doubtful; then `text` says why, in one line. */
bool rp_eos_doubt(const struct rp_eos_facts *facts, char *text, size_t bytes);

/** As rp_eos_doubt, for a source. Lengths are examined only if documents are few. */
bool rp_source_eos_doubt(const struct rp_source *source, char *text, size_t bytes);

#endif
