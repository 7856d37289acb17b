/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of steps (flow/steps.h): known before the step, wherever a flow begins, or said to be
 * unknown. flow_kit.h compares those that are known with the rows of all ranks. */
#include "flow_kit.h"

#include "flow/steps.h"

static struct kit kit;

/* This node has the second half of the ranks. */
static struct rp_flow_options half_of_four_ranks(void)
{
    struct rp_flow_options options = small_flow(&rp_io_method_pread);
    options.world = 4;
    options.rank_first = options.rank_count = 2;
    options.rows = 1;
    options.global_batch_rows = 12;
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
        options.steps = i ? rp_steps_make() : NULL;
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
        rp_steps_free((struct rp_steps *)options.steps);
    }
}

/* A scout before the step counts it, and sums that are forgotten are counted again. */
static void a_scout_before_the_step_counts_it(void **state)
{
    (void)state;
    struct stream s;
    struct rp_error error;
    struct rp_flow_options options = half_of_four_ranks();
    options.steps = rp_steps_make();
    stream_open(&s, &kit, &options, RP_DTYPE_I32, 0, 7);
    stream_start(&s);
    while (stream_lowest_tail(&s) < 4)
        assert_true(stream_turn(&s, &error) >= 0);
    rp_flow_stop(s.flow);
    rp_steps_forget_from(options.steps, 0);
    for (uint32_t r = 0; r < 2; r++)
        trainer_takes(&s, r);
    uint64_t batch = stream_lowest_tail(&s), row = batch * 4;
    const struct kit_row *at = &kit.rows[row], *zero = &kit.rows[0];
    assert_int_equal(rp_plan_load(s.plan, at->state, at->state_bytes, false, &error), 0);
    assert_int_equal(rp_plan_load(s.scout, zero->state, zero->state_bytes, false, &error), 0);
    assert_int_equal(rp_flow_start(s.flow, s.plan, s.scout, 0, batch, s.rings, &error), 0);
    run_to_end(&s);
    check_all_came(&s);
    assert_int_equal(s.steps_unknown, 0);
    stream_close(&s);
    rp_steps_free(options.steps);
}

static uint64_t length_of_all_but_one(const void *source, uint64_t document)
{
    return document == 40 ? RP_LENGTH_BAD : kit_length(source, document);
}

/* The plan meets a damaged entry in its place. The scout meets it first: its step is not known. */
static void a_step_that_cannot_be_planned_has_no_sums(void **state)
{
    (void)state;
    struct stream s;
    struct rp_error error;
    struct rp_flow_options options = half_of_four_ranks();
    struct kit damaged = kit;
    damaged.plan_sources[0].length = length_of_all_but_one;
    stream_open(&s, &kit, &options, RP_DTYPE_I32, 0, 7);
    rp_plan_close(s.scout);
    s.scout = kit_plan(&damaged);
    stream_start(&s);
    assert_true(stream_run(&s, 4, &error) >= 0);
    assert_int_equal(s.steps_unknown, 0);
    run_to_end(&s);
    check_all_came(&s);
    assert_true(s.steps_unknown > 0 && s.steps_unknown < s.batches);
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
        cmocka_unit_test(all_ranks_are_counted),
        cmocka_unit_test(a_flow_begins_inside_a_step),
        cmocka_unit_test(a_scout_before_the_step_counts_it),
        cmocka_unit_test(a_step_that_cannot_be_planned_has_no_sums),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
