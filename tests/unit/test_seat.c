/* SPDX-License-Identifier: Apache-2.0 */
/* The states of a seat: each pair of a state and an event does what the table in seat.h says, which
 * is read from that file, and an impossible pair ends the process. */
#include "state_table.h"

#include "server/seat.h"

static const char *const event_names[RP_SEAT_EVENTS] = {
    [RP_SEAT_ATTACH] = "ATTACH",
    [RP_SEAT_DETACH] = "DETACH",
    [RP_SEAT_DETACH_CONSUMED] = "DETACH_CONSUMED",
    [RP_SEAT_MIGRATE] = "MIGRATE",
    [RP_SEAT_MIGRATE_END] = "MIGRATE_END",
    [RP_SEAT_ROLLBACK] = "ROLLBACK",
    [RP_SEAT_ROLLBACK_OWN] = "ROLLBACK_OWN",
    [RP_SEAT_MOVE] = "MOVE",
    [RP_SEAT_MOVE_OWN] = "MOVE_OWN",
    [RP_SEAT_SKIP] = "SKIP",
    [RP_SEAT_REBUILD] = "REBUILD",
};

/* As they are written in the table; in the order of its columns, which is the states' order. */
static const char *const state_words[RP_SEAT_STATES + 1] = {"vacant",  "att", "migr",     "known",
                                                            "unknown", "fin", "fin-unkn", "-"};

static const struct state_table seat_table = {.path = "engine/server/seat.h",
                                              .events = event_names,
                                              .event_count = RP_SEAT_EVENTS,
                                              .states = state_words,
                                              .state_count = RP_SEAT_STATES};

static void happen(unsigned state, unsigned event)
{
    struct rp_seat seat = {.seat_state = (enum rp_seat_state)state};
    rp_seat_transition(&seat, (enum rp_seat_event)event);
}

static void every_pair_is_as_the_table_says(void **state)
{
    (void)state;
    uint8_t table[RP_SEAT_EVENTS][TABLE_STATES_MAX];
    read_state_table(&seat_table, table);
    for (unsigned e = 0; e < RP_SEAT_EVENTS; e++)
        for (unsigned s = 0; s < RP_SEAT_STATES; s++) {
            struct rp_seat seat = {.seat_state = (enum rp_seat_state)s};
            bool is_legal = table[e][s] != RP_SEAT_STATES;
            if (rp_seat_next_state(seat.seat_state, (enum rp_seat_event)e) != table[e][s])
                fail_msg("%s in %s: the table says %s", event_names[e],
                         rp_seat_state_name(seat.seat_state), state_words[table[e][s]]);
            assert_int_equal(signal_of_act(happen, s, e), is_legal ? 0 : SIGABRT);
            if (!is_legal)
                continue;
            rp_seat_transition(&seat, (enum rp_seat_event)e);
            assert_int_equal(seat.seat_state, table[e][s]);
        }
}

static bool is_unknown(unsigned state)
{
    struct rp_seat seat = {.seat_state = (enum rp_seat_state)state};
    return !rp_seat_position_is_known(&seat);
}

/* Consequences of the table, whatever it says in detail. */
static void the_table_makes_sense(void **state)
{
    (void)state;
    uint8_t table[RP_SEAT_EVENTS][TABLE_STATES_MAX];
    read_state_table(&seat_table, table);
    for (unsigned e = 0; e < RP_SEAT_EVENTS; e++)
        for (unsigned s = 0; s < RP_SEAT_STATES; s++) {
            unsigned next = table[e][s];
            if (next == RP_SEAT_STATES)
                continue;
            /* a seat has a consumer from its attach on, until its connection ends */
            bool was = s == RP_SEAT_ATTACHED, leaves = e >= RP_SEAT_DETACH && e <= RP_SEAT_MIGRATE;
            assert_int_equal(next == RP_SEAT_ATTACHED, e == RP_SEAT_ATTACH || (was && !leaves));
            assert_true(!was || e != RP_SEAT_ATTACH);
            /* an unknown position stays so until a consumer names it */
            assert_true(!is_unknown(s) || is_unknown(next) || e == RP_SEAT_ATTACH);
            /* no state is as if no consumer had ever been there */
            assert_true(next != RP_SEAT_VACANT || s == RP_SEAT_VACANT);
            /* only an attached consumer can finish, and only by leaving */
            assert_true(next != RP_SEAT_FINISHED || s == next || e == RP_SEAT_DETACH_CONSUMED);
            /* a position that the engine makes up is unknown */
            bool made_up = e >= RP_SEAT_MOVE && e <= RP_SEAT_SKIP;
            assert_true(!made_up || is_unknown(next));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_is_as_the_table_says),
        cmocka_unit_test(the_table_makes_sense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
