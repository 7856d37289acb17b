/* SPDX-License-Identifier: Apache-2.0 */
/* unseen.h — documents of a source that a state token has used, for `unseen_of` (STREAM2.md section
 * 12.7). Tokens are of version 2, or of version 1 with one lane.
 *
 * Each answer is computed by the inverse permutation: nothing is kept for each document. After it
 * is open, any number of threads may use it at the same time. */
#ifndef RP_PLAN_V2_UNSEEN_H
#define RP_PLAN_V2_UNSEEN_H

#include "plan/v2/planner_token.h"

struct rp_unseen;

/* The source that a selection is made for, and the source of the token that it means. */
struct rp_unseen_source {
    const char *name; /* in a token of version 2 */
    uint32_t number;  /* in a token of version 1, which has no names */
    /* The documents as they are now. `lengths` and, for version 2, `prints` are called here. */
    const struct rp_source_view *view;
    uint64_t documents;
};

/** Errors: -RP_E_CORRUPT, -RP_E_VERSION (more than one lane), -RP_E_MISMATCH (the token has no such
 * source; its documents are others; it is inside of a deal window), -ENOMEM. A token of version 1
 * has one fingerprint of its whole corpus, which the caller compares. */
RP_MUST_CHECK int rp_unseen_open(struct rp_unseen **unseen_out, const void *token, size_t bytes,
                                 const struct rp_unseen_source *source, struct rp_error *error);
void rp_unseen_close(struct rp_unseen *unseen); /* NULL is fine */

struct rp_unseen_facts {
    uint64_t documents;     /* that the source had in the token: its fingerprints are of them */
    uint64_t selection;     /* its hash, which the source must have before `unseen`; 0: none */
    struct rp_hash128 hash; /* the last 16 bytes of the token */
};
const struct rp_unseen_facts *rp_unseen_facts(const struct rp_unseen *unseen);

/** Whether the token has used each of `count` documents. */
void rp_planner_token_used(const struct rp_unseen *unseen, const uint64_t *documents,
                           uint32_t count, bool *used);

#endif
