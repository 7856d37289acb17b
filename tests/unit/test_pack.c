/* SPDX-License-Identifier: Apache-2.0 */
/* A ticket made by hand, packed by a thread or a process: all sections for rows that are full, cut,
 * padded and empty; twice gives the same bytes; a packer that is killed half-way is replaced. */
#include "batch_expected.h"
#include "patience.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "flow/flow.h"
#include "flow/packer.h"
#include "flow/widen.h"

#define ROWS 3u
#define SEQ_LEN 12u
#define RINGS 2u
#define BATCH 5u
#define PAD 49999

/* Row 0 is full, row 1 has padding, row 2 is empty: once for each ring. */
static const struct rp_fragment fragments[] = {
    {.document = 7, .offset = 0, .source = 0, .length = 5},
    {.document = 3, .offset = 2, .source = 1, .length = 1},
    {.document = 1ull << 40, .offset = 9, .source = 0, .length = 6},
    {.document = 8, .offset = 1, .source = 1, .length = 4},
};
static const uint32_t fragment_rows[] = {0, 0, 0, 1}, fragment_offsets[] = {0, 5, 6, 0},
                      fragment_indices[] = {0, 1, 2, 0};
static const struct expected_row rows[RINGS][ROWS] = {
    {{.row = 100, .count = 3, .fragments = fragments},
     {.row = 101, .count = 1, .fragments = fragments + 3},
     {.row = 102, .count = 0, .fragments = NULL}},
    {{.row = 103, .count = 3, .fragments = fragments},
     {.row = 104, .count = 1, .fragments = fragments + 3},
     {.row = 105, .count = 0, .fragments = NULL}},
};

static uint64_t token_of(const void *context, const struct rp_fragment *fragment, uint64_t i)
{
    (void)context;
    return (fragment->document * 31 + fragment->source * 7 + (fragment->offset + i) * 1009) % 65000;
}

/* The masks of these tests: a random half, or all, or none, by document and token. */
static uint32_t mask_seed; /* 0: none */

static bool is_trained(const void *context, const struct rp_fragment *fragment, uint64_t i)
{
    (void)context;
    uint64_t document = fragment->document % 64 + mask_seed;
    uint64_t hash = (document * 64 + fragment->offset + i) * 0x9e3779b97f4a7c15;
    if (mask_seed == 0 || document % 5 == 0)
        return mask_seed == 0;
    return document % 5 == 1 || hash >> 63;
}

static const struct expected_tokens tokens = {.token = token_of, .trained = is_trained};

struct bench {
    struct rp_arena arena;
    struct rp_ring rings[RINGS];
    struct rp_pack_target targets[RINGS];
    struct rp_pack_plan plan;
    struct rp_packer packer;
};

static void fill_ticket(struct bench *bench, uint32_t width)
{
    struct rp_ticket *ticket = rp_arena_ticket(&bench->arena, 0);
    uint8_t *data = bench->arena.data;
    uint32_t at = 3; /* tokens stand at any address */
    *ticket = (struct rp_ticket){.batch = BATCH, .kind = RP_TICKET_BATCH_END};
    for (uint32_t ring = 0; ring < RINGS; ring++) {
        for (uint32_t f = 0; f < RP_ARRAY_COUNT(fragments); f++, at++) {
            ticket->transfers[ticket->transfer_count++] = (struct rp_transfer){
                .fragment = fragments[f],
                .data_offset = at,
                .width = (uint16_t)width,
                .id_bits = 63,
                .ring = ring,
                .row = fragment_rows[f],
                .offset = fragment_offsets[f],
                .index = fragment_indices[f]};
            for (uint32_t i = 0; i < fragments[f].length; i++, at += width) {
                uint64_t token = token_of(NULL, &fragments[f], i);
                memcpy(data + at, &token, width);
            }
        }
        for (uint32_t r = 0; r < ROWS; r++)
            ticket->rows[ticket->row_count++] = (struct rp_row_end){
                .row = rows[ring][r].row,
                .align = 1,
                .ring = ring,
                .row_in_batch = r,
                .fragments = rows[ring][r].count,
                .tokens = r == 0   ? SEQ_LEN
                          : r == 1 ? fragments[3].length
                                   : 0,
                .places = r == 0   ? SEQ_LEN
                          : r == 1 ? fragments[3].length
                                   : 0};
    }
}

