/* SPDX-License-Identifier: Apache-2.0 */
#include "flow/write_row.h"

#include <string.h>

#include "base/bits.h"
#include "corpus/spans.h"
#include "flow/widen.h"

void rp_pack_target_init(struct rp_pack_target *target, const struct rp_ring *ring)
{
    const struct rp_geometry *g = &ring->geometry;
    const struct rp_ring_header *header =
        (const struct rp_ring_header *)(const void *)ring->data.data;
    *target = (struct rp_pack_target){
        .slots = ring->data.data + header->slots_offset,
        .geometry = *g,
        .ids_dtype = g->sections[RP_SECTION_INPUT_IDS].dtype,
        .labels_dtype = g->sections[RP_SECTION_LABELS].dtype,
        .positions_dtype = g->sections[RP_SECTION_POSITION_IDS].dtype,
    };
}

/* Address of element `index` of a section of `size`-byte elements, or NULL if the run does not have
 * it. */
static void *section_at(const struct rp_pack_target *target, uint8_t *slot, enum rp_section section,
                        uint64_t index, size_t size)
{
    const struct rp_section_layout *layout = &target->geometry.sections[section];
    RP_DASSERT(layout->offset == 0 || index * size < layout->bytes);
    return layout->offset ? slot + layout->offset + index * size : NULL;
}

/* The sections that have an entry for each token, from place `at` of the batch on. */
static struct rp_widen_target tokens_at(const struct rp_pack_target *target, uint8_t *slot,
                                        uint64_t at)
{
    return (struct rp_widen_target){
        .ids = section_at(target, slot, RP_SECTION_INPUT_IDS, at,
                          rp_dtype_bytes(target->ids_dtype)),
        .labels = section_at(target, slot, RP_SECTION_LABELS, at,
                             rp_dtype_bytes(target->labels_dtype)),
        .positions = section_at(target, slot, RP_SECTION_POSITION_IDS, at,
                                rp_dtype_bytes(target->positions_dtype)),
        .segments = section_at(target, slot, RP_SECTION_SEGMENT_IDS, at, sizeof(int32_t)),
        .mask = section_at(target, slot, RP_SECTION_LOSS_MASK, at, sizeof(float)),
        .labels_shifted = target->geometry.label_mode != RP_LABELS_ALIGNED,
    };
}

/* Write padding of `pads` places from place `at` of the batch on. No place of it is trained. */
static void write_padding(const struct rp_pack_target *target, uint8_t *slot, uint64_t at,
                          uint32_t first_position, uint32_t pads, int64_t pad_id)
{
    struct rp_widen_target to = tokens_at(target, slot, at);
    rp_widen_fill(to.ids, target->ids_dtype, pad_id, pads);
    if (to.labels)
        rp_widen_fill(to.labels, target->labels_dtype, RP_LABEL_IGNORED, pads);
    if (to.positions)
        rp_count_up(to.positions, target->positions_dtype, first_position, pads);
    if (to.segments)
        memset(to.segments, 0, pads * sizeof(int32_t));
    if (to.mask)
        memset(to.mask, 0, pads * sizeof(float));
}

/* ---- one fragment ---------------------------------------------------------------------------- */

/* A fragment with inserted tokens, or with a label of its end. `at` is its first place. */
struct with_extra {
    const struct rp_pack_target *target;
    uint8_t *slot;
    const struct rp_transfer *transfer;
    const uint8_t *tokens, *ahead;
    const struct rp_row_form *form;
    uint64_t at;
};

/* Make `id` the label that predicts token t. */
static void label(const struct with_extra *w, uint32_t t, uint64_t id)
{
    const struct rp_pack_target *target = w->target;
    bool is_aligned = target->geometry.label_mode == RP_LABELS_ALIGNED;
    RP_DASSERT(t >= 1);
    void *labels = section_at(target, w->slot, RP_SECTION_LABELS, w->at + t - !is_aligned,
                              rp_dtype_bytes(target->labels_dtype));
    float *mask = section_at(target, w->slot, RP_SECTION_LOSS_MASK, w->at + t - 1, sizeof(float));
    if (labels)
        rp_widen_fill(labels, target->labels_dtype, (int64_t)id, 1);
    if (mask)
        *mask = 1;
}

