/* SPDX-License-Identifier: Apache-2.0 */
/* batch_expected.h — a batch made the plainest way, element by element from batch.h's words, to
 * compare with the pipeline's parallel one. It shares no code with engine/flow. */
#ifndef RP_TESTS_BATCH_EXPECTED_H
#define RP_TESTS_BATCH_EXPECTED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"
#include "shm/ring.h"

#define EXPECTED __attribute__((unused)) static

static const char *const section_names[RP_SECTION_COUNT] = {
    "rows",        "doc_lens",  "input_ids",  "labels",     "position_ids",
    "segment_ids", "loss_mask", "cu_seqlens", "provenance", "row_plans"};

/* A planned row; its tokens are a function of its fragments. */
struct expected_row {
    uint64_t row;
    uint32_t count;
    const struct rp_fragment *fragments;
    uint64_t planned;
    uint32_t align; /* 0: 1 */
    bool is_skipped;
};
struct expected_tokens {
    uint64_t (*token)(const void *context, const struct rp_fragment *fragment, uint64_t i);
    const void *context;
    /* Is token i of the fragment trained? NULL: all are. */
    bool (*trained)(const void *context, const struct rp_fragment *fragment, uint64_t i);
    /* Has its document a token after the fragment, which is a label there? NULL: none has. */
    bool (*continues)(const void *context, const struct rp_fragment *fragment);
};

/* Labels of a fragment: its tokens after the first one, and the token after it if there is one. */
EXPECTED uint64_t expected_labels(const struct rp_fragment *fragment,
                                  const struct expected_tokens *tokens)
{
    bool continues = tokens->continues && tokens->continues(tokens->context, fragment);
    uint64_t labels = 0;
    for (uint32_t i = 1; i < fragment->length + continues; i++)
        labels += !tokens->trained || tokens->trained(tokens->context, fragment, i);
    return labels;
}

/* Element `at` of a section, stored as the geometry says; nothing without that section. */
EXPECTED void put(const struct rp_geometry *g, uint8_t *slot, enum rp_section section, uint64_t at,
                  int64_t value)
{
    const struct rp_section_layout *layout = &g->sections[section];
    if (!layout->offset)
        return;
    float f = (float)value;
    size_t bytes = layout->dtype == RP_DTYPE_U16 ? 2 : layout->dtype == RP_DTYPE_I64 ? 8 : 4;
    assert_true((at + 1) * bytes <= layout->bytes);
    memcpy(slot + layout->offset + at * bytes,
           layout->dtype == RP_DTYPE_F32 ? (const void *)&f : &value, bytes);
}

EXPECTED void put_record(const struct rp_geometry *g, uint8_t *slot, enum rp_section section,
                         uint64_t at, const void *record, size_t bytes)
{
    if (g->sections[section].offset)
        memcpy(slot + g->sections[section].offset + at * bytes, record, bytes);
}

struct expected_place {
    uint64_t at;      /* token in the batch */
    uint64_t segment; /* in cu_seqlens, from 1 */
    struct rp_slot_header *header;
};

EXPECTED void end_segment(const struct rp_geometry *g, uint8_t *slot, struct expected_place *place,
                          uint32_t length)
{
    put(g, slot, RP_SECTION_CU_SEQLENS, ++place->segment, (int64_t)place->at);
    if (length > place->header->max_seqlen)
        place->header->max_seqlen = length;
}

EXPECTED void put_fragment(const struct rp_geometry *g, uint8_t *slot,
                           const struct rp_fragment *fragment, uint32_t segment_id, uint32_t align,
                           const struct expected_tokens *tokens, struct expected_place *place)
{
    int64_t aligned = -100;
    uint32_t places = (fragment->length + align - 1) / align * align;
    bool continues = tokens->continues && tokens->continues(tokens->context, fragment);
    for (uint32_t i = 0; i < fragment->length; i++, place->at++) {
        bool has_next = (i + 1 < fragment->length || continues) &&
                        (!tokens->trained || tokens->trained(tokens->context, fragment, i + 1));
        int64_t shifted = has_next ? (int64_t)tokens->token(tokens->context, fragment, i + 1)
                                   : -100;
        put(g, slot, RP_SECTION_INPUT_IDS, place->at,
            (int64_t)tokens->token(tokens->context, fragment, i));
        put(g, slot, RP_SECTION_LABELS, place->at,
            g->label_mode != RP_LABELS_ALIGNED ? shifted : aligned);
        put(g, slot, RP_SECTION_POSITION_IDS, place->at, i);
        put(g, slot, RP_SECTION_SEGMENT_IDS, place->at, segment_id);
        put(g, slot, RP_SECTION_LOSS_MASK, place->at, has_next);
        place->header->tokens_loss += has_next;
        aligned = shifted;
    }
    place->header->tokens_real += fragment->length;
    place->header->sum_len_squared += (uint64_t)fragment->length * fragment->length;
    for (uint32_t i = fragment->length; i < places; i++, place->at++) {
        put(g, slot, RP_SECTION_INPUT_IDS, place->at, g->pad_id);
        put(g, slot, RP_SECTION_LABELS, place->at, -100);
        put(g, slot, RP_SECTION_POSITION_IDS, place->at, i);
    }
    end_segment(g, slot, place, places);
}

