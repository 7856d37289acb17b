/* SPDX-License-Identifier: Apache-2.0 */
/* Deliver by hand: the completion of a batch, the order of publishing, room that trainers give back
 * and how it is requested, a hold, and how a stream ends or fails. */
#include "deliver_bench.h"

static void check_taken(struct bench *bench, uint32_t r, uint64_t batch)
{
    const struct rp_geometry *g = &bench->rings[r].geometry;
    struct rp_slot_header header, sums;
    struct expected_row rows[ROWS];
    struct rp_error error;
    const uint8_t *slot;
    char what[160];
    assert_int_equal(rp_ring_view_take(&bench->views[r], &slot, &header, &error), RP_RING_TAKEN);
    uint8_t *expected = malloc(g->slot_bytes);
    make_rows(batch, r, rows);
    expect_batch(g, rows, &tokens, expected, &sums);
    if (!sections_equal(g, expected, slot, 0, what, sizeof what))
        fail_msg("batch %d of ring %u: %s", (int)batch, r, what);
    free(expected);
    assert_int_equal(header.batch, batch);
    assert_int_equal(header.generation, 9);
    assert_int_equal(header.first_row, first_row(batch, r));
    assert_int_equal(header.next_row, first_row(batch + 1, 0));
    assert_int_equal(header.sum_len_squared, sums.sum_len_squared);
    assert_int_equal(header.rows_real, sums.rows_real);
    assert_int_equal(header.tokens_real, sums.tokens_real);
    assert_int_equal(header.tokens_loss, sums.tokens_loss);
    assert_int_equal(header.max_seqlen, sums.max_seqlen);
    assert_int_equal(header.segments, sums.segments);
    assert_int_equal(header.state_bytes, 8);
    assert_memory_equal(slot + header.state_offset, &batch, 8);
}

static void batches_are_completed_and_in_order(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench);
    assert_int_equal(step(&bench), RP_FLOW_IDLE);
    for (uint64_t batch = 0; batch < 40; batch++) {
        add_ticket(&bench, batch, RP_TICKET_ROWS);
        hand_over(&bench);
        step(&bench);
        assert_int_equal(bench.rings[0].tail, batch); /* half of it is not it */
        add_ticket(&bench, batch, RP_TICKET_BATCH_END);
        hand_over(&bench);
        assert_int_equal(step(&bench), RP_FLOW_WORKED);
        assert_int_equal(rp_a64_load_relaxed(&bench.arena.words->retired), 2 * batch + 2);
        for (uint32_t r = 0; r < RINGS; r++) {
            check_taken(&bench, r, batch);
            rp_ring_view_release(&bench.views[r], batch + 1);
        }
    }
    assert_int_equal(bench.deliver.batches, 40 * RINGS);
    assert_int_equal(bench.deliver.rows, 40 * RINGS * 3);
    bench_close(&bench);
}

/* The later of two tickets is packed first: it waits. */
static void an_early_ticket_waits(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench);
    add_ticket(&bench, 0, RP_TICKET_BATCH_END);
    bench.next_ticket = 1;
    add_ticket(&bench, 1, RP_TICKET_BATCH_END);
    hand_over(&bench);
    assert_int_equal(step(&bench), RP_FLOW_IDLE);
    assert_int_equal(bench.rings[0].tail, 0);
    bench.next_ticket = 0;
    hand_over(&bench);
    assert_int_equal(step(&bench), RP_FLOW_WORKED);
    assert_int_equal(bench.rings[0].tail, 2);
    bench_close(&bench);
}

/* A ring that had some batches before the flow was started again gets only the missing ones. */
static void rings_at_different_places(void **state)
{
    (void)state;
    struct bench bench;
    struct rp_error error;
    bench_open(&bench);
    rp_ring_detach_trainer(&bench.rings[1], 0);
    assert_int_equal(rp_ring_attach_trainer(&bench.rings[1], 0, 2, &error), 0);
    for (uint64_t batch = 0; batch < 4; batch++) {
        uint64_t was = bench.rings[1].tail;
        struct rp_ticket *ticket = rp_arena_ticket(&bench.arena, bench.next_ticket);
        if (batch >= 2)
            add_ticket(&bench, batch, RP_TICKET_BATCH_END);
        else
            *ticket = (struct rp_ticket){.batch = batch, .kind = RP_TICKET_BATCH_END};
        struct rp_state_slot *slot = rp_arena_state(&bench.arena, batch + 1);
        rp_a64_store_release(&slot->position, batch + 2);
        hand_over(&bench);
        step(&bench);
        assert_int_equal(bench.rings[0].tail, batch + 1);
        assert_int_equal(bench.rings[1].tail, batch < 2 ? was : batch + 1);
    }
    bench_close(&bench);
}

