/* SPDX-License-Identifier: Apache-2.0 */
/* A flow whose rings differ while it runs: one has no trainer, one is replaced. */
#include "flow_kit.h"

#include <errno.h>
#include <sys/resource.h>

#include "base/bits.h"
#include "deny_io_uring.h"
#include "flow/catch_up.h"
#include "flow/flow_struct.h"

static struct kit kit;

static struct rp_flow_options two_rings(void)
{
    struct rp_flow_options options = small_flow(&rp_io_method_pread);
    options.dp_world_size = options.rank_count = 2;
    options.batch_size = 1;
    options.step_batches = 2 / (options.batch_size * options.dp_world_size);
    return options;
}

/* A skipped seat needs only delivery to let the others continue. */
static void nobody_waits_for_a_skipped_seat(void **state)
{
    (void)state;
    for (uint32_t slots = 2; slots <= 8; slots *= 2) {
        struct stream s;
        struct rp_error error;
        struct rp_flow_options options = two_rings();
        options.batch_slots = slots;
        stream_open(&s, &kit, &options, RP_DTYPE_I32, 0, 1);
        rp_ring_detach_trainer(&s.rings[0], 0);
        rp_ring_skip_seat(&s.rings[0], 0, true);
        stream_start(&s);
        while (s.rings[1].tail < 20) {
            int code = rp_flow_deliver(s.flow, &error);
            assert_true(code >= 0 && code != RP_FLOW_ENDED);
            trainer_takes(&s, 1);
            assert_true(s.rings[0].tail - s.rings[0].release <= slots);
        }
        rp_ring_place_seat(&s.rings[0], 0, s.rings[0].tail); /* its trainer comes: it holds again */
        uint64_t position = s.rings[0].tail;
        for (uint32_t i = 0; i < 200; i++) {
            assert_true(rp_flow_deliver(s.flow, &error) >= 0);
            trainer_takes(&s, 1);
        }
        assert_int_equal(s.rings[0].release, position);
        rp_flow_stop(s.flow);
        stream_close(&s);
    }
}

/* As the engine does it, without its copy of published batches before. */
static void replace_ring(struct stream *s, uint32_t r)
{
    struct rp_ring *old = &s->rings[r], fresh;
    struct rp_error error;
    uint64_t position = s->views[r].next;
    rp_ring_view_release(&s->views[r], position);
    (void)rp_ring_poll_release(old);
    rp_flow_pause_packers(s->flow);
    if (rp_ring_create(&fresh, &old->geometry, 1, (struct rp_ring_identity){{1, 2}, 9},
                       old->release, &error) != 0)
        fail_msg("%s", error.message);
    for (uint64_t k = old->release; k < rp_flow_packed_end(s->flow, r); k++)
        memcpy(rp_ring_slot(&fresh, k), rp_ring_slot(old, k), old->geometry.slot_bytes);
    rp_ring_publish(&fresh, old->tail);
    if (old->status == RP_RING_END)
        rp_ring_set_status(&fresh, RP_RING_END, old->tail, NULL);
    rp_ring_view_close(&s->views[r]);
    rp_ring_close(old);
    *old = fresh;
    stream_attach(s, r, position);
    assert_int_equal(rp_flow_resume_packers(s->flow, &error), 0);
}

/* A ring is replaced by a copy while packers are at work: every batch comes, once and whole, also
 * those that were packed and not published. */
static void a_ring_is_replaced_while_the_flow_runs(void **state)
{
    (void)state;
    for (uint32_t processes = 0; processes < (processes_work() ? 2u : 1u); processes++) {
        struct stream s;
        struct rp_error error;
        struct rp_flow_options options = two_rings();
        options.packers = 3;
        options.packer_processes = processes;
        stream_open(&s, &kit, &options, RP_DTYPE_I32, 0, 3);
        stream_start(&s);
        for (uint32_t turn = 0, code = RP_FLOW_WORKED; code != RP_FLOW_ENDED; turn++) {
            code = (uint32_t)stream_turn(&s, &error);
            assert_true((int)code >= 0);
            if (turn % 5 == 4 && code != RP_FLOW_ENDED)
                replace_ring(&s, turn / 5 % 2);
        }
        run_to_end(&s);
        check_all_came(&s);
        stream_close(&s);
    }
}

