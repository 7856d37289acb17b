/* SPDX-License-Identifier: Apache-2.0 */
/* The cause of a wait, for each stage of the oldest ticket: the table in cause.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/bits.h"
#include "server/cause.h"

static void each_stage_has_its_cause(void **state)
{
    static const enum rp_cause expected[] = {
        [RP_OLDEST_NONE] = RP_CAUSE_ENGINE,         [RP_OLDEST_UNPLANNED] = RP_CAUSE_PLAN,
        [RP_OLDEST_UNPLANNED_HELD] = RP_CAUSE_SAVE, [RP_OLDEST_AT_FILE] = RP_CAUSE_DISK,
        [RP_OLDEST_AT_SERVER] = RP_CAUSE_NETWORK,   [RP_OLDEST_READ] = RP_CAUSE_PACK,
        [RP_OLDEST_READ_HELD] = RP_CAUSE_SAVE,      [RP_OLDEST_READ_FULL] = RP_CAUSE_TRAINER,
        [RP_OLDEST_PACKED] = RP_CAUSE_PACK,
    };
    (void)state;
    assert_int_equal(RP_ARRAY_COUNT(expected), RP_OLDEST_STAGES);
    for (enum rp_oldest_stage stage = 0; stage < RP_OLDEST_STAGES; stage++) {
        assert_string_equal(rp_cause_name(rp_decide_cause(true, stage)),
                            rp_cause_name(expected[stage]));
        assert_int_equal(rp_decide_cause(false, stage), RP_CAUSE_NONE);
    }
}

static void each_cause_has_a_name_of_its_own(void **state)
{
    (void)state;
    for (enum rp_cause a = 0; a < RP_CAUSES; a++)
        for (enum rp_cause b = 0; b < a; b++)
            assert_string_not_equal(rp_cause_name(a), rp_cause_name(b));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_stage_has_its_cause),
        cmocka_unit_test(each_cause_has_a_name_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
