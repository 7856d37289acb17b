/* SPDX-License-Identifier: Apache-2.0 */
#include "flow/masks.h"

#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "base/mem.h"
#include "flow/fragment.h"

/* Room for the spans of all tickets, at one or two spans a document; with more of them, fewer
 * tickets are planned ahead. */
#define SPANS_BYTES (4u << 20)
#define TRANSFERS_MIN 4u /* transfers of the longest kind whose spans fit together */

/* The most spans that are looked up at once: of a row, and the token after it. */
static uint32_t spans_max(const struct rp_flow_options *options)
{
    return rp_spans_max(options->seq_len + 1);
}

uint64_t rp_masks_bytes(const struct rp_flow_options *options)
{
    bool is_masked = false;
    for (uint32_t s = 0; s < rp_corpus_source_count(options->corpus); s++)
        is_masked |= rp_source_has_mask(rp_corpus_source(options->corpus, s));
    if (!is_masked)
        return 0;
    uint64_t longest = rp_spans_max(options->seq_len) * sizeof(struct rp_span);
    return rp_align_up(rp_max_u64(SPANS_BYTES, TRANSFERS_MIN * longest), RP_BLOCK_BYTES);
}

int rp_masks_open(struct rp_masks *masks, const struct rp_flow_options *options,
                  const struct rp_arena *arena, struct rp_error *error)
{
    uint64_t bytes = rp_masks_bytes(options);
    *masks = (struct rp_masks){
        .data = arena->data, .data_offset = arena->data_bytes - bytes, .options = options};
    if (bytes == 0)
        return 0;
    masks->spans = rp_calloc(spans_max(options), sizeof *masks->spans);
    return masks->spans ? rp_data_ring_open(&masks->span_ring, bytes, arena->slot_count, error)
                        : rp_fail(error, -ENOMEM, NULL, "out of memory for masks");
}

void rp_masks_close(struct rp_masks *masks)
{
    rp_data_ring_close(&masks->span_ring);
    free(masks->spans);
    *masks = (struct rp_masks){.data = NULL};
}

/* Is a document that has trained tokens cut to seq_len tokens without a trained one?
 * Its first fragment was found last. */
static bool is_cut_off(struct rp_masks *masks, const struct rp_masks_place *place,
                       const struct rp_transfer *transfer, uint64_t length)
{
    uint32_t kept = masks->options->seq_len - masks->options->form.has_bos;
    uint32_t own = rp_transfer_own(transfer), count = masks->span_count;
    if (!masks->options->truncates || length <= kept || count > 0)
        return false;
    const struct rp_part rest = {transfer->fragment.document, length, own, kept - own};
    struct rp_error ignored;
    return rp_source_spans(place->source, &rest, masks->spans, &count, &ignored) == 0 && count == 0;
}

/* Count for rp_mask_counts. It costs two additions a fragment and, for a document's first one, a
 * read of the ends of its spans. */
static void count(struct rp_masks *masks, const struct rp_masks_place *place,
                  const struct rp_transfer *transfer, uint64_t length)
{
    const struct rp_fragment *fragment = &transfer->fragment;
    if (!masks->options->mask_counts)
        return;
    struct rp_mask_counts *counts = &masks->options->mask_counts[fragment->source];
    rp_a64_add_relaxed(&counts->labels, masks->labels + rp_transfer_has_end_label(transfer));
    if (fragment->offset > 0)
        return;
    rp_a64_add_relaxed(&counts->documents, 1);
    bool has_span = masks->span_count > 0 ||
                    rp_source_has_span(place->source, fragment->document) > 0;
    if (!has_span)
        rp_a64_add_relaxed(&counts->untrained, 1);
    else if (is_cut_off(masks, place, transfer, length))
        rp_a64_add_relaxed(&counts->cut_off, 1);
}

/* Are all tokens of the fragment trained, as far as they have labels? Then it needs no mask. */
static bool is_plain(const struct rp_masks *masks, const struct rp_fragment *fragment)
{
    return masks->labels == fragment->length - 1;
}

