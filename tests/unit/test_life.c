/* SPDX-License-Identifier: Apache-2.0 */
/* The states of an engine: each pair of a state and an event does what the table in life.h says,
 * which is read from that file, and what cannot happen ends the process. */
#include "state_table.h"

#include "server/life.h"

static const char *const events[RP_LIFE_EVENTS] = {[RP_LIFE_SERVE] = "SERVE",
                                                   [RP_LIFE_FAIL] = "FAIL",
                                                   [RP_LIFE_STOP] = "STOP",
                                                   [RP_LIFE_END] = "END"};
static const char *const states[RP_LIFE_STATES + 1] = {"starting", "run",  "failed", "stop",
                                                       "stop-f",   "done", "done-f", "-"};
static const struct state_table life_table = {.path = "engine/server/life.h",
                                              .events = events,
                                              .event_count = RP_LIFE_EVENTS,
                                              .states = states,
                                              .state_count = RP_LIFE_STATES};

static struct rp_engine_life life_in(unsigned state)
{
    struct rp_engine_life life = {.life_state = (enum rp_life_state)state};
    life.code = rp_life_has_failed(&life) ? -1 : 0;
    return life;
}

static void happen(unsigned state, unsigned event)
{
    struct rp_engine_life life = life_in(state);
    if (event == RP_LIFE_FAIL)
        rp_life_fail(&life, -2);
    else
        rp_life_transition(&life, (enum rp_life_event)event);
}

/* The first pair of which the code and the table differ: event * RP_LIFE_STATES + state; -1: none.
 */
static int first_difference(uint8_t next[][TABLE_STATES_MAX])
{
    for (unsigned e = 0; e < RP_LIFE_EVENTS; e++)
        for (unsigned s = 0; s < RP_LIFE_STATES; s++)
            if (rp_life_next_state((enum rp_life_state)s, (enum rp_life_event)e) != next[e][s])
                return (int)(e * RP_LIFE_STATES + s);
    return -1;
}

static void every_pair_is_as_the_table_says(void **state)
{
    (void)state;
    uint8_t next[RP_LIFE_EVENTS][TABLE_STATES_MAX];
    read_state_table(&life_table, next);
    int found = first_difference(next);
    if (found >= 0)
        fail_msg("%s in state `%s`: the table says otherwise", events[found / RP_LIFE_STATES],
                 states[found % RP_LIFE_STATES]);
    for (unsigned e = 0; e < RP_LIFE_EVENTS; e++)
        for (unsigned s = 0; s < RP_LIFE_STATES; s++)
            assert_int_equal(signal_of_act(happen, s, e),
                             next[e][s] == RP_LIFE_STATES ? SIGABRT : 0);
}

/* The control: each other word in each place of the table is noticed. */
static void a_wrong_table_is_noticed(void **state)
{
    (void)state;
    uint8_t next[RP_LIFE_EVENTS][TABLE_STATES_MAX];
    read_state_table(&life_table, next);
    for (unsigned e = 0; e < RP_LIFE_EVENTS; e++)
        for (unsigned s = 0; s < RP_LIFE_STATES; s++) {
            uint8_t right = next[e][s];
            for (unsigned wrong = 0; wrong <= RP_LIFE_STATES; wrong++) {
                next[e][s] = (uint8_t)wrong;
                assert_int_equal(first_difference(next),
                                 wrong == right ? -1 : (int)(e * RP_LIFE_STATES + s));
            }
            next[e][s] = right;
        }
}

/* What follows from the table, whatever it says in detail. */
static void the_table_makes_sense(void **state)
{
    (void)state;
    uint8_t next[RP_LIFE_EVENTS][TABLE_STATES_MAX];
    read_state_table(&life_table, next);
    for (unsigned e = 0; e < RP_LIFE_EVENTS; e++)
        for (unsigned s = 0; s < RP_LIFE_STATES; s++) {
            if (next[e][s] == RP_LIFE_STATES)
                continue;
            struct rp_engine_life was = life_in(s), is = life_in(next[e][s]);
            /* an engine that has failed stays so, and only FAIL makes it fail */
            assert_int_equal(rp_life_has_failed(&is),
                             rp_life_has_failed(&was) || e == RP_LIFE_FAIL);
            /* an ending engine stays one, and only SERVE makes one run */
            assert_true(!rp_life_is_ending(&was) || rp_life_is_ending(&is));
            assert_true(!rp_life_is_running(&is) || e == RP_LIFE_SERVE);
            /* nothing happens after the end */
            assert_false(rp_life_is_done(&was));
        }
}

/* A failed state has a code, and no other state has one. */
static void states_and_codes_agree(void **state)
{
    (void)state;
    for (unsigned s = 0; s < RP_LIFE_STATES; s++)
        for (unsigned e = 0; e < RP_LIFE_EVENTS; e++) {
            struct rp_engine_life life = life_in(s);
            if (rp_life_next_state(life.life_state, (enum rp_life_event)e) == RP_LIFE_STATES)
                continue;
            if (e == RP_LIFE_FAIL)
                rp_life_fail(&life, -2);
            else
                rp_life_transition(&life, (enum rp_life_event)e);
            assert_int_equal(life.code, e == RP_LIFE_FAIL ? -2 : life_in(s).code);
            assert_int_equal(life.life_state,
                             rp_life_next_state((enum rp_life_state)s, (enum rp_life_event)e));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_is_as_the_table_says),
        cmocka_unit_test(a_wrong_table_is_noticed),
        cmocka_unit_test(the_table_makes_sense),
        cmocka_unit_test(states_and_codes_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
