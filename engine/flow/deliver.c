/* SPDX-License-Identifier: Apache-2.0 */
/* deliver.c — retires tickets in plan order; when the last ticket of a micro-batch is packed,
 * completes the batch in every local ring (complete_batch.h) and publishes it.
 *
 * Invariants: batches are published in order, and none twice while a trainer is attached; a slot is
 * completed before its tail store and not touched after it until the trainer has released it. Words
 * that trainers write reach packers only through free_until, after rp_ring_poll_release has checked
 * them. */
#include "flow/deliver.h"

#include <inttypes.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "flow/complete_batch.h"
#include "flow/widen.h"

/* ---- publishing ------------------------------------------------------------------------------ */

/* Batches are announced after this time. It grows with the number of trainers, since all of them
 * are woken and then run. */
static uint64_t announce_after_ns(const struct rp_deliver *d)
{
    return rp_max_u64(RP_ANNOUNCE_NS, (uint64_t)d->options->rank_count * RP_ANNOUNCE_RANK_NS);
}

/* `batches` of the ring are published and not announced: announce them now, or later. */
static void announce_or_wait(struct rp_deliver *d, struct rp_ring *ring, uint64_t batches,
                             bool is_slow)
{
    if (is_slow || batches >= ring->geometry.slots / 2) {
        rp_ring_announce(ring);
    } else if (!rp_a32_load_relaxed(&d->unannounced)) {
        rp_a32_store_relaxed(&d->unannounced, 1);
        d->unannounced_ns = d->published_ns;
    }
}

static void publish_batch(struct rp_deliver *d, const struct rp_ticket *last)
{
    uint64_t now = rp_now_ns(), batch = last->batch;
    bool is_slow = now - d->published_ns >= announce_after_ns(d);
    uint32_t published = 0;
    d->published_ns = now;
    for (uint32_t r = 0; r < d->options->rank_count; r++) {
        /* the ring gets the batch from another flow, or had it from an earlier start */
        if (d->is_left_out[r] || batch < d->rings[r].tail)
            continue;
        RP_ASSERT(batch == d->rings[r].tail);
        rp_complete_batch(d, r, last);
        published++;
        uint64_t unannounced = rp_ring_publish_silently(&d->rings[r], batch + 1);
        if (unannounced > 0)
            announce_or_wait(d, &d->rings[r], unannounced, is_slow);
    }
    if (published == d->options->rank_count)
        rp_costs_add_micro_step(d->costs, published);
}

static void announce(struct rp_deliver *d)
{
    if (!rp_a32_load_relaxed(&d->unannounced))
        return;
    rp_a32_store_relaxed(&d->unannounced, 0);
    for (uint32_t r = 0; r < d->options->rank_count; r++)
        if (!d->is_left_out[r]) /* else another flow's */
            rp_ring_announce(&d->rings[r]);
}

/* ---- retiring tickets ------------------------------------------------------------------------ */

/* A packer rejected a token id of the ticket: name its place. A mapped file may have been written
 * over since then. */
static int report_bad_token(const struct rp_deliver *d, const struct rp_ticket *ticket,
                            struct rp_error *error)
{
    RP_ASSERT(ticket->bad_transfer > 0 && ticket->bad_transfer <= ticket->transfer_count);
    const struct rp_transfer *transfer = &ticket->transfers[ticket->bad_transfer - 1];
    const uint8_t *tokens = rp_files_tokens(d->files, d->arena->data, transfer);
    const struct rp_source *source = rp_corpus_source(d->options->corpus,
                                                      transfer->fragment.source);
    struct rp_extent extent;
    int code = rp_source_extent(source, transfer->fragment.document, &extent, error);
    if (code < 0)
        return code;
    const char *path = rp_corpus_shard(d->options->corpus, extent.shard)->path;
    uint64_t limit = rp_transfer_token_limit(transfer, d->options->token_limit), token = 0;
    uint32_t t = 0, stored = rp_transfer_stored(transfer);
    uint64_t first = rp_fragment_first_own(&transfer->fragment, d->options->form.has_bos);
    while (t < stored && (token = rp_widen_token_at(tokens, transfer->width, t)) < limit)
        t++;
    if (t == stored)
        return rp_fail(error, -RP_E_CHANGED,
                       "restore the file and restart; delivered rows are valid",
                       "%s: source %s, document %" PRIu64 ": a token id that is not below %" PRIu64
                       " was read, but is gone: the file changed while it was in use",
                       path, rp_source_name(source), transfer->fragment.document, limit);
    bool is_negative = token >> transfer->id_bits != 0;
    return rp_fail(
        error, -RP_E_VOCABULARY,
        "compare the dtype of the source, vocab_size and token_dtype with the tokenizer; "
        "batches before this one were delivered",
        "%s: source %s, document %" PRIu64 ", token %" PRIu64 ": expected a token id below %" PRIu64
        ", found %" PRId64,
        path, rp_source_name(source), transfer->fragment.document, first + t, limit,
        (int64_t)(is_negative ? token - (2ull << transfer->id_bits) : token));
}

