/* SPDX-License-Identifier: Apache-2.0 */
/* dispatch.c — plans steps in order and turns the rows of local ranks into tickets.
 *
 * Flow: for each step: plan its rows, and save the plan's state after each micro-batch, which is
 * delivered with the micro-batch (queue.h) → for each row of a local rank, one transfer per
 * fragment, with the reads that bring it (reads.h) → close the ticket when it is full and at the
 * end of the micro-batch. Rows of other nodes are planned and dropped: 30-60 ns a document, no I/O.
 *
 * Tickets are made from indexes and sidecars, which are mapped and may change. So closed tickets
 * are handed on together, after a check that these files are still the ones that were opened
 * (rp_corpus_revalidate), before dispatch sleeps and at intervals that keep its cost a small share.
 *
 * Token files without hashes are checked twice a second, and when the engine requests it
 * (revalidation.h). So the thread runs as long as the flow, also when everything is planned.
 *
 * Invariants: everything about a ticket is written before it is handed on: by the store of PLANNED
 * or, if it has no reads, of READY. A ticket with transfers or reads is handed on only if a check
 * after it was closed found the indexes unchanged. Failures: an error of the plan or of opening a
 * file becomes a ticket of its own, which has neither, in its place in the order, so all batches
 * before it are delivered. */
#include "flow/dispatch.h"

#include <sched.h>
#include <sys/prctl.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/mapped.h"
#include "base/thread.h"
#include "flow/startup_yield.h"
#include "flow/join.h"

/* The next check is due CHECK_SHARE times as long after the last one as that one took, and at most
 * CHECK_NS_MAX after it. */
#define CHECK_SHARE 64u
#define CHECK_NS_MAX 50000000u
/* Between two periodic revalidations of token files. */
#define REVALIDATION_NS 500000000u

/* ---- checking token files -------------------------------------------------------------------- */

static void check_files(struct rp_dispatch *d)
{
    uint64_t retired = rp_a64_load_acquire(&d->arena->words->retired);
    rp_revalidation_answer(d->revalidation, d->reads.files, retired, d->wake_fd);
    d->revalidated_ns = rp_now_ns();
}

static int check_when_due(struct rp_dispatch *d, struct rp_error *error)
{
    if (rp_now_ns() - d->revalidated_ns >= REVALIDATION_NS ||
        rp_revalidation_is_requested(d->revalidation))
        check_files(d);
    if (!rp_a32_load_relaxed(&d->revalidation->has_failed))
        return 0;
    *error = d->revalidation->error;
    return error->code;
}

/* ---- tickets --------------------------------------------------------------------------------- */

/* Give closed tickets to the readers, or straight to the packers if they have no reads. */
static void hand_on(struct rp_dispatch *d)
{
    struct rp_event *planned = &d->arena->words->planned, *ready = &d->arena->words->ready;
    bool reads = false, packs = false;
    for (uint64_t t = d->handed_on; t < d->next_ticket; t++) {
        struct rp_ticket *ticket = rp_arena_ticket(d->arena, t);
        bool has_reads = ticket->read_count > 0;
        RP_ASSERT(rp_a64_load_relaxed(&ticket->state) < rp_ticket_word(t, RP_TICKET_PLANNED));
        rp_a64_store_release(&ticket->state, /* PAIRS ticket-state */
                             rp_ticket_word(t, has_reads ? RP_TICKET_PLANNED : RP_TICKET_READY));
        reads |= has_reads;
        packs |= !has_reads;
    }
    d->handed_on = d->next_ticket;
    if (reads)
        rp_event_signal(planned);
    if (packs)
        rp_event_signal(ready);
}

/* Hand closed tickets on, if the indexes that they were made from are unchanged since they were
 * opened. */
static int hand_on_checked(struct rp_dispatch *d, struct rp_error *error)
{
    if (d->handed_on == d->next_ticket)
        return 0;
    for (uint64_t t = d->handed_on; t < d->next_ticket; t++)
        rp_reads_take_hashes(&d->reads, rp_arena_ticket(d->arena, t));
    uint64_t begin = rp_now_ns();
    int code = rp_corpus_revalidate(d->options->corpus, error);
    if (code < 0)
        return code;
    uint64_t end = rp_now_ns();
    d->hand_on_at_ns = end + rp_min_u64(CHECK_SHARE * (end - begin), CHECK_NS_MAX);
    hand_on(d);
    return 0;
}

/* Sleep until the tickets below `needed` are retired. Deliver wakes dispatch only once the tickets
 * below `wanted` are retired, so that it does not do so for every single ticket. */
