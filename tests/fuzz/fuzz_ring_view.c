/* SPDX-License-Identifier: Apache-2.0 */
/* A batch ring as a trainer gets it: u8 mode (1: the header's hash made right again), u64 first
 * batch, edits of its memory: header, engine's words, slots.
 *
 * Accepted ring: every section of every slot is inside the memory, and every batch that is taken is
 * the next one, within the bounds of the shape, with its state inside its slot. Unharmed: it is
 * accepted and its batches are there. */
#include "memory_segment.h"
#include "shm/ring.h"

#define SLOTS 4u
#define PUBLISHED 3u

static struct rp_ring ring;
static uint8_t *good;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    struct rp_geometry g = {.rows = 2, .seq_len = 8, .max_docs_per_row = 3, .world = 2};
    g.rank = 1, g.slots = SLOTS, g.base_row = 12, g.state_bytes = 24;
    FUZZ_REQUIRE(rp_geometry_layout(&g, 1u << RP_SECTION_LABELS, RP_DTYPE_I32) > 0);
    FUZZ_REQUIRE(rp_ring_create(&ring, &g, 1, (struct rp_ring_identity){{1, 2}, 3}, 0, NULL) == 0);
    FUZZ_REQUIRE(rp_ring_attach_trainer(&ring, 0, 0, NULL) == 0);
    for (uint64_t k = 0; k < PUBLISHED; k++) {
        uint64_t row = 12 + 4 * k;
        struct rp_slot_header head = {.batch = k,
                                      .generation = 3,
                                      .first_row = row + 2,
                                      .next_row = row + 4,
                                      .rows_real = 2,
                                      .rows = 2,
                                      .micro_batches = 1,
                                      .state_bytes = 24,
                                      .state_offset = RP_SLOT_STATE_OFFSET};
        memcpy(rp_ring_slot(&ring, k), &head, sizeof head);
        rp_ring_publish(&ring, k + 1);
    }
    good = malloc(ring.data.bytes);
    memcpy(good, ring.data.data, ring.data.bytes);
    return 0;
}

static void check_slot(const struct rp_ring_view *view, const uint8_t *slot,
                       const struct rp_slot_header *header)
{
    const struct rp_geometry *g = &view->geometry;
    uint64_t offset = (uint64_t)(slot - view->data.data);
    FUZZ_REQUIRE(rp_range_inside(offset, g->slot_bytes, view->data.bytes));
    FUZZ_REQUIRE(header->batch + 1 == view->next && header->rows_real <= g->rows);
    FUZZ_REQUIRE(header->state_bytes <= g->state_bytes);
    FUZZ_REQUIRE(rp_range_inside(header->state_offset, header->state_bytes, g->slot_bytes));
    for (unsigned i = 0; i < RP_SECTION_COUNT; i++)
        FUZZ_REQUIRE(rp_range_inside(g->sections[i].offset, g->sections[i].bytes, g->slot_bytes));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    bool mend = fuzz_number(&input, 1) & 1;
    uint64_t first = fuzz_number(&input, 8), taken = 0;
    bool unharmed = input.left < 4 && first == 0;
    struct rp_ring_header *header = (struct rp_ring_header *)(void *)ring.data.data;
    fuzz_edit(&input, ring.data.data, ring.data.bytes);
    if (mend)
        header->header_hash = rp_hash128(header, offsetof(struct rp_ring_header, header_hash));
    struct rp_error error = {0};
    struct rp_ring_view view;
    int code = rp_ring_view_open(&view, dup(ring.data.fd), dup(ring.seats[0].control.fd), first,
                                 &error);
    if (fuzz_accepted(code, &error)) {
        const uint8_t *slot;
        struct rp_slot_header head;
        char text[1025];
        while (rp_ring_view_take(&view, &slot, &head, &error) == RP_RING_TAKEN && taken <= SLOTS) {
            check_slot(&view, slot, &head);
            (void)rp_ring_view_release(&view, first + ++taken);
        }
        rp_ring_view_message(&view, text, sizeof text);
        FUZZ_REQUIRE(strlen(text) < sizeof text);
        rp_ring_view_close(&view);
    }
    FUZZ_REQUIRE(fuzz_opened(ring.data.fd) == 1 && fuzz_opened(ring.seats[0].control.fd) == 1);
    FUZZ_REQUIRE(!unharmed || (code == 0 && taken == PUBLISHED));
    memcpy(ring.data.data, good, ring.data.bytes);
    return 0;
}