EXPECTED void put_padding(const struct rp_geometry *g, uint8_t *slot, uint32_t pads,
                          struct expected_place *place)
{
    for (uint32_t i = 0; i < pads; i++, place->at++) {
        put(g, slot, RP_SECTION_INPUT_IDS, place->at, g->pad_id);
        put(g, slot, RP_SECTION_LABELS, place->at, -100);
        put(g, slot, RP_SECTION_POSITION_IDS, place->at, i);
    }
    if (pads)
        end_segment(g, slot, place, pads);
}

/* All sections of the batch in `slot` (slot_bytes of memory), and the sums of its header. */
EXPECTED void expect_batch(const struct rp_geometry *g, const struct expected_row *rows,
                           const struct expected_tokens *tokens, uint8_t *slot,
                           struct rp_slot_header *header)
{
    memset(slot, 0, g->slot_bytes);
    *header = (struct rp_slot_header){0};
    struct expected_place place = {.header = header};
    for (uint32_t r = 0; r < g->rows; r++) {
        uint32_t used = 0, align = rows[r].align ? rows[r].align : 1;
        uint64_t row_at = place.at;
        for (uint32_t f = 0; f < rows[r].count; f++) {
            const struct rp_fragment *fragment = &rows[r].fragments[f];
            uint64_t at = (uint64_t)r * g->max_docs_per_row + f;
            put_fragment(g, slot, fragment, f + 1, align, tokens, &place);
            put(g, slot, RP_SECTION_DOC_LENS, at, fragment->length);
            struct rp_provenance provenance = {fragment->document, fragment->offset,
                                               fragment->source, fragment->length};
            put_record(g, slot, RP_SECTION_PROVENANCE, at, &provenance, sizeof provenance);
            used += fragment->length;
        }
        put_padding(g, slot, g->seq_len - (uint32_t)(place.at - row_at), &place);
        struct rp_row_info info = {rows[r].row, rows[r].count, used};
        put_record(g, slot, RP_SECTION_ROWS, r, &info, sizeof info);
        struct rp_row_plan plan = {rows[r].planned, align, rows[r].is_skipped};
        put_record(g, slot, RP_SECTION_ROW_PLANS, r, &plan, sizeof plan);
        header->rows_real += rows[r].count > 0;
    }
    header->segments = (uint32_t)place.segment;
    uint64_t capacity = g->sections[RP_SECTION_CU_SEQLENS].bytes / sizeof(int32_t);
    for (uint64_t i = place.segment + 1; i < capacity; i++)
        put(g, slot, RP_SECTION_CU_SEQLENS, i, (int64_t)place.at);
}

/* Compare all sections but those in `but` (a bit mask). Names the first byte that differs. */
EXPECTED bool sections_equal(const struct rp_geometry *g, const uint8_t *expected,
                             const uint8_t *found, uint32_t but, char *what, size_t what_bytes)
{
    for (unsigned s = 0; s < RP_SECTION_COUNT; s++) {
        const struct rp_section_layout *layout = &g->sections[s];
        for (uint64_t b = 0; layout->offset && !(but & 1u << s) && b < layout->bytes; b++) {
            if (expected[layout->offset + b] == found[layout->offset + b])
                continue;
            snprintf(what, what_bytes, "%s, byte %llu of %llu: expected %u, found %u",
                     section_names[s], (unsigned long long)b, (unsigned long long)layout->bytes,
                     expected[layout->offset + b], found[layout->offset + b]);
            return false;
        }
    }
    return true;
}

#endif
