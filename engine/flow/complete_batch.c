/* SPDX-License-Identifier: Apache-2.0 */
#include "flow/complete_batch.h"

#include <string.h>

struct totals {
    uint64_t sum_len_squared;
    uint32_t rows_real, tokens_real, tokens_loss, max_seqlen, segments;
};

static void add_segment(struct totals *totals, int32_t *ends, uint32_t *end, uint32_t length)
{
    *end += length;
    totals->segments++;
    if (ends)
        ends[totals->segments] = (int32_t)*end;
    totals->max_seqlen = length > totals->max_seqlen ? length : totals->max_seqlen;
}

/* Write the ends of all segments over the flat batch (padding inside a row belongs to the segment
 * before it, the padding at the end of a row is a segment), then the end of the batch up to the
 * capacity. Returns the sums for the header. */
static struct totals complete_boundaries(const struct rp_geometry *g, uint32_t row_count,
                                         uint8_t *slot)
{
    const int32_t *lengths =
        (const int32_t *)(const void *)(slot + g->sections[RP_SECTION_DOC_LENS].offset);
    const struct rp_row_info *rows =
        (const struct rp_row_info *)(const void *)(slot + g->sections[RP_SECTION_ROWS].offset);
    const struct rp_section_layout *layout = &g->sections[RP_SECTION_CU_SEQLENS];
    int32_t *ends = layout->offset ? (int32_t *)(void *)(slot + layout->offset) : NULL;
    const struct rp_section_layout *of_plans = &g->sections[RP_SECTION_ROW_PLANS];
    const struct rp_row_plan *plans = (const void *)(slot + of_plans->offset);
    struct totals totals = {0};
    uint32_t end = 0;
    if (ends)
        ends[0] = 0;
    for (uint32_t i = 0; i < row_count; i++, lengths += g->max_docs_per_row) {
        RP_ASSERT(rows[i].fragments <= g->max_docs_per_row && rows[i].tokens <= g->seq_len);
        uint32_t align = of_plans->offset ? plans[i].align : 1, row_end = (i + 1) * g->seq_len;
        for (uint32_t f = 0; f < rows[i].fragments; f++) {
            uint32_t length = (uint32_t)lengths[f];
            add_segment(&totals, ends, &end, rp_places(length, align));
            totals.sum_len_squared += (uint64_t)length * length;
        }
        RP_ASSERT(end <= row_end);
        if (end < row_end)
            add_segment(&totals, ends, &end, row_end - end);
        totals.rows_real += rows[i].fragments > 0;
        totals.tokens_real += rows[i].tokens;
        totals.tokens_loss += rows[i].tokens - rows[i].fragments;
    }
    RP_ASSERT(end == row_count * g->seq_len); /* segments cover every row */
    if (ends)
        for (uint64_t i = totals.segments + 1; i < layout->bytes / sizeof *ends; i++)
            ends[i] = (int32_t)end;
    return totals;
}

/* Tokens with a label: all but the first of each fragment, and those that masks have removed. */
static uint32_t count_labels(const struct totals *totals, const struct rp_batch_sums *sums)
{
    int64_t labels = (int64_t)totals->tokens_loss - sums->unlabelled;
    RP_ASSERT(labels >= 0 && labels <= totals->tokens_real);
    return (uint32_t)labels;
}

/* The header of a batch, without its cost and the sums of its step. */
static struct rp_slot_header make_header(const struct rp_deliver *d, uint32_t ring,
                                         const struct rp_ticket *last, const struct totals *totals,
                                         const struct rp_row_state *state)
{
    const struct rp_ring *own = &d->rings[ring];
    uint64_t batch = last->batch;
    const struct rp_numbering_part *part = rp_numbering_of_batch(d->numbering, batch);
    uint64_t step_batches = rp_numbering_step_batches(part);
    uint32_t rows = (uint32_t)(part->batch_rows / own->geometry.world);
    return (struct rp_slot_header){
        .batch = batch,
        .generation = ((const struct rp_ring_header *)(const void *)own->data.data)->generation,
        .first_row = part->row + (batch - part->batch) * part->batch_rows +
                     (uint64_t)own->geometry.rank * rows,
        .next_row = state->row,
        .sum_len_squared = totals->sum_len_squared,
        .rows_real = totals->rows_real,
        .tokens_real = totals->tokens_real,
        .tokens_loss = totals->tokens_loss,
        .max_seqlen = totals->max_seqlen,
        .segments = totals->segments,
        .state_bytes = (uint32_t)state->bytes,
        .state_offset = RP_SLOT_STATE_OFFSET,
        .skips_step = last->skips_step,
        .rows = rows,
        .micro_batch = (uint32_t)((batch - part->batch) % step_batches),
        .micro_batches = (uint32_t)step_batches,
        .step = part->step + (batch - part->batch) / step_batches,
    };
}

static void add_known(struct rp_slot_header *header, const struct rp_batch_sums *sums,
                      const struct rp_step_sums *step)
{
    if (sums->without_cost == 0) {
        header->known |= RP_KNOWN_COST;
        header->cost = sums->cost;
    }
    if (step->is_known) {
        header->known |= RP_KNOWN_STEP;
        header->step_rows = step->rows;
        header->step_tokens = step->tokens;
        header->step_tokens_loss = step->labels;
    }
}

void rp_complete_batch(struct rp_deliver *d, uint32_t ring, const struct rp_ticket *last)
{
    const struct rp_geometry *g = &d->rings[ring].geometry;
    uint8_t *slot = rp_ring_slot(&d->rings[ring], last->batch);
    uint64_t batch_rows = rp_numbering_of_batch(d->numbering, last->batch)->batch_rows;
    struct totals totals = complete_boundaries(g, (uint32_t)(batch_rows / g->world), slot);
    const struct rp_batch_sums sums = d->sums[ring];
    totals.tokens_loss = count_labels(&totals, &sums);
    d->sums[ring] = (struct rp_batch_sums){0};
    const struct rp_row_state state = rp_arena_state_at(d->arena, last->batch + 1);
    /* choose_sizes (flow_open.c) makes room for every batch that is not published */
    RP_ASSERT(state.token && state.bytes <= g->state_bytes);
    struct rp_slot_header *header = (struct rp_slot_header *)(void *)slot;
    *header = make_header(d, ring, last, &totals, &state);
    add_known(header, &sums, &last->step);
    memcpy(slot + RP_SLOT_STATE_OFFSET, state.token, state.bytes);
    rp_costs_add_batch(&d->costs->ranks[ring], sums.without_cost == 0, sums.cost);
    d->batches += !last->skips_step;
    d->rows += totals.rows_real;
    d->tokens += totals.tokens_real;
}