int rp_masks_find(struct rp_masks *masks, const struct rp_masks_place *place,
                  struct rp_transfer *transfer, uint64_t length, struct rp_error *error)
{
    const struct rp_fragment *fragment = &transfer->fragment;
    int64_t count = rp_transfer_spans(&masks->options->form, place->source, transfer, length,
                                      masks->spans, error);
    if (count < 0)
        return (int)count;
    masks->span_count = (uint32_t)count;
    masks->labels = rp_transfer_labels(transfer, masks->spans, masks->span_count) -
                    rp_transfer_has_end_label(transfer);
    RP_ASSERT(masks->labels < fragment->length);
    return is_plain(masks, fragment) || masks->span_count == 0 ||
           rp_data_ring_has_room(&masks->span_ring, masks->span_count * sizeof *masks->spans,
                                 sizeof *masks->spans, place->retired);
}

/* Copy the spans into the span ring: rp_masks_find has made room there. */
static uint64_t take_spans(struct rp_masks *masks, const struct rp_masks_place *place)
{
    uint64_t offset = 0, bytes = masks->span_count * sizeof *masks->spans;
    if (bytes > 0)
        offset = rp_data_ring_take(&masks->span_ring, bytes, sizeof *masks->spans, place->number,
                                   masks->has_region, place->retired);
    RP_ASSERT(offset != RP_DATA_RING_FULL);
    masks->has_region |= bytes > 0;
    memcpy(masks->data + masks->data_offset + offset, masks->spans, bytes);
    return masks->data_offset + offset;
}

void rp_masks_add(struct rp_masks *masks, const struct rp_masks_place *place,
                  const struct rp_transfer *transfer, uint64_t length)
{
    const struct rp_fragment *fragment = &transfer->fragment;
    struct rp_ticket *ticket = place->ticket;
    if (!is_plain(masks, fragment)) {
        RP_ASSERT(ticket->mask_count < RP_TICKET_TRANSFERS_MAX);
        ticket->masks[ticket->mask_count++] = (struct rp_mask){
            .transfer = ticket->transfer_count,
            .count = masks->span_count,
            .ring = transfer->ring,
            .unlabelled = fragment->length - 1 - masks->labels,
            .data_offset = take_spans(masks, place)};
    }
    count(masks, place, transfer, length);
}

/* ---- labels of rows of any rank -------------------------------------------------------------- */

static int fragment_labels(struct rp_masks *masks, const struct rp_fragment *fragment,
                           uint32_t *labels, struct rp_error *error)
{
    const struct rp_flow_options *o = masks->options;
    const struct rp_source *source = rp_corpus_source(o->corpus, fragment->source);
    struct rp_transfer transfer = {.fragment = *fragment};
    struct rp_extent extent;
    int code = rp_transfer_find(o, &transfer, &extent, error);
    if (code < 0)
        return code;
    if (!rp_source_has_mask(source)) {
        *labels += fragment->length - 1 + rp_transfer_has_end_label(&transfer);
        return 0;
    }
    int64_t count = rp_transfer_spans(&o->form, source, &transfer, extent.tokens, masks->spans,
                                      error);
    if (count < 0)
        return (int)count;
    *labels += rp_transfer_labels(&transfer, masks->spans, (uint32_t)count);
    return 0;
}

int rp_masks_row_labels(struct rp_masks *masks, const struct rp_row *row, uint32_t *labels,
                        struct rp_error *error)
{
    const struct rp_corpus *corpus = masks->options->corpus;
    bool crosses = masks->options->form.label_across_cuts;
    int code = 0;
    *labels = row->tokens - row->count;
    if (!crosses && !masks->spans)
        return 0;
    *labels = 0;
    for (uint32_t i = 0; i < row->count; i++)
        if (crosses || rp_source_has_mask(rp_corpus_source(corpus, row->fragments[i].source)))
            rp_source_prefetch_extent(rp_corpus_source(corpus, row->fragments[i].source),
                                      row->fragments[i].document);
    for (uint32_t i = 0; masks->spans && i < row->count; i++)
        if (rp_source_has_mask(rp_corpus_source(corpus, row->fragments[i].source)))
            rp_source_prefetch_spans(rp_corpus_source(corpus, row->fragments[i].source),
                                     row->fragments[i].document);
    for (uint32_t i = 0; i < row->count && code >= 0; i++) {
        const struct rp_fragment *fragment = &row->fragments[i];
        if (crosses || rp_source_has_mask(rp_corpus_source(corpus, fragment->source)))
            code = fragment_labels(masks, fragment, labels, error);
        else
            *labels += fragment->length - 1;
    }
    return code;
}