/* The forecast of a catch-up flow's memory is right, up to whole pages, for any sizes of the main
 * flow; with one ring the forecast is 0. */
static void a_catch_up_flow_takes_the_memory_of_its_forecast(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 4; round++) {
        struct stream s;
        struct rp_flow *made;
        struct rp_error error;
        struct rp_flow_options options = two_rings();
        options.batch_slots = round & 1 ? 4 : 64;
        options.prefetch_bytes = round & 2 ? 256 << 10 : 8 << 20;
        options.mapped = round == 3;
        stream_open(&s, &kit, &options, RP_DTYPE_I32, 0, 1);
        if (rp_flow_make_catch_up(&made, s.flow, 1, &error) != 0)
            fail_msg("%s", error.message);
        uint64_t forecast = rp_flow_catch_up_memory_bytes(&s.options);
        assert_int_equal(rp_align_up(forecast, RP_PAGE_BYTES), made->arena.segment.bytes);
        assert_int_equal(rp_flow_catch_up_memory_bytes(&made->options), 0); /* one ring */
        rp_flow_close(made);
        stream_close(&s);
    }
}

/* ---- rings that are behind ------------------------------------------------------------------- */

#define BEHIND_AT 2u /* batch */

/* The ring gets new memory, and begins at this batch. */
static void move_ring(struct stream *s, uint32_t r, uint64_t batch)
{
    const struct rp_geometry shape = s->rings[r].geometry;
    rp_ring_view_close(&s->views[r]);
    rp_ring_close(&s->rings[r]);
    stream_make_ring(s, r, batch, &shape);
}

static const struct rp_io_method *catch_up_method; /* NULL: the flow's */

/* The ring begins again at BEHIND_AT, and gets a catch-up flow. As the engine does it. */
static void fall_behind(struct stream *s, uint32_t r, struct rp_plan *plan)
{
    const struct rp_geometry *shape = &s->rings[r].geometry;
    const struct kit_row *at = &s->kit->rows[BEHIND_AT * shape->rows * shape->world];
    struct rp_flow *made;
    struct rp_error error;
    if (rp_flow_make_catch_up(&made, s->flow, r, &error) != 0)
        fail_msg("%s", error.message);
    if (catch_up_method)
        made->options.method = catch_up_method;
    rp_flow_pause_packers(s->flow);
    move_ring(s, r, BEHIND_AT);
    rp_flow_leave_out(s->flow, r);
    if (rp_plan_load(plan, at->state, at->state_bytes, false, &error) != 0 ||
        rp_flow_start_catch_up(s->flow, made, r, plan, NULL, &error) != 0 ||
        rp_flow_resume_packers(s->flow, &error) != 0)
        fail_msg("%s", error.message);
    assert_true(rp_flow_is_catching_up(s->flow, r));
}

/* Its trainer gets as many batches as the ring has slots, and keeps them. */
static void must_fill(struct stream *s, uint32_t r)
{
    struct rp_slot_header header;
    struct rp_error error;
    const uint8_t *slot;
    for (uint32_t got = 0, tries = 0; got < s->options.batch_slots; tries++) {
        if (rp_ring_view_take(&s->views[r], &slot, &header, &error) == RP_RING_TAKEN) {
            check_batch(s, r, slot, &header);
            got++;
            continue;
        }
        if (tries == 3000)
            fail_msg("ring %u: only %u batches while the caller of rp_flow_park sleeps", r, got);
        poll(NULL, 0, 1);
    }
}

/* Two of three rings are behind. While the engine sleeps their flows deliver, each on its own; and
 * all three rings get every batch. */
static void rings_behind_are_served_while_the_engine_sleeps(void **state)
{
    (void)state;
    struct stream s;
    struct rp_error error;
    struct rp_flow_options options = two_rings();
    options.dp_world_size = options.rank_count = 3;
    options.step_batches = 3 / (options.batch_size * options.dp_world_size);
    stream_open(&s, &kit, &options, RP_DTYPE_I32, 0, 1);
    stream_start(&s);
    struct rp_plan *plans[2] = {kit_plan(&kit), kit_plan(&kit)};
    assert_true(stream_run(&s, 30, &error) >= 0);
    for (uint32_t r = 0; r < 2; r++)
        fall_behind(&s, r, plans[r]);
    assert_int_equal(rp_flow_catch_ups(s.flow), 2);
    (void)rp_flow_park(s.flow);
    must_fill(&s, 0);
    must_fill(&s, 1);
    rp_flow_unpark(s.flow);
    run_to_end(&s);
    check_all_came(&s);
    stream_close(&s);
    rp_plan_close(plans[0]);
    rp_plan_close(plans[1]);
}

