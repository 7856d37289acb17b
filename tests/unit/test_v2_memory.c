/* SPDX-License-Identifier: Apache-2.0 */
/* Every allocation of a plan of version 2 fails: refused with a message, and the plan is as it was.
 */
#include "system_faults.h"

#include "v2_kit.h"

static struct stream stream, grown;
static uint8_t token[TOKEN_BYTES];
static size_t token_bytes;

static int plan_some_rows(struct rp_error *error)
{
    struct rp_plan *plan;
    struct rp_row row;
    int code = rp_plan_open_stream(&plan, &stream.spec, error);
    if (code < 0)
        return code;
    for (uint64_t i = 0; code == 0 && i < 60; i++) {
        int planned = rp_plan_next(plan, &row, error);
        code = planned < 0 ? planned : 0;
    }
    rp_plan_close(plan);
    return code;
}

/* Start with a record, and go to the same row in another plan. */
static int start_and_follow(struct rp_error *error)
{
    static uint8_t again[TOKEN_BYTES];
    struct rp_plan *plan = NULL, *other = NULL;
    const struct rp_plan_start start = {.grow = true};
    size_t bytes;
    int code = rp_plan_open_stream(&plan, &grown.spec, error);
    if (code == 0)
        code = rp_plan_open_stream(&other, &grown.spec, error);
    if (code == 0)
        code = rp_plan_start(plan, token, token_bytes, &start, error);
    if (plan)
        assert_int_equal(rp_plan_row(plan), code == 0 ? 17 : 0);
    if (code == 0)
        code = rp_plan_follow(other, plan, error);
    if (code == 0)
        code = rp_plan_try_save(plan, again, &bytes, error);
    if (code == 0)
        code = rp_plan_load(other, again, bytes, false, error);
    if (other)
        assert_int_equal(rp_plan_row(other), code == 0 ? 17 : 0);
    rp_plan_close(plan);
    rp_plan_close(other);
    return code;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    for (int dealt = 0; dealt < 2; dealt++) {
        struct rp_error error = {0};
        make(&stream, RP_SHUFFLE_BLOCK, 60);
        make(&grown, RP_SHUFFLE_BLOCK, 70);
        if (dealt) {
            deal(&stream);
            deal(&grown);
        }
        every_allocation(plan_some_rows, false);
        every_allocation(plan_some_rows, true);
        struct rp_plan *plan = open_stream(&stream);
        check(rp_plan_seek(plan, 17, &error), &error);
        token_bytes = save(plan, token);
        rp_plan_close(plan);
        every_allocation(start_and_follow, false);
        every_allocation(start_and_follow, true);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_fail),
    };
    return run_with_faults("v2_memory", tests, NULL, NULL);
}