/* Write an inserted token, without a label for any token. */
static void insert(const struct with_extra *w, uint32_t t, uint32_t id)
{
    struct rp_widen_target to = tokens_at(w->target, w->slot, w->at + t);
    rp_widen_fill(to.ids, w->target->ids_dtype, id, 1);
    if (to.labels)
        rp_widen_fill(to.labels, w->target->labels_dtype, RP_LABEL_IGNORED, 1);
    if (to.positions)
        rp_count_up(to.positions, w->target->positions_dtype, t, 1);
    if (to.segments)
        *to.segments = (int32_t)w->transfer->index + 1;
    if (to.mask)
        *to.mask = 0;
}

/* The label of the end: of the token that would be the next one of the fragment. */
static uint64_t label_end(const struct with_extra *w, uint32_t length, uint32_t own)
{
    if (w->transfer->extra & RP_EXTRA_NEXT) {
        uint64_t next = rp_widen_token_at(w->tokens, w->transfer->width, own);
        label(w, length, next);
        return next;
    }
    if (w->transfer->extra & RP_EXTRA_NEXT_EOS)
        label(w, length, w->form->eos_id);
    return 0;
}

static uint64_t write_with_extra(const struct with_extra *w)
{
    const struct rp_transfer *transfer = w->transfer;
    uint32_t bos = transfer->extra & RP_EXTRA_BOS, own = rp_transfer_own(transfer);
    uint32_t length = transfer->fragment.length, positions = w->target->positions_dtype;
    uint64_t largest = 0;
    if (own > 0) {
        struct rp_widen_target to = tokens_at(w->target, w->slot, w->at + bos);
        void *counted = bos ? to.positions : NULL; /* from 1, not from 0 */
        to.positions = bos ? NULL : to.positions;
        to.segment = (int32_t)transfer->index + 1;
        largest = rp_widen_fragment(&to, w->target->ids_dtype, w->tokens, transfer->width, own,
                                    w->ahead);
        if (counted)
            rp_count_up(counted, positions, 1, own);
    }
    if (bos)
        insert(w, 0, w->form->bos_id);
    if (bos && own > 0)
        label(w, 1, rp_widen_token_at(w->tokens, transfer->width, 0));
    if (transfer->extra & RP_EXTRA_EOS) {
        insert(w, length - 1, w->form->eos_id);
        if (length > 1)
            label(w, length - 1, w->form->eos_id);
    }
    return rp_max_u64(largest, label_end(w, length, own));
}

/* Not inlined, so that plain fragments take the short way. */
static __attribute__((noinline)) uint64_t write_with_fill(
    const struct rp_pack_target *target, uint8_t *slot, const struct rp_transfer *transfer,
    const uint8_t *tokens, const uint8_t *ahead, const struct rp_row_fill *fill)
{
    uint32_t n = transfer->fragment.length, pads = rp_places(n, fill->align) - n;
    uint64_t at = (uint64_t)transfer->row * target->geometry.seq_len + transfer->offset;
    RP_DASSERT(transfer->offset + n + pads <= target->geometry.seq_len);
    if (pads > 0)
        write_padding(target, slot, at + n, n, pads, fill->pad_id);
    return write_with_extra(
        &(struct with_extra){target, slot, transfer, tokens, ahead, fill->form, at});
}

uint64_t rp_write_fragment(const struct rp_pack_target *target, uint8_t *slot,
                           const struct rp_transfer *transfer, const uint8_t *tokens,
                           const uint8_t *ahead, const struct rp_row_fill *fill)
{
    const struct rp_geometry *g = &target->geometry;
    size_t n = transfer->fragment.length;
    uint64_t at = (uint64_t)transfer->row * g->seq_len + transfer->offset, largest;
    uint64_t fragment_at = (uint64_t)transfer->row * g->max_docs_per_row + transfer->index;
    RP_DASSERT(transfer->row < g->rows && transfer->offset + n <= g->seq_len);
    RP_DASSERT(transfer->index < g->max_docs_per_row);

    if (transfer->extra == 0 && fill->align <= 1) {
        struct rp_widen_target to = tokens_at(target, slot, at);
        to.segment = (int32_t)transfer->index + 1;
        largest = rp_widen_fragment(&to, target->ids_dtype, tokens, transfer->width, n, ahead);
    } else {
        largest = write_with_fill(target, slot, transfer, tokens, ahead, fill);
    }
    int32_t *lengths = section_at(target, slot, RP_SECTION_DOC_LENS, fragment_at, sizeof(int32_t));
    *lengths = (int32_t)n;
    struct rp_provenance *provenance = section_at(target, slot, RP_SECTION_PROVENANCE, fragment_at,
                                                  sizeof *provenance);
    if (provenance)
        memcpy(provenance, &transfer->fragment, sizeof *provenance);
    return largest;
}

