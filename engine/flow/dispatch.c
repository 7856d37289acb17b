/* SPDX-License-Identifier: Apache-2.0 */
/* dispatch — plans micro-batches in order and turns the rows of local ranks into tickets.
 *
 * Flow: for each micro-batch: remember the plan's state (it travels with the batch) → plan its rows
 * → for each row of a local rank, one piece per fragment, each with a read or a part of one → close
 * the ticket when its slot is full and at the end of the micro-batch. Rows of other nodes are
 * planned and dropped: 30-60 ns a document, no I/O.
 *
 * Neighbouring fragments share a read: a new range that begins inside or just behind the last read
 * of the ticket extends it, so `none` and `block` order read in long runs.
 *
 * Invariant: everything about a ticket is written before its PLANNED store. Fails: a plan or open
 * error becomes a ticket of its own in the right place of the order, so all batches before it are
 * delivered. */
#include "flow/dispatch.h"

#include <string.h>

#include "base/bits.h"
#include "base/defect.h"
#include "base/mapped.h"
#include "flow/contents.h"

/* A hole of up to this many bytes between two ranges is read along rather than split off: a read of
 * its own costs about as much as copying 4 KiB. */
#define COALESCE_GAP_BYTES 4096u

/* ---- tickets --------------------------------------------------------------------------------- */

/* Wait until the next slot may be reused (I4). False when the flow is stopping. */
static bool wait_for_slot(struct rp_dispatch *d)
{
    struct rp_arena_words *words = d->arena->words;
    uint64_t slots = d->arena->slot_count;
    while (d->next_ticket >= slots + rp_a64_load_acquire(&words->retired)) {
        uint64_t wanted = d->next_ticket - slots + rp_max_u64(1, slots / 4);
        rp_a64_store_relaxed(&words->retired_wanted, wanted);
        uint32_t epoch = rp_event_prepare(
            &words->retired_event); /* a fence: PAIRS retired-wanted */
        if (rp_arena_stopping(d->arena) || rp_a64_load_acquire(&words->retired) >= wanted)
            rp_event_cancel(&words->retired_event);
        else
            rp_event_sleep(&words->retired_event, epoch, 100000000);
        if (rp_arena_stopping(d->arena))
            return false;
    }
    return !rp_arena_stopping(d->arena);
}

static int open_ticket(struct rp_dispatch *d)
{
    RP_ASSERT(!d->ticket);
    if (!wait_for_slot(d))
        return -RP_E_STOPPED;
    struct rp_ticket *ticket = rp_arena_ticket(d->arena, d->next_ticket);
    ticket->batch = d->batch;
    ticket->piece_count = ticket->read_count = ticket->row_count = 0;
    ticket->batch_ends = ticket->stream_ends = 0;
    ticket->error = 0;
    ticket->bad_token = 0;
    d->ticket = ticket;
    d->data_used = 0;
    return 0;
}

static void close_ticket(struct rp_dispatch *d)
{
    bool reads = d->ticket->read_count > 0;
    rp_a64_store_release(
        &d->ticket->state, /* PAIRS ticket-state */
        rp_ticket_word(d->next_ticket, reads ? RP_TICKET_PLANNED : RP_TICKET_READY));
    rp_event_signal(reads ? &d->arena->words->planned : &d->arena->words->ready);
    d->ticket = NULL;
    d->next_ticket++;
}

/* Make sure that a ticket is open. */
static int need_ticket(struct rp_dispatch *d)
{
    return d->ticket ? 0 : open_ticket(d);
}

/* ---- reads ----------------------------------------------------------------------------------- */

/* A byte range that a piece needs, rounded as its file wants it. */
struct range {
    uint32_t shard;
    uint32_t alignment;
    uint64_t first, last; /* [first, last) in the file */
    uint64_t file_bytes;  /* where the file ends */
    bool beyond_end;      /* O_DIRECT: ask past the end rather than for an unaligned length */
    uint64_t wanted;      /* first byte of the piece */
};

static void set_read_end(struct rp_read *read, const struct range *range, uint64_t end)
{
    uint64_t needed = rp_min_u64(end, range->file_bytes) - read->offset;
    read->bytes_needed = (uint32_t)needed;
    read->bytes = range->beyond_end ? (uint32_t)(end - read->offset) : (uint32_t)needed;
}

/* Let the last read of the ticket reach over the range. False if they are not neighbours or the
 * slot is full. */
static bool extend_last_read(struct rp_dispatch *d, const struct range *range,
                             uint32_t *data_offset)
{
    struct rp_ticket *ticket = d->ticket;
    struct rp_read *read = ticket->read_count ? &ticket->reads[ticket->read_count - 1] : NULL;
    if (!read || read->shard != range->shard || range->first < read->offset)
        return false;
    uint64_t end = d->data_used - read->data_offset + read->offset; /* of the space it takes up */
    if (range->first > end + COALESCE_GAP_BYTES)
        return false;
    if (range->last > end) {
        if (range->last - read->offset > d->arena->slot_data_bytes - read->data_offset)
            return false;
        set_read_end(read, range, range->last);
        d->data_used = read->data_offset + (range->last - read->offset);
    }
    *data_offset = read->data_offset + (uint32_t)(range->wanted - read->offset);
    return true;
}