/* Dispatch's work for a transfer with a mask (flow/masks.c), the plainest way. */
static void add_mask(struct rp_arena *arena, struct rp_ticket *ticket, uint32_t transfer,
                     uint64_t *data_at)
{
    const struct rp_fragment *fragment = &ticket->transfers[transfer].fragment;
    struct rp_mask mask = {
        .data_offset = *data_at, .transfer = transfer, .ring = ticket->transfers[transfer].ring};
    struct rp_span *spans = (struct rp_span *)(void *)(arena->data + *data_at);
    for (uint32_t i = 0; i < fragment->length; i++) {
        if (!is_trained(NULL, fragment, i))
            continue;
        if (mask.count == 0 || spans[mask.count - 1].end < i)
            spans[mask.count++].begin = i;
        spans[mask.count - 1].end = i + 1;
    }
    *data_at += mask.count * sizeof *spans;
    ticket->masks[ticket->mask_count++] = mask;
}

static void add_masks(struct bench *bench)
{
    struct rp_ticket *ticket = rp_arena_ticket(&bench->arena, 0);
    uint64_t data_at = 2048;
    for (uint32_t i = 0; i < ticket->transfer_count; i++)
        add_mask(&bench->arena, ticket, i, &data_at);
}

static void bench_open(struct bench *bench, uint32_t sections, uint32_t dtype, uint32_t labels,
                       uint32_t width)
{
    struct rp_error error;
    *bench = (struct bench){0};
    const struct rp_arena_sizes sizes = {.ring_count = RINGS,
                                         .slot_count = 8,
                                         .data_bytes = 4096,
                                         .state_count = 16,
                                         .state_bytes = 64};
    int code = rp_arena_create(&bench->arena, false, &sizes, &error);
    for (uint32_t r = 0; r < RINGS && code == 0; r++) {
        struct rp_geometry g = {.rows = ROWS,
                                .seq_len = SEQ_LEN,
                                .max_docs_per_row = 4,
                                .world = RINGS,
                                .rank = r,
                                .micro_batches = 1,
                                .slots = 4,
                                .label_mode = labels,
                                .pad_id = PAD,
                                .state_bytes = 64};
        assert_true(rp_geometry_layout(&g, sections, dtype) > 0);
        code = rp_ring_create(&bench->rings[r], &g, 1, (struct rp_ring_identity){{1, 2}, 9}, BATCH,
                              &error);
        rp_pack_target_init(&bench->targets[r], &bench->rings[r]);
        rp_a64_store_relaxed(&bench->arena.free_until[r], BATCH + 4);
    }
    if (code != 0)
        fail_msg("%s", error.message);
    bench->plan = (struct rp_pack_plan){.arena = &bench->arena,
                                        .targets = bench->targets,
                                        .packers = 1,
                                        .token_limit = 65000,
                                        .pad_id = PAD,
                                        .wake_fd = eventfd(0, EFD_NONBLOCK)};
    bench->packer = (struct rp_packer){.plan = &bench->plan, .pidfd = -1};
    fill_ticket(bench, width);
}

static void bench_close(struct bench *bench)
{
    for (uint32_t r = 0; r < RINGS; r++)
        rp_ring_close(&bench->rings[r]);
    close(bench->plan.wake_fd);
    rp_arena_close(&bench->arena);
}

static struct rp_a64 *state_of(struct bench *bench)
{
    return &rp_arena_ticket(&bench->arena, 0)->state;
}

static void start_packer(struct bench *bench, bool as_process)
{
    struct rp_error error;
    if (rp_packer_start(&bench->packer, as_process, &error) != 0)
        fail_msg("%s", error.message);
}

static void hand_over(struct bench *bench)
{
    rp_a64_store_release(state_of(bench), rp_ticket_word(0, RP_TICKET_READY));
    rp_event_signal(&bench->arena.words->ready);
}

static void wait_until_packed(struct bench *bench)
{
    while (rp_a64_load_acquire(state_of(bench)) != rp_ticket_word(0, RP_TICKET_PACKED))
        rp_sleep_ns(20000);
}

static void stop_packer(struct bench *bench)
{
    rp_a32_store_release(&bench->arena.words->stop, RP_ARENA_STOPS);
    rp_event_signal(&bench->arena.words->ready);
    rp_event_signal(&bench->arena.words->space);
    rp_packer_join(&bench->packer);
    rp_a32_store_release(&bench->arena.words->stop, RP_ARENA_RUNS);
}