/* ---- states ---------------------------------------------------------------------------------- */

/* The flow of run_to keeps STATES states. Dispatch may save states of AHEAD positions above the
 * tails: 8 tickets, one that is made, and a step. */
#define STATES 32u
#define AHEAD (8u + 1u + 1u)

/* A new flow, whose rings have had the batches up to this one, and maybe some more. Returns how
 * many. */
static uint64_t run_to(struct stream *s, struct kit *epochs, uint64_t batch)
{
    struct rp_error error;
    struct rp_plan_config config = small_plan();
    struct rp_flow_options options = two_rings();
    config.num_epochs = 4;
    kit_open(epochs, two_sources, 2, &config);
    options.prefetch_bytes = 1 << 16;
    stream_open(s, epochs, &options, RP_DTYPE_I32, 0, 1);
    assert_true(epochs->row_count > 2 * (batch + STATES));
    assert_int_equal(rp_flow_arena(s->flow)->state_count, STATES);
    stream_start(s);
    while (stream_lowest_tail(s) < batch)
        assert_true(stream_turn(s, &error) >= 0);
    return stream_lowest_tail(s);
}

/* The main flow leaves the ring out, which gets new memory from this batch on. */
static void leave_out(struct stream *s, uint32_t r, uint64_t batch)
{
    rp_flow_pause_packers(s->flow);
    move_ring(s, r, batch);
    rp_flow_leave_out(s->flow, r);
}

static bool is_readable(const struct stream *s, uint64_t position)
{
    return rp_flow_state_at(s->flow, position).token != NULL;
}

/* Dispatch may take the slot of a state at any time: the state is not read, though it is still
 * there; nor if a ring goes back to the batch after it. The next one is read. */
static void a_state_whose_slot_may_be_taken_is_not_read(void **state)
{
    (void)state;
    struct stream s;
    struct kit epochs;
    uint64_t position = run_to(&s, &epochs, STATES) + AHEAD - STATES;
    bool read_before = is_readable(&s, position), next_before = is_readable(&s, position + 1);
    leave_out(&s, 0, position + 1);
    bool read_after = is_readable(&s, position), next_after = is_readable(&s, position + 1);
    rp_flow_stop(s.flow);
    bool is_there = is_readable(&s, position);
    stream_close(&s);
    kit_close(&epochs);
    assert_true(is_there && next_before && next_after); /* here: no thread runs any more */
    assert_false(read_before);
    assert_false(read_after);
}

/* A start that begins far below a ring, for another one that is then left out: dispatch comes by
 * the states that an earlier start has left at the ring's batches. */
static void a_state_that_dispatch_comes_to_is_not_read(void **state)
{
    (void)state;
    struct stream s;
    struct kit epochs;
    uint64_t far = run_to(&s, &epochs, STATES + AHEAD);
    rp_flow_stop(s.flow);
    bool is_there = is_readable(&s, far);
    move_ring(&s, 0, 0);
    stream_start(&s);
    leave_out(&s, 0, 0);
    bool read_at = is_readable(&s, far), read_below = is_readable(&s, far - 1);
    stream_close(&s);
    kit_close(&epochs);
    assert_true(is_there);
    assert_false(read_at || read_below);
}

/* ---- a slow disk ----------------------------------------------------------------------------- */

#define TRIES_MAX 10000u /* 10 s: a flow that waits for the disk on our thread does not end */

static struct rp_a32 is_held, was_waited_for;

/* A reader that ends waits for its reads, of which one lasts as long as is_held. */
static void close_late(void *self)
{
    uint32_t tries = 0;
    while (rp_a32_load_relaxed(&is_held) && tries++ < TRIES_MAX)
        poll(NULL, 0, 1);
    if (rp_a32_load_relaxed(&is_held))
        rp_a32_store_relaxed(&was_waited_for, 1);
    rp_io_method_pread.close(self);
}