/* Find a place in the slot for the range. False when the ticket is full. */
static bool place_range(struct rp_dispatch *d, const struct range *range, uint32_t *data_offset)
{
    if (extend_last_read(d, range, data_offset))
        return true;
    struct rp_ticket *ticket = d->ticket;
    uint64_t start = rp_align_up(d->data_used, range->alignment > 64 ? range->alignment : 64);
    uint64_t bytes = range->last - range->first;
    if (ticket->read_count == RP_TICKET_PIECES_MAX || start > d->arena->slot_data_bytes ||
        bytes > d->arena->slot_data_bytes - start)
        return false;
    struct rp_read *read = &ticket->reads[ticket->read_count++];
    *read = (struct rp_read){
        .offset = range->first, .shard = range->shard, .data_offset = (uint32_t)start};
    set_read_end(read, range, range->last);
    d->data_used = start + bytes;
    *data_offset = (uint32_t)(start + (range->wanted - range->first));
    return true;
}

/* Where the tokens of a fragment come from: contents of a checkpoint if they have them, else the
 * corpus. */
static int fragment_range(struct rp_dispatch *d, struct rp_piece *piece, uint64_t row,
                          struct range *range, struct rp_error *error)
{
    const struct rp_fragment *fragment = &piece->fragment;
    const struct rp_contents *contents = d->options->contents;
    const struct rp_content_run *run =
        contents ? rp_contents_find(contents, row, piece->offset, fragment->length) : NULL;
    if (run) {
        piece->width = run->width;
        range->shard = RP_READ_CONTENTS;
        range->alignment = 1;
        range->beyond_end = false;
        range->wanted = run->byte_offset + (uint64_t)(piece->offset - run->offset) * run->width;
        range->first = range->wanted;
        range->last = range->wanted + (uint64_t)fragment->length * run->width;
        (void)rp_contents_bytes(contents, &range->file_bytes);
        return 0;
    }
    struct rp_extent extent;
    rp_source_extent(rp_corpus_source(d->options->corpus, fragment->source), fragment->document,
                     &extent);
    RP_ASSERT(rp_range_inside(fragment->offset, fragment->length, extent.tokens));
    const struct rp_file *file = rp_files_get(d->files, extent.shard, error);
    if (!file)
        return error->code;
    piece->width = extent.width;
    if (file->map) {
        piece->mapped_shard = extent.shard + 1;
        piece->data_offset = extent.byte_offset + fragment->offset * extent.width;
        return 0;
    }
    range->shard = extent.shard;
    range->alignment = file->alignment;
    range->beyond_end = file->direct;
    range->file_bytes = rp_corpus_shard(d->options->corpus, extent.shard)->bytes;
    range->wanted = extent.byte_offset + fragment->offset * extent.width;
    range->first = rp_align_down(range->wanted, file->alignment);
    range->last = rp_align_up(range->wanted + (uint64_t)fragment->length * extent.width,
                              file->alignment);
    if (!file->direct)
        range->last = rp_min_u64(range->last, range->file_bytes);
    return 0;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static int add_piece(struct rp_dispatch *d, const struct rp_piece *piece, const struct range *range)
{
    for (;;) {
        int code = need_ticket(d);
        if (code < 0)
            return code;
        uint32_t data_offset;
        bool room = d->ticket->piece_count < RP_TICKET_PIECES_MAX;
        if (room && piece->mapped_shard) {
            d->ticket->pieces[d->ticket->piece_count++] = *piece;
            return 0;
        }
        if (room && place_range(d, range, &data_offset)) {
            struct rp_piece *added = &d->ticket->pieces[d->ticket->piece_count++];
            *added = *piece;
            added->data_offset = data_offset;
            return 0;
        }
        RP_ASSERT(d->ticket->piece_count > 0); /* an empty slot holds any piece */
        close_ticket(d);
    }
}

static int add_row(struct rp_dispatch *d, uint32_t ring, uint32_t row_in_batch,
                   const struct rp_row *row, struct rp_error *error)
{
    uint32_t offset = 0;
    for (uint32_t i = 0; i < row->count; i++) {
        struct rp_piece piece = {.fragment = row->fragments[i],
                                 .ring = ring,
                                 .row = row_in_batch,
                                 .offset = offset,
                                 .index = i};
        struct range range;
        int code = fragment_range(d, &piece, row->row, &range, error);
        if (code >= 0)
            code = add_piece(d, &piece, &range);
        if (code < 0)
            return code;
        offset += piece.fragment.length;
    }
    int code = need_ticket(d);
    if (code >= 0 && d->ticket->row_count == RP_TICKET_ROWS_MAX) {
        close_ticket(d);
        code = need_ticket(d);
    }
    if (code < 0)
        return code;
    d->ticket->rows[d->ticket->row_count++] = (struct rp_row_end){.row = row->row,
                                                                  .ring = ring,
                                                                  .row_in_batch = row_in_batch,
                                                                  .fragments = row->count,
                                                                  .tokens = offset};
    return 0;
}

/* ---- micro-batches
 * ---------------------------------------------------------------------------------------- */

static void save_state(struct rp_dispatch *d)
{
    struct rp_state_slot *slot = rp_arena_state(d->arena, d->batch);
    if (rp_a64_load_relaxed(&slot->position) == d->batch + 1)
        return; /* an earlier start came by here, and the engine may be reading it */
    rp_a64_store_release(&slot->position, 0);
    slot->bytes = rp_plan_save(d->plan, slot + 1);
    slot->next_row = rp_plan_row(d->plan);
    RP_ASSERT(slot->bytes <= d->arena->state_bytes);
    rp_a64_store_release(&slot->position, d->batch + 1); /* PAIRS state-slot */
}

static int peek_row(struct rp_dispatch *d, struct rp_error *error)
{
    if (d->has_row || d->ended)
        return 0;
    int code = rp_plan_next(d->plan, &d->row, error);
    if (code < 0)
        return code;
    d->has_row = code == 1;
    d->ended = code == 0;
    return 0;
}

static int plan_batch(struct rp_dispatch *d, struct rp_error *error)
{
    const struct rp_flow_options *o = d->options;
    uint64_t row = d->base_row + d->batch * o->rows * o->world;
    for (uint32_t rank = 0; rank < o->world; rank++) {
        uint32_t ring = rank - o->rank_first;
        bool wanted = rank >= o->rank_first && ring < o->rank_count &&
                      d->batch >= d->start_batch[ring];
        for (uint32_t i = 0; i < o->rows; i++, row++) {
            int code = peek_row(d, error);
            struct rp_row planned = d->has_row ? d->row : (struct rp_row){.row = row};
            if (RP_DEFECT(lose_fragment_at_resume) && row == d->begin_row && row > 0 &&
                planned.count)
                planned.count--;
            RP_ASSERT(code < 0 || planned.row == row);
            if (code >= 0 && wanted)
                code = add_row(d, ring, i, &planned, error);
            if (code < 0)
                return code;
            d->has_row = false;
        }
    }
    d->batch++;
    save_state(d); /* before the ticket: deliver sends it along with the batch */
    if (d->ticket) {
        d->ticket->batch_ends = 1;
        close_ticket(d);
    }
    return 0;
}

/* At the first micro-batch of a step: is there a step? Decided from the plan alone, so equally on
 * every node. */
static int step_exists(struct rp_dispatch *d, struct rp_error *error)
{
    if (d->scout) {
        uint64_t rows = d->options->global_batch_rows;
        uint64_t step = d->batch / d->micro_batches;
        int code = rp_plan_seek(d->scout, d->base_row + (step + 1) * rows, error);
        return code == -RP_E_USAGE ? 0 : code < 0 ? code : 1;
    }
    int code = peek_row(d, error);
    return code < 0 ? code : d->has_row;
}

static int dispatch_all(struct rp_dispatch *d, struct rp_error *error)
{
    save_state(d);
    for (;;) {
        if (d->batch % d->micro_batches == 0) {
            int code = step_exists(d, error);
            if (code < 0)
                return code;
            if (code == 0)
                break;
        }
        int code = rp_files_watch(d->files, error);
        if (code >= 0)
            code = plan_batch(d, error);
        if (code < 0)
            return code;
    }
    int code = open_ticket(d);
    if (code < 0)
        return code;
    d->ticket->stream_ends = 1;
    close_ticket(d);
    return 0;
}

static void run_dispatch(void *argument)
{
    struct rp_dispatch *d = argument;
    struct rp_error error = {0};
    int code = dispatch_all(d, &error);
    if (code >= 0 || code == -RP_E_STOPPED)
        return;
    if (d->ticket)
        close_ticket(d); /* the pieces before the failure are good */
    if (open_ticket(d) == 0) {
        rp_ticket_fail(d->ticket, code, &error);
        close_ticket(d);
    }
}

/* The plan reads mapped indexes. When one is lost it just ends: see packer_thread. */
static void *dispatch_main(void *argument)
{
    (void)!rp_mapped_guard(run_dispatch, argument);
    return NULL;
}

int rp_dispatch_start(struct rp_dispatch *d, struct rp_error *error)
{
    d->micro_batches = d->options->global_batch_rows /
                       ((uint64_t)d->options->rows * d->options->world);
    int failed = pthread_create(&d->thread, NULL, dispatch_main, d);
    if (failed)
        return rp_fail(error, -failed, NULL, "cannot start the planning thread");
    d->started = true;
    return 0;
}

void rp_dispatch_join(struct rp_dispatch *d)
{
    if (d->started)
        pthread_join(d->thread, NULL);
    d->started = false;
}
