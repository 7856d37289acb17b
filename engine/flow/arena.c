/* SPDX-License-Identifier: Apache-2.0 */
/* arena — lays out the prefetch ring in one segment. See ticket.h. */
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "flow/ticket.h"

#define HUGE_BYTES (2u << 20)

int rp_arena_create(struct rp_arena *arena, uint32_t ring_count, uint32_t slot_count,
                    uint64_t data_bytes, uint32_t state_count, uint64_t state_bytes,
                    struct rp_error *error)
{
    RP_ASSERT(rp_is_pow2(slot_count) && rp_is_pow2(state_count));
    RP_ASSERT(data_bytes % 4096 == 0);
    *arena = (struct rp_arena){.segment.fd = -1,
                               .slot_count = slot_count,
                               .state_count = state_count,
                               .data_bytes = data_bytes,
                               .state_bytes = rp_align_up(state_bytes, 64)};
    uint64_t words = 0;
    uint64_t free_until = rp_align_up(words + sizeof(struct rp_arena_words), 128);
    uint64_t tickets = rp_align_up(free_until + ring_count * sizeof(struct rp_a64), 4096);
    uint64_t states = rp_align_up(tickets + slot_count * sizeof(struct rp_ticket), 4096);
    uint64_t state_stride = sizeof(struct rp_state_slot) + arena->state_bytes;
    uint64_t data = rp_align_up(states + state_count * state_stride, HUGE_BYTES);
    uint64_t total = data + data_bytes;

    int code = rp_segment_create(&arena->segment, "ringpack-prefetch", total, true, error);
    if (code < 0)
        return code;
    uint8_t *memory = arena->segment.data;
    arena->words = (struct rp_arena_words *)(void *)(memory + words);
    arena->free_until = (struct rp_a64 *)(void *)(memory + free_until);
    arena->tickets = (struct rp_ticket *)(void *)(memory + tickets);
    arena->states = memory + states;
    arena->data = memory + data;
    return 0;
}

void rp_arena_reset(struct rp_arena *arena)
{
    memset(arena->words, 0, sizeof *arena->words);
    for (uint32_t i = 0; i < arena->slot_count; i++)
        rp_a64_store_relaxed(&arena->tickets[i].state, 0);
}

void rp_arena_close(struct rp_arena *arena)
{
    rp_segment_close(&arena->segment);
}

const void *rp_arena_state_at(const struct rp_arena *arena, uint64_t position, size_t *bytes_out,
                              uint64_t *next_row_out)
{
    const struct rp_state_slot *slot = rp_arena_state(arena, position);
    if (rp_a64_load_acquire(&slot->position) != position + 1) /* PAIRS state-slot */
        return NULL;
    *bytes_out = slot->bytes;
    *next_row_out = slot->next_row;
    return slot + 1;
}

void rp_ticket_fail(struct rp_ticket *ticket, int code, const struct rp_error *error)
{
    if (ticket->error)
        return;
    ticket->error = code;
    snprintf(ticket->message, sizeof ticket->message, "%s", error->message);
    snprintf(ticket->hint, sizeof ticket->hint, "%s", error->hint);
}
