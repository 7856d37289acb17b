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
#include "base/hash.h"

struct rp_document_range {
    bool is_percent;
    bool is_open;        /* there is no END: up to the last document */
    uint64_t first, end; /* documents, or millionths of a percent */
};

#define RP_RANGE_WORDS                                                                             \
    "documents from FIRST (counted from 0) to before END, like 0-90%, 90-100% or 45-50"

/** Read FIRST-END, FIRST-END% or FIRST-; false if the text is none of these or has no document. */
bool rp_range_parse(const char *text, struct rp_document_range *range);

/** The fingerprint of `count` documents from `first` on, of documents with the fingerprint `whole`.
 */
struct rp_hash128 rp_range_hash(struct rp_hash128 whole, uint64_t first, uint64_t count);

struct rp_source;
/* rp_source_length. */
typedef uint64_t rp_length_of(const void *source, uint64_t document);
/** Restrict a source to the documents of a range; NULL: to all. Errors name the number of
 * documents: -RP_E_CONFIG, -RP_E_EMPTY. */
RP_MUST_CHECK int rp_source_take_range(struct rp_source *source, const char *text,
                                       rp_length_of *length_of, struct rp_error *error);

#endif
