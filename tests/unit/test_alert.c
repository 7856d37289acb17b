/* SPDX-License-Identifier: Apache-2.0 */
/* The raising, logging and clearing of alerts: the tables in alert.h, and a day of incidents (a
 * week, of 20 seeds, with RP_LONG=1) under a clock of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "alerts/alert.h"
#include "base/bits.h"

#define SECOND UINT64_C(1000000000)
#define LOOK (SECOND / 10)
#define GIB (UINT64_C(1) << 30)

static const struct rp_alert_limits limits = {
    .starved_ns = SECOND / 2, .skew_rows = 100, .free_bytes = 10 * GIB};

static const struct rp_alert_view calm = {
    .answers = true, .is_running = true, .free_bytes = 100 * GIB};

static enum rp_alert_sign sign_of(enum rp_alert_kind kind, struct rp_alert_view view)
{
    return rp_alert_sign(kind, &limits, &view);
}

static void each_kind_has_its_limits(void **state)
{
    (void)state;
    struct rp_alert_view view = calm;
    for (enum rp_alert_kind kind = 0; kind < RP_ALERT_KINDS; kind++)
        assert_int_equal(sign_of(kind, calm), RP_SIGN_GOOD);

    view.starved_ns = SECOND / 4;
    assert_int_equal(sign_of(RP_ALERT_STARVED, view), RP_SIGN_GOOD);
    view.starved_ns = SECOND / 2 - 1;
    assert_int_equal(sign_of(RP_ALERT_STARVED, view), RP_SIGN_UNSURE);
    view.starved_ns = SECOND / 2;
    assert_int_equal(sign_of(RP_ALERT_STARVED, view), RP_SIGN_BAD);
    view.skew_rows = 50;
    assert_int_equal(sign_of(RP_ALERT_SKEW, view), RP_SIGN_GOOD);
    view.skew_rows = 100;
    assert_int_equal(sign_of(RP_ALERT_SKEW, view), RP_SIGN_BAD);
    view.is_running = false;
    assert_int_equal(sign_of(RP_ALERT_STARVED, view), RP_SIGN_UNSURE);
    assert_int_equal(sign_of(RP_ALERT_SKEW, view), RP_SIGN_UNSURE);

    view.free_bytes = 10 * GIB - 1;
    assert_int_equal(sign_of(RP_ALERT_DISK_FREE, view), RP_SIGN_BAD);
    view.free_bytes = 10 * GIB;
    assert_int_equal(sign_of(RP_ALERT_DISK_FREE, view), RP_SIGN_UNSURE);
    view.free_bytes = 11 * GIB;
    assert_int_equal(sign_of(RP_ALERT_DISK_FREE, view), RP_SIGN_GOOD);
    view.free_bytes = RP_FREE_UNKNOWN;
    assert_int_equal(sign_of(RP_ALERT_DISK_FREE, view), RP_SIGN_UNSURE);

    view.save_failed = view.copy_failed = view.engine_failed = true;
    for (enum rp_alert_kind kind = RP_ALERT_SAVE_FAILED; kind <= RP_ALERT_ENGINE_FAILED; kind++)
        assert_int_equal(sign_of(kind, view), RP_SIGN_BAD);
}

static void an_engine_that_does_not_answer_is_known_to_be_silent_alone(void **state)
{
    (void)state;
    struct rp_alert_view view = {
        .free_bytes = 0, .save_failed = true, .copy_failed = true, .silent_ns = 1};
    assert_int_equal(sign_of(RP_ALERT_STARVED, view), RP_SIGN_UNSURE);
    assert_int_equal(sign_of(RP_ALERT_SKEW, view), RP_SIGN_UNSURE);
    assert_int_equal(sign_of(RP_ALERT_DISK_FREE, view), RP_SIGN_BAD);
    assert_int_equal(sign_of(RP_ALERT_SAVE_FAILED, view), RP_SIGN_UNSURE);
    assert_int_equal(sign_of(RP_ALERT_COPY_FAILED, view), RP_SIGN_UNSURE);
    assert_int_equal(sign_of(RP_ALERT_ENGINE_SILENT, view), RP_SIGN_UNSURE);
    view.silent_ns = RP_ALERT_SILENCE_NS - 1;
    assert_int_equal(sign_of(RP_ALERT_ENGINE_SILENT, view), RP_SIGN_UNSURE);
    view.silent_ns = RP_ALERT_SILENCE_NS;
    assert_int_equal(sign_of(RP_ALERT_ENGINE_SILENT, view), RP_SIGN_BAD);
}

static void without_a_limit_nothing_is_bad(void **state)
{
    static const struct rp_alert_limits none = {0};
    struct rp_alert_view view = {
        .answers = true, .is_running = true, .starved_ns = UINT64_MAX, .skew_rows = UINT64_MAX};
    (void)state;
    for (enum rp_alert_kind kind = 0; kind < RP_ALERT_KINDS; kind++)
        assert_int_equal(rp_alert_sign(kind, &none, &view), RP_SIGN_GOOD);
}

/* ---- states ---------------------------------------------------------------------------------- */