static bool is_packed(const struct rp_arena *arena, uint64_t number)
{
    return rp_a64_load_acquire(&rp_arena_ticket(arena, number)->state) ==
           rp_ticket_word(number, RP_TICKET_PACKED); /* PAIRS ticket-state */
}

static void retire(struct rp_deliver *d)
{
    d->next_ticket++;
    uint64_t retired = d->held ? rp_min_u64(d->held_ticket, d->next_ticket) : d->next_ticket;
    RP_ASSERT(!d->held || d->held_ticket < d->next_ticket); /* so `retired` only grows */
    rp_a64_store_release(&d->arena->words->retired, retired);
    rp_fence_seq_cst(); /* PAIRS retired-wanted */
    if (retired >= rp_a64_load_relaxed(&d->arena->words->retired_wanted))
        rp_event_signal(&d->arena->words->retired_event);
}

/* Does the engine's thread have to retire this packed ticket, because it ends the stream or has
 * failed? */
static bool needs_engine(const struct rp_ticket *ticket)
{
    return ticket->error || ticket->bad_transfer || ticket->kind == RP_TICKET_STREAM_END;
}

static bool waits_for_engine(const struct rp_deliver *d)
{
    return d->phase != RP_STREAM_ENDED && is_packed(d->arena, d->next_ticket) &&
           needs_engine(rp_arena_ticket(d->arena, d->next_ticket));
}

static bool is_packed_here(const struct rp_deliver *d, const struct rp_ticket *ticket,
                           uint32_t ring)
{
    return ticket->batch >= rp_a64_load_relaxed(&d->arena->pack_from[ring]);
}

static void add_up(struct rp_deliver *d, const struct rp_ticket *ticket)
{
    for (uint32_t i = 0; i < ticket->mask_count; i++)
        if (is_packed_here(d, ticket, ticket->masks[i].ring))
            d->sums[ticket->masks[i].ring].unlabelled += ticket->masks[i].unlabelled;
    for (uint32_t i = 0; i < ticket->row_count; i++) {
        const struct rp_row_end *row = &ticket->rows[i];
        struct rp_batch_sums *sums = &d->sums[row->ring];
        if (!is_packed_here(d, ticket, row->ring))
            continue;
        sums->unlabelled -= row->end_labels;
        sums->cost += row->cost;
        sums->without_cost += row->lacks_cost;
    }
}

/* Retire packed tickets up to one that needs the engine, or up to end_batch. True if there were
 * any. */
static bool retire_packed(struct rp_deliver *d)
{
    uint64_t first = d->next_ticket;
    while (d->phase != RP_STREAM_ENDED && is_packed(d->arena, d->next_ticket)) {
        const struct rp_ticket *ticket = rp_arena_ticket(d->arena, d->next_ticket);
        if (needs_engine(ticket) || ticket->batch >= d->end_batch)
            break;
        add_up(d, ticket);
        if (ticket->kind == RP_TICKET_BATCH_END)
            publish_batch(d, ticket);
        retire(d);
    }
    return d->next_ticket > first;
}

/* All tokens were copied: the stream has ended, unless a token file has changed since the last
 * check. Until the answer comes the engine has no work; dispatch then wakes it. */
