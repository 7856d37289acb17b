/* SPDX-License-Identifier: Apache-2.0 */
/* ring_geometry.c — the offsets in a slot: a pure function of a few parameters, so a trainer checks
 * a header by computing it again. */
#include <string.h>

#include "base/bits.h"
#include "shm/ring.h"

#define RP_SECTION_ALIGN 64u
_Static_assert((int)RP_SECTION_SIDES + RP_SIDES_MAX == RP_SECTION_ROOM, "each has a section");
#define RP_SECTIONS_ALWAYS                                                                         \
    ((1u << RP_SECTION_ROWS) | (1u << RP_SECTION_DOC_LENS) | (1u << RP_SECTION_INPUT_IDS))

struct shape {
    uint32_t dtype;
    uint64_t elements, element_bytes;
};

/* All counts are below 2^32 and rows * seq_len below 2^31 (checked before), so no product here
 * wraps. */
static struct shape section_shape(const struct rp_geometry *g, enum rp_section section,
                                  uint32_t token_dtype)
{
    uint32_t wide = token_dtype == RP_DTYPE_U16 ? RP_DTYPE_I32 : token_dtype;
    uint64_t tokens = (uint64_t)g->rows * g->seq_len;
    uint64_t documents = (uint64_t)g->rows * g->max_docs_per_row;
    switch (section) {
    case RP_SECTION_ROWS:
        return (struct shape){RP_DTYPE_RECORD, g->rows, sizeof(struct rp_row_info)};
    case RP_SECTION_DOC_LENS:
        return (struct shape){RP_DTYPE_I32, documents, 4};
    case RP_SECTION_INPUT_IDS:
        return (struct shape){token_dtype, tokens, rp_dtype_bytes(token_dtype)};
    case RP_SECTION_LABELS:
    case RP_SECTION_POSITION_IDS:
        return (struct shape){wide, tokens, rp_dtype_bytes(wide)};
    case RP_SECTION_SEGMENT_IDS:
        return (struct shape){RP_DTYPE_I32, tokens, 4};
    case RP_SECTION_LOSS_MASK:
        return (struct shape){RP_DTYPE_F32, tokens, 4};
    case RP_SECTION_CU_SEQLENS:
        return (struct shape){RP_DTYPE_I32, documents + g->rows + 1, 4};
    case RP_SECTION_PROVENANCE:
        return (struct shape){RP_DTYPE_RECORD, documents, sizeof(struct rp_provenance)};
    case RP_SECTION_ROW_PLANS:
        return (struct shape){RP_DTYPE_RECORD, g->rows, sizeof(struct rp_row_plan)};
    default:
        break;
    }
    const struct rp_side *side = &g->sides[section - RP_SECTION_SIDES];
    return (struct shape){side->dtype, side->of == RP_SIDE_OF_DOCUMENT ? documents : tokens,
                          side->bytes};
}

/* Columns come first, and the entries of the rest are zeros. */
static bool sides_fit(const struct rp_geometry *g)
{
    static const struct rp_side none;
    bool has_ended = false;
    for (unsigned c = 0; c < RP_SIDES_MAX; c++) {
        const struct rp_side *side = &g->sides[c];
        has_ended |= side->of == RP_SIDE_NONE;
        if (has_ended && memcmp(side, &none, sizeof none) != 0)
            return false;
        if (!has_ended &&
            (side->of > RP_SIDE_OF_DOCUMENT || side->count == 0 ||
             side->count > RP_SIDE_ENTRY_BYTES || side->bytes > RP_SIDE_ENTRY_BYTES ||
             side->bytes == 0 || side->bytes != side->count * rp_dtype_bytes(side->dtype) ||
             side->name[0] == '\0' || !memchr(side->name, '\0', sizeof side->name)))
            return false;
    }
    return true;
}

static bool parameters_fit(const struct rp_geometry *g, uint32_t token_dtype)
{
    if (token_dtype != RP_DTYPE_U16 && token_dtype != RP_DTYPE_I32 && token_dtype != RP_DTYPE_I64)
        return false;
    if (g->rows == 0 || g->seq_len == 0 || g->max_docs_per_row == 0 ||
        g->max_docs_per_row > g->seq_len)
        return false;
    if (!rp_is_pow2(g->slots) || g->slots > RP_RING_SLOTS_MAX || g->state_bytes > UINT32_MAX)
        return false;
    return g->world > 0 && g->rank < g->world && (uint64_t)g->rows * g->seq_len <= INT32_MAX &&
           sides_fit(g);
}

uint64_t rp_geometry_layout(struct rp_geometry *g, uint32_t sections, uint32_t token_dtype)
{
    if (!parameters_fit(g, token_dtype))
        return 0;
    g->struct_size = sizeof *g;
    memset(g->sections, 0, sizeof g->sections);
    uint64_t offset = rp_align_up(RP_SLOT_STATE_OFFSET + g->state_bytes, RP_SECTION_ALIGN);
    sections = (sections & ((1u << RP_SECTION_COUNT) - 1)) | RP_SECTIONS_ALWAYS;
    for (unsigned c = 0; c < RP_SIDES_MAX; c++)
        if (g->sides[c].of)
            sections |= 1u << (RP_SECTION_SIDES + c);
    for (unsigned i = 0; i < RP_SECTION_ROOM; i++) {
        if (!(sections & (1u << i)))
            continue;
        struct shape shape = section_shape(g, (enum rp_section)i, token_dtype);
        RP_ASSERT(shape.elements > 0 && shape.element_bytes > 0);
        g->sections[i] = (struct rp_section_layout){
            .offset = offset, .bytes = shape.elements * shape.element_bytes, .dtype = shape.dtype};
        offset = rp_align_up(offset + g->sections[i].bytes, RP_SECTION_ALIGN);
    }
    g->slot_bytes = rp_align_up(offset, RP_PAGE_BYTES);
    RP_ASSERT(g->slot_bytes <= (UINT64_MAX - RP_RING_SLOTS_OFFSET) / g->slots);
    return RP_RING_SLOTS_OFFSET + g->slots * g->slot_bytes;
}

uint64_t rp_geometry_total(const struct rp_geometry *geometry)
{
    struct rp_geometry again = *geometry;
    uint32_t sections = 0;
    for (unsigned i = 0; i < RP_SECTION_COUNT; i++)
        if (geometry->sections[i].offset)
            sections |= 1u << i;
    uint64_t total = rp_geometry_layout(&again, sections,
                                        geometry->sections[RP_SECTION_INPUT_IDS].dtype);
    return memcmp(&again, geometry, sizeof again) == 0 ? total : 0;
}