/* ---- masks ----------------------------------------------------------------------------------- */

/* Remove the labels of tokens [begin, end) of a transfer. Its first token has none. */
static void unlabel(const struct rp_pack_target *target, uint8_t *slot,
                    const struct rp_transfer *transfer, uint32_t begin, uint32_t end)
{
    const struct rp_geometry *g = &target->geometry;
    uint64_t row_at = (uint64_t)transfer->row * g->seq_len + transfer->offset;
    begin = begin > 1 ? begin : 1;
    if (begin >= end)
        return;
    uint64_t before = row_at + begin - 1; /* the shifted label of token `begin` goes here */
    uint64_t at = g->label_mode == RP_LABELS_ALIGNED ? row_at + begin : before;
    void *labels = section_at(target, slot, RP_SECTION_LABELS, at,
                              rp_dtype_bytes(target->labels_dtype));
    if (labels)
        rp_widen_fill(labels, target->labels_dtype, RP_LABEL_IGNORED, end - begin);
    void *mask = section_at(target, slot, RP_SECTION_LOSS_MASK, before, sizeof(float));
    if (mask)
        memset(mask, 0, (end - begin) * sizeof(float));
}

void rp_write_mask(const struct rp_pack_target *target, uint8_t *slot,
                   const struct rp_transfer *transfer, const struct rp_mask *mask,
                   const uint8_t *data)
{
    const struct rp_span *spans = (const struct rp_span *)(const void *)(data + mask->data_offset);
    uint32_t end = 0;
    for (uint32_t i = 0; i < mask->count; i++) {
        RP_DASSERT(spans[i].begin >= end && spans[i].end > spans[i].begin);
        unlabel(target, slot, transfer, end, spans[i].begin);
        end = spans[i].end;
    }
    RP_ASSERT(end <= transfer->fragment.length);
    unlabel(target, slot, transfer, end, transfer->fragment.length);
}

/* ---- the end of a row ------------------------------------------------------------------------ */

void rp_write_row_end(const struct rp_pack_target *target, uint8_t *slot, int64_t pad_id,
                      const struct rp_row_end *end)
{
    const struct rp_geometry *g = &target->geometry;
    RP_ASSERT(end->row_in_batch < g->rows);
    RP_ASSERT(end->tokens <= end->places && end->places <= g->seq_len);
    RP_ASSERT(end->fragments <= g->max_docs_per_row);
    uint64_t at = (uint64_t)end->row_in_batch * g->seq_len + end->places;
    if (end->places < g->seq_len)
        write_padding(target, slot, at, 0, g->seq_len - end->places, pad_id);
    uint64_t fragment_at = (uint64_t)end->row_in_batch * g->max_docs_per_row + end->fragments;
    size_t unused = g->max_docs_per_row - end->fragments;
    if (unused) {
        memset(section_at(target, slot, RP_SECTION_DOC_LENS, fragment_at, sizeof(int32_t)), 0,
               unused * sizeof(int32_t));
        void *provenance = section_at(target, slot, RP_SECTION_PROVENANCE, fragment_at,
                                      sizeof(struct rp_provenance));
        if (provenance)
            memset(provenance, 0, unused * sizeof(struct rp_provenance));
    }
    struct rp_row_info *info = section_at(target, slot, RP_SECTION_ROWS, end->row_in_batch,
                                          sizeof *info);
    *info = (struct rp_row_info){
        .row = end->row, .fragments = end->fragments, .tokens = end->tokens};
    struct rp_row_plan *plan = section_at(target, slot, RP_SECTION_ROW_PLANS, end->row_in_batch,
                                          sizeof *plan);
    if (plan)
        *plan = (struct rp_row_plan){
            .planned = end->planned, .align = end->align, .is_skipped = end->is_skipped};
}
