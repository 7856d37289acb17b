/* SPDX-License-Identifier: Apache-2.0 */
/* spans.h — which tokens of a document are trained (engine/plan/STREAM.md, section 10).
 *
 * A span is a run of trained tokens of one document. The spans of a shard are two tables: `ends`
 * says how many spans the documents before document d have, `table` has the spans of all documents
 * in order. Spans of a document ascend and do not touch, and none holds token 0.
 *
 * The tables are mapped from a sidecar that may change at any time, so every look-up checks what
 * it finds: it reads nothing outside the tables, and what it returns keeps the rules above. */
#ifndef RP_CORPUS_SPANS_H
#define RP_CORPUS_SPANS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fail.h"
#include "base/hash.h"

/* Tokens [begin, end) of a document, or of a part of one. */
struct rp_span {
    uint32_t begin, end;
};

struct rp_spans {
    const uint64_t *ends;        /* [documents + 1], the first is 0; NULL: the shard has no mask */
    const struct rp_span *table; /* [count] */
    uint64_t documents, count;
};

/* Part of a document: tokens [first, first + tokens). */
struct rp_part {
    uint64_t document;
    uint64_t length; /* of the whole document */
    uint64_t first;
    uint32_t tokens;
};

/** The most spans that a part of n tokens can have. */
static inline uint32_t rp_spans_max(uint32_t n)
{
    return n / 2 + n % 2;
}

/** The spans of a part of a document, counted from its first token; `out` has room for
 * rp_spans_max of them. Token 0 of the part may be in a span. *count_out is their number.
 * Returns NULL, or what is wrong with the tables. */
const char *rp_spans_cut(const struct rp_spans *spans, const struct rp_part *part,
                         struct rp_span *out, uint32_t *count_out);

/** Whether a document has a span. False where the entry is damaged, too. */
static inline bool rp_spans_any(const struct rp_spans *spans, uint64_t document)
{
    return spans->ends[document] < spans->ends[document + 1];
}

/** Prefetch what rp_spans_any reads, which rp_spans_cut reads first. */
static inline void rp_spans_expect(const struct rp_spans *spans, uint64_t document)
{
    __builtin_prefetch(&spans->ends[document]);
}

/** The hash of the spans. */
struct rp_hash128 rp_spans_hash(const struct rp_spans *spans);

#endif
