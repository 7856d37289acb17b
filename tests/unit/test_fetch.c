/* SPDX-License-Identifier: Apache-2.0 */
/* test_fetch.c — how many reads are in flight, and how long they are. */
#include <sched.h>

#include "flow/fetch.h"
#include "flow/reads.h"
#include "flow_kit.h"

static const struct kit_source pages[] = {{"pages", 8, 2, 3000}};

/* ---- reads in flight ------------------------------------------------------------------------- */

#define TICKETS 32u /* every second one has a read */
#define READ_BYTES 4096u

/* A disk that keeps reads until they are waited for, and then ends as many as are wanted. */
static struct {
    uint64_t tags[TICKETS];
    uint32_t count, most;
} disk;

static int disk_open(void **self, const struct rp_io_options *options, struct rp_error *error)
{
    (void)options;
    (void)error;
    memset(&disk, 0, sizeof disk);
    *self = &disk;
    return 0;
}

static void disk_close(void *self)
{
    (void)self;
}

static int disk_submit(void *self, const struct rp_io_read *reads, unsigned count)
{
    (void)self;
    for (unsigned i = 0; i < count; i++)
        disk.tags[disk.count++] = reads[i].tag;
    disk.most = disk.count > disk.most ? disk.count : disk.most;
    return (int)count;
}

static int disk_reap(void *self, uint64_t *tags, int64_t *results, unsigned max, unsigned wait_min)
{
    (void)self;
    assert_true(wait_min <= max && wait_min <= disk.count);
    for (unsigned i = 0; i < wait_min; i++) {
        tags[i] = disk.tags[--disk.count];
        results[i] = READ_BYTES;
    }
    return (int)wait_min;
}

static const struct rp_io_method disk_method = {.name = "disk",
                                                .open = disk_open,
                                                .close = disk_close,
                                                .submit = disk_submit,
                                                .reap = disk_reap};

/* As between block reads: tickets of rows whose tokens an earlier ticket reads. */
static void plan_tickets(const struct rp_arena *arena)
{
    for (uint64_t t = 0; t < TICKETS; t++) {
        struct rp_ticket *ticket = rp_arena_ticket(arena, t);
        ticket->read_count = t % 2 == 0;
        ticket->reads[0] = (struct rp_read){.bytes = READ_BYTES, .bytes_needed = READ_BYTES};
        rp_a64_store_release(&ticket->state,
                             rp_ticket_word(t, t % 2 == 0 ? RP_TICKET_PLANNED : RP_TICKET_READY));
    }
}

static void reads_behind_tickets_without_reads_are_submitted_at_once(void **state)
{
    (void)state;
    struct rp_plan_config config = small_plan();
    struct rp_error error = {0};
    struct rp_arena arena;
    struct kit kit;
    kit_open(&kit, pages, 1, &config);
    struct rp_flow_options options = small_flow(&disk_method);
    options.corpus = kit.corpus;
    options.io_depth = TICKETS;
    struct rp_file file = {.alignment = 1, .object.alignment = 1};
    struct rp_files files = {.files = &file};
    const struct rp_arena_sizes sizes = {.ring_count = 1,
                                         .slot_count = TICKETS,
                                         .data_bytes = READ_BYTES,
                                         .state_count = 16,
                                         .state_bytes = 64};
    assert_int_equal(rp_arena_create(&arena, false, &sizes, &error), 0);
    plan_tickets(&arena);
    struct rp_fetcher fetcher = {.options = &options, .arena = &arena, .files = &files};
    assert_int_equal(rp_fetcher_start(&fetcher, &error), 0);
    for (uint64_t t = 0; t < TICKETS; t++)
        while (rp_a64_load_acquire(&rp_arena_ticket(&arena, t)->state) <
               rp_ticket_word(t, RP_TICKET_READY))
            sched_yield();
    rp_a32_store_release(&arena.words->stop, RP_ARENA_STOPS);
    rp_event_signal(&arena.words->planned);
    rp_fetcher_join(&fetcher);
    assert_int_equal(disk.most, TICKETS / 2);
    rp_arena_close(&arena);
    kit_close(&kit);
}

/* ---- the pieces of a block ------------------------------------------------------------------- */

static void check_pieces(struct rp_reads *reads, uint64_t first, uint64_t last, uint32_t expected)
{
    static struct rp_ticket ticket;
    uint32_t wanted = reads->files->files[0].object.read_bytes;
    struct rp_block_read block_read = {.run_count = 1, .runs = {{first, last, 0}}};
    memset(&ticket, 0, sizeof ticket);
    rp_reads_fill_block(reads, &ticket, &block_read);
    assert_int_equal(ticket.read_count, expected);
    uint64_t at = first;
    for (uint32_t i = 0; i < ticket.read_count; i++) {
        const struct rp_read *read = &ticket.reads[i];
        assert_int_equal(read->offset, at);
        assert_int_equal(read->data_offset, at - first);
        assert_int_equal(read->offset % RP_BLOCK_BYTES, 0);
        assert_true(ticket.read_count == 1 ||
                    (read->bytes >= wanted / 2 && read->bytes <= wanted * 3 / 2));
        at += read->bytes_needed;
    }
    assert_int_equal(at, last);
}

static void a_block_is_read_in_pieces_of_about_one_length(void **state)
{
    (void)state;
    struct rp_plan_config config = small_plan();
    struct kit kit;
    kit_open(&kit, pages, 1, &config);
    struct rp_flow_options options = small_flow(&disk_method);
    options.corpus = kit.corpus;
    uint64_t bytes = rp_corpus_shard(kit.corpus, 0)->bytes;
    assert_true(bytes > 400000);
    for (uint32_t direct = 0; direct < 2; direct++) {
        struct rp_file file = {
            .alignment = direct ? 512 : 1, .o_direct = direct, .object.read_bytes = 64u << 10};
        struct rp_files files = {.files = &file};
        struct rp_reads reads = {.options = &options, .files = &files};
        check_pieces(&reads, 0, 4096, 1);
        check_pieces(&reads, 4096, 4096 + (64u << 10), 1);
        check_pieces(&reads, 0, (64u << 10) + 4096, 1);
        check_pieces(&reads, 8192, 8192 + 3 * (64u << 10) + 4096, 3);
        check_pieces(&reads, 0, 3 * (64u << 10) + (48u << 10), 4);
        check_pieces(&reads, 0, bytes, (uint32_t)((bytes + (32u << 10)) / (64u << 10)));
    }
    kit_close(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_behind_tickets_without_reads_are_submitted_at_once),
        cmocka_unit_test(a_block_is_read_in_pieces_of_about_one_length),
    };
    return cmocka_run_group_tests(tests, kit_enter, scratch_leave);
}
