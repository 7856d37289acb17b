/* SPDX-License-Identifier: Apache-2.0 */
/* A flow whose rings differ while it runs: one has nobody who takes its batches. */
#include "flow_kit.h"

static struct kit kit;

/* A seat that is skipped needs nothing but delivery to let the others go on. */
static void nobody_waits_for_a_skipped_seat(void **state)
{
    (void)state;
    for (uint32_t slots = 2; slots <= 8; slots *= 2) {
        struct stream s;
        struct rp_error error;
        struct rp_flow_options options = small_flow(&rp_io_method_pread);
        options.batch_slots = slots;
        options.world = options.rank_count = 2;
        options.global_batch_rows = 2;
        options.rows = 1;
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
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
