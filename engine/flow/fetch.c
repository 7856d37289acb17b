/* SPDX-License-Identifier: Apache-2.0 */
/* fetch.c — reader threads: submit the reads of planned tickets, mark a ticket READY when its last
 * read is done.
 *
 * Flow: take planned tickets in order while there is room for reads in flight → wait for
 * completions in any order → check blocks against the sidecar → READY. Reads land where the packer
 * takes the tokens from: there is no bounce copy.
 *
 * Invariant: memory with a read in flight is never reused, because its ticket is not READY, so not
 * retired. When the flow stops, the thread waits for its reads (they cannot be cancelled) before
 * that memory is used again. Failures: a failed read marks its ticket; deliver reaches that ticket
 * in order and stops the stream there. */
#include "flow/fetch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/bits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "flow/contents.h"

#define COMPLETIONS_MAX 64u /* that one wait returns */
/* A wait ends when this part of the reads in flight is done: 1 + n / WAIT_SHARE of n. */
#define WAIT_SHARE 4u

/* The tag of a read in flight: its ticket, and its number there. */
static uint64_t tag_of(uint64_t ticket, uint32_t read)
{
    RP_ASSERT(read < RP_TICKET_TRANSFERS_MAX);
    return ticket * RP_TICKET_TRANSFERS_MAX + read;
}

static void finish_ticket(struct rp_fetcher *f, uint64_t number)
{
    struct rp_ticket *ticket = rp_arena_ticket(f->arena, number);
    RP_ASSERT(rp_a64_load_relaxed(&ticket->state) == rp_ticket_word(number, RP_TICKET_PLANNED));
    rp_a64_store_release(&ticket->state,
                         rp_ticket_word(number, RP_TICKET_READY)); /* PAIRS ticket-state */
    rp_event_signal(&f->arena->words->ready);
}

/* A listed object may have changed long before this run, so the hint names its index. */
static void set_hint_of_listed(const struct rp_shard *shard, int code, struct rp_error *error)
{
    if (code == -RP_E_CHANGED && shard->kind == RP_SHARD_LISTED)
        snprintf(error->hint, sizeof error->hint,
                 "restore the object; or run `ringpack index -c CONFIG`, which learns it again: if "
                 "its tokens are the same, old runs can be resumed");
}

/* 0 if the bytes of a read are there and right, else the error of its ticket. */
static int check_read(const struct rp_fetcher *f, const struct rp_read *read, const uint8_t *data,
                      int result, struct rp_error *error)
{
    const struct rp_file *file = &f->files->files[read->shard];
    const struct rp_shard *shard = rp_corpus_shard(f->options->corpus, read->shard);
    if (result < 0) {
        const struct rp_io_method *method = f->options->method;
        int code = method->explain ? method->explain(&file->object, error) : 0;
        if (code < 0) {
            set_hint_of_listed(shard, code, error);
            return code;
        }
        struct rp_stamp known = shard->stamp;
        if (rp_shard_check(shard, &known, file->object.fd, error) < 0)
            return error->code;
        return rp_fail(error, result,
                       "check the disk and the file; batches before this one were delivered",
                       "%s: cannot read %u bytes at offset %" PRIu64 ": %s", shard->path,
                       read->bytes_needed, read->offset, rp_strerror(result));
    }
    if (!file->checked)
        return 0;
    return rp_files_verify(f->files, read, data, error);
}

static void submit_read(struct rp_fetcher *f, const struct rp_read *read, uint64_t tag)
{
    const struct rp_file *file = &f->files->files[read->shard];
    const struct rp_io_object *object = read->past_cache ? &file->direct_object : &file->object;
    RP_ASSERT(rp_range_inside(read->data_offset, read->bytes, f->arena->data_bytes));
    RP_ASSERT(read->bytes_needed > 0 && read->bytes_needed <= read->bytes);
    struct rp_io_read request = {.object = object->handle,
                                 .bytes = read->bytes,
                                 .bytes_needed = read->bytes_needed,
                                 .alignment = object->alignment,
                                 .is_second = read->is_second,
                                 .offset = read->offset,
                                 .buffer = f->arena->data + read->data_offset,
                                 .tag = tag};
    rp_io_submit(f->io, &request, 1);
}

/* Bytes of an object that differ from its sidecar were damaged in transit, now or when they entered
 * the cache: read them from the server once more before that is an error. False if they were read
 * twice already, or are of a file. */