static void catch_up(struct stream *s, struct rp_plan *plan)
{
    struct rp_error error;
    fall_behind(s, 0, plan);
    while (rp_flow_is_catching_up(s->flow, 0))
        assert_true(stream_turn(s, &error) >= 0);
}

/* A ring has caught up, and a read of its catch-up flow lasts: the flow serves both rings, and the
 * ring may fall behind again. When the read is done, the plan is free. */
static void a_ring_that_has_caught_up_waits_for_no_read(void **state)
{
    (void)state;
    struct stream s;
    struct kit epochs;
    struct rp_error error;
    struct rp_io_method slow = rp_io_method_pread;
    slow.close = close_late;
    (void)run_to(&s, &epochs, STATES);
    struct rp_plan *plans[2] = {kit_plan(&epochs), kit_plan(&epochs)};
    rp_a32_store_relaxed(&is_held, 1);
    catch_up_method = &slow;
    catch_up(&s, plans[0]);
    catch_up_method = NULL;
    assert_true(rp_flow_uses_plan(s.flow, plans[0]));
    catch_up(&s, plans[1]);
    assert_true(stream_run(&s, 30, &error) >= 0);
    bool is_in_use = rp_flow_uses_plan(s.flow, plans[0]);
    rp_a32_store_relaxed(&is_held, 0);
    while (rp_flow_uses_plan(s.flow, plans[0]) || rp_flow_uses_plan(s.flow, plans[1]))
        assert_true(stream_turn(&s, &error) >= 0);
    run_to_end(&s);
    check_all_came(&s);
    stream_close(&s);
    rp_plan_close(plans[0]);
    rp_plan_close(plans[1]);
    kit_close(&epochs);
    assert_true(is_in_use);
    assert_false(rp_a32_load_relaxed(&was_waited_for));
}

/* Pages in the page cache are not read past it for a ring that is behind, also where the flow
 * would read past it if it read. */
static void a_ring_behind_is_read_from_the_page_cache(void **state)
{
    (void)state;
    struct stream s;
    struct rp_error error;
    struct rp_flow_options options = two_rings();
    options.mapped = options.o_direct = true;
    stream_open(&s, &kit, &options, RP_DTYPE_I32, 0, 1);
    stream_start(&s);
    struct rp_plan *plan = kit_plan(&kit);
    assert_true(stream_run(&s, 30, &error) >= 0);
    fall_behind(&s, 0, plan);
    bool of_main = s.flow->options.o_direct; /* /tmp may have no O_DIRECT to count */
    bool of_catch_up = s.flow->catch_up[0]->options.o_direct;
    run_to_end(&s);
    check_all_came(&s);
    stream_close(&s);
    rp_plan_close(plan);
    assert_true(of_main); /* here: a test that fails leaves its stack to threads that run */
    assert_false(of_catch_up);
}

/* Files of a lagging ring stay open if the limit of descriptors has room for them and the main
 * flow's own; if not, the main flow keeps the ones that it counts on. */
