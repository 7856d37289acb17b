/* SPDX-License-Identifier: Apache-2.0 */
/* Every allocation of a plan and of taking a token fails: refused with a message, and the plan is
 * as it was. */
#include "system_faults.h"

#include "plan_corpus.h"

static struct corpus corpus;
static struct rp_plan_config meant;
static uint8_t token[1 << 16];
static size_t token_bytes;

static int plan_some_rows(struct rp_error *error_out)
{
    struct rp_plan *plan;
    struct rp_row row;
    int code = rp_plan_open(&plan, &meant, corpus.sources, corpus.source_count, error_out);
    if (code < 0)
        return code;
    for (uint64_t i = 0; code == 0 && i < 30; i++) {
        int planned = rp_plan_next(plan, &row, error_out);
        code = planned < 0 ? planned : 0;
        if (planned > 0)
            assert_int_equal(row.row, i);
    }
    rp_plan_close(plan);
    return code;
}

static int resume(struct rp_error *error_out)
{
    static uint8_t again[sizeof token];
    struct rp_plan *plan;
    int code = rp_plan_open(&plan, &meant, corpus.sources, corpus.source_count, error_out);
    if (code < 0)
        return code;
    code = rp_plan_load(plan, token, token_bytes, false, error_out);
    assert_int_equal(rp_plan_row(plan), code == 0 ? 17 : 0); /* there, or where it was */
    if (code == 0) {
        assert_int_equal(rp_plan_save(plan, again), token_bytes);
        assert_memory_equal(again, token, token_bytes);
    }
    rp_plan_close(plan);
    return code;
}

static void test_plans(void **state)
{
    (void)state;
    uint64_t draws = 7;
    corpus_make(&corpus, 3, 100, 61, &draws);
    for (uint32_t number = 0; number < PLAN_VARIANTS; number += 11) {
        meant = plan_variant(number);
        every_allocation(plan_some_rows, false);
        every_allocation(plan_some_rows, true);
        struct rp_error failure;
        struct rp_plan *plan = plan_open(&meant, &corpus);
        assert_int_equal(rp_plan_seek(plan, 17, &failure), 0);
        assert_true(rp_plan_state_bytes_max(plan) <= sizeof token);
        token_bytes = rp_plan_save(plan, token);
        rp_plan_close(plan);
        every_allocation(resume, false);
        every_allocation(resume, true);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans),
    };
    return run_with_faults("plan_memory", tests, NULL, NULL);
}