static int end_stream(struct rp_deliver *d, const struct rp_ticket *ticket, struct rp_error *error)
{
    if (d->phase == RP_STREAM_RUNS) {
        rp_revalidation_request(d->revalidation);
        rp_event_signal(&d->arena->words->retired_event);
    }
    d->phase = RP_STREAM_LAST_CHECK;
    int code = rp_revalidation_result(d->revalidation, error);
    if (code <= 0)
        return code < 0 ? code : RP_FLOW_IDLE;
    for (uint32_t r = 0; r < d->options->rank_count; r++)
        if (!d->is_left_out[r])
            rp_ring_set_status(&d->rings[r], RP_RING_END, ticket->batch, ticket->message);
    d->phase = RP_STREAM_ENDED;
    retire(d);
    return RP_FLOW_WORKED;
}

/* Retire a ticket that needs the engine. Returns a step, or the error that stops the stream. */
static int retire_for_engine(struct rp_deliver *d, struct rp_error *error)
{
    const struct rp_ticket *ticket = rp_arena_ticket(d->arena, d->next_ticket);
    RP_ASSERT(needs_engine(ticket));
    /* single documents of a store that cannot be reached cannot be read either */
    bool is_unreachable = ticket->error == -RP_E_TIMEOUT;
    if (ticket->kind == RP_TICKET_BLOCK_READ && !is_unreachable) {
        rp_log(RP_LOG_WARNING, "documents are read one by one from now on: %s", ticket->message);
        return RP_FLOW_RESTART;
    }
    if (ticket->error)
        return rp_fail(error, ticket->error, ticket->hint, "%s", ticket->message);
    if (ticket->bad_transfer)
        return report_bad_token(d, ticket, error);
    return end_stream(d, ticket, error);
}

int rp_deliver_step(struct rp_deliver *d, struct rp_error *error)
{
    bool worked = rp_deliver_free_slots(d);
    worked |= retire_packed(d);
    announce(d);
    if (waits_for_engine(d))
        return retire_for_engine(d, error);
    return worked ? RP_FLOW_WORKED : d->phase == RP_STREAM_ENDED ? RP_FLOW_ENDED : RP_FLOW_IDLE;
}

/* ---- room ------------------------------------------------------------------------------------ */

bool rp_deliver_free_slots(struct rp_deliver *d)
{
    bool moved = false;
    for (uint32_t r = 0; r < d->options->rank_count; r++) {
        struct rp_ring *ring = &d->rings[r];
        if (d->is_left_out[r])
            continue;
        (void)rp_ring_poll_release(ring); /* a violation quarantines a trainer: its seat stays */
        uint64_t released = d->held ? rp_min_u64(ring->release, d->held_batch) : ring->release;
        uint64_t free_until = released + ring->geometry.slots;
        if (free_until > rp_a64_load_relaxed(&d->arena->free_until[r])) {
            rp_a64_store_release(&d->arena->free_until[r], free_until); /* PAIRS batch-space */
            moved = true;
        }
    }
    if (moved) {
        rp_a32_store_relaxed(&d->room, RP_ROOM_ENOUGH); /* before the signal, which fences */
        rp_event_signal(&d->arena->words->space);
    }
    return moved;
}

bool rp_deliver_is_consumed(const struct rp_deliver *d, uint64_t batch)
{
    for (uint32_t r = 0; r < d->options->rank_count; r++)
        if (!d->is_left_out[r] && d->rings[r].release < batch)
            return false;
    return true;
}

/* Does a packer, or the engine (wake_at), wait for releases in the ring? Packer processes do not
 * announce that they are going to sleep: they may be about to if the ring is full. */
static bool is_release_awaited(const struct rp_deliver *d, const struct rp_ring *ring)
{
    if (rp_a32_load_relaxed(&d->room) != RP_ROOM_ENOUGH || ring->tail >= d->wake_at)
        return true;
    const struct rp_event *space = &d->arena->words->space;
    return d->options->packer_processes &&
           (rp_ring_is_full(ring) || rp_a32_load_relaxed(&space->sleepers) != 0);
}

static void set_doorbells(struct rp_deliver *d, bool may_be_on)
{
    for (uint32_t r = 0; r < d->options->rank_count; r++)
        if (!d->is_left_out[r])
            rp_ring_set_doorbell(&d->rings[r], may_be_on && is_release_awaited(d, &d->rings[r]));
}

static bool is_room_wanted(const struct rp_deliver *d)
{
    return rp_a32_load_relaxed(&d->room) == RP_ROOM_WANTED;
}

/* To be followed by rp_deliver_free_slots, for batches released before the doorbells were on. */
static void request_room(struct rp_deliver *d)
{
    if (is_room_wanted(d))
        rp_a32_store_relaxed(&d->room, RP_ROOM_REQUESTED);
    rp_fence_seq_cst(); /* before the check of who sleeps */
    set_doorbells(d, true);
}

