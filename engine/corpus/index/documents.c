/* SPDX-License-Identifier: Apache-2.0 */
#include "corpus/index/documents.h"

/* Documents to check at a time, while the cache misses of about 64 others are under way. Few at
 * first, so that a run of some thousand rows does not wait for checks that it does not need; many
 * after the first CHECK_DOCUMENTS_MANY, because such a run reads most of its documents. */
#define CHECK_DOCUMENTS_FEW 1024u
#define CHECK_DOCUMENTS_MANY (1u << 20)

uint64_t rp_documents_find_length(const struct rp_index_segment *segment, uint64_t document)
{
    uint64_t tokens, offset;
    if (!segment->megatron)
        return rp_table_length(&segment->table, document);
    bool is_bad = rp_megatron_locate(segment->megatron, false, document, &tokens, &offset) != NULL;
    return is_bad ? UINT64_MAX : tokens;
}

const char *rp_documents_locate(const struct rp_index_segment *segment, uint32_t width,
                                uint64_t file_bytes, uint64_t document, uint64_t *tokens,
                                uint64_t *byte)
{
    if (segment->megatron)
        return rp_megatron_locate(segment->megatron, rp_documents_is_plain(segment, document),
                                  document, tokens, byte);
    return rp_table_locate(&segment->table, document, width, file_bytes, tokens, byte);
}

const char *rp_documents_spans(const struct rp_index_segment *segment, const struct rp_part *part,
                               struct rp_span *out, uint32_t *count_out)
{
    RP_ASSERT(segment->table.shape.has_spans);
    if (!rp_table_verify_spans(&segment->table, part->document))
        return "the page of the index that has its spans differs from its hash";
    return rp_spans_cut(&segment->table.spans, part, out, count_out);
}

int rp_documents_spans_overlap(const struct rp_index_segment *segment, const struct rp_part *part)
{
    RP_ASSERT(segment->table.shape.has_spans);
    return rp_table_verify_spans(&segment->table, part->document)
               ? rp_spans_overlap(&segment->table.spans, part)
               : -1;
}

int rp_documents_has_span(const struct rp_index_segment *segment, uint64_t document)
{
    RP_DASSERT(segment->table.shape.has_spans);
    if (!rp_table_verify_ends(&segment->table, document))
        return -RP_E_CORRUPT;
    return rp_spans_any(&segment->table.spans, document);
}

void rp_documents_prefetch_extent(const struct rp_index_segment *segment, uint64_t document)
{
    if (segment->megatron)
        rp_megatron_prefetch_extent(segment->megatron, document);
    else
        __builtin_prefetch(&segment->table.bytes[document]);
}

void rp_documents_check_ahead(struct rp_index_segment *segment, uint64_t document)
{
    if (rp_documents_is_plain(segment, document))
        return;
    uint64_t plain = rp_a64_load_relaxed(&segment->plain);
    uint64_t count = plain < CHECK_DOCUMENTS_MANY ? CHECK_DOCUMENTS_FEW : CHECK_DOCUMENTS_MANY;
    plain = segment->megatron ? rp_megatron_check_ahead(segment->megatron, plain, count)
                              : rp_table_check_ahead(&segment->table, plain, count);
    rp_a64_store_relaxed(&segment->plain, plain);
}
