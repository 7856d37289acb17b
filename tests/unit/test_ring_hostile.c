/* SPDX-License-Identifier: Apache-2.0 */
/* The batch ring and hostile memory: whatever a trainer writes into its words, and whatever a
 * damaged engine leaves in a header, is refused before anything is addressed with it. */
#include <stdlib.h>
#include <time.h>

#include "ring_pair.h"

/* ---- layout ---------------------------------------------------------------------------------- */

static void geometry_is_checked(void **state)
{
    (void)state;
    struct rp_geometry g = tiny(8), broken;
    uint64_t total = rp_geometry_total(&g);
    assert_int_equal(total, RP_RING_SLOTS_OFFSET + 8 * g.slot_bytes);
    for (unsigned i = 0; i < RP_SECTION_COUNT; i++)
        assert_int_equal(g.sections[i].offset % 64, 0);
    for (size_t bit = 0; bit < sizeof g * 8;
         bit++) { /* no flipped bit of an address field passes */
        broken = g;
        ((uint8_t *)&broken)[bit / 8] ^= (uint8_t)(1u << bit % 8);
        uint64_t other = rp_geometry_total(&broken);
        assert_true(other == 0 || other >= RP_RING_SLOTS_OFFSET + broken.slots * broken.slot_bytes);
        if (bit / 8 >= offsetof(struct rp_geometry, slot_bytes))
            assert_int_equal(other, 0);
    }
    const struct rp_geometry bad[] = {
        {.rows = 0, .seq_len = 4, .max_docs_per_row = 1, .world = 1, .slots = 4},
        {.rows = 1, .seq_len = 0, .max_docs_per_row = 1, .world = 1, .slots = 4},
        {.rows = 1, .seq_len = 4, .max_docs_per_row = 0, .world = 1, .slots = 4},
        {.rows = 1, .seq_len = 4, .max_docs_per_row = 1, .world = 1, .slots = 3},
        {.rows = 1, .seq_len = 4, .max_docs_per_row = 1, .world = 1, .slots = 8192},
        {.rows = 1, .seq_len = 4, .max_docs_per_row = 1, .world = 1, .rank = 1, .slots = 4},
        {.rows = 1u << 16, .seq_len = 1u << 15, .max_docs_per_row = 1, .world = 1, .slots = 4},
        {.rows = 1,
         .seq_len = 4,
         .max_docs_per_row = 1,
         .world = 1,
         .slots = 4,
         .state_bytes = UINT64_MAX},
    };
    for (size_t i = 0; i < RP_ARRAY_COUNT(bad); i++) {
        broken = bad[i];
        assert_int_equal(rp_geometry_layout(&broken, UINT32_MAX, RP_DTYPE_I64), 0);
    }
    broken = g;
    assert_int_equal(rp_geometry_layout(&broken, 0, RP_DTYPE_F32), 0);
}

