/* SPDX-License-Identifier: Apache-2.0 */
/* pack.c — copies and widens the tokens of READY tickets into their final addresses in the batch
 * slots.
 *
 * Flow: wait for the ticket → wait until the slot of its micro-batch is free in every ring it
 * writes to → copy the tokens of every transfer once, writing all sections that depend on it while
 * its tokens are in cache → finish the rows that end here → PACKED. Deliver writes the sections
 * that depend on a whole batch (cu_seqlens, slot header), and publishes it.
 *
 * Invariants: packers share no batch position (a transfer is in one ticket), so there is no order
 * among them; and packing a ticket twice writes the same bytes, so a killed packer's ticket is
 * simply done again. */
#include "flow/pack.h"

#include <sched.h>
#include <string.h>

#include "base/bits.h"
#include "base/file.h"
#include "flow/deliver.h"
#include "flow/startup_yield.h"
#include "flow/write_side.h"

/* While a transfer is packed, the tokens of the one this many places after it are prefetched into
 * cache, because documents are scattered in memory. More than two were no faster. */
#define TRANSFERS_AHEAD 2u

/* ---- one ticket ------------------------------------------------------------------------------ */

/* A packer thread delivers itself; a process wakes the engine for a packed ticket. */
static void deliver(const struct rp_pack_plan *plan, enum rp_turn_reason reason)
{
    if (plan->deliver) {
        rp_deliver_as_packer(plan->deliver, reason);
    } else if (reason == RP_TURN_PACKED) {
        rp_fence_seq_cst(); /* PAIRS deliver-park */
        if (rp_a32_load_relaxed(&plan->arena->words->parked))
            rp_fd_wake(plan->wake_fd);
    }
}

static bool has_room(const struct rp_arena *arena, uint32_t ring, uint64_t batch)
{
    return batch < rp_a64_load_acquire(&arena->free_until[ring]); /* PAIRS batch-space */
}

/* Wait until batch slots of `ring` may be written. False when the flow is stopping. */
static bool wait_for_space(const struct rp_pack_plan *plan, uint32_t ring, uint64_t batch)
{
    const struct rp_arena *arena = plan->arena;
    struct rp_event *space = &arena->words->space;
    uint32_t spins = 0;
    while (!has_room(arena, ring, batch)) {
        /* a trainer that is just waking up takes a few us: less than a sleep and two wake-ups */
        if (plan->deliver && rp_spin(&spins, RP_SPIN_NS)) {
            rp_deliver_as_packer(plan->deliver, RP_TURN_POLLS_ROOM);
            continue;
        }
        uint32_t epoch = rp_event_prepare(space);
        deliver(plan, RP_TURN_LACKS_ROOM);
        rp_event_sleep_unless(space, epoch,
                              has_room(arena, ring, batch) || rp_arena_stopping_packers(arena));
        if (rp_arena_stopping_packers(arena))
            return false;
    }
    return true;
}

/* Are the batch's rows of this ring for another flow to pack? */
static bool is_left_out(const struct rp_arena *arena, uint32_t ring, uint64_t batch)
{
    uint64_t from = rp_a64_load_relaxed(&arena->pack_from[ring]);
    return batch < from;
}

/* Wait until a ticket is READY or further. Returns its state word, 0 when the flow is stopping. */
static uint64_t wait_for_ticket(const struct rp_pack_plan *plan, uint64_t number)
{
    const struct rp_arena *arena = plan->arena;
    struct rp_event *ready = &arena->words->ready;
    const struct rp_a64 *state = &rp_arena_ticket(arena, number)->state;
    uint64_t wanted = rp_ticket_word(number, RP_TICKET_READY);
    for (;;) {
        if (rp_arena_stopping_packers(arena))
            return 0;
        uint64_t word = rp_a64_load_acquire(state); /* PAIRS ticket-state */
        if (word >= wanted)
            return word;
        deliver(plan, RP_TURN_WAITS);
        uint32_t epoch = rp_event_prepare(ready);
        rp_event_sleep_unless(
            ready, epoch, rp_a64_load_acquire(state) >= wanted || rp_arena_stopping_packers(arena));
    }
}

