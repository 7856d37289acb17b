/* SPDX-License-Identifier: Apache-2.0 */
/* spans.h — the trained tokens of a document (engine/plan/STREAM.md, section 10).
 *
 * A span is a run of trained tokens of one document. The spans of a shard are two tables: `ends`
 * says how many spans the documents before document d have, `table` has the spans of all documents
 * in order. Spans of a document ascend and do not touch, and none holds token 0.
 *
 * The tables are mapped from a sidecar that may change at any time, so every look-up checks its
 * entries: it never reads outside the tables, and the spans that it returns keep the rules above.
 */
#ifndef RP_CORPUS_SPANS_H
#define RP_CORPUS_SPANS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"

/* Tokens [begin, end) of a document, or of a part of one. */
struct rp_span {
    uint32_t begin, end;
};

/* The name of a mask, with its NUL. */
#define RP_MASK_NAME_BYTES 32u

/* How the entries of a mask are read. */
struct rp_mask_rule {
    bool is_labels; /* an entry is the token (trained) or -100 (not trained) */
    bool ignores;   /* else: an entry that is not 0 means "not trained", and not "trained" */
    bool of_next;   /* entry t is about token t + 1 */
};

/** The rule as the bits that indexes and .spans hold, and back. Other bits are ignored.
 */
static inline uint32_t rp_mask_rule_bits(const struct rp_mask_rule *rule)
{
    return (rule->is_labels ? 1u : 0u) | (rule->ignores ? 2u : 0u) | (rule->of_next ? 4u : 0u);
}
static inline struct rp_mask_rule rp_mask_rule_of(uint32_t bits)
{
    return (struct rp_mask_rule){
        .is_labels = (bits & 1) != 0, .ignores = (bits & 2) != 0, .of_next = (bits & 4) != 0};
}

/* The name of the mask of pairs: `ringpack convert` makes it of `chosen` and `rejected`. */
#define RP_MASK_OF_PAIRS "preference_mask"

/* The mask from which spans were made. */
struct rp_mask_origin {
    char name[RP_MASK_NAME_BYTES];
    struct rp_mask_rule rule;
};

/* The declared mask; zeros: not declared. */
struct rp_mask_choice {
    const char *name;  /* NULL or "auto": any mask; "none" */
    const char *value; /* NULL, "train" or "ignore" */
    const char *of;    /* NULL, "token" or "next" */
};

struct rp_spans {
    const uint64_t *ends;        /* [documents + 1], the first is 0; NULL: the shard has no mask */
    const struct rp_span *table; /* [count] */
    uint64_t documents, count;
};

/* Part of a document: tokens [first, first + tokens). */
struct rp_part {
    uint64_t document;
    uint64_t length; /* the whole document's */
    uint64_t first;
    uint32_t tokens;
};

/** The most spans that a part of n tokens can have. */
static inline uint32_t rp_spans_max(uint32_t n)
{
    return n / 2 + n % 2;
}

/** The spans of a part of a document, counted from its first token; `out` has room for rp_spans_max
 * of them. Token 0 of the part may be in a span. *count_out is their number. Returns NULL, or the
 * fault of the tables. */
const char *rp_spans_cut(const struct rp_spans *spans, const struct rp_part *part,
                         struct rp_span *out, uint32_t *count_out);

/** Whether a span overlaps the part, so that it has a trained token: 1, 0, or -1 if the tables are
 * damaged. O(log spans). */
int rp_spans_overlap(const struct rp_spans *spans, const struct rp_part *part);

/** Whether a document has a span. Also false if the entry is damaged. */
static inline bool rp_spans_any(const struct rp_spans *spans, uint64_t document)
{
    return spans->ends[document] < spans->ends[document + 1];
}

/** Prefetch the entry that rp_spans_any reads, and rp_spans_cut reads first. */
static inline void rp_spans_prefetch(const struct rp_spans *spans, uint64_t document)
{
    __builtin_prefetch(&spans->ends[document]);
}
/** Prefetch its first span. Any entry will do: memory outside the table is not read. */
static inline void rp_spans_prefetch_first(const struct rp_spans *spans, uint64_t document)
{
    __builtin_prefetch(
        (const void *)((uintptr_t)spans->table + spans->ends[document] * sizeof *spans->table));
}

#endif
