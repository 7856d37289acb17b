/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of steps (flow/queue.h) and their sums: known before the step, wherever a flow begins, or
 * said to be unknown. flow_kit.h compares those that are known with the rows of all ranks. */
#include "flow_kit.h"

#include "flow/sums.h"

static struct kit kit;

/* This node has the second half of the ranks. */
static struct rp_flow_options half_of_four_ranks(void)
{
    struct rp_flow_options options = small_flow(&rp_io_method_pread);
    options.dp_world_size = 4;
    options.rank_first = options.rank_count = 2;
    options.batch_size = 1;
    options.step_batches = 3;
    return options;
}

static void all_ranks_are_counted(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        struct stream s;
        struct rp_flow_options options = half_of_four_ranks();
        options.drop_last = i % 2;
        stream_open(&s, &kit, &options, RP_DTYPE_I32, i, i);
        stream_start(&s);
        run_to_end(&s);
        check_all_came(&s);
        assert_int_equal(s.steps_unknown, 0);
        stream_close(&s);
    }
}

/* Stop inside the second step, and start there: with kept sums, and without. */
static void a_flow_begins_inside_a_step(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct stream s;
        struct rp_error error;
        struct rp_flow_options options = half_of_four_ranks();
        options.batch_slots = 2;
        options.steps = i ? rp_sums_make() : NULL;
        stream_open(&s, &kit, &options, RP_DTYPE_I32, 0, 7);
        stream_start(&s);
        while (s.rings[0].tail < 4)
            assert_true(stream_turn(&s, &error) >= 0);
        rp_flow_stop(s.flow);
        uint64_t begin = stream_lowest_tail(&s), inside = begin % 3;
        if (inside == 0) { /* a ring of two slots was ahead: the next one is inside */
            stream_start(&s);
            while (stream_lowest_tail(&s) == begin)
                assert_true(stream_turn(&s, &error) >= 0);
            rp_flow_stop(s.flow);
            begin = stream_lowest_tail(&s), inside = begin % 3;
        }
        for (uint32_t r = 0; r < 2; r++) /* those that are published were counted before */
            trainer_takes(&s, r);
        assert_int_equal(s.steps_unknown, 0);
        stream_start(&s);
        run_to_end(&s);
        check_all_came(&s);
        bool is_lost = !options.steps && inside > 0;
        assert_true(is_lost ? s.steps_unknown > 0 && s.steps_unknown <= 2 * (3 - inside)
                            : s.steps_unknown == 0);
        stream_close(&s);
        rp_sums_free(options.steps);
    }
}

/* A queue that is full after one micro-batch changes no row, sum or state. */
static void a_step_larger_than_its_queue(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 8; i++) {
        struct stream s;
        struct rp_error error;
        struct rp_flow_options options = half_of_four_ranks();
        options.step_batches = 5;
        options.step_bytes = i & 1 ? 1 : 2500; /* one or two micro-batches */
        options.drop_last = i & 2;
        stream_open(&s, &kit, &options, RP_DTYPE_I32, i, i);
        stream_start(&s);
        if (i & 4) { /* and from the middle of a step */
            assert_true(stream_run(&s, 14, &error) >= 0);
            rp_flow_stop(s.flow);
            stream_start(&s);
        }
        run_to_end(&s);
        check_all_came(&s);
        assert_true(i & 4 || s.steps_unknown == 0);
        stream_close(&s);
    }
}

/* With a state before the step it is counted, also if its sums were forgotten. */
static void a_state_before_the_step_counts_it(void **state)
{
    (void)state;
    struct stream s;
    struct rp_error error;
    struct rp_flow_options options = half_of_four_ranks();
    options.steps = rp_sums_make();
    stream_open(&s, &kit, &options, RP_DTYPE_I32, 0, 7);
    stream_start(&s);
    while (stream_lowest_tail(&s) < 4)
        assert_true(stream_turn(&s, &error) >= 0);
    rp_flow_stop(s.flow);
    rp_sums_forget_from(options.steps, 0);
    for (uint32_t r = 0; r < 2; r++)
        trainer_takes(&s, r);
    uint64_t batch = stream_lowest_tail(&s), row = batch * 4;
    const struct kit_row *at = &kit.rows[row], *zero = &kit.rows[0];
    assert_int_equal(rp_plan_load(s.plan, at->state, at->state_bytes, false, &error), 0);
    const struct rp_row_state before = {zero->state, zero->state_bytes, 0};
    const struct rp_flow_begin begin = {batch, s.plan, &s.numbering, s.rings, &before};
    assert_int_equal(rp_flow_start(s.flow, &begin, &error), 0);
    run_to_end(&s);
    check_all_came(&s);
    assert_int_equal(s.steps_unknown, 0);
    stream_close(&s);
    rp_sums_free(options.steps);
}

static uint64_t length_of_all_but_one(const void *source, uint64_t document)
{
    return document == 40 ? RP_LENGTH_BAD : kit_length(source, document);
}

/* A damaged entry ends the stream at its row. Its step has no sums, and all steps before it do. */
static void a_step_that_cannot_be_planned_has_no_sums(void **state)
{
    (void)state;
    uint64_t batches[2];
    for (uint32_t i = 0; i < 2; i++) {
        struct stream s;
        struct rp_error error;
        struct rp_flow_options options = half_of_four_ranks();
        struct kit damaged = kit;
        options.step_bytes = i; /* i = 1: found while the rest of the step is counted */
        damaged.plan_sources[0].length = length_of_all_but_one;
        stream_open(&s, &kit, &options, RP_DTYPE_I32, 0, 7);
        rp_plan_close(s.plan);
        s.plan = kit_plan(&damaged);
        stream_start(&s);
        assert_true(stream_run(&s, 6, &error) >= 0);
        assert_int_equal(s.steps_unknown, 0);
        assert_int_equal(stream_run(&s, UINT64_MAX, &error), -RP_E_CORRUPT);
        assert_true(strstr(error.message, "document 40") != NULL);
        for (uint32_t r = 0; r < 2; r++)
            trainer_takes(&s, r);
        assert_int_equal(s.steps_unknown, s.batches % 6);
        batches[i] = s.batches;
        stream_close(&s);
    }
    assert_int_equal(batches[0], batches[1]);
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
        cmocka_unit_test(all_ranks_are_counted),
        cmocka_unit_test(a_flow_begins_inside_a_step),
        cmocka_unit_test(a_step_larger_than_its_queue),
        cmocka_unit_test(a_state_before_the_step_counts_it),
        cmocka_unit_test(a_step_that_cannot_be_planned_has_no_sums),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
