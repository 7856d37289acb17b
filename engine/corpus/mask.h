/* SPDX-License-Identifier: Apache-2.0 */
/* mask.h — from a mask, which has an entry for each token, to spans (engine/plan/STREAM.md,
 * section 10). Done once for each document, when it is indexed. */
#ifndef RP_CORPUS_MASK_H
#define RP_CORPUS_MASK_H

#include "corpus/corpus.h"

/** Whether no mask is wanted; whether any mask will do. */
bool rp_mask_is_none(const struct rp_mask_choice *choice);
bool rp_mask_is_auto(const struct rp_mask_choice *choice);

/* The usual names of masks. `labels`, the first, has all others in it. */
#define RP_MASK_USUAL_NAMES 4u
extern const char *const rp_mask_usual_names[RP_MASK_USUAL_NAMES];
/** The origin of a mask with this name that is read as declared. Masks whose names end with `label`
 * or `labels` are labels. -RP_E_CONFIG: the name is too long. */
RP_MUST_CHECK int rp_mask_origin(struct rp_mask_origin *origin, const char *name,
                                 const struct rp_mask_choice *choice, struct rp_error *error);

/** "labels", "loss_mask (ignore, next)". */
void rp_mask_text(const struct rp_mask_origin *origin, char *text, size_t bytes);

#define RP_MASK_TEXT_BYTES 64u
/** Check that all shards of a source have the same mask, or none: call for each, with the origin of
 * its mask (NULL: none). The first shard sets `mask`, the text of the mask or ""; the others are
 * compared with it. `first`: path of the first shard, for the message; NULL: this is the first. */
RP_MUST_CHECK int rp_mask_take(char mask[RP_MASK_TEXT_BYTES], const struct rp_mask_origin *origin,
                               const char *path, const char *first, struct rp_error *error);

/** -RP_E_CONFIG: drop_untrained was set for shards whose spans are not used, or that have none. */
int rp_mask_fail_drop(struct rp_error *error);

/** -RP_E_MISMATCH unless the `origin` of a shard's spans (NULL: none) matches the choice. The error
 * has the command that indexes the chosen mask. */
RP_MUST_CHECK int rp_mask_check(const struct rp_mask_choice *choice,
                                const struct rp_mask_origin *origin, const char *path,
                                struct rp_error *error);

/* The spans of one document, in memory that is used again for the next. Begins as zeros. */
struct rp_span_list {
    struct rp_span *spans;
    size_t count, capacity;
};
/** Token `token`, which is above those before it, is trained. -ENOMEM. */
RP_MUST_CHECK int rp_span_list_add(struct rp_span_list *list, uint32_t token);
void rp_span_list_release(struct rp_span_list *list);

/* A document and the entries of its mask. Entries have token types; signed ones may be negative. */
struct rp_mask_document {
    const char *path; /* the mask's, for messages */
    uint64_t number;
    const uint8_t *tokens, *entries;
    enum rp_token_type token_type, entry_type;
    uint32_t count; /* number of tokens, and of entries */
};

/** Replace the list by the spans of a document. -RP_E_FORMAT: a label is neither the token nor
 * -100, and the error names its place. */
RP_MUST_CHECK int rp_mask_spans(struct rp_span_list *list, const struct rp_mask_rule *rule,
                                const struct rp_mask_document *document, struct rp_error *error);

#endif