/* The tokens of a transfer, for the packer to copy. NULL: they differ from the indexed ones. */
static const uint8_t *transfer_tokens(const struct rp_pack_plan *plan, uint32_t index,
                                      const struct rp_transfer *transfer, struct rp_error *error)
{
    if (rp_files_is_checked(plan->files, transfer))
        return rp_verified_take(&plan->verified[index], plan->files, transfer, error);
    return rp_files_tokens(plan->files, plan->arena->data, transfer);
}

/* Called for every transfer, so the usual case is decided without a call. */
static bool can_be_packed(const struct rp_pack_plan *plan, const struct rp_ticket *ticket,
                          uint64_t number, const struct rp_transfer *transfer)
{
    return !rp_arena_stopping_packers(plan->arena) &&
           (has_room(plan->arena, transfer->ring, ticket->batch) ||
            wait_for_space(plan, transfer->ring, ticket->batch)) &&
           (transfer->loaded_by == number || wait_for_ticket(plan, transfer->loaded_by) != 0);
}

/* The entries of column c of a transfer, as if they were its tokens. */
static struct rp_transfer side_of(const struct rp_pack_plan *plan, uint64_t number,
                                  const struct rp_ticket *ticket, uint32_t i, uint32_t c)
{
    struct rp_transfer side = ticket->transfers[i];
    const struct rp_side_place *place = &rp_arena_side_places(plan->arena, number, i)[c];
    side.width = (uint16_t)plan->targets[side.ring].geometry.sides[c].bytes;
    side.data_offset = place->data_offset;
    side.expected = place->expected;
    side.loaded_by = place->loaded_by;
    side.mapped_shard = place->mapped_shard;
    return side;
}

/* Start readahead of lost pages for all transfers of a ticket, so that the disk has several pages
 * to read at once. */
static void read_lost_pages(const struct rp_pack_plan *plan, uint64_t number,
                            const struct rp_ticket *ticket)
{
    for (uint32_t i = 0; i < ticket->transfer_count; i++) {
        if (is_left_out(plan->arena, ticket->transfers[i].ring, ticket->batch))
            continue;
        rp_files_read_lost(plan->files, &ticket->transfers[i]);
        for (uint32_t c = 0; c < plan->side_files; c++) {
            const struct rp_transfer side = side_of(plan, number, ticket, i, c);
            rp_files_read_lost(plan->files, &side);
        }
    }
}

/* The entries were compared when they were read, or have no hashes. */
static void copy_entries(const struct rp_pack_plan *plan, const struct rp_transfer *side,
                         const struct rp_side_span *span)
{
    const uint8_t *entries = rp_files_tokens(plan->files, plan->arena->data, side);
    memcpy(span->to, entries + span->skip, span->bytes);
}

/* Pack the side columns of transfer `i`. 1: packed; 0: the flow is stopping; or a negative code:
 * entries differ from their hashes. */
static int pack_sides(const struct rp_pack_plan *plan, uint32_t index, uint64_t number,
                      const struct rp_ticket *ticket, uint32_t i, struct rp_error *error)
{
    const struct rp_pack_target *target = &plan->targets[ticket->transfers[i].ring];
    uint8_t *slot = rp_slot_of(target, ticket->batch);
    for (uint32_t c = 0; c < plan->arena->side_count; c++) {
        struct rp_transfer side = side_of(plan, number, ticket, i, c);
        if (c >= plan->side_files) {
            rp_write_number(target, slot, &side, c, side.data_offset);
            continue;
        }
        struct rp_side_span span = rp_write_side_zeros(target, slot, &side, c, ticket->align);
        if (rp_transfer_stored(&side) == 0)
            continue;
        if (side.loaded_by != number && wait_for_ticket(plan, side.loaded_by) == 0)
            return 0;
        if (!rp_files_is_checked(plan->files, &side)) {
            copy_entries(plan, &side, &span);
            continue;
        }
        int code = rp_verified_copy_side(&plan->verified[index], c, plan->files, &side, &span,
                                         error);
        if (code < 0)
            return code;
    }
    return 1;
}