static int wait_for_retired(struct rp_dispatch *d, uint64_t needed, uint64_t wanted,
                            struct rp_error *error)
{
    struct rp_arena_words *words = d->arena->words;
    RP_ASSERT(needed <= wanted && needed <= d->next_ticket);
    while (rp_a64_load_acquire(&words->retired) < needed) {
        int code = hand_on_checked(d, error);
        if (code < 0)
            return code;
        if (rp_revalidation_is_requested(d->revalidation))
            check_files(d); /* dispatch_steps sees its failure before the next batch */
        /* not from d->batch on, whose rows may be planned in part */
        rp_join_rings(d->arena, d->options->rank_count, d->batch + 1, d->wake_fd);
        rp_a64_store_relaxed(&words->retired_wanted, wanted);
        uint32_t epoch = rp_event_prepare(&words->retired_event); /* fences. PAIRS retired-wanted */
        rp_event_sleep_unless(&words->retired_event, epoch,
                              rp_arena_stopping(d->arena) ||
                                  rp_a64_load_acquire(&words->retired) >= wanted ||
                                  rp_revalidation_is_requested(d->revalidation));
        if (rp_arena_stopping(d->arena))
            return -RP_E_STOPPED;
    }
    return rp_arena_stopping(d->arena) ? -RP_E_STOPPED : 0;
}

/* Wait until the next slot may be reused (I4). */
static int wait_for_slot(struct rp_dispatch *d, struct rp_error *error)
{
    uint64_t slots = d->arena->slot_count;
    uint64_t needed = d->next_ticket >= slots ? d->next_ticket - slots + 1 : 0;
    return wait_for_retired(d, needed, needed - 1 + rp_max_u64(1, slots / 4), error);
}

/* Wait until the oldest region of the data, or the descriptor of a file, is free. */
static int wait_for_room(struct rp_dispatch *d, struct rp_error *error)
{
    uint64_t needed = rp_reads_room_at(&d->reads);
    RP_ASSERT(needed <= d->next_ticket); /* it has been handed on, so it will be retired */
    return wait_for_retired(d, needed, needed, error);
}

static int open_ticket(struct rp_dispatch *d, struct rp_error *error)
{
    RP_ASSERT(!d->ticket);
    int code = wait_for_slot(d, error);
    if (code < 0)
        return code;
    RP_ASSERT(d->next_ticket - rp_a64_load_relaxed(&d->arena->words->retired) <
              d->arena->slot_count); /* I4 */
    struct rp_ticket *ticket = rp_arena_ticket(d->arena, d->next_ticket);
    ticket->batch = d->batch;
    ticket->transfer_count = ticket->read_count = ticket->row_count = ticket->mask_count = 0;
    ticket->kind = RP_TICKET_ROWS;
    ticket->error = 0;
    ticket->bad_transfer = 0;
    ticket->align = 1; /* until it has a transfer */
    ticket->skips_step = d->skips_step;
    ticket->step = d->step;
    d->ticket = ticket;
    rp_reads_begin(&d->reads, ticket, d->next_ticket);
    return 0;
}

/* The ticket is complete. The next hand_on_checked gives it to its reader or packer. */
static void close_ticket(struct rp_dispatch *d)
{
    const struct rp_ticket *ticket = d->ticket;
    RP_ASSERT(ticket == rp_arena_ticket(d->arena, d->next_ticket));
    RP_ASSERT(ticket->transfer_count <= RP_TICKET_TRANSFERS_MAX);
    RP_ASSERT(ticket->read_count <= RP_TICKET_TRANSFERS_MAX);
    RP_ASSERT(ticket->row_count <= RP_TICKET_ROWS_MAX);
    RP_ASSERT(ticket->mask_count <= ticket->transfer_count);
    d->ticket = NULL;
    d->next_ticket++;
}

/* The most blocks that are read before the next ticket: a window of them. At the start it is fewer,
 * so that the first rows do not wait for a whole window. */
static uint64_t most_block_reads(const struct rp_block_reads *block_reads)
{
    const struct rp_plan_blocks *blocks = &block_reads->blocks;
    if (blocks->documents == 0)
        return 0;
    uint64_t window = (uint64_t)blocks->window * block_reads->pair_count;
    return block_reads->count < window ? 1 + RP_TICKET_TRANSFERS_MAX / blocks->documents : window;
}

/* Make tickets for the blocks that are due. If the data has no room for a block that the next rows
 * need, wait until the oldest region is free. */
static int add_block_reads(struct rp_dispatch *d, struct rp_error *error)
{
    uint64_t most = most_block_reads(&d->reads.block_reads);
    struct rp_block_read block_read;
    while (most > 0) {
        enum rp_reads_block next = rp_reads_next_block(&d->reads, d->plan, d->next_ticket,
                                                       &block_read);
        if (next == RP_READS_NO_BLOCK)
            return 0;
        if (next == RP_READS_BLOCK_WAITS) {
            int code = wait_for_room(d, error);
            if (code < 0)
                return code;
            continue;
        }
        int code = open_ticket(d, error);
        if (code < 0)
            return code;
        rp_reads_fill_block(&d->reads, d->ticket, &block_read);
        rp_reads_note(&d->reads, d->plan);
        close_ticket(d);
        most--;
    }
    return 0;
}

