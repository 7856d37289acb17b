/* SPDX-License-Identifier: Apache-2.0 */
/* deliver — retires tickets in plan order; when the last ticket of a micro-batch is packed,
 * completes the batch in every local ring (cu_seqlens, slot header, state token) and publishes it.
 *
 * Invariants: batches are published in order, each once in an attach; a slot is completed before
 * its tail store and not touched after it until the trainer has released it. Words that trainers
 * write reach packers only through free_until, after rp_ring_poll_release has checked them. */
#include "flow/deliver.h"

#include <inttypes.h>
#include <string.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/defect.h"
#include "base/file.h"
#include "base/log.h"
#include "flow/widen.h"

/* ---- completing a batch ---------------------------------------------------------------------- */

struct totals {
    uint64_t sum_len_squared;
    uint32_t rows_real, tokens_real, tokens_loss, max_seqlen, segments;
};

static void add_segment(struct totals *totals, int32_t *ends, uint32_t *end, uint32_t length)
{
    *end += length;
    totals->segments++;
    if (ends)
        ends[totals->segments] = (int32_t)*end;
    totals->max_seqlen = length > totals->max_seqlen ? length : totals->max_seqlen;
}

/* Ends of all segments over the flat batch (a pad tail is a segment of its own), then the end of
 * the batch up to the capacity; and the sums of the header on the way. */
static struct totals complete_boundaries(const struct rp_geometry *g, uint8_t *slot)
{
    const int32_t *lengths =
        (const int32_t *)(const void *)(slot + g->sections[RP_SECTION_DOC_LENS].offset);
    const struct rp_row_info *rows =
        (const struct rp_row_info *)(const void *)(slot + g->sections[RP_SECTION_ROWS].offset);
    const struct rp_section_layout *layout = &g->sections[RP_SECTION_CU_SEQLENS];
    int32_t *ends = layout->offset ? (int32_t *)(void *)(slot + layout->offset) : NULL;
    struct totals totals = {0};
    uint32_t end = 0;
    if (ends)
        ends[0] = 0;
    for (uint32_t i = 0; i < g->rows; i++, lengths += g->max_docs_per_row) {
        RP_ASSERT(rows[i].fragments <= g->max_docs_per_row && rows[i].tokens <= g->seq_len);
        for (uint32_t f = 0; f < rows[i].fragments; f++) {
            uint32_t length = (uint32_t)lengths[f];
            add_segment(&totals, ends, &end, length);
            totals.sum_len_squared += (uint64_t)length * length;
        }
        if (rows[i].tokens < g->seq_len)
            add_segment(&totals, ends, &end, g->seq_len - rows[i].tokens);
        totals.rows_real += rows[i].fragments > 0;
        totals.tokens_real += rows[i].tokens;
        totals.tokens_loss += rows[i].tokens - rows[i].fragments;
    }
    RP_ASSERT(end == g->rows * g->seq_len); /* segments and pad tails cover every row */
    if (ends)
        for (uint64_t i = totals.segments + 1; i < layout->bytes / sizeof *ends; i++)
            ends[i] = (int32_t)end;
    return totals;
}

static void complete_batch(struct rp_deliver *d, uint32_t ring, uint64_t batch)
{
    const struct rp_geometry *g = &d->rings[ring].geometry;
    uint8_t *slot = rp_ring_slot(&d->rings[ring], batch);
    struct totals totals = complete_boundaries(g, slot);
    RP_ASSERT(d->unlabelled[ring] <= totals.tokens_loss);
    totals.tokens_loss -= (uint32_t)d->unlabelled[ring];
    d->unlabelled[ring] = 0;
    size_t state_bytes;
    uint64_t next_row;
    const void *state = rp_arena_state_at(d->arena, batch + 1, &state_bytes, &next_row);
    /* choose_sizes (flow_open.c) makes room for every batch that is not published */
    RP_ASSERT(state);
    RP_ASSERT(state_bytes <= g->state_bytes);
    struct rp_slot_header *header = (struct rp_slot_header *)(void *)slot;
    *header = (struct rp_slot_header){
        .batch = batch,
        .generation =
            ((const struct rp_ring_header *)(const void *)d->rings[ring].data.data)->generation,
        .first_row = d->base_row + (batch * g->world + g->rank) * g->rows,
        .next_row = next_row,
        .sum_len_squared = totals.sum_len_squared,
        .rows_real = totals.rows_real,
        .tokens_real = totals.tokens_real,
        .tokens_loss = totals.tokens_loss,
        .max_seqlen = totals.max_seqlen,
        .segments = totals.segments,
        .state_bytes = (uint32_t)state_bytes,
        .state_offset = RP_SLOT_STATE_OFFSET,
    };
    memcpy(slot + RP_SLOT_STATE_OFFSET, state, state_bytes);
    d->batches++;
    d->rows += totals.rows_real;
    d->tokens += totals.tokens_real;
}