struct one {
    struct rp_alert alert;
    enum rp_alert_kind kind;
    uint64_t now_ns;
};

static enum rp_alert_step look(struct one *one, enum rp_alert_sign sign, uint64_t after_ns)
{
    one->now_ns += after_ns;
    return rp_alert_evaluate(&one->alert, one->kind, sign, one->now_ns);
}

static void an_incident_is_told_once(void **state)
{
    struct one one = {.kind = RP_ALERT_STARVED};
    (void)state;
    assert_int_equal(look(&one, RP_SIGN_GOOD, LOOK), RP_ALERT_NOTHING);
    assert_int_equal(look(&one, RP_SIGN_BAD, LOOK), RP_ALERT_RAISE_AND_RUN);
    for (int i = 0; i < 100000; i++)
        assert_int_equal(look(&one, i % 7 ? RP_SIGN_BAD : RP_SIGN_GOOD, LOOK), RP_ALERT_NOTHING);
    assert_int_equal(look(&one, RP_SIGN_BAD, LOOK), RP_ALERT_NOTHING);
    assert_int_equal(look(&one, RP_SIGN_GOOD, 59 * SECOND), RP_ALERT_NOTHING);
    assert_int_equal(look(&one, RP_SIGN_UNSURE, 2 * SECOND), RP_ALERT_NOTHING);
    assert_int_equal(look(&one, RP_SIGN_GOOD, LOOK), RP_ALERT_CLEAR);
    assert_int_equal(look(&one, RP_SIGN_GOOD, LOOK), RP_ALERT_NOTHING);
    assert_int_equal(look(&one, RP_SIGN_BAD, LOOK), RP_ALERT_RAISE_AND_RUN);
    assert_int_equal(one.alert.times, 2);
}

static void skew_must_last(void **state)
{
    struct one one = {.kind = RP_ALERT_SKEW};
    (void)state;
    for (int i = 0; i < 100; i++)
        assert_int_equal(look(&one, i % 10 ? RP_SIGN_BAD : RP_SIGN_UNSURE, LOOK), RP_ALERT_NOTHING);
    assert_int_equal(look(&one, RP_SIGN_BAD, SECOND), RP_ALERT_RAISE_AND_RUN);
}

static void fifty_alerts_run_one_command(void **state)
{
    struct one one = {.kind = RP_ALERT_SAVE_FAILED};
    unsigned runs = 0;
    (void)state;
    for (int i = 0; i < 50; i++) {
        enum rp_alert_step step = look(&one, RP_SIGN_BAD, SECOND / 100);
        runs += step == RP_ALERT_RAISE_AND_RUN;
        assert_int_equal(step, i ? RP_ALERT_RAISE : RP_ALERT_RAISE_AND_RUN);
        assert_int_equal(look(&one, RP_SIGN_GOOD, SECOND / 100), RP_ALERT_CLEAR);
    }
    assert_int_equal(one.alert.times, 50);
    assert_int_equal(one.alert.commands, 1);
    assert_int_equal(runs, 1);
}

static void a_command_that_is_owed_is_run_while_the_alert_lasts(void **state)
{
    struct one one = {.kind = RP_ALERT_SAVE_FAILED};
    (void)state;
    assert_int_equal(look(&one, RP_SIGN_BAD, LOOK), RP_ALERT_RAISE_AND_RUN);
    assert_int_equal(look(&one, RP_SIGN_GOOD, LOOK), RP_ALERT_CLEAR);
    assert_int_equal(look(&one, RP_SIGN_BAD, SECOND), RP_ALERT_RAISE);
    assert_int_equal(look(&one, RP_SIGN_BAD, 200 * SECOND), RP_ALERT_NOTHING);
    assert_int_equal(look(&one, RP_SIGN_UNSURE, 100 * SECOND), RP_ALERT_RUN);
    assert_int_equal(look(&one, RP_SIGN_BAD, 1000 * SECOND), RP_ALERT_NOTHING);
    assert_int_equal(one.alert.times, 2);
    assert_int_equal(one.alert.commands, 2);
}

