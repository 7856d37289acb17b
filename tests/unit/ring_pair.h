/* SPDX-License-Identifier: Apache-2.0 */
/* ring_pair.h — a batch ring with both its ends in one process, and tiny batches that say which
 * they are. */
#ifndef RP_TESTS_RING_PAIR_H
#define RP_TESTS_RING_PAIR_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "shm/ring.h"

#define PAIR __attribute__((unused)) static
#define GENERATION 99u

PAIR struct rp_geometry tiny(uint32_t slots)
{
    struct rp_geometry g = {.rows = 1,
                            .seq_len = 4,
                            .max_docs_per_row = 1,
                            .world = 2,
                            .rank = 1,
                            .micro_batches = 1,
                            .slots = slots,
                            .base_row = 10,
                            .state_bytes = 16};
    assert_true(rp_geometry_layout(&g, 0, RP_DTYPE_U16) > 0);
    return g;
}

struct pair {
    struct rp_ring ring;
    struct rp_ring_view view;
    uint64_t batches; /* to pass */
};

PAIR void pair_open(struct pair *pair, uint32_t slots, uint64_t first)
{
    struct rp_error error;
    struct rp_geometry g = tiny(slots);
    if (rp_ring_create(&pair->ring, &g, 1, (struct rp_ring_identity){{1, 2}, GENERATION}, first,
                       &error) != 0 ||
        rp_ring_attach_trainer(&pair->ring, 0, first, &error) != 0 ||
        rp_ring_view_open(&pair->view, dup(pair->ring.data.fd), dup(pair->ring.seats[0].control.fd),
                          first, &error) != 0)
        fail_msg("%s", error.message);
}

PAIR void pair_close(struct pair *pair)
{
    rp_ring_view_close(&pair->view);
    rp_ring_close(&pair->ring);
}

PAIR struct rp_ring_control *control_of(struct pair *pair)
{
    return (struct rp_ring_control *)(void *)pair->view.control.data;
}

PAIR struct rp_ring_engine *engine_of(struct pair *pair)
{
    return (struct rp_ring_engine *)(void *)(pair->ring.data.data + RP_PAGE_BYTES);
}

PAIR void fill(const struct rp_ring *ring, uint64_t batch)
{
    uint8_t *slot = rp_ring_slot(ring, batch);
    struct rp_slot_header header = {.batch = batch,
                                    .generation = GENERATION,
                                    .first_row = 10 + batch * 2 + 1,
                                    .next_row = 10 + batch * 2 + 2,
                                    .rows = 1,
                                    .micro_batches = 1,
                                    .rows_real = 1,
                                    .tokens_real = 4,
                                    .state_offset = RP_SLOT_STATE_OFFSET};
    memcpy(slot, &header, sizeof header);
    rp_store_u64(slot + ring->geometry.sections[RP_SECTION_INPUT_IDS].offset,
                 batch * 0x9e3779b97f4a7c15u);
}

PAIR bool content_is_right(const struct rp_ring_view *view, const uint8_t *slot, uint64_t batch)
{
    uint64_t ids = rp_load_u64(slot + view->geometry.sections[RP_SECTION_INPUT_IDS].offset);
    return ids == batch * 0x9e3779b97f4a7c15u;
}

PAIR int take(struct pair *pair, struct rp_error *error)
{
    const uint8_t *slot;
    struct rp_slot_header header;
    return rp_ring_view_take(&pair->view, &slot, &header, error);
}

#endif
