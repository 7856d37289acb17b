/* SPDX-License-Identifier: Apache-2.0 */
/* documents.h — length, place and trained tokens of a document of a segment: the one look-up for
 * tables in memory, mapped indexes, and Megatron's .idx.
 *
 * Documents are counted within the segment. The place of a document is checked at every look-up,
 * whatever was checked at open: a compare is cheap next to the cache miss, and a mapped file can
 * change. */
#ifndef RP_CORPUS_INDEX_DOCUMENTS_H
#define RP_CORPUS_INDEX_DOCUMENTS_H

#include "corpus/index/index.h"

static inline bool rp_documents_is_plain(const struct rp_index_segment *segment, uint64_t document)
{
    return document < rp_a64_load_relaxed(&segment->plain);
}

/** As rp_documents_length, for a document that is not known to be plain. */
uint64_t rp_documents_find_length(const struct rp_index_segment *segment, uint64_t document);

/** The tokens of a document, or UINT64_MAX if rp_documents_locate would fail. */
static inline uint64_t rp_documents_length(const struct rp_index_segment *segment,
                                           uint64_t document)
{
    return rp_documents_is_plain(segment, document) ? rp_load_u32(segment->lengths + 4 * document)
                                                    : rp_documents_find_length(segment, document);
}

/** Sets the tokens of a document and its first byte in its token file, which has file_bytes bytes
 * and tokens of `width`. Returns NULL, or the fault of its entry, with no output set. */
const char *rp_documents_locate(const struct rp_index_segment *segment, uint32_t width,
                                uint64_t file_bytes, uint64_t document, uint64_t *tokens,
                                uint64_t *byte);

/** For a segment with spans: rp_spans_overlap and rp_spans_cut, which also fail if a page is
 * damaged; and whether a document has a span: 1, 0, or negative if its page is damaged. */
int rp_documents_spans_overlap(const struct rp_index_segment *segment, const struct rp_part *part);
const char *rp_documents_spans(const struct rp_index_segment *segment, const struct rp_part *part,
                               struct rp_span *out, uint32_t *count_out);
int rp_documents_has_span(const struct rp_index_segment *segment, uint64_t document);

/** Prefetch the memory that rp_documents_length reads; the second, the rest that
 * rp_documents_locate reads. */
static inline void rp_documents_prefetch(const struct rp_index_segment *segment, uint64_t document)
{
    if (!segment->megatron || rp_documents_is_plain(segment, document))
        __builtin_prefetch(segment->lengths + 4 * document);
    else
        rp_megatron_prefetch(segment->megatron, document);
}
void rp_documents_prefetch_extent(const struct rp_index_segment *segment, uint64_t document);

/** If this document is not known to be plain, check the next documents after the plain ones, so
 * that later look-ups are faster. Call it after prefetches, while the memory is fetched. */
void rp_documents_check_ahead(struct rp_index_segment *segment, uint64_t document);

#endif