/* ---- pauses ---------------------------------------------------------------------------------- */

/* A trainer that waits for exactly as long as the limit, and begins at any moment, is seen. */
static void every_wait_of_the_limit_is_seen(void **state)
{
    static const struct rp_alert none[RP_ALERT_KINDS];
    static const uint64_t waits[] = {SECOND / 2, 2 * SECOND, 60 * SECOND};
    (void)state;
    for (size_t i = 0; i < RP_ARRAY_COUNT(waits); i++)
        for (uint64_t begin = 0; begin < 2 * SECOND; begin += LOOK / 10) {
            const struct rp_alert_limits limit = {.starved_ns = waits[i]};
            uint64_t end = begin + waits[i] + LOOK, now = 0, checks = 0, longest = 0;
            for (; now <= end; checks++) {
                struct rp_alert_view view = calm;
                view.starved_ns = now > begin ? now - begin : 0;
                longest = rp_max_u64(longest, view.starved_ns);
                now += rp_alert_pause_ns(&limit, &view, none);
            }
            assert_true(longest >= waits[i]);
            assert_true(checks < 4 + (waits[i] / 2 + LOOK) / LOOK + 2 * end / SECOND + 4);
        }
}

static void a_check_a_second_is_enough_where_nothing_is_near(void **state)
{
    struct rp_alert alerts[RP_ALERT_KINDS] = {{.state = RP_ALERT_QUIET}};
    struct rp_alert_view view = calm;
    (void)state;
    static const struct rp_alert_limits slow = {.starved_ns = 60 * SECOND, .skew_rows = 10};
    assert_int_equal(rp_alert_pause_ns(&slow, &view, alerts), SECOND);
    view.starved_ns = 3600 * SECOND; /* an alert that lasts */
    assert_int_equal(rp_alert_pause_ns(&slow, &view, alerts), SECOND);
    alerts[RP_ALERT_SKEW].bad_since_ns = 1;
    assert_int_equal(rp_alert_pause_ns(&slow, &view, alerts), LOOK);
    alerts[RP_ALERT_SKEW].state = RP_ALERT_RAISED;
    assert_int_equal(rp_alert_pause_ns(&slow, &view, alerts), SECOND);
    static const struct rp_alert_limits fast = {.starved_ns = 10};
    assert_int_equal(rp_alert_pause_ns(&fast, &view, alerts), LOOK);
}

/* ---- a week ---------------------------------------------------------------------------------- */

/* Incidents of one kind, one after the other, with pauses of at least 10 minutes. */
struct story {
    uint64_t begin_ns, end_ns; /* this incident's, or the next one's */
    uint64_t told;             /* commands in this one */
    uint64_t incidents;
};

struct week {
    uint64_t random, now_ns;
    struct rp_alert alerts[RP_ALERT_KINDS]; /* the engine's, which restarts */
    struct story stories[RP_ALERT_KINDS];
    uint64_t restarts;
};

static uint64_t draw(struct week *week, uint64_t below)
{
    week->random = week->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (week->random >> 33) % below;
}

static void plan_incident(struct week *week, struct story *story)
{
    story->begin_ns = week->now_ns + (600 + draw(week, 4 * 3600)) * SECOND;
    story->end_ns = story->begin_ns + 2 * SECOND + draw(week, 3600) * draw(week, 2 * SECOND);
    story->told = 0;
}

/* The finding of a check. In an incident each value is bad at first and then moves about its limit:
 * for at most 50 seconds it is fine. Outside it may come near to the limit. */
