/* SPDX-License-Identifier: Apache-2.0 */
/* range.h — a contiguous part of a source's documents: `documents: 0-90%`, `documents: 45-50`.
 *
 * A range is half-open: from the document FIRST, counted from 0, up to but without END. So ranges
 * that share a bound share no document and leave none out, in numbers and in percent. A bound of P
 * percent of n documents is floor(n * P / 100). */
#ifndef RP_CORPUS_RANGE_H
#define RP_CORPUS_RANGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/fail.h"

struct rp_document_range {
    bool is_percent;
    bool is_open;        /* no END: up to the last document */
    uint64_t first, end; /* documents; if is_percent, millionths of a percent */
};

#define RP_RANGE_WORDS                                                                             \
    "documents from FIRST (counted from 0) to before END, like 0-90%, 90-100% or 45-50"

/** Read FIRST-END, FIRST-END% or FIRST-; false if the text is none of these or has no document. */
bool rp_range_parse(const char *text, struct rp_document_range *range);

struct rp_fingerprint;
/** Change the fingerprint of all documents to the one of `count` documents from `first` on. */
void rp_range_fingerprint(struct rp_fingerprint *fingerprint, uint64_t first, uint64_t count);

struct rp_source;
/** Restrict a source to the documents of a range; NULL: to all. Errors name the number of
 * documents: -RP_E_CONFIG, -RP_E_EMPTY. */
RP_MUST_CHECK int rp_source_take_range(struct rp_source *source, const char *text,
                                       struct rp_error *error);

#endif