/* Pack transfer `i`, from `source`. False: one of its token ids is not below the limit. */
static bool pack_and_check(const struct rp_pack_plan *plan, const struct rp_ticket *ticket,
                           uint32_t i, const uint8_t *source, const struct rp_mask *mask,
                           const struct rp_row_fill *fill)
{
    const struct rp_transfer *transfer = &ticket->transfers[i];
    const struct rp_transfer *ahead =
        &ticket->transfers[rp_min_u64(i + TRANSFERS_AHEAD, ticket->transfer_count - 1)];
    const struct rp_pack_target *target = &plan->targets[transfer->ring];
    uint8_t *slot = rp_slot_of(target, ticket->batch), *data = plan->arena->data;
    uint64_t largest = rp_write_fragment(target, slot, transfer, source,
                                         rp_files_tokens(plan->files, data, ahead), fill);
    if (mask)
        rp_write_mask(target, slot, transfer, mask, data);
    return largest < rp_transfer_token_limit(transfer, plan->token_limit);
}

/* False when the flow is stopping. A ticket with an error has no more transfers to pack. */
static bool pack_transfers(const struct rp_pack_plan *plan, uint32_t index, uint64_t number,
                           struct rp_ticket *ticket)
{
    const struct rp_mask *mask = ticket->masks, *masks_end = mask + ticket->mask_count;
    const struct rp_row_fill fill = {plan->form, plan->pad_id, ticket->align};
    uint32_t bad_transfer = 0;
    bool has_pages = false;
    for (uint32_t i = 0; i < ticket->transfer_count; i++) {
        const struct rp_transfer *transfer = &ticket->transfers[i];
        const struct rp_mask *its_mask = mask < masks_end && mask->transfer == i ? mask++ : NULL;
        if (is_left_out(plan->arena, transfer->ring, ticket->batch))
            continue;
        if (!can_be_packed(plan, ticket, number, transfer))
            return false;
        if (!has_pages) /* not before the wait for space, during which more pages can be lost */
            read_lost_pages(plan, number, ticket);
        has_pages = true;
        struct rp_error error;
        const uint8_t *source = transfer_tokens(plan, index, transfer, &error);
        if (!source) {
            rp_ticket_fail(ticket, error.code, &error);
            return true;
        }
        if (!pack_and_check(plan, ticket, i, source, its_mask, &fill) && bad_transfer == 0)
            bad_transfer = i + 1;
        int packed = pack_sides(plan, index, number, ticket, i, &error);
        if (packed < 0)
            rp_ticket_fail(ticket, error.code, &error);
        if (packed <= 0)
            return packed < 0;
    }
    ticket->bad_transfer = bad_transfer;
    return true;
}

/* False when the flow is stopping. */
static bool finish_rows(const struct rp_pack_plan *plan, const struct rp_ticket *ticket)
{
    for (uint32_t i = 0; i < ticket->row_count; i++) {
        const struct rp_row_end *end = &ticket->rows[i];
        if (is_left_out(plan->arena, end->ring, ticket->batch))
            continue;
        if (!wait_for_space(plan, end->ring, ticket->batch))
            return false;
        const struct rp_pack_target *target = &plan->targets[end->ring];
        rp_write_row_end(target, rp_slot_of(target, ticket->batch), plan->pad_id, end);
        rp_write_sides_end(target, rp_slot_of(target, ticket->batch), end);
    }
    return true;
}