static void see(struct week *week, enum rp_alert_kind kind, struct rp_alert_view *view)
{
    const struct story *story = &week->stories[kind];
    uint64_t since_ns = week->now_ns - story->begin_ns;
    bool is_bad = week->now_ns >= story->begin_ns && week->now_ns < story->end_ns;
    is_bad = is_bad && (since_ns < 2 * SECOND || since_ns / SECOND % 60 >= 50);
    uint64_t noise = draw(week, 100); /* percent of the limit */
    if (kind == RP_ALERT_STARVED)
        view->starved_ns = limits.starved_ns * (is_bad ? 100 + noise : noise) / 100;
    if (kind == RP_ALERT_SKEW)
        view->skew_rows = limits.skew_rows * (is_bad ? 100 + noise : noise) / 100;
    if (kind == RP_ALERT_DISK_FREE)
        view->free_bytes = draw(week, 20) == 0 ? RP_FREE_UNKNOWN
                           : is_bad            ? limits.free_bytes * noise / 100
                                               : limits.free_bytes * (100 + noise) / 100;
    if (kind == RP_ALERT_SAVE_FAILED) /* these stay until a save succeeds */
        view->save_failed = week->now_ns >= story->begin_ns && week->now_ns < story->end_ns;
    if (kind == RP_ALERT_COPY_FAILED)
        view->copy_failed = week->now_ns >= story->begin_ns && week->now_ns < story->end_ns;
}

static void follow(struct week *week, enum rp_alert_kind kind, enum rp_alert_step step)
{
    struct story *story = &week->stories[kind];
    bool is_begun = week->now_ns >= story->begin_ns;
    if (step == RP_ALERT_RAISE_AND_RUN) {
        assert_true(is_begun); /* else it is a false alert */
        story->told++;
    }
    assert_int_not_equal(step, RP_ALERT_RAISE);
    assert_int_not_equal(step, RP_ALERT_RUN);
    if (week->now_ns < story->end_ns + 300 * SECOND)
        return;
    assert_int_equal(story->told, 1);
    assert_int_equal(week->alerts[kind].state, RP_ALERT_QUIET);
    story->incidents++;
    plan_incident(week, story);
}

/* A new engine does not know the old one's alerts. It reports incidents again, so it starts without
 * one. */
static void restart(struct week *week)
{
    for (enum rp_alert_kind kind = 0; kind < RP_ALERT_ENGINE_FAILED; kind++)
        if (week->now_ns >= week->stories[kind].begin_ns)
            return;
    for (enum rp_alert_kind kind = 0; kind < RP_ALERT_KINDS; kind++)
        week->alerts[kind] = (struct rp_alert){0};
    week->restarts++;
}

static void live(uint64_t seed, uint64_t days)
{
    struct week week = {.random = seed, .now_ns = SECOND};
    for (enum rp_alert_kind kind = 0; kind < RP_ALERT_ENGINE_FAILED; kind++)
        plan_incident(&week, &week.stories[kind]);
    for (uint64_t end_ns = days * 86400 * SECOND; week.now_ns < end_ns; week.now_ns += LOOK) {
        struct rp_alert_view view = calm;
        view.is_running = draw(&week, 1000) != 0;
        if (draw(&week, 36000) == 0)
            restart(&week);
        for (enum rp_alert_kind kind = 0; kind < RP_ALERT_ENGINE_FAILED; kind++) {
            see(&week, kind, &view);
            enum rp_alert_sign sign = rp_alert_sign(kind, &limits, &view);
            follow(&week, kind, rp_alert_evaluate(&week.alerts[kind], kind, sign, week.now_ns));
        }
    }
    uint64_t incidents = 0;
    for (enum rp_alert_kind kind = 0; kind < RP_ALERT_ENGINE_FAILED; kind++) {
        assert_true(week.stories[kind].incidents > 0);
        incidents += week.stories[kind].incidents;
    }
    printf("seed %llu, %llu days: %llu incidents, %llu restarts, one alert each, none false\n",
           (unsigned long long)seed, (unsigned long long)days, (unsigned long long)incidents,
           (unsigned long long)week.restarts);
}

static void every_incident_of_a_week_is_told_once(void **state)
{
    bool is_long = getenv("RP_LONG") != NULL;
    (void)state;
    for (uint64_t seed = 1; seed <= (is_long ? 20 : 1); seed++)
        live(seed, is_long ? 7 : 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_has_its_limits),
        cmocka_unit_test(an_engine_that_does_not_answer_is_known_to_be_silent_alone),
        cmocka_unit_test(without_a_limit_nothing_is_bad),
        cmocka_unit_test(an_incident_is_told_once),
        cmocka_unit_test(skew_must_last),
        cmocka_unit_test(fifty_alerts_run_one_command),
        cmocka_unit_test(a_command_that_is_owed_is_run_while_the_alert_lasts),
        cmocka_unit_test(every_wait_of_the_limit_is_seen),
        cmocka_unit_test(a_check_a_second_is_enough_where_nothing_is_near),
        cmocka_unit_test(every_incident_of_a_week_is_told_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