static void a_ring_behind_leaves_the_flow_its_descriptors(void **state)
{
    (void)state;
    struct rlimit before;
    struct rp_error error;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    if (before.rlim_max < 1712)
        skip();
    const struct rlimit limit = {.rlim_cur = 1712, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    for (uint32_t others = 100; others <= 300; others += 200) {
        struct stream s;
        struct rp_flow *made;
        struct rp_flow_options options = two_rings();
        options.other_descriptors = others;
        stream_open(&s, &kit, &options, RP_DTYPE_I32, 0, 1);
        if (rp_flow_make_catch_up(&made, s.flow, 1, &error) != 0)
            fail_msg("%s", error.message);
        assert_int_equal(made->options.descriptors_max, others == 100 ? 256 : RP_DESCRIPTORS_MIN);
        rp_flow_close(made);
        stream_close(&s);
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/* No ring can be made any more while the flow runs, as when the user's memory to lock is used up:
 * the flow continues, and the lagging ring is read with pread. This denies io_uring to the rest of
 * this process. */
static void readers_give_way_while_the_flow_runs(void **state)
{
    (void)state;
    struct stream s;
    struct rp_error error;
    struct rp_flow_options options = two_rings();
    options.method = &rp_io_method_uring;
    options.may_fall_back = true;
    stream_open(&s, &kit, &options, RP_DTYPE_I32, 0, 1);
    stream_start(&s);
    struct rp_flow_readers before = rp_flow_readers(s.flow); /* refused: by the machine itself */
    assert_int_equal(before.count, 1);
    assert_true(stream_run(&s, 30, &error) >= 0);
    const char *wrong = deny_io_uring(ENOMEM);
    if (wrong && before.refused == 0)
        fail_msg("%s", wrong);
    struct rp_plan *plan = kit_plan(&kit);
    fall_behind(&s, 0, plan);
    struct rp_flow_readers readers = rp_flow_readers(s.flow);
    assert_int_equal(readers.count, 2);
    assert_int_equal(readers.refused, before.refused + 1);
    assert_true(readers.why->code < 0 && readers.why->hint[0]);
    assert_non_null(strstr(readers.why->message, "io_uring cannot be used"));
    run_to_end(&s);
    check_all_came(&s);
    assert_int_equal(rp_flow_readers(s.flow).refused, before.refused); /* it has caught up */
    stream_close(&s);
    rp_plan_close(plan);
}

/* Deliver until the oldest ticket is at this stage: else the test ends by its limit of time. */
static void wait_for_stage(struct stream *s, enum rp_oldest_stage stage, uint32_t full_ring)
{
    struct rp_oldest_ticket oldest;
    struct rp_error error;
    do {
        assert_true(rp_flow_deliver(s->flow, &error) >= 0);
        oldest = rp_flow_oldest_ticket(s->flow, 0);
    } while (oldest.stage != stage || oldest.full_ring != full_ring);
}

/* First trainers keep the room of the oldest ticket, then a save. */
static void the_oldest_ticket_waits_for_who_keeps_its_room(void **state)
{
    (void)state;
    struct stream s;
    struct rp_flow_options options = two_rings();
    stream_open(&s, &kit, &options, RP_DTYPE_I32, 0, 1);
    assert_int_equal(rp_flow_oldest_ticket(s.flow, 0).stage, RP_OLDEST_NONE);
    stream_start(&s);
    for (uint32_t r = 0; r < 2; r++) {
        wait_for_stage(&s, RP_OLDEST_READ_FULL, r);
        if (r == 1) { /* a save that begins is not blamed before the trainer has released */
            rp_flow_hold(s.flow, s.rings[r].release);
            assert_int_equal(rp_flow_oldest_ticket(s.flow, 0).stage, RP_OLDEST_READ_FULL);
        }
        trainer_takes(&s, r);
        rp_ring_view_release(&s.views[r], s.views[r].next);
    }
    wait_for_stage(&s, RP_OLDEST_READ_HELD, 0);
    rp_flow_release_hold(s.flow);
    run_to_end(&s);
    check_all_came(&s);
    assert_int_equal(rp_flow_oldest_ticket(s.flow, 0).stage, RP_OLDEST_NONE);
    stream_close(&s);
}

static int enter(void **state)
{
    int code = kit_enter(state);
    struct rp_plan_config config = small_plan();
    kit_open(&kit, two_sources, 2, &config);
    return code;
}

static int leave(void **state)
{
    kit_close(&kit);
    return scratch_leave(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_waits_for_a_skipped_seat),
        cmocka_unit_test(a_ring_is_replaced_while_the_flow_runs),
        cmocka_unit_test(rings_behind_are_served_while_the_engine_sleeps),
        cmocka_unit_test(a_state_whose_slot_may_be_taken_is_not_read),
        cmocka_unit_test(a_state_that_dispatch_comes_to_is_not_read),
        cmocka_unit_test(a_ring_that_has_caught_up_waits_for_no_read),
        cmocka_unit_test(a_ring_behind_is_read_from_the_page_cache),
        cmocka_unit_test(a_ring_behind_leaves_the_flow_its_descriptors),
        cmocka_unit_test(a_catch_up_flow_takes_the_memory_of_its_forecast),
        cmocka_unit_test(the_oldest_ticket_waits_for_who_keeps_its_room),
        cmocka_unit_test(readers_give_way_while_the_flow_runs), /* the last one: see there */
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
