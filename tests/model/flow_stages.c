/* SPDX-License-Identifier: Apache-2.0 */
/* flow_stages.c — the sources of both stages, for their private functions. */
#include "flow_stages.h"

#include "model.h"
#include "switch.h" /* the switches in the sources below */

#include "base/clock.h"
#include "flow/files.h"

#define rp_now_ns() UINT64_C(1) /* equal states look equal */
#include "flow/dispatch.c"
#undef rp_now_ns
#include "flow/fetch.c"

uint64_t stage_planned;

int stage_save(const struct rp_plan *plan, void *token, size_t *bytes, struct rp_error *error)
{
    (void)plan, (void)error;
    memcpy(token, &stage_planned, sizeof stage_planned);
    *bytes = sizeof stage_planned;
    return 0;
}

uint64_t stage_row(const struct rp_plan *plan)
{
    (void)plan;
    return stage_planned;
}

static uint64_t data_of(const struct rp_arena *arena, uint64_t number)
{
    return (number & (arena->slot_count - 1)) * 64;
}

static void write_data(const struct rp_arena *arena, uint64_t number)
{
    uint32_t batch = (uint32_t)rp_arena_ticket(arena, number)->batch;
    uint32_t tokens[STAGE_TOKENS] = {batch + 100, batch + 200};
    memcpy(arena->data + data_of(arena, number), tokens, sizeof tokens);
}

static void add_stage_row(const struct rp_arena *arena, struct rp_ticket *ticket, uint64_t number,
                          uint32_t ring)
{
    ticket->transfers[ticket->transfer_count++] = (struct rp_transfer){
        .fragment.length = STAGE_TOKENS,
        .data_offset = data_of(arena, number),
        .loaded_by = number,
        .ring = ring,
        .width = sizeof(uint32_t),
        .id_bits = 31};
    ticket->rows[ticket->row_count++] = (struct rp_row_end){.row = ticket->batch,
                                                            .ring = ring,
                                                            .fragments = 1,
                                                            .tokens = STAGE_TOKENS,
                                                            .places = STAGE_TOKENS,
                                                            .align = 1};
}

static void fill_ticket(const struct rp_arena *arena, struct rp_ticket *ticket, uint64_t number,
                        bool with_reads)
{
    add_stage_row(arena, ticket, number, 0);
    ticket->read_count = with_reads;
    if (!with_reads)
        write_data(arena, number);
}

static void end_stage_batch(struct rp_dispatch *d)
{
    d->batch = ++stage_planned;
    int code = rp_queue_save(d->arena, d->plan, d->batch, NULL);
    RP_ASSERT(code == 0);
    d->ticket->kind = RP_TICKET_BATCH_END;
    close_ticket(d);
    hand_on(d);
}

static bool end_stage_stream(struct rp_dispatch *d)
{
    if (open_ticket(d, NULL) < 0)
        return false;
    d->ticket->kind = RP_TICKET_STREAM_END;
    close_ticket(d);
    hand_on(d);
    return true;
}

static struct rp_dispatch make_dispatch(struct rp_arena *arena, struct rp_files *files,
                                        struct rp_revalidation *revalidation, int wake_fd)
{
    static const struct rp_flow_options options = {.rank_count = 1};
    return (struct rp_dispatch){.options = &options,
                                .arena = arena,
                                .reads.files = files,
                                .revalidation = revalidation,
                                .wake_fd = wake_fd};
}

static bool plan_batches(struct rp_dispatch *d, uint64_t batches, bool with_reads)
{
    for (stage_planned = 0; stage_planned < batches;) {
        if (open_ticket(d, NULL) < 0)
            return false;
        fill_ticket(d->arena, d->ticket, d->next_ticket, with_reads);
        end_stage_batch(d);
    }
    return true;
}

void stage_plan(struct rp_arena *arena, struct rp_revalidation *revalidation, int wake_fd,
                uint64_t batches, bool with_reads, bool with_empty)
{
    struct rp_files none = {0};
    struct rp_dispatch d = make_dispatch(arena, &none, revalidation, wake_fd);
    if (with_empty) {
        if (open_ticket(&d, NULL) < 0)
            return;
        close_ticket(&d);
        hand_on(&d);
    }
    if (plan_batches(&d, batches, with_reads) && end_stage_stream(&d))
        answer_until_stopped(&d);
}

void stage_plan_awaited(struct rp_arena *arena, struct rp_revalidation *revalidation, int wake_fd,
                        uint64_t batches, unsigned bell)
{
    struct rp_files none = {0};
    struct rp_dispatch d = make_dispatch(arena, &none, revalidation, wake_fd);
    if (!plan_batches(&d, batches, false))
        return;
    model_bell_wait(bell);
    if (end_stage_stream(&d))
        answer_until_stopped(&d);
}

void stage_plan_joining(struct rp_arena *arena, struct rp_revalidation *revalidation, int wake_fd,
                        uint64_t first, uint64_t batches)
{
    static const struct rp_flow_options options = {.rank_count = 2};
    struct rp_files none = {0};
    struct rp_dispatch d = {.options = &options,
                            .arena = arena,
                            .reads.files = &none,
                            .revalidation = revalidation,
                            .wake_fd = wake_fd};
    for (stage_planned = 0; stage_planned < batches;) {
        rp_join_rings(arena, options.rank_count, d.batch, wake_fd);
        if (open_ticket(&d, NULL) < 0)
            return;
        write_data(arena, d.next_ticket);
        add_stage_row(arena, d.ticket, d.next_ticket, 0);
        if (stage_planned == first || (stage_planned > first && !is_left_out(&d, 1)))
            add_stage_row(arena, d.ticket, d.next_ticket, 1);
        end_stage_batch(&d);
    }
    if (!end_stage_stream(&d))
        return;
    rp_join_no_more(arena, d.batch, wake_fd);
    answer_until_stopped(&d);
}

void stage_read(struct rp_arena *arena)
{
    struct rp_flow_options options = {.readers = 1};
    struct rp_fetcher f = {.arena = arena, .options = &options};
    while (!rp_arena_stopping(arena)) {
        skip_ready(&f);
        for (; is_planned(&f, f.next_ticket); f.next_ticket++) {
            write_data(arena, f.next_ticket);
            finish_ticket(&f, f.next_ticket);
        }
        sleep_until_planned(&f);
    }
}