/* The ticket is READY. False when the flow is stopping. */
static bool pack_ticket(const struct rp_pack_plan *plan, uint32_t index, uint64_t number,
                        struct rp_ticket *ticket)
{
    RP_ASSERT(ticket->transfer_count <= RP_TICKET_TRANSFERS_MAX);
    RP_ASSERT(ticket->row_count <= RP_TICKET_ROWS_MAX);
    return pack_transfers(plan, index, number, ticket) &&
           (ticket->error != 0 || finish_rows(plan, ticket));
}

/* Yield the processor, if it is time to. That may take long, so published batches are announced
 * first. */
static void yield_at_startup(const struct rp_pack_plan *plan)
{
    if (!rp_startup_yield_is_due())
        return;
    deliver(plan, RP_TURN_WAITS);
    sched_yield();
}

/* The first ticket of the packer that is not retired. */
static uint64_t first_ticket(const struct rp_pack_plan *plan, uint32_t index)
{
    RP_ASSERT(index < plan->packers);
    uint64_t retired = rp_a64_load_acquire(&plan->arena->words->retired);
    return retired + (index + plan->packers - retired % plan->packers) % plan->packers;
}

static uint64_t state_of(const struct rp_arena *arena, uint64_t number)
{
    return rp_a64_load_acquire(&rp_arena_ticket(arena, number)->state); /* PAIRS ticket-state */
}

static bool sides_are_loaded(const struct rp_pack_plan *plan, uint64_t number,
                             const struct rp_ticket *ticket, uint32_t i)
{
    const struct rp_side_place *places = rp_arena_side_places(plan->arena, number, i);
    bool are_loaded = true;
    bool are_stored = rp_transfer_stored(&ticket->transfers[i]) > 0;
    for (uint32_t c = 0; are_stored && are_loaded && c < plan->side_files; c++)
        are_loaded = rp_arena_is_loaded(plan->arena, places[c].loaded_by);
    return are_loaded;
}

bool rp_packer_has_work(const struct rp_pack_plan *plan, uint32_t index, uint64_t *number)
{
    const struct rp_arena *arena = plan->arena;
    uint64_t n = first_ticket(plan, index);
    while (state_of(arena, n) >= rp_ticket_word(n, RP_TICKET_PACKED))
        n += plan->packers;
    const struct rp_ticket *ticket = rp_arena_ticket(arena, n);
    bool has_work = state_of(arena, n) == rp_ticket_word(n, RP_TICKET_READY);
    for (uint32_t i = 0; has_work && i < ticket->transfer_count; i++) {
        const struct rp_transfer *transfer = &ticket->transfers[i];
        has_work = is_left_out(arena, transfer->ring, ticket->batch) ||
                   (has_room(arena, transfer->ring, ticket->batch) &&
                    rp_arena_is_loaded(arena, transfer->loaded_by) &&
                    sides_are_loaded(plan, n, ticket, i));
    }
    for (uint32_t i = 0; has_work && i < ticket->row_count; i++)
        has_work = is_left_out(arena, ticket->rows[i].ring, ticket->batch) ||
                   has_room(arena, ticket->rows[i].ring, ticket->batch);
    *number = n;
    return has_work;
}

void rp_packer_run(const struct rp_pack_plan *plan, uint32_t index)
{
    const struct rp_arena *arena = plan->arena;
    /* a replacement passes over the tickets that are packed already */
    for (uint64_t number = first_ticket(plan, index);; number += plan->packers) {
        uint64_t word = wait_for_ticket(plan, number);
        if (word == 0)
            return;
        if (word >= rp_ticket_word(number, RP_TICKET_PACKED))
            continue;
        struct rp_ticket *ticket = rp_arena_ticket(arena, number);
        if (ticket->error == 0 && !pack_ticket(plan, index, number, ticket))
            return;
        rp_a64_store_release(&ticket->state,
                             rp_ticket_word(number, RP_TICKET_PACKED)); /* PAIRS ticket-state */
        deliver(plan, RP_TURN_PACKED);
        yield_at_startup(plan);
    }
}
