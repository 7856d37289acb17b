/* SPDX-License-Identifier: Apache-2.0 */
/* deliver_bench.h — deliver by hand: an arena, two rings and their trainers' ends, no thread. */
#ifndef RP_TESTS_DELIVER_BENCH_H
#define RP_TESTS_DELIVER_BENCH_H

#include "batch_expected.h"

#include <errno.h>
#include <unistd.h>

#include "base/bits.h"
#include "flow/deliver.h"
#include "flow/flow.h"

#define RINGS 2u
#define ROWS 4u
#define SEQ_LEN 10u
#define DOCS 3u
#define SLOTS 4u
#define BASE_ROW 6u

struct bench {
    struct rp_flow_options options;
    struct rp_arena arena;
    struct rp_files files; /* none */
    struct rp_revalidation revalidation;
    struct rp_ring rings[RINGS];
    struct rp_ring_view views[RINGS];
    struct rp_deliver deliver;
    struct rp_numbering_part part;
    struct rp_numbering numbering;
    struct rp_batch_sums sums[RINGS];
    struct rp_rank_cost rank_costs[RINGS];
    struct rp_flow_costs costs;
    bool is_left_out[RINGS];
    uint64_t next_ticket;
};

static const struct rp_fragment whole = {.document = 1, .length = SEQ_LEN},
                                pair[] = {{.document = 2, .length = 3},
                                          {.document = 3, .length = 2}},
                                crowd[] = {{.document = 4, .length = 1},
                                           {.document = 5, .length = 1},
                                           {.document = 6, .length = 7}};

static inline uint64_t token_of(const void *context, const struct rp_fragment *fragment, uint64_t i)
{
    (void)context;
    return fragment->document * 100 + i;
}
static const struct expected_tokens tokens = {.token = token_of};

static inline uint64_t first_row(uint64_t batch, uint32_t ring)
{
    return BASE_ROW + (batch * RINGS + ring) * ROWS;
}

/* One row of each kind, in an order that depends on the batch. */
static inline void make_rows(uint64_t batch, uint32_t ring, struct expected_row rows[ROWS])
{
    const struct expected_row kinds[] = {{.count = 1, .fragments = &whole},
                                         {.count = 2, .fragments = pair},
                                         {.count = 3, .fragments = crowd},
                                         {.count = 0}};
    for (uint32_t i = 0; i < ROWS; i++) {
        rows[i] = kinds[(i + batch + ring) % ROWS];
        rows[i].row = first_row(batch, ring) + i;
    }
}

static inline void bench_open(struct bench *bench)
{
    struct rp_error error;
    *bench = (struct bench){
        .options = {.rank_count = RINGS, .dp_world_size = RINGS, .token_limit = 1000}};
    const struct rp_arena_sizes sizes = {.ring_count = RINGS,
                                         .slot_count = 8,
                                         .data_bytes = 4096,
                                         .state_count = 16,
                                         .state_bytes = 64};
    int code = rp_arena_create(&bench->arena, false, &sizes, &error);
    for (uint32_t r = 0; r < RINGS && code == 0; r++) {
        struct rp_geometry g = {.rows = ROWS,
                                .seq_len = SEQ_LEN,
                                .max_docs_per_row = DOCS,
                                .world = RINGS,
                                .rank = r,
                                .micro_batches = 1,
                                .slots = SLOTS,
                                .base_row = BASE_ROW,
                                .state_bytes = 64};
        assert_true(rp_geometry_layout(&g, (1u << RP_SECTION_COUNT) - 1, RP_DTYPE_I32) > 0);
        code = rp_ring_create(&bench->rings[r], &g, 1, (struct rp_ring_identity){{1, 2}, 9}, 0,
                              &error);
        if (code == 0)
            code = rp_ring_attach_trainer(&bench->rings[r], 0, 0, &error);
        if (code == 0)
            code = rp_ring_view_open(&bench->views[r], dup(bench->rings[r].data.fd),
                                     dup(bench->rings[r].seats[0].control.fd), 0, &error);
        rp_a64_store_relaxed(&bench->arena.free_until[r], SLOTS);
    }
    if (code != 0)
        fail_msg("%s", error.message);
    bench->costs.ranks = bench->rank_costs;
    bench->part = (struct rp_numbering_part){
        .row = BASE_ROW, .batch_rows = ROWS * RINGS, .step_rows = ROWS * RINGS};
    bench->numbering = (struct rp_numbering){.parts = &bench->part, .count = 1};
    bench->deliver = (struct rp_deliver){.options = &bench->options,
                                         .arena = &bench->arena,
                                         .rings = bench->rings,
                                         .files = &bench->files,
                                         .revalidation = &bench->revalidation,
                                         .sums = bench->sums,
                                         .costs = &bench->costs,
                                         .numbering = &bench->numbering,
                                         .end_batch = UINT64_MAX,
                                         .is_left_out = bench->is_left_out};
}

static inline void bench_close(struct bench *bench)
{
    for (uint32_t r = 0; r < RINGS; r++) {
        rp_ring_view_close(&bench->views[r]);
        rp_ring_close(&bench->rings[r]);
    }
    rp_arena_close(&bench->arena);
}

/* A packed ticket; a BATCH_END with the sections of its batch in both rings, but cu_seqlens. */
static inline struct rp_ticket *add_ticket(struct bench *bench, uint64_t batch,
                                           enum rp_ticket_kind kind)
{
    struct rp_ticket *ticket = rp_arena_ticket(&bench->arena, bench->next_ticket);
    *ticket = (struct rp_ticket){.batch = batch, .kind = kind};
    for (uint32_t r = 0; r < RINGS && kind == RP_TICKET_BATCH_END; r++) {
        struct rp_ring *ring = &bench->rings[r];
        const struct rp_section_layout *ends = &ring->geometry.sections[RP_SECTION_CU_SEQLENS];
        struct expected_row rows[ROWS];
        struct rp_slot_header header;
        uint8_t *slot = rp_ring_slot(ring, batch);
        make_rows(batch, r, rows);
        expect_batch(&ring->geometry, rows, &tokens, slot, &header);
        memset(slot + ends->offset, 0x5a, ends->bytes);
    }
    struct rp_state_slot *state = rp_arena_state(&bench->arena, batch + 1);
    state->bytes = 8;
    state->next_row = first_row(batch + 1, 0);
    memcpy(state + 1, &batch, 8);
    rp_a64_store_release(&state->position, batch + 2);
    return ticket;
}

static inline void hand_over(struct bench *bench)
{
    rp_a64_store_release(&rp_arena_ticket(&bench->arena, bench->next_ticket)->state,
                         rp_ticket_word(bench->next_ticket, RP_TICKET_PACKED));
    bench->next_ticket++;
}

static inline int step(struct bench *bench)
{
    struct rp_error error = {0};
    int code = rp_deliver_step(&bench->deliver, &error);
    if (code < 0)
        fail_msg("%s", error.message);
    return code;
}

#endif