static bool read_again(struct rp_fetcher *f, struct rp_read *read, const struct rp_io_done *done,
                       const struct rp_error *error)
{
    const struct rp_io_method *method = f->options->method;
    if (done->result < 0 || read->is_second || !method->can_ask_again ||
        !method->can_ask_again(&f->files->files[read->shard].object))
        return false;
    rp_log(RP_LOG_WARNING, "%s; the request is sent again", error->message);
    read->is_second = 1;
    submit_read(f, read, done->tag);
    return true;
}

static void complete_read(struct rp_fetcher *f, const struct rp_io_done *done)
{
    uint64_t number = done->tag / RP_TICKET_TRANSFERS_MAX;
    struct rp_ticket *ticket = rp_arena_ticket(f->arena, number);
    struct rp_read *read = &ticket->reads[done->tag % RP_TICKET_TRANSFERS_MAX];
    struct rp_error error = {0};
    int code = check_read(f, read, f->arena->data + read->data_offset, done->result, &error);
    if (code < 0 && read_again(f, read, done, &error))
        return;
    if (code < 0)
        rp_ticket_fail(ticket, code, &error);
    else if (f->options->method->keep)
        f->options->method->keep(&f->files->files[read->shard].object, read->offset,
                                 f->arena->data + read->data_offset, read->bytes_needed);
    uint32_t *left = &f->reads_left[number & (f->arena->slot_count - 1)];
    RP_ASSERT(*left > 0);
    if (--*left == 0)
        finish_ticket(f, number);
}

/* Contents of a checkpoint are in memory: copying them is the whole read. */
static void copy_contents(struct rp_fetcher *f, const struct rp_read *read)
{
    uint64_t bytes;
    const uint8_t *contents = rp_contents_bytes(f->options->contents, &bytes);
    RP_ASSERT(rp_range_inside(read->offset, read->bytes_needed, bytes));
    memcpy(f->arena->data + read->data_offset, contents + read->offset, read->bytes_needed);
}

/* Submit reads of one ticket while there is room. True when all of them are under way or done. */
static bool submit_ticket(struct rp_fetcher *f, uint64_t number)
{
    struct rp_ticket *ticket = rp_arena_ticket(f->arena, number);
    uint32_t *left = &f->reads_left[number & (f->arena->slot_count - 1)];
    if (f->next_read == 0)
        *left = ticket->read_count + 1; /* the extra one ends when all are submitted */
    while (f->next_read < ticket->read_count) {
        const struct rp_read *read = &ticket->reads[f->next_read];
        if (read->shard == RP_READ_CONTENTS) {
            copy_contents(f, read);
            --*left;
        } else {
            if (rp_io_room(f->io) == 0)
                return false;
            submit_read(f, read, tag_of(number, f->next_read));
        }
        f->next_read++;
    }
    f->next_read = 0;
    if (--*left == 0)
        finish_ticket(f, number);
    return true;
}

/* Skip tickets that needed no reads: dispatch has made them READY itself. */
static void skip_ready(struct rp_fetcher *f)
{
    while (rp_a64_load_acquire(
               &rp_arena_ticket(f->arena, f->next_ticket)->state) >= /* PAIRS ticket-state */
           rp_ticket_word(f->next_ticket, RP_TICKET_READY))
        f->next_ticket += f->options->readers;
}

static bool is_planned(const struct rp_fetcher *f, uint64_t number)
{
    return rp_a64_load_acquire(&rp_arena_ticket(f->arena, number)->state) ==
           rp_ticket_word(number, RP_TICKET_PLANNED); /* PAIRS ticket-state */
}

/* Submit all planned reads for which there is room. Tickets without reads, which come between block
 * reads, are passed over; otherwise few reads would be in flight. */
static void submit_planned(struct rp_fetcher *f)
{
    for (;;) {
        if (f->next_read == 0)
            skip_ready(f);
        if (!is_planned(f, f->next_ticket) || !submit_ticket(f, f->next_ticket))
            return;
        f->next_ticket += f->options->readers;
    }
}

static void sleep_until_planned(struct rp_fetcher *f)
{
    struct rp_event *planned = &f->arena->words->planned;
    uint32_t epoch = rp_event_prepare(planned);
    const struct rp_a64 *next = &rp_arena_ticket(f->arena, f->next_ticket)->state;
    /* a ticket that is READY already has no reads, but one after it may be PLANNED */
    bool has_news = rp_a64_load_acquire(next) >=
                    rp_ticket_word(f->next_ticket, RP_TICKET_PLANNED); /* PAIRS ticket-state */
    rp_event_sleep_unless(planned, epoch, has_news || rp_arena_stopping(f->arena));
}

