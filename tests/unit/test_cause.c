/* SPDX-License-Identifier: Apache-2.0 */
/* The cause of a wait, for each place where the oldest ticket can be: the table in cause.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/bits.h"
#include "server/cause.h"

enum { NOT_PLANNED, PLANNED, READ, PACKED };

struct place {
    int stage;
    bool is_remote, is_full, is_held;
};

static struct rp_oldest_ticket at(struct place place)
{
    return (struct rp_oldest_ticket){
        .is_running = true,
        .is_planned = place.stage >= PLANNED,
        .is_read = place.stage >= READ,
        .is_packed = place.stage >= PACKED,
        .is_remote = place.is_remote,
        .full_ring = place.is_full ? 1 : RP_NO_RING,
        .is_held_by_save = place.is_held,
    };
}

static enum rp_cause cause_at(struct place place)
{
    return rp_decide_cause(&(struct rp_wait_snapshot){.waits = true, .oldest = at(place)});
}

static void each_place_has_its_cause(void **state)
{
    static const struct {
        struct place place;
        enum rp_cause cause;
    } rows[] = {
        {{NOT_PLANNED, false, false, false}, RP_CAUSE_PLAN},
        {{NOT_PLANNED, false, false, true}, RP_CAUSE_SAVE},
        {{PLANNED, false, false, false}, RP_CAUSE_DISK},
        {{PLANNED, true, false, false}, RP_CAUSE_NETWORK},
        {{READ, false, false, false}, RP_CAUSE_PACK},
        {{READ, false, true, false}, RP_CAUSE_TRAINER},
        {{READ, false, true, true}, RP_CAUSE_TRAINER},
        {{READ, false, false, true}, RP_CAUSE_SAVE},
        {{PACKED, false, false, false}, RP_CAUSE_PACK},
        {{PACKED, false, false, true}, RP_CAUSE_PACK},
    };
    (void)state;
    for (size_t i = 0; i < RP_ARRAY_COUNT(rows); i++)
        assert_string_equal(rp_cause_name(cause_at(rows[i].place)), rp_cause_name(rows[i].cause));
}

static void without_a_wait_or_a_flow_no_stage_is_blamed(void **state)
{
    (void)state;
    for (int stage = NOT_PLANNED; stage <= PACKED; stage++)
        for (int bits = 0; bits < 8; bits++) {
            struct place place = {stage, bits & 1, bits & 2, bits & 4};
            struct rp_wait_snapshot snapshot = {.waits = false, .oldest = at(place)};
            assert_int_equal(rp_decide_cause(&snapshot), RP_CAUSE_NONE);
        }
    struct rp_wait_snapshot stopped = {.waits = true, .oldest.full_ring = RP_NO_RING};
    assert_int_equal(rp_decide_cause(&stopped), RP_CAUSE_ENGINE);
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
        cmocka_unit_test(each_place_has_its_cause),
        cmocka_unit_test(without_a_wait_or_a_flow_no_stage_is_blamed),
        cmocka_unit_test(each_cause_has_a_name_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