static uint64_t free_until(const struct bench *bench, uint32_t ring)
{
    return rp_a64_load_relaxed(&bench->arena.free_until[ring]);
}

static void give_batches(struct bench *bench, uint64_t first, uint64_t last)
{
    for (uint64_t batch = first; batch < last; batch++) {
        add_ticket(bench, batch, RP_TICKET_BATCH_END);
        hand_over(bench);
        step(bench);
        for (uint32_t r = 0; r < RINGS; r++)
            check_taken(bench, r, batch);
    }
}

static void space_comes_back_and_a_hold_keeps_it(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench);
    give_batches(&bench, 0, 3);
    rp_ring_view_release(&bench.views[0], 2);
    assert_true(rp_deliver_free_slots(&bench.deliver));
    assert_false(rp_deliver_free_slots(&bench.deliver));
    assert_int_equal(free_until(&bench, 0), 2 + SLOTS);
    assert_int_equal(free_until(&bench, 1), SLOTS);

    bench.deliver.held = true;
    bench.deliver.held_batch = 0; /* the slowest one's consumed batches */
    bench.deliver.held_ticket = bench.deliver.next_ticket;
    rp_ring_view_release(&bench.views[0], 3);
    rp_ring_view_release(&bench.views[1], 3);
    assert_false(rp_deliver_free_slots(&bench.deliver));
    assert_int_equal(free_until(&bench, 0), 2 + SLOTS); /* given before: not taken back */
    assert_int_equal(free_until(&bench, 1), SLOTS);
    give_batches(&bench, 3, 4);
    assert_int_equal(rp_a64_load_relaxed(&bench.arena.words->retired), 3); /* its slot stays */
    bench.deliver.held = false;
    assert_true(rp_deliver_free_slots(&bench.deliver));
    assert_int_equal(free_until(&bench, 0), 3 + SLOTS);
    assert_int_equal(free_until(&bench, 1), 3 + SLOTS);
    bench_close(&bench);
}

static void a_lying_trainer_gets_no_space(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench);
    give_batches(&bench, 0, 2);
    struct rp_ring_control *words = (void *)bench.views[0].control.data;
    rp_a64_store_release(&words->release, 3); /* one more than it was given */
    rp_ring_view_release(&bench.views[1], 2);
    assert_true(rp_deliver_free_slots(&bench.deliver));
    assert_true(bench.rings[0].quarantined);
    assert_int_equal(free_until(&bench, 0), SLOTS);
    assert_int_equal(free_until(&bench, 1), 2 + SLOTS);
    bench_close(&bench);
}

enum room_event { LACKS_ROOM, DOORBELLS_ARE_SET, SLOT_IS_FREED, ROOM_EVENTS };

/* One batch is published, and free for its trainers to release. */
static enum rp_room room_after(enum rp_room room, enum room_event event, bool *rings_out)
{
    struct bench bench;
    bench_open(&bench);
    give_batches(&bench, 0, 1);
    struct rp_deliver *d = &bench.deliver;
    d->wake_at = UINT64_MAX;
    d->turn.value = 1; /* another thread's, or the engine's */
    rp_a32_store_relaxed(&d->room, room);
    switch (event) {
    case LACKS_ROOM:
        rp_deliver_as_packer(d, RP_TURN_LACKS_ROOM);
        break;
    case DOORBELLS_ARE_SET:
        assert_true(rp_deliver_park(d));
        break;
    default:
        rp_ring_view_release(&bench.views[0], 1);
        assert_true(rp_deliver_free_slots(d));
    }
    enum rp_room after = rp_a32_load_relaxed(&d->room);
    *rings_out = true;
    for (uint32_t r = 0; r < RINGS; r++)
        *rings_out &= rp_ring_view_release(&bench.views[r], 1);
    bench_close(&bench);
    return after;
}

