/* SPDX-License-Identifier: Apache-2.0 */
/* Every allocation of a plan of version 2 fails: refused with a message, and nothing leaks. */
#include "system_faults.h"

#include "stream_kit.h"

static const uint64_t lengths[] = {50, 4, 20, 6, 30, 5, 3, 8, 1, 2, 3, 4, 5, 6, 7, 8};
static const uint32_t weights[] = {2, 1};

/* A stage of deal windows, then one of best_fit. */
static void make(struct stream *stream)
{
    stream_begin(stream, 8);
    stream_add(stream, "a", lengths, RP_ARRAY_COUNT(lengths));
    stream_add(stream, "b", lengths, RP_ARRAY_COUNT(lengths));
    stream->stages[0].weights = weights;
    stream->stages[0].deal = (struct rp_deal){
        .window = 4, .step = 2, .tier = 2, .bundle = 1, .cost.k = 4, .cost.b = 1};
    stream->stages[1] = (struct rp_stage_spec){
        .from = 10, .sets = RP_SETS_PACKING | RP_SETS_DEAL, .packing = RP_PACKING_BEST_FIT};
    stream->spec.stage_count = 2;
}

static int plan_rows(struct stream *stream, uint64_t rows, struct rp_error *error)
{
    struct rp_stream_row row;
    int planned = 1;
    while (planned > 0 && rp_planner_row(stream->plan) < rows)
        planned = rp_planner_next(stream->plan, &row, error);
    return planned < 0 ? planned : 0;
}

static int plan_all(struct rp_error *error)
{
    struct stream stream;
    make(&stream);
    int code = stream_try_open(&stream, error);
    if (code == 0)
        code = plan_rows(&stream, 1000, error);
    stream_close(&stream);
    return code;
}

/* In the middle of a deal window. */
static int continue_from_snapshot(struct rp_error *error)
{
    struct stream stream;
    struct rp_snapshot snapshot = {0};
    make(&stream);
    int code = stream_try_open(&stream, error);
    if (code == 0)
        code = plan_rows(&stream, 6, error);
    if (code == 0)
        code = rp_planner_snapshot(stream.plan, &snapshot, error);
    if (code == 0) {
        struct rp_stream_position position = rp_planner_position(stream.plan);
        struct rp_limits limits[2] = {{.max_epochs = 1}, {.max_epochs = 1}};
        assert_int_equal(position.window_first, 4);
        code = rp_planner_restore(stream.plan, &snapshot, &position, limits, 2, error);
    }
    if (code == 0)
        code = plan_rows(&stream, 1000, error);
    rp_snapshot_free(&snapshot);
    stream_close(&stream);
    return code;
}

static void test_plans(void **state)
{
    (void)state;
    every_allocation(plan_all, false);
    every_allocation(plan_all, true);
    every_allocation(continue_from_snapshot, false);
    every_allocation(continue_from_snapshot, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