static void pack_once(struct bench *bench, bool as_process)
{
    hand_over(bench); /* before: a packer does not look back at PACKED tickets */
    start_packer(bench, as_process);
    wait_until_packed(bench);
    stop_packer(bench);
}

/* cu_seqlens needs the whole batch and is deliver's. */
static void check_slots(struct bench *bench)
{
    char what[160];
    for (uint32_t r = 0; r < RINGS; r++) {
        const struct rp_geometry *g = &bench->rings[r].geometry;
        uint8_t *expected = malloc(g->slot_bytes);
        struct rp_slot_header header;
        expect_batch(g, rows[r], &tokens, expected, &header);
        if (!sections_equal(g, expected, rp_ring_slot(&bench->rings[r], BATCH),
                            1u << RP_SECTION_CU_SEQLENS, what, sizeof what))
            fail_msg("ring %u: %s", r, what);
        const uint8_t *slot = rp_ring_slot(&bench->rings[r], BATCH); /* the header is deliver's */
        for (uint64_t i = 0; i < g->sections[RP_SECTION_ROWS].offset; i++)
            assert_int_equal(slot[i], 0x5a);
        free(expected);
    }
}

static void poison_slots(struct bench *bench)
{
    for (uint32_t r = 0; r < RINGS; r++)
        memset(rp_ring_slot(&bench->rings[r], BATCH), 0x5a, bench->rings[r].geometry.slot_bytes);
}

#define ALL_SECTIONS ((1u << RP_SECTION_COUNT) - 1)

static void every_section_dtype_and_width(void **state)
{
    (void)state;
    static const uint32_t dtypes[] = {RP_DTYPE_U16, RP_DTYPE_I32, RP_DTYPE_I64};
    for (size_t d = 0; d < 3; d++)
        for (uint32_t labels = 0; labels < 2; labels++)
            for (uint32_t width = 2; width <= 8; width *= 2) {
                struct bench bench;
                bench_open(&bench, ALL_SECTIONS, dtypes[d], labels, width);
                poison_slots(&bench);
                pack_once(&bench, false);
                check_slots(&bench);
                bench_close(&bench);
            }
}

static void masks_remove_labels_in_both_modes(void **state)
{
    (void)state;
    static const uint32_t dtypes[] = {RP_DTYPE_U16, RP_DTYPE_I32, RP_DTYPE_I64};
    for (mask_seed = 1; mask_seed <= 40; mask_seed++) {
        struct bench bench;
        bench_open(&bench, ALL_SECTIONS, dtypes[mask_seed % 3], mask_seed % 2, 2);
        add_masks(&bench);
        poison_slots(&bench);
        pack_once(&bench, false);
        check_slots(&bench);
        bench_close(&bench);
    }
    for (unsigned s = 0; s < RP_SECTION_COUNT; s++) { /* absent sections must not be written */
        struct bench bench;
        bench_open(&bench, 1u << s, RP_DTYPE_I32, RP_LABELS_SHIFTED, 2);
        add_masks(&bench);
        poison_slots(&bench);
        pack_once(&bench, false);
        check_slots(&bench);
        bench_close(&bench);
    }
    mask_seed = 0;
}

/* One section at a time: absent ones must not be written. */
static void every_choice_of_sections(void **state)
{
    (void)state;
    for (unsigned s = 0; s < RP_SECTION_COUNT; s++) {
        struct bench bench;
        bench_open(&bench, 1u << s, RP_DTYPE_I32, RP_LABELS_SHIFTED, 2);
        poison_slots(&bench);
        pack_once(&bench, false);
        check_slots(&bench);
        bench_close(&bench);
    }
}

static void twice_gives_the_same_bytes(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench, ALL_SECTIONS, RP_DTYPE_I32, RP_LABELS_SHIFTED, 4);
    poison_slots(&bench);
    pack_once(&bench, false);
    size_t bytes = bench.rings[0].geometry.slot_bytes;
    uint8_t *first = malloc(bytes);
    memcpy(first, rp_ring_slot(&bench.rings[0], BATCH), bytes);
    pack_once(&bench, false);
    assert_memory_equal(first, rp_ring_slot(&bench.rings[0], BATCH), bytes);
    free(first);
    bench_close(&bench);
}