/* The table of deliver.h. */
static void room_is_requested_until_a_slot_is_freed(void **state)
{
    (void)state;
    static const enum rp_room table[ROOM_EVENTS][3] = {
        [LACKS_ROOM] = {RP_ROOM_WANTED, RP_ROOM_WANTED, RP_ROOM_WANTED},
        [DOORBELLS_ARE_SET] = {RP_ROOM_ENOUGH, RP_ROOM_REQUESTED, RP_ROOM_REQUESTED},
        [SLOT_IS_FREED] = {RP_ROOM_ENOUGH, RP_ROOM_ENOUGH, RP_ROOM_ENOUGH}};
    for (enum room_event event = 0; event < ROOM_EVENTS; event++)
        for (enum rp_room room = RP_ROOM_ENOUGH; room <= RP_ROOM_REQUESTED; room++) {
            bool rings;
            assert_int_equal(room_after(room, event, &rings), table[event][room]);
            assert_int_equal(rings, event == DOORBELLS_ARE_SET && room != RP_ROOM_ENOUGH);
        }
}

static void the_end_is_said_after_the_last_batch(void **state)
{
    (void)state;
    struct bench bench;
    struct rp_slot_header header;
    struct rp_error error;
    const uint8_t *slot;
    bench_open(&bench);
    give_batches(&bench, 0, 2);
    add_ticket(&bench, 2, RP_TICKET_STREAM_END);
    hand_over(&bench);
    assert_int_equal(step(&bench), RP_FLOW_IDLE); /* a request to dispatch to check the files */
    assert_int_equal(step(&bench), RP_FLOW_IDLE);
    assert_true(rp_revalidation_is_requested(&bench.revalidation));
    for (uint32_t r = 0; r < RINGS; r++)
        assert_int_equal(bench.rings[r].status, RP_RING_RUNNING);
    rp_a64_store_release(&bench.revalidation.answered, 1);
    assert_int_equal(step(&bench), RP_FLOW_WORKED);
    assert_int_equal(step(&bench), RP_FLOW_ENDED);
    for (uint32_t r = 0; r < RINGS; r++) {
        assert_int_equal(rp_ring_view_take(&bench.views[r], &slot, &header, &error),
                         RP_RING_CLOSED);
        assert_int_equal(bench.views[r].status, RP_RING_END);
        assert_int_equal(bench.views[r].end, 2);
    }
    bench_close(&bench);
}

/* Batches before it have been published; none after it is; at the next call it fails again. */
static void an_error_comes_in_its_place(void **state)
{
    (void)state;
    struct bench bench;
    bench_open(&bench);
    add_ticket(&bench, 0, RP_TICKET_BATCH_END);
    hand_over(&bench);
    struct rp_ticket *ticket = add_ticket(&bench, 1, RP_TICKET_BATCH_END);
    ticket->error = -EIO;
    strcpy(ticket->message, "the disk is gone");
    strcpy(ticket->hint, "buy another");
    hand_over(&bench);
    add_ticket(&bench, 2, RP_TICKET_BATCH_END);
    hand_over(&bench);
    for (int again = 0; again < 2; again++) {
        struct rp_error error = {0};
        assert_int_equal(rp_deliver_step(&bench.deliver, &error), -EIO);
        assert_string_equal(error.message, "the disk is gone");
        assert_string_equal(error.hint, "buy another");
        assert_int_equal(bench.rings[0].tail, 1);
    }
    bench_close(&bench);
}

/* Documents of the block may be whole, unless it is the store that does not answer: then each of
 * them would be waited for as long again. */
static void a_block_that_cannot_be_read_is_read_by_documents(void **state)
{
    (void)state;
    static const struct {
        int error, step;
    } ways[] = {
        {-EIO, RP_FLOW_RESTART}, {-RP_E_CORRUPT, RP_FLOW_RESTART}, {-RP_E_TIMEOUT, -RP_E_TIMEOUT}};
    for (size_t i = 0; i < RP_ARRAY_COUNT(ways); i++) {
        struct bench bench;
        bench_open(&bench);
        struct rp_ticket *ticket = add_ticket(&bench, 0, RP_TICKET_BLOCK_READ);
        ticket->error = ways[i].error;
        hand_over(&bench);
        struct rp_error error;
        assert_int_equal(rp_deliver_step(&bench.deliver, &error), ways[i].step);
        bench_close(&bench);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_are_completed_and_in_order),
        cmocka_unit_test(an_early_ticket_waits),
        cmocka_unit_test(rings_at_different_places),
        cmocka_unit_test(space_comes_back_and_a_hold_keeps_it),
        cmocka_unit_test(a_lying_trainer_gets_no_space),
        cmocka_unit_test(room_is_requested_until_a_slot_is_freed),
        cmocka_unit_test(the_end_is_said_after_the_last_batch),
        cmocka_unit_test(an_error_comes_in_its_place),
        cmocka_unit_test(a_block_that_cannot_be_read_is_read_by_documents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