/* Registering memory with the kernel touches every page of it, so it is registered only after the
 * prefaulting (prefault.h) is done. */
static void use_region(struct rp_fetcher *f)
{
    if (f->has_region || !rp_a32_load_acquire(&f->arena->prefaulted)) /* PAIRS arena-prefaulted */
        return;
    rp_io_use_region(f->io, f->arena->data, f->arena->data_bytes);
    f->has_region = true;
}

static void publish_counts(struct rp_fetcher *f)
{
    struct rp_io_counts counts;
    rp_io_get_counts(f->io, &counts);
    rp_a64_add_relaxed(&f->reads, counts.reads - f->published.reads);
    rp_a64_add_relaxed(&f->read_bytes, counts.bytes - f->published.bytes);
    rp_a64_add_relaxed(&f->short_reads, counts.short_reads - f->published.short_reads);
    rp_a64_add_relaxed(&f->retries, counts.retries - f->published.retries);
    f->published = counts;
}

static void fetch_all(struct rp_fetcher *f)
{
    struct rp_io_done done[COMPLETIONS_MAX];
    bool is_remote = f->options->method == rp_io_objects();
    while (!rp_arena_stopping(f->arena)) {
        use_region(f);
        submit_planned(f);
        if (is_remote)
            rp_a32_store_relaxed(&f->at_server, rp_io_at_server(f->io));
        if (rp_io_in_flight(f->io) == 0) {
            sleep_until_planned(f);
            continue;
        }
        /* Several at a time, if many are in flight: each poll costs a system call. Reads of objects
         * take so long that new ones must not wait for one of them. */
        unsigned wait_min = is_remote ? 0 : 1 + rp_io_in_flight(f->io) / WAIT_SHARE;
        unsigned count = rp_io_wait(f->io, done, COMPLETIONS_MAX, wait_min);
        for (unsigned i = 0; i < count && !rp_arena_stopping(f->arena); i++)
            complete_read(f, &done[i]);
        publish_counts(f);
    }
}

static bool is_stopping(void *context)
{
    const struct rp_fetcher *f = context;
    return rp_arena_stopping(f->arena);
}

static void *fetch_main(void *argument)
{
    prctl(PR_SET_NAME, "read");
    struct rp_fetcher *f = argument;
    struct rp_io_options options = {.depth = f->options->io_depth,
                                    .file_method = f->options->file_method,
                                    .may_fall_back = f->options->may_fall_back,
                                    .refusal = &f->refusal,
                                    .is_stopping = is_stopping,
                                    .context = f};
    int code = rp_io_open(&f->io, f->options->method, &options, &f->error);
    rp_a32_store_release(&f->opened, /* PAIRS fetcher-opened */
                         code < 0 ? RP_FETCHER_NOT_OPENED : RP_FETCHER_OPENED);
    rp_event_signal(&f->opened_event);
    if (code < 0)
        return NULL;
    fetch_all(f);
    rp_io_close(f->io);
    f->io = NULL;
    return NULL;
}

int rp_fetcher_start(struct rp_fetcher *f, struct rp_error *error)
{
    RP_ASSERT(!f->started && !f->reads_left);
    RP_ASSERT(f->index < f->options->readers);
    f->next_ticket = f->index;
    f->next_read = 0;
    f->has_region = false;
    f->published = (struct rp_io_counts){0};
    f->refusal.code = 0;
    rp_a32_store_relaxed(&f->opened, RP_FETCHER_OPENING);
    f->reads_left = rp_calloc(f->arena->slot_count, sizeof *f->reads_left);
    if (!f->reads_left)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for reader %u", f->index);
    int failed = rp_thread_start(&f->thread, fetch_main, f);
    if (failed)
        return rp_fail(error, -failed, NULL, "cannot start reader thread %u", f->index);
    f->started = true;
    while (rp_a32_load_acquire(&f->opened) == RP_FETCHER_OPENING) { /* PAIRS fetcher-opened */
        uint32_t epoch = rp_event_prepare(&f->opened_event);
        rp_event_sleep_unless(&f->opened_event, epoch,
                              rp_a32_load_acquire(&f->opened) != RP_FETCHER_OPENING);
    }
    if (rp_a32_load_acquire(&f->opened) == RP_FETCHER_OPENED)
        return 0;
    return rp_fail(error, f->error.code, f->error.hint, "%s", f->error.message);
}

void rp_fetcher_join(struct rp_fetcher *f)
{
    if (f->started)
        pthread_join(f->thread, NULL);
    f->started = false;
    free(f->reads_left);
    f->reads_left = NULL;
}
