/* SPDX-License-Identifier: Apache-2.0 */
#include "flow/write_side.h"

#include <string.h>

#include "base/bits.h"

/* The address of a place of a row, or of the number of a fragment. */
static uint8_t *place_at(const struct rp_pack_target *target, uint8_t *slot, uint32_t c,
                         uint64_t row, uint64_t place)
{
    const struct rp_geometry *g = &target->geometry;
    const struct rp_section_layout *layout = &g->sections[RP_SECTION_SIDES + c];
    uint64_t width = g->sides[c].of == RP_SIDE_OF_DOCUMENT ? g->max_docs_per_row : g->seq_len;
    uint64_t at = (row * width + place) * g->sides[c].bytes;
    RP_DASSERT(layout->offset != 0 && at <= layout->bytes);
    return slot + layout->offset + at;
}

/* Entries [first, end) of the stored ones go to the places from `place` on, counted from the first
 * place of the fragment. */
struct span {
    uint32_t first, end, place;
};

static struct span span_of(const struct rp_geometry *g, uint32_t c,
                           const struct rp_transfer *transfer)
{
    uint32_t bos = transfer->extra & RP_EXTRA_BOS, own = rp_transfer_own(transfer);
    if (g->sides[c].of == RP_SIDE_OF_TOKEN)
        return (struct span){0, own, bos};
    uint32_t first = bos ? 0 : 1; /* the first token of a fragment is no label */
    if (g->label_mode == RP_LABELS_ALIGNED)
        return (struct span){first, rp_max_u64(own, first) & UINT32_MAX, bos + first};
    uint32_t end = (uint32_t)rp_max_u64(rp_transfer_stored(transfer), first);
    return (struct span){first, end, bos + first - 1};
}

struct rp_side_span rp_write_side_zeros(const struct rp_pack_target *target, uint8_t *slot,
                                        const struct rp_transfer *transfer, uint32_t c,
                                        uint32_t align)
{
    const struct rp_geometry *g = &target->geometry;
    size_t bytes = g->sides[c].bytes, places = rp_places(transfer->fragment.length, align);
    struct span span = span_of(g, c, transfer);
    uint8_t *to = place_at(target, slot, c, transfer->row, transfer->offset);
    size_t count = span.end - span.first, after = span.place + count;
    RP_DASSERT(transfer->offset + places <= g->seq_len && after <= places);
    memset(to, 0, span.place * bytes);
    memset(to + after * bytes, 0, (places - after) * bytes);
    return (struct rp_side_span){to + span.place * bytes, span.first * bytes, count * bytes};
}

void rp_write_number(const struct rp_pack_target *target, uint8_t *slot,
                     const struct rp_transfer *transfer, uint32_t c, uint64_t number)
{
    RP_DASSERT(target->geometry.sides[c].of == RP_SIDE_OF_DOCUMENT);
    memcpy(place_at(target, slot, c, transfer->row, transfer->index), &number, sizeof number);
}

void rp_write_sides_end(const struct rp_pack_target *target, uint8_t *slot,
                        const struct rp_row_end *end)
{
    const struct rp_geometry *g = &target->geometry;
    for (uint32_t c = 0; c < RP_SIDES_MAX && g->sides[c].of; c++) {
        bool is_number = g->sides[c].of == RP_SIDE_OF_DOCUMENT;
        uint64_t used = is_number ? end->fragments : end->places;
        uint64_t width = is_number ? g->max_docs_per_row : g->seq_len;
        memset(place_at(target, slot, c, end->row_in_batch, used), 0,
               (size_t)(width - used) * g->sides[c].bytes);
    }
}
