/* SPDX-License-Identifier: Apache-2.0 */
/* Every allocation of writing a token of version 2, of continuing from one and of its listings
 * fails: refused with a message, and nothing is left. */
#include "system_faults.h"

#include "v2_token_kit.h"

#include "plan/v2/unseen.h"

static struct kit_stream kit;
static uint8_t token[KIT_TOKEN_BYTES], again[KIT_TOKEN_BYTES];
static size_t token_bytes;
static struct rp_stream_resume with;

static int resume_and_write(struct rp_error *error_out)
{
    struct kit_run run;
    size_t bytes = 0;
    int code = rp_planner_token_resume(&run.calendar, &run.plan, &kit.spec, token, token_bytes,
                                       &with, error_out);
    if (code < 0)
        return code;
    code = rp_planner_token_write(run.plan, again, &bytes, error_out);
    if (code == 0) {
        assert_int_equal(bytes, token_bytes);
        assert_memory_equal(again, token, bytes);
    }
    kit_close(&run);
    return code;
}

static int list(struct rp_error *error_out)
{
    struct rp_planner_token_info info;
    struct rp_planner_token_source source;
    int code = rp_planner_token_info(token, token_bytes, &info, error_out);
    return code < 0 ? code : rp_planner_token_source(token, token_bytes, 1, &source, error_out);
}

static int find_unseen(struct rp_error *error_out)
{
    struct rp_unseen *unseen;
    const struct rp_unseen_source source = {kit_names[0], 0, &kit.sources[0].view,
                                            kit.sources[0].documents};
    int code = rp_unseen_open(&unseen, token, token_bytes, &source, error_out);
    if (code == 0)
        rp_unseen_close(unseen);
    return code;
}

/* The token of the first row from 11 on that no deal window has begun before. */
static void take_token_between_windows(void)
{
    struct rp_planner_token_info info = {.position = {.next_row = 1}};
    struct rp_error error;
    for (uint64_t row = 11; info.position.next_row != info.position.window_first; row++) {
        token_bytes = kit_token_at(&kit.spec, row, token);
        assert_int_equal(rp_planner_token_info(token, token_bytes, &info, &error), 0);
    }
}

static void test_tokens(void **state)
{
    (void)state;
    static const uint32_t weights[KIT_SOURCES] = {1, 1, 0};
    for (uint32_t variant = 2; variant < KIT_VARIANTS; variant += 17) {
        kit_make(&kit, variant);
        token_bytes = kit_token_at(&kit.spec, 11, token);
        with = (struct rp_stream_resume){.grow = true};
        every_allocation(resume_and_write, false);
        every_allocation(resume_and_write, true);
        every_allocation(list, false);
        take_token_between_windows();
        every_allocation(find_unseen, false);
        token_bytes = kit_token_at(&kit.spec, 11, token);
        kit.sources[0].documents = kit.contexts[0].documents = 50; /* a record, and weights */
        with.weights = weights;
        every_allocation(resume_and_write, false);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens),
    };
    return run_with_faults("v2_token_memory", tests, NULL, NULL);
}