/* ---- the turn -------------------------------------------------------------------------------- */

static bool try_turn(struct rp_deliver *d)
{
    return rp_a32_load_relaxed(&d->turn) == 0 &&
           rp_a32_exchange_acquire(&d->turn, 1) == 0; /* PAIRS turn */
}

static void take_turn(struct rp_deliver *d)
{
    while (!try_turn(d)) {
        uint32_t epoch = rp_event_prepare(&d->turn_given_back);
        rp_event_sleep_unless(&d->turn_given_back, epoch, rp_a32_load_relaxed(&d->turn) == 0);
    }
}

/* Has this catch-up flow, whose ring is rings[0], delivered all batches that it may? A main flow
 * has no end_batch. */
static bool is_at_end(const struct rp_deliver *d)
{
    return d->end_batch != UINT64_MAX && d->rings[0].tail >= d->end_batch;
}

static void give_turn_back(struct rp_deliver *d)
{
    rp_a32_store_release(&d->turn, 0);    /* PAIRS turn */
    rp_event_signal(&d->turn_given_back); /* fences */
}

/* Once the turn is given back, the ticket `next` may be read only if no packer thread retires it:
 * if the flow is at its end. */
bool rp_deliver_park(struct rp_deliver *d)
{
    request_room(d);
    rp_a32_store_relaxed(&d->arena->words->parked, 1);
    rp_fence_seq_cst(); /* PAIRS deliver-park */
    bool moved = rp_deliver_free_slots(d), at_end = is_at_end(d);
    bool is_checking = d->phase == RP_STREAM_LAST_CHECK;
    uint64_t next = d->next_ticket;
    RP_ASSERT(rp_a32_load_relaxed(&d->unannounced) == 0);
    give_turn_back(d);
    bool is_left = is_packed(d->arena, next) &&
                   (!at_end || needs_engine(rp_arena_ticket(d->arena, next)));
    return !moved && (is_checking || !is_left) && !is_room_wanted(d);
}

void rp_deliver_unpark(struct rp_deliver *d)
{
    take_turn(d);
    announce(d);
    rp_a32_store_relaxed(&d->arena->words->parked, 0);
    set_doorbells(d, false);
}

/* Is it time to announce, though the packer has more to pack? */
static bool is_announcement_due(const struct rp_deliver *d)
{
    return rp_a32_load_relaxed(&d->unannounced) &&
           rp_now_ns() - d->unannounced_ns >= announce_after_ns(d);
}

/* Call with the turn. Returns whether the engine has to continue from here. */
static bool deliver_in_turn(struct rp_deliver *d, enum rp_turn_reason reason)
{
    retire_packed(d);
    if (reason != RP_TURN_PACKED || is_announcement_due(d))
        announce(d);
    if (is_room_wanted(d)) {
        request_room(d);
        if (rp_deliver_free_slots(d))
            set_doorbells(d, true);
    } else if (reason == RP_TURN_POLLS_ROOM || d->wake_at != UINT64_MAX) {
        (void)rp_deliver_free_slots(d);
    }
    return waits_for_engine(d) || rp_deliver_is_consumed(d, d->wake_at) || is_at_end(d);
}

/* If a packer that waits finds batches to announce and the turn taken, its holder announces them:
 * it took the turn after this thread gave it back, and so it sees `unannounced`. */
void rp_deliver_as_packer(struct rp_deliver *d, enum rp_turn_reason reason)
{
    bool is_for_engine = false, is_work_left = true;
    if (reason == RP_TURN_WAITS && !rp_a32_load_relaxed(&d->unannounced))
        return;
    if (reason == RP_TURN_LACKS_ROOM)
        rp_a32_store_relaxed(&d->room, RP_ROOM_WANTED);
    rp_fence_seq_cst(); /* PAIRS turn */
    while (is_work_left && try_turn(d)) {
        is_for_engine = deliver_in_turn(d, reason);
        uint64_t next = d->next_ticket;
        give_turn_back(d);
        is_work_left = !is_for_engine && (is_packed(d->arena, next) || is_room_wanted(d));
    }
    if (is_for_engine)
        rp_fd_wake(d->wake_fd);
}