/* Make sure that a ticket is open. */
static int need_ticket(struct rp_dispatch *d, struct rp_error *error)
{
    if (d->ticket)
        return 0;
    int code = add_block_reads(d, error);
    return code < 0 ? code : open_ticket(d, error);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static int add_transfer(struct rp_dispatch *d, const struct rp_row_end *row,
                        struct rp_transfer *transfer, struct rp_error *error)
{
    for (;;) {
        int code = need_ticket(d, error);
        if (code >= 0 && rp_ticket_has_room(d->ticket, row->align)) {
            d->ticket->align = row->align;
            code = rp_reads_place(&d->reads, row->row, transfer, error);
        }
        if (code < 0)
            return code;
        if (code == RP_READS_PLACED) {
            RP_DASSERT(transfer->loaded_by <= d->next_ticket); /* I5 */
            d->ticket->transfers[d->ticket->transfer_count++] = *transfer;
            return 0;
        }
        if (d->ticket->transfer_count > 0)
            close_ticket(d);
        else
            code = wait_for_room(d, error);
        if (code < 0)
            return code;
    }
}

/* Prefetch the index entries of a row, which are scattered, so that their cache misses overlap. */
static void prefetch_extents(const struct rp_dispatch *d, const struct rp_row *row)
{
    for (uint32_t i = 0; i < row->count; i++) {
        const struct rp_fragment *fragment = &row->fragments[i];
        rp_source_prefetch_extent(rp_corpus_source(d->options->corpus, fragment->source),
                                  fragment->document);
    }
}

static int add_row(struct rp_dispatch *d, uint32_t ring, uint32_t row_in_batch,
                   const struct rp_row *row, struct rp_error *error)
{
    prefetch_extents(d, row);
    struct rp_row_end end = rp_row_end_of(row, d->options->cost, ring, row_in_batch);
    for (uint32_t i = 0; i < row->count; i++) {
        struct rp_transfer transfer = {.fragment = row->fragments[i],
                                       .ring = ring,
                                       .row = row_in_batch,
                                       .offset = end.places,
                                       .index = i};
        int code = add_transfer(d, &end, &transfer, error);
        if (code < 0)
            return code;
        rp_row_end_add(&end, &transfer);
    }
    int code = need_ticket(d, error);
    if (code >= 0 && d->ticket->row_count == RP_TICKET_ROWS_MAX) {
        close_ticket(d);
        code = need_ticket(d, error);
    }
    if (code >= 0)
        d->ticket->rows[d->ticket->row_count++] = end;
    return code;
}

/* ---- micro-batches --------------------------------------------------------------------------- */

/* Take the next row of the step, which is an empty row after the end of the stream. If it is
 * wanted, add it to tickets. */
static int take_row(struct rp_dispatch *d, uint64_t row, uint32_t ring, uint32_t row_in_batch,
                    bool wanted, struct rp_error *error)
{
    struct rp_row planned;
    int code = rp_queue_next(&d->queue, &planned, error);
    if (code == 0)
        planned = (struct rp_row){.row = row, .planned = row};
    RP_ASSERT(code < 0 || planned.row == row);
    if (code >= 0 && wanted)
        code = add_row(d, ring, row_in_batch, &planned, error);
    return code;
}

/* Does another flow deliver this batch to the ring? */
static bool is_left_out(const struct rp_dispatch *d, uint32_t ring)
{
    return d->batch < rp_a64_load_relaxed(&d->arena->pack_from[ring]);
}

/* Make the tickets of the next micro-batch, whose rows begin_step has planned. */
static int dispatch_batch(struct rp_dispatch *d, struct rp_error *error)
{
    const struct rp_flow_options *o = d->options;
    const struct rp_numbering_part *part = rp_numbering_of_batch(d->numbering, d->batch);
    uint64_t in_part = (d->batch - part->batch) * part->batch_rows, row = part->row + in_part;
    uint64_t rows = part->batch_rows / o->dp_world_size;
    d->skips_step = rp_plan_skips(d->plan, row - in_part % part->step_rows, part->step_rows);
    rp_join_rings(d->arena, d->options->rank_count, d->batch, d->wake_fd);
    rp_queue_begin_batch(&d->queue, d->batch, &d->reads.block_reads);
    for (uint32_t rank = 0; rank < o->dp_world_size; rank++) {
        uint32_t ring = rank - o->rank_first;
        bool wanted = rank >= o->rank_first && ring < o->rank_count &&
                      d->batch >= d->start_batch[ring] && !is_left_out(d, ring);
        for (uint32_t i = 0; i < rows; i++, row++) {
            int code = take_row(d, row, ring, i, wanted, error);
            if (code < 0)
                return code;
        }
    }
    /* before the ticket: deliver sends the state along with the batch */
    int code = rp_queue_end_batch(&d->queue, d->batch, error);
    d->batch++;
    rp_reads_note(&d->reads, d->plan);
    if (code >= 0 && d->ticket) {
        d->ticket->kind = RP_TICKET_BATCH_END;
        close_ticket(d);
    }
    return code;
}

/* Plan the step of `batch`. Returns 1; or 0 if `batch` begins a step that does not exist, because
 * the stream has ended. Only the plan decides that, so it is the same on every node. */
static int begin_step(struct rp_dispatch *d, struct rp_error *error)
{
    int code = rp_queue_begin(&d->queue, d->batch, error);
    d->step = d->queue.sums;
    if (code < 0 || rp_numbering_micro_batch(d->numbering, d->batch) != 0)
        return code < 0 ? code : 1;
    if (d->options->drop_last)
        return (int)d->step.is_whole;
    return rp_queue_has_next(&d->queue);
}

/* Ends with the ticket that ends the stream. */
static int dispatch_steps(struct rp_dispatch *d, struct rp_error *error)
{
    int code = rp_queue_save(d->arena, d->plan, d->batch, error);
    for (bool begins = true; code >= 0;
         begins = rp_numbering_micro_batch(d->numbering, d->batch) == 0) {
        if (begins) {
            code = begin_step(d, error);
            if (code <= 0)
                break;
        }
        code = check_when_due(d, error);
        if (code >= 0)
            code = dispatch_batch(d, error);
        if (code >= 0 && rp_now_ns() >= d->hand_on_at_ns)
            code = hand_on_checked(d, error);
        if (code >= 0 && rp_startup_yield_is_due())
            sched_yield();
    }
    if (code >= 0)
        code = open_ticket(d, error);
    if (code < 0)
        return code;
    d->ticket->kind = RP_TICKET_STREAM_END;
    rp_plan_stage_text(d->plan, d->ticket->message, sizeof d->ticket->message);
    close_ticket(d);
    code = hand_on_checked(d, error);
    if (code >= 0)
        rp_join_no_more(d->arena, d->batch, d->wake_fd);
    return code;
}

/* Tickets that were closed before the failure are valid and handed on, unless the indexes have
 * changed: then those tickets are dropped, and the change is reported in place of the failure. */
static int end_before_failure(struct rp_dispatch *d, int code, struct rp_error *error)
{
    struct rp_error changed;
    if (d->ticket)
        close_ticket(d);
    int checked = hand_on_checked(d, &changed);
    if (checked >= 0)
        return code;
    d->next_ticket = d->handed_on;
    *error = changed;
    return checked;
}

/* Make the tickets of all steps. A failure becomes a ticket. */
static void dispatch_stream(struct rp_dispatch *d)
{
    struct rp_error error = {0};
    int code = dispatch_steps(d, &error);
    if (code >= 0 || code == -RP_E_STOPPED)
        return;
    code = end_before_failure(d, code, &error);
    if (open_ticket(d, NULL) == 0) {
        rp_ticket_fail(d->ticket, code, &error);
        close_ticket(d);
        hand_on(d);
    }
}

/* Planning is over: answer requests of a revalidation until the flow is stopped. */
static void answer_until_stopped(struct rp_dispatch *d)
{
    struct rp_arena_words *words = d->arena->words;
    rp_a64_store_relaxed(&words->retired_wanted, UINT64_MAX);
    for (;;) {
        bool stops = rp_arena_stopping(d->arena);
        if (rp_revalidation_is_requested(d->revalidation))
            check_files(d);
        if (stops)
            return;
        uint32_t epoch = rp_event_prepare(&words->retired_event);
        rp_event_sleep_unless(&words->retired_event, epoch,
                              rp_arena_stopping(d->arena) ||
                                  rp_revalidation_is_requested(d->revalidation));
    }
}

static void run_dispatch(void *argument)
{
    struct rp_dispatch *d = argument;
    dispatch_stream(d);
    answer_until_stopped(d);
}

/* The plan reads mapped indexes. If a page of one cannot be read any more (the file was cut short),
 * the thread ends, as packer_thread does, and the engine stops the stream. */
static void *dispatch_main(void *argument)
{
    prctl(PR_SET_NAME, "plan");
    (void)!rp_mapped_guard(run_dispatch, argument);
    return NULL;
}

int rp_dispatch_start(struct rp_dispatch *d, struct rp_error *error)
{
    RP_ASSERT(!d->started && !d->ticket);
    int failed = rp_thread_start(&d->thread, dispatch_main, d);
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