static void damaged_headers_are_refused(void **state)
{
    (void)state;
    struct pair pair;
    struct rp_error error;
    pair_open(&pair, 4, 0);
    rp_ring_view_close(&pair.view);
    size_t bytes = offsetof(struct rp_ring_header, ready) + sizeof(struct rp_a32);
    for (size_t bit = 0; bit < bytes * 8; bit += 3) {
        pair.ring.data.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        int code = rp_ring_view_open(&pair.view, dup(pair.ring.data.fd),
                                     dup(pair.ring.seats[0].control.fd), 0, &error);
        assert_true(code == -RP_E_PROTOCOL || code == -RP_E_VERSION);
        pair.ring.data.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    /* data and control swapped */
    assert_true(rp_ring_view_open(&pair.view, dup(pair.ring.seats[0].control.fd),
                                  dup(pair.ring.data.fd), 0, &error) < 0);
    assert_int_equal(rp_ring_view_open(&pair.view, dup(pair.ring.data.fd),
                                       dup(pair.ring.seats[0].control.fd), 0, &error),
                     0);
    pair_close(&pair);
}

/* A header with a right hash and impossible fields. */
static void forged_headers_are_refused(void **state)
{
    (void)state;
    struct pair pair;
    struct rp_error error;
    pair_open(&pair, 4, 0);
    rp_ring_view_close(&pair.view);
    struct rp_ring_header *header = (struct rp_ring_header *)(void *)pair.ring.data.data;
    const struct rp_ring_header good = *header;
    for (int lie = 0; lie < 4; lie++) {
        *header = good;
        if (lie == 0)
            header->geometry.rows = 0;
        if (lie == 1)
            header->total_bytes += RP_PAGE_BYTES;
        if (lie == 2)
            header->slots_offset += RP_PAGE_BYTES;
        if (lie == 3) { /* more than there is */
            header->geometry.slots *= 1024;
            header->total_bytes = rp_geometry_total(&header->geometry);
        }
        header->header_hash = rp_hash128(header, offsetof(struct rp_ring_header, header_hash));
        assert_int_equal(rp_ring_view_open(&pair.view, dup(pair.ring.data.fd),
                                           dup(pair.ring.seats[0].control.fd), 0, &error),
                         -RP_E_PROTOCOL);
        assert_non_null(strstr(error.message, "geometry needs"));
    }
    rp_ring_close(&pair.ring);
}

/* ---- hostile words --------------------------------------------------------------------------- */

static void a_trainer_cannot_lie(void **state)
{
    (void)state;
    const int64_t lies[] = {-1, -4, 3, 4, 1000, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < RP_ARRAY_COUNT(lies); i++) { /* release stands at 5, tail at 7 */
        struct pair pair;
        struct rp_error error;
        char text[512];
        pair_open(&pair, 4, 5);
        for (uint64_t batch = 5; batch < 7; batch++) {
            fill(&pair.ring, batch);
            rp_ring_publish(&pair.ring, batch + 1);
        }
        rp_a64_store_release(&control_of(&pair)->release, 5 + (uint64_t)lies[i]);
        assert_int_equal(rp_ring_poll_release(&pair.ring), -RP_E_PROTOCOL);
        assert_int_equal(rp_ring_poll_release(&pair.ring), -RP_E_PROTOCOL); /* for good */
        assert_true(pair.ring.quarantined);
        assert_int_equal(pair.ring.release, 5);
        rp_ring_set_status(&pair.ring, RP_RING_END, 100, NULL); /* does not lift it */
        assert_int_equal(take(&pair, &error), RP_RING_TAKEN);
        assert_int_equal(take(&pair, &error), RP_RING_TAKEN);
        assert_int_equal(take(&pair, &error), RP_RING_CLOSED);
        assert_int_equal(pair.view.status, RP_RING_QUARANTINED);
        rp_ring_view_message(&pair.view, text, sizeof text);
        assert_non_null(strstr(text, "release word: 5 expected"));
        rp_ring_view_close(&pair.view);
        rp_ring_detach_trainer(&pair.ring, 0);
        assert_int_equal(rp_ring_attach_trainer(&pair.ring, 0, 6, &error),
                         0); /* the next trainer does */
        assert_false(pair.ring.quarantined);
        assert_int_equal(rp_a32_load_acquire(&engine_of(&pair)->status), RP_RING_END);
        assert_int_equal(rp_ring_poll_release(&pair.ring), 0);
        rp_ring_close(&pair.ring);
    }
}

/* Garbage in every word that the trainer owns: the engine either keeps its invariant or stops the
 * ring. */
static void garbage_never_gets_through(void **state)
{
    (void)state;
    unsigned seed = (unsigned)time(NULL);
    print_message("seed %u\n", seed);
    srand48((long)seed);
    uint64_t accepted = 0, refused = 0;
    for (int round = 0; round < 2000; round++) {
        struct pair pair;
        pair_open(&pair, 8, 100);
        for (uint64_t batch = 100; !pair.ring.quarantined && batch < 150; batch++) {
            uint64_t before = pair.ring.release;
            uint64_t garbage = drand48() < 0.95
                                   ? before + (uint64_t)lrand48() % (pair.ring.tail - before + 1)
                                   : (uint64_t)mrand48() << (lrand48() % 40);
            rp_a64_store_release(&control_of(&pair)->release, garbage);
            rp_a32_store_relaxed(&control_of(&pair)->want_data, (uint32_t)mrand48());
            rp_a64_store_relaxed(&control_of(&pair)->heartbeat_ns, (uint64_t)mrand48());
            bool legal = garbage >= before && garbage <= pair.ring.tail;
            assert_int_equal(rp_ring_poll_release(&pair.ring), legal ? 0 : -RP_E_PROTOCOL);
            accepted += legal;
            refused += !legal;
            assert_true(pair.ring.tail - pair.ring.release <= 8);
            if (pair.ring.tail - pair.ring.release == 8)
                continue;
            fill(&pair.ring, pair.ring.tail);
            rp_ring_publish(&pair.ring, pair.ring.tail + 1);
        }
        pair_close(&pair);
    }
    print_message("%llu accepted, %llu refused\n", (unsigned long long)accepted,
                  (unsigned long long)refused);
    assert_true(accepted > 0 && refused > 0);
}

static void a_trainer_checks_the_engine(void **state)
{
    (void)state;
    struct pair pair;
    struct rp_error error;
    const uint64_t tails[] = {99, 105, 0, UINT64_MAX};
    for (size_t i = 0; i < RP_ARRAY_COUNT(tails); i++) {
        pair_open(&pair, 4, 100);
        rp_a64_store_release(&engine_of(&pair)->tail, tails[i]);
        assert_int_equal(take(&pair, &error), -RP_E_PROTOCOL);
        pair_close(&pair);
    }
    for (size_t word = 0; word < 4; word++) { /* batch, generation, first_row, next_row */
        pair_open(&pair, 4, 100);
        fill(&pair.ring, 100);
        ((uint64_t *)(void *)rp_ring_slot(&pair.ring, 100))[word]++;
        rp_ring_publish(&pair.ring, 101);
        assert_int_equal(take(&pair, &error), -RP_E_PROTOCOL);
        pair_close(&pair);
    }
    for (int lie = 0; lie < 4; lie++) { /* one more than fits */
        pair_open(&pair, 4, 100);
        fill(&pair.ring, 100);
        struct rp_slot_header *header = (struct rp_slot_header *)(void *)rp_ring_slot(&pair.ring,
                                                                                      100);
        header->rows_real += lie == 0;
        header->tokens_real += lie == 1;
        header->state_bytes = lie == 2 ? 17 : 0;
        header->state_offset += lie == 3;
        rp_ring_publish(&pair.ring, 101);
        assert_int_equal(take(&pair, &error), -RP_E_PROTOCOL);
        assert_non_null(strstr(error.message, "batch 100 is out of range"));
        pair_close(&pair);
    }
    pair_open(&pair, 4, 100);
    rp_a32_store_release(&engine_of(&pair)->status, RP_RING_QUARANTINED);
    assert_int_equal(take(&pair, &error), -RP_E_PROTOCOL);
    assert_non_null(strstr(error.message, "status 4 found"));
    pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(geometry_is_checked),        cmocka_unit_test(damaged_headers_are_refused),
        cmocka_unit_test(forged_headers_are_refused), cmocka_unit_test(a_trainer_cannot_lie),
        cmocka_unit_test(garbage_never_gets_through), cmocka_unit_test(a_trainer_checks_the_engine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