static void a_token_at_the_limit_is_reported(void **state)
{
    (void)state;
    for (int over = 0; over < 2; over++) {
        struct bench bench;
        bench_open(&bench, 0, RP_DTYPE_I32, RP_LABELS_SHIFTED, 4);
        struct rp_ticket *ticket = rp_arena_ticket(&bench.arena, 0);
        uint32_t token = 64999 + (uint32_t)over;
        memcpy(bench.arena.data + ticket->transfers[6].data_offset + 20, &token, 4);
        pack_once(&bench, false);
        assert_int_equal(ticket->bad_transfer, over ? 7 : 0);
        bench_close(&bench);
    }
}

/* A ticket that failed has no pieces to trust: it passes through. */
static void a_failed_ticket_is_not_packed(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench, 0, RP_DTYPE_I32, RP_LABELS_SHIFTED, 4);
    rp_arena_ticket(&bench.arena, 0)->error = -EIO;
    poison_slots(&bench);
    pack_once(&bench, false);
    const uint8_t *slot = rp_ring_slot(&bench.rings[0], BATCH);
    for (size_t i = 0; i < bench.rings[0].geometry.slot_bytes; i++)
        assert_int_equal(slot[i], 0x5a);
    bench_close(&bench);
}

/* Ring 1 has no space, so the packer stands in the middle of the ticket when it is killed. */
static void a_killed_packers_ticket_is_done_again(void **state)
{
    (void)state;
#if defined(__SANITIZE_THREAD__)
    skip(); /* it does not go through a fork with threads */
#endif
    struct bench bench;
    bench_open(&bench, ALL_SECTIONS, RP_DTYPE_I64, RP_LABELS_ALIGNED, 4);
    poison_slots(&bench);
    rp_a64_store_relaxed(&bench.arena.free_until[1], BATCH);
    start_packer(&bench, true);
    hand_over(&bench);
    const volatile uint8_t *ids = rp_ring_slot(&bench.rings[0], BATCH) +
                                  bench.rings[0].geometry.sections[RP_SECTION_INPUT_IDS].offset;
    while (ids[(SEQ_LEN + 3) * 8] == 0x5a) /* the last token of ring 0 that has a piece */
        rp_sleep_ns(20000);
    assert_false(rp_packer_is_dead(&bench.packer));
    assert_int_equal(kill(bench.packer.pid, SIGSTOP), 0); /* also one that does not answer */
    assert_false(rp_packer_is_dead(&bench.packer));
    assert_int_equal(kill(bench.packer.pid, SIGKILL), 0);
    struct pollfd entry = {.fd = bench.packer.pidfd, .events = POLLIN};
    assert_int_equal(poll(&entry, 1, PATIENCE_MS), 1);
    assert_true(rp_packer_is_dead(&bench.packer));
    rp_packer_join(&bench.packer);
    assert_int_equal(rp_a64_load_acquire(state_of(&bench)), rp_ticket_word(0, RP_TICKET_READY));
    poison_slots(&bench); /* whatever it had done */
    rp_a64_store_release(&bench.arena.free_until[1], BATCH + 1);
    start_packer(&bench, true);
    wait_until_packed(&bench);
    stop_packer(&bench);
    check_slots(&bench);
    bench_close(&bench);
}

/* A process that is stopped cannot end by itself; the flow must be able to end without it. */
static void a_stopped_packer_does_not_hold_up_the_end(void **state)
{
    (void)state;
#if defined(__SANITIZE_THREAD__)
    skip();
#endif
    struct bench bench;
    bench_open(&bench, 0, RP_DTYPE_I32, RP_LABELS_SHIFTED, 4);
    start_packer(&bench, true);
    assert_int_equal(kill(bench.packer.pid, SIGSTOP), 0);
    stop_packer(&bench);
    bench_close(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_section_dtype_and_width),
        cmocka_unit_test(masks_remove_labels_in_both_modes),
        cmocka_unit_test(every_choice_of_sections),
        cmocka_unit_test(twice_gives_the_same_bytes),
        cmocka_unit_test(a_token_at_the_limit_is_reported),
        cmocka_unit_test(a_failed_ticket_is_not_packed),
        cmocka_unit_test(a_killed_packers_ticket_is_done_again),
        cmocka_unit_test(a_stopped_packer_does_not_hold_up_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
