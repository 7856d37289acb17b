/* SPDX-License-Identifier: Apache-2.0 */
/* write_row.h — the sections of a batch that packers write: fragments, their masks, ends of rows.
 * ringpack/batch.h defines them.
 *
 * Packers call these in any order. Each call writes the places of its fragment, or the end of its
 * row, and no byte outside; called twice, it writes the same bytes. */
#ifndef RP_FLOW_WRITE_ROW_H
#define RP_FLOW_WRITE_ROW_H

#include "flow/ticket.h"
#include "shm/ring.h"

/* A packer's view of a batch ring: the address of its slots, and their immutable shape. It has none
 * of the ring's words that change. */
struct rp_pack_target {
    uint8_t *slots;
    struct rp_geometry geometry;
    uint32_t ids_dtype, labels_dtype, positions_dtype;
};

void rp_pack_target_init(struct rp_pack_target *target, const struct rp_ring *ring);

static inline uint8_t *rp_slot_of(const struct rp_pack_target *target, uint64_t batch)
{
    return target->slots + (batch & (target->geometry.slots - 1)) * target->geometry.slot_bytes;
}

/* The content of the places of a fragment that no stored token has. */
struct rp_row_fill {
    const struct rp_row_form *form; /* read only if a transfer has an `extra` */
    int64_t pad_id;
    uint32_t align; /* 0 and 1: no padding inside rows */
};

/** Write a transfer, from its stored tokens, with its padding inside the row. `ahead` as in
 * widen.h. Returns the largest of the stored token ids. */
uint64_t rp_write_fragment(const struct rp_pack_target *target, uint8_t *slot,
                           const struct rp_transfer *transfer, const uint8_t *tokens,
                           const uint8_t *ahead, const struct rp_row_fill *fill);

/** Remove the labels of those tokens of a written transfer that no span of the mask has. The label
 * of its end stays. `data`: the arena's. */
void rp_write_mask(const struct rp_pack_target *target, uint8_t *slot,
                   const struct rp_transfer *transfer, const struct rp_mask *mask,
                   const uint8_t *data);

/** Write padding after the row's last occupied place, zeros after the entries of its last fragment,
 * and the row's own entries. */
void rp_write_row_end(const struct rp_pack_target *target, uint8_t *slot, int64_t pad_id,
                      const struct rp_row_end *end);

#endif
