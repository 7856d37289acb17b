/* SPDX-License-Identifier: Apache-2.0 */
/* arena.c — lays out the prefetch ring (ticket.h) in one segment. */
#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "flow/ticket.h"

#define HUGE_BYTES (2u << 20)
#define NAME "ringpack-prefetch"

/* Offsets of the parts; the words come first. */
struct offsets {
    uint64_t free_until, pack_from, tickets, states, side_places, data, end;
};

static struct offsets find_offsets(const struct rp_arena_sizes *sizes)
{
    uint64_t stride = sizeof(struct rp_state_slot) + rp_align_up(sizes->state_bytes, 64);
    uint64_t words = sizes->ring_count * sizeof(struct rp_a64);
    struct offsets at;
    at.free_until = rp_align_up(sizeof(struct rp_arena_words), 128);
    at.pack_from = rp_align_up(at.free_until + words, 128);
    at.tickets = rp_align_up(at.pack_from + words, 4096);
    at.states = rp_align_up(at.tickets + sizes->slot_count * sizeof(struct rp_ticket), 4096);
    at.side_places = rp_align_up(at.states + sizes->state_count * stride, 64);
    uint64_t transfers = (uint64_t)sizes->slot_count * RP_TICKET_TRANSFERS_MAX;
    at.data = rp_align_up(
        at.side_places + transfers * sizes->side_count * sizeof(struct rp_side_place), HUGE_BYTES);
    at.end = at.data + sizes->data_bytes;
    return at;
}

uint64_t rp_arena_bytes(const struct rp_arena_sizes *sizes)
{
    return rp_align_up(find_offsets(sizes).end, HUGE_BYTES);
}

int rp_arena_create(struct rp_arena *arena, bool is_private, const struct rp_arena_sizes *sizes,
                    struct rp_error *error)
{
    RP_ASSERT(rp_is_pow2(sizes->slot_count) && rp_is_pow2(sizes->state_count));
    RP_ASSERT(sizes->data_bytes % 4096 == 0);
    RP_ASSERT(sizes->ring_count > 0);
    *arena = (struct rp_arena){.segment.fd = -1,
                               .slot_count = sizes->slot_count,
                               .state_count = sizes->state_count,
                               .side_count = sizes->side_count,
                               .data_bytes = sizes->data_bytes,
                               .state_bytes = rp_align_up(sizes->state_bytes, 64),
                               .prefaulted.value = !is_private};
    struct offsets at = find_offsets(sizes);
    int code = is_private ? rp_segment_create_private(&arena->segment, NAME, at.end, error)
                          : rp_segment_create(&arena->segment, NAME, at.end, true, error);
    if (code < 0)
        return code;
    RP_ASSERT(at.end <= arena->segment.bytes);
    uint8_t *memory = arena->segment.data;
    arena->words = (struct rp_arena_words *)(void *)memory;
    arena->free_until = (struct rp_a64 *)(void *)(memory + at.free_until);
    arena->pack_from = (struct rp_a64 *)(void *)(memory + at.pack_from);
    arena->tickets = (struct rp_ticket *)(void *)(memory + at.tickets);
    arena->states = memory + at.states;
    arena->side_places = (struct rp_side_place *)(void *)(memory + at.side_places);
    arena->data = memory + at.data;
    return 0;
}

int rp_arena_prefault(struct rp_arena *arena, struct rp_error *error)
{
    int code = rp_segment_prefault(&arena->segment, NAME, error);
    if (code == 0)
        rp_a32_store_release(&arena->prefaulted, 1); /* PAIRS arena-prefaulted */
    return code;
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

struct rp_row_state rp_arena_state_at(const struct rp_arena *arena, uint64_t position)
{
    const struct rp_state_slot *slot = rp_arena_state(arena, position);
    if (rp_a64_load_acquire(&slot->position) != position + 1) /* PAIRS state-slot */
        return (struct rp_row_state){.token = NULL};
    RP_ASSERT(slot->bytes <= arena->state_bytes);
    return (struct rp_row_state){slot + 1, slot->bytes, slot->next_row};
}

void rp_ticket_fail(struct rp_ticket *ticket, int code, const struct rp_error *error)
{
    RP_ASSERT(code < 0);
    if (ticket->error)
        return;
    ticket->error = code;
    snprintf(ticket->message, sizeof ticket->message, "%s", error->message);
    snprintf(ticket->hint, sizeof ticket->hint, "%s", error->hint);
}