/* To wake all trainers of a node and to let each have its turn takes longer the more there are. */
static uint64_t announce_after_ns(const struct rp_deliver *d)
{
    return rp_max_u64(RP_ANNOUNCE_NS, (uint64_t)d->options->rank_count * RP_ANNOUNCE_RANK_NS);
}

/* Trainers sleep through `batches` of the ring. */
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

static void publish_batch(struct rp_deliver *d, uint64_t batch)
{
    uint64_t now = rp_now_ns();
    bool is_slow = now - d->published_ns >= announce_after_ns(d);
    d->published_ns = now;
    for (uint32_t r = 0; r < d->options->rank_count; r++) {
        if (d->is_catching_up[r] || batch < d->rings[r].tail)
            continue; /* this ring has or gets it from another flow, or an earlier start */
        RP_ASSERT(batch == d->rings[r].tail);
        if (RP_DEFECT(publish_before_complete))
            rp_ring_publish(&d->rings[r], batch + 1);
        complete_batch(d, r, batch);
        uint64_t unannounced = rp_ring_publish_silently(&d->rings[r], batch + 1);
        if (unannounced > 0)
            announce_or_wait(d, &d->rings[r], unannounced, is_slow);
    }
}

void rp_deliver_announce(struct rp_deliver *d)
{
    if (!rp_a32_load_relaxed(&d->unannounced))
        return;
    rp_a32_store_relaxed(&d->unannounced, 0);
    for (uint32_t r = 0; r < d->options->rank_count; r++)
        if (!d->is_catching_up[r]) /* else another flow's */
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
    uint32_t t = 0;
    while (t < transfer->fragment.length &&
           (token = rp_widen_token_at(tokens, transfer->width, t)) < limit)
        t++;
    if (t == transfer->fragment.length)
        return rp_fail(error, -RP_E_CHANGED,
                       "restore the file and restart; what was delivered is valid",
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
        path, rp_source_name(source), transfer->fragment.document, transfer->fragment.offset + t,
        limit, (int64_t)(is_negative ? token - (2ull << transfer->id_bits) : token));
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

/* Is it more than rows of a batch, so that only the engine can retire it? Of a packed ticket. */
static bool is_special(const struct rp_ticket *ticket)
{
    return ticket->error || ticket->bad_transfer || ticket->stream_ends;
}

static bool waits_for_engine(const struct rp_deliver *d)
{
    return !d->ended && is_packed(d->arena, d->next_ticket) &&
           is_special(rp_arena_ticket(d->arena, d->next_ticket));
}

static void add_unlabelled(struct rp_deliver *d, const struct rp_ticket *ticket)
{
    for (uint32_t i = 0; i < ticket->mask_count; i++)
        if (ticket->batch >= rp_a64_load_relaxed(&d->arena->pack_from[ticket->masks[i].ring]))
            d->unlabelled[ticket->masks[i].ring] += ticket->masks[i].unlabelled;
}

/* Is the next ticket packed, and of a batch that this flow delivers? It may be special. */
static bool can_retire(const struct rp_deliver *d)
{
    if (d->ended || !is_packed(d->arena, d->next_ticket))
        return false;
    const struct rp_ticket *ticket = rp_arena_ticket(d->arena, d->next_ticket);
    return is_special(ticket) || ticket->batch < d->end_batch;
}

/* Retire packed tickets up to a special one. True if there were any. */
static bool retire_rows(struct rp_deliver *d)
{
    bool worked = false;
    while (can_retire(d)) {
        const struct rp_ticket *ticket = rp_arena_ticket(d->arena, d->next_ticket);
        if (is_special(ticket))
            break;
        add_unlabelled(d, ticket);
        if (ticket->batch_ends)
            publish_batch(d, ticket->batch);
        retire(d);
        worked = true;
    }
    return worked;
}

/* All tokens were copied: the stream has ended, unless a token file has changed since the last
 * check. Until the answer comes the engine has no work; dispatch then wakes it. */
static int end_stream(struct rp_deliver *d, uint64_t batch, struct rp_error *error)
{
    if (!d->ends) {
        rp_looks_ask(d->looks);
        rp_event_signal(&d->arena->words->retired_event);
    }
    d->ends = true;
    int code = rp_looks_result(d->looks, error);
    if (code <= 0)
        return code < 0 ? code : RP_FLOW_IDLE;
    for (uint32_t r = 0; r < d->options->rank_count; r++)
        if (!d->is_catching_up[r])
            rp_ring_set_status(&d->rings[r], RP_RING_END, batch, NULL);
    d->ended = true;
    retire(d);
    return RP_FLOW_WORKED;
}

/* Retire a special ticket. Returns a step, or the error that stops the stream. */
static int retire_special(struct rp_deliver *d, struct rp_error *error)
{
    const struct rp_ticket *ticket = rp_arena_ticket(d->arena, d->next_ticket);
    RP_ASSERT(is_special(ticket));
    bool is_unreachable = ticket->error == -RP_E_TIMEOUT; /* so are its single documents */
    if (ticket->is_block_read && !is_unreachable) {
        rp_log(RP_LOG_WARNING, "documents are read one by one from now on: %s", ticket->message);
        return RP_FLOW_RESTART;
    }
    if (ticket->error)
        return rp_fail(error, ticket->error, ticket->hint, "%s", ticket->message);
    if (ticket->bad_transfer)
        return report_bad_token(d, ticket, error);
    return end_stream(d, ticket->batch, error);
}

int rp_deliver_step(struct rp_deliver *d, struct rp_error *error)
{
    bool worked = rp_deliver_poll_space(d);
    worked |= retire_rows(d);
    rp_deliver_announce(d);
    if (waits_for_engine(d))
        return retire_special(d, error);
    return worked ? RP_FLOW_WORKED : d->ended ? RP_FLOW_ENDED : RP_FLOW_IDLE;
}

/* ---- the turn -------------------------------------------------------------------------------- */

/* Has a catch-up flow delivered all that it may? Another flow has no end_batch; its first ring may
 * be the one that a catch-up flow writes to. */
static bool is_at_end(const struct rp_deliver *d)
{
    return d->end_batch != UINT64_MAX && d->rings[0].tail >= d->end_batch;
}

bool rp_deliver_give_back(struct rp_deliver *d)
{
    bool worked = rp_deliver_poll_space(d), ends = d->ends, at_end = is_at_end(d);
    uint64_t next = d->next_ticket;
    RP_ASSERT(rp_a32_load_relaxed(&d->unannounced) == 0);
    rp_turn_give_back(&d->turn);
    bool is_left = is_packed(d->arena, next) && /* PAIRS turn */
                   (!at_end || is_special(rp_arena_ticket(d->arena, next)));
    return !worked && (ends || !is_left) && rp_a32_load_relaxed(&d->space_wanted) == 0;
}

bool rp_deliver_is_consumed(const struct rp_deliver *d, uint64_t batch)
{
    for (uint32_t r = 0; r < d->options->rank_count; r++)
        if (!d->is_catching_up[r] && d->rings[r].release < batch)
            return false;
    return true;
}

/* Packer processes do not say that they are going to sleep; a full ring is the sign that they may
 * be about to. */
static bool is_release_awaited(const struct rp_deliver *d, const struct rp_ring *ring)
{
    if (d->space_awaited || ring->tail >= d->wake_at)
        return true;
    const struct rp_event *space = &d->arena->words->space;
    return d->options->packer_processes &&
           (rp_ring_is_full(ring) || rp_a32_load_relaxed(&space->sleepers) != 0);
}

static void ask_trainers(struct rp_deliver *d)
{
    for (uint32_t r = 0; r < d->options->rank_count; r++)
        if (!d->is_catching_up[r])
            rp_ring_want_space(&d->rings[r], is_release_awaited(d, &d->rings[r]));
}

void rp_deliver_ask_for_space(struct rp_deliver *d)
{
    if (rp_a32_load_relaxed(&d->space_wanted)) {
        rp_a32_store_relaxed(&d->space_wanted, 0);
        d->space_awaited = true;
    }
    rp_fence_seq_cst(); /* before the check of who sleeps */
    ask_trainers(d);
}

/* Request the doorbell from trainers, then check whether they have already released a batch. A
 * packer that still lacks space repeats the request. */
static void find_space(struct rp_deliver *d)
{
    rp_deliver_ask_for_space(d);
    if (rp_deliver_poll_space(d))
        ask_trainers(d);
}

/* ---- by packer threads ----------------------------------------------------------------------- */

/* Is it time to announce, though the packer has more to pack? */
static bool is_announcement_due(const struct rp_deliver *d)
{
    return rp_a32_load_relaxed(&d->unannounced) &&
           rp_now_ns() - d->unannounced_ns >= announce_after_ns(d);
}

/* Call with the turn. Returns whether the engine has to continue from here. */
static bool deliver_in_turn(struct rp_deliver *d, bool waits)
{
    retire_rows(d);
    if (waits || is_announcement_due(d))
        rp_deliver_announce(d);
    if (rp_a32_load_relaxed(&d->space_wanted))
        find_space(d);
    else if (d->wake_at != UINT64_MAX)
        (void)rp_deliver_poll_space(d);
    return waits_for_engine(d) || rp_deliver_is_consumed(d, d->wake_at) || is_at_end(d);
}

/* `waits`: the packer has no ticket to pack for now. A packer that finds the turn taken leaves its
 * ticket to the holder, who therefore checks once more after giving the turn back. */
static void deliver_as_packer(struct rp_deliver *d, bool waits)
{
    bool needs_engine, is_work_left;
    rp_fence_seq_cst(); /* PAIRS turn */
    do {
        if (!rp_turn_try(&d->turn))
            return;
        needs_engine = deliver_in_turn(d, waits);
        uint64_t next = d->next_ticket;
        rp_turn_give_back(&d->turn);
        is_work_left = is_packed(d->arena, next) || rp_a32_load_relaxed(&d->space_wanted);
    } while (!needs_engine && is_work_left);
    if (needs_engine)
        rp_fd_wake(d->wake_fd);
}

void rp_deliver_look_for_space(struct rp_deliver *d)
{
    if (!rp_turn_try(&d->turn))
        return;
    (void)rp_deliver_poll_space(d);
    rp_turn_give_back(&d->turn);
    deliver_as_packer(d, true); /* tickets that came in between */
}

void rp_deliver_want_space(struct rp_deliver *d)
{
    rp_a32_store_relaxed(&d->space_wanted, 1); /* fenced by: */
    deliver_as_packer(d, true);
}

/* If the turn is not to be had, its holder is awake and has to announce: it took the turn after
 * this thread gave it back, and so it sees `unannounced`. */
void rp_deliver_before_wait(struct rp_deliver *d)
{
    if (rp_a32_load_relaxed(&d->unannounced))
        deliver_as_packer(d, true);
}

void rp_deliver_as_packer(struct rp_deliver *d)
{
    deliver_as_packer(d, false);
}

/* ---- space ----------------------------------------------------------------------------------- */

bool rp_deliver_poll_space(struct rp_deliver *d)
{
    bool moved = false;
    for (uint32_t r = 0; r < d->options->rank_count; r++) {
        struct rp_ring *ring = &d->rings[r];
        if (d->is_catching_up[r])
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
        d->space_awaited = false; /* a sleeping packer wakes now, and may repeat its request */
        rp_event_signal(&d->arena->words->space);
    }
    return moved;
}
