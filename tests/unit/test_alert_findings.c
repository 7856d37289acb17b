/* SPDX-License-Identifier: Apache-2.0 */
/* The alerts that follow from answers of `ringpack stat`, and the text of each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alerts/findings.h"

#define SECOND UINT64_C(1000000000)
#define NOW (1000 * SECOND)

static struct rp_alert_task new_task(void)
{
    return (struct rp_alert_task){
        .limits = {.starved_ns = 2 * SECOND, .skew_rows = 8, .free_bytes = UINT64_C(1) << 30},
        .engine = 4711,
        .run = "pretrain",
        .program = "/bin/page"};
}

/* Ranks as in an answer; batches have 4 rows. */
static struct rp_alert_findings find(const char *keys, const char *ranks,
                                     struct rp_alert_task *task, json_t **stat)
{
    char text[4096];
    snprintf(text, sizeof text, "{'phase': 'running', 'error': null, 'batch_size': 4, %s", keys);
    snprintf(text + strlen(text), sizeof text - strlen(text), "'ranks': [%s]}", ranks);
    for (char *at = text; *at; at++)
        *at = *at == '\'' ? '"' : *at;
    json_error_t error;
    *stat = json_loads(text, 0, &error);
    if (!*stat)
        fail_msg("%s: %s", error.text, text);
    return rp_alert_find(*stat, task, NOW);
}

static void assert_starved(const char *rank, uint64_t waits_ms)
{
    struct rp_alert_task task = new_task();
    json_t *stat;
    struct rp_alert_findings found = find("", rank, &task, &stat);
    assert_int_equal(found.view.starved_ns / 1000000, waits_ms);
    assert_true(found.view.answers && found.view.is_running);
    json_decref(stat);
}

static void a_trainer_is_starved_where_no_batch_is_there(void **state)
{
    (void)state;
    assert_starved("{'rank': 1, 'attached': true, 'waiting_seconds': 2.5, 'release': 9,"
                   " 'attach_batch': 3, 'slots': 8, 'tail': 9}",
                   2500);
    /* its ring is full: it has not seen its batches yet */
    assert_starved("{'rank': 1, 'attached': true, 'waiting_seconds': 2.5, 'release': 9,"
                   " 'attach_batch': 3, 'slots': 8, 'tail': 17}",
                   0);
    /* it waits for its first batch, which may take 30 seconds */
    assert_starved("{'rank': 1, 'attached': true, 'waiting_seconds': 2.5, 'release': 3,"
                   " 'attach_batch': 3, 'slots': 8, 'tail': 3}",
                   0);
    assert_starved("{'rank': 1, 'attached': true, 'waiting_seconds': 30.5, 'release': 3,"
                   " 'attach_batch': 3, 'slots': 8, 'tail': 3}",
                   30500);
    assert_starved("{'rank': 1, 'attached': false, 'waiting_seconds': 2.5, 'release': 9,"
                   " 'attach_batch': null, 'slots': 8, 'tail': 9}",
                   0);
    /* an answer of nonsense */
    assert_starved("{'rank': 1, 'attached': true, 'waiting_seconds': 1e300, 'release': -1}", 0);
    assert_starved("{'attached': true, 'waiting_seconds': 'x', 'release': 1e300}, 3, null", 0);
}

static void the_longest_wait_and_the_ends_of_a_node_are_named(void **state)
{
    static const char ranks[] =
        "{'rank': 0, 'replica': 0, 'attached': true, 'waiting_seconds': 2.5, 'release': 9,"
        " 'attach_batch': 0, 'slots': 8, 'tail': 9, 'cause': 'disk'},"
        "{'rank': 0, 'replica': 1, 'attached': true, 'waiting_seconds': 4.25, 'release': 5,"
        " 'attach_batch': 0, 'slots': 8, 'tail': 9, 'cause': 'trainer'},"
        "{'rank': 1, 'replica': 0, 'attached': false, 'release': 1},"
        "{'rank': 1, 'replica': 1, 'attached': true, 'waiting_seconds': 0, 'release': 7,"
        " 'attach_batch': 0, 'slots': 8, 'tail': 9, 'cause': 'none'}";
    struct rp_alert_task task = new_task();
    json_t *stat;
    (void)state;
    struct rp_alert_findings found = find("'replicas': 2,", ranks, &task, &stat);
    assert_int_equal(found.view.skew_rows, 16);
    struct rp_alert_report report = rp_alert_report(&found, RP_ALERT_STARVED, &task);
    assert_string_equal(report.message, "the trainer of rank 0, replica 1 has waited 4250 ms for a "
                                        "batch; cause: trainer");
    assert_string_equal(report.cause, "trainer");
    assert_int_equal(report.value, 4250);
    assert_int_equal(report.limit, 2000);
    report = rp_alert_report(&found, RP_ALERT_SKEW, &task);
    assert_string_equal(report.message, "rank 0, replica 1 is 16 rows behind rank 0, replica 0");
    json_decref(stat);
}

static void a_failure_between_two_checks_counts(void **state)
{
    struct rp_alert_task task = new_task();
    json_t *stat;
    (void)state;
    struct rp_alert_findings found = find("'save_failures': 0, 'copy_failures': 0,", "", &task,
                                          &stat);
    assert_false(found.view.save_failed || found.view.copy_failed);
    json_decref(stat);
    found = find("'save_failures': 2, 'save_error': null, 'last_save_error': 'no room',", "", &task,
                 &stat);
    assert_true(found.view.save_failed && !found.view.copy_failed);
    assert_string_equal(rp_alert_report(&found, RP_ALERT_SAVE_FAILED, &task).message, "no room");
    json_decref(stat);
    found = find("'save_failures': 2, 'save_error': null, 'copy_failures': 1,"
                 " 'copy_error': 'away', 'last_copy_error': 'away',",
                 "", &task, &stat);
    assert_true(!found.view.save_failed && found.view.copy_failed);
    assert_string_equal(rp_alert_report(&found, RP_ALERT_COPY_FAILED, &task).message, "away");
    json_decref(stat);
    found = find("'save_failures': 2, 'save_error': 'bad', 'copy_failures': 1,", "", &task, &stat);
    assert_true(found.view.save_failed && !found.view.copy_failed);
    json_decref(stat);
    task.program[0] = '\0'; /* no program runs for failures */
    found = find("'save_failures': 9, 'save_error': 'bad', 'error': 'x',", "", &task, &stat);
    assert_false(found.view.save_failed || found.view.engine_failed);
    assert_int_equal(task.known.save_failures, 9); /* counted: disks are looked at sooner */
    json_decref(stat);
}

static void an_engine_fails_with_its_reason_or_without(void **state)
{
    struct rp_alert_task task = new_task();
    json_t *stat;
    (void)state;
    struct rp_alert_findings found = find("'phase': 'failed', 'error': 'a.bin is gone',", "", &task,
                                          &stat);
    assert_true(found.view.engine_failed && !found.view.is_running);
    struct rp_alert_report report = rp_alert_report(&found, RP_ALERT_ENGINE_FAILED, &task);
    assert_string_equal(report.message, "a.bin is gone");
    json_decref(stat);
    found = rp_alert_find(NULL, &task, NOW);
    assert_false(found.view.answers || found.view.is_running || found.view.engine_failed);
    report = rp_alert_report(&found, RP_ALERT_ENGINE_FAILED, &task);
    assert_non_null(strstr(report.message, "pretrain (pid 4711) was killed"));
    found.view.silent_ns = 31 * SECOND;
    report = rp_alert_report(&found, RP_ALERT_ENGINE_SILENT, &task);
    assert_non_null(strstr(report.message, "no question for 31 s"));
    task.known.alerts[RP_ALERT_ENGINE_FAILED].state = RP_ALERT_RAISED; /* it has no end */
    assert_true(rp_alert_find(NULL, &task, NOW).view.engine_failed);
}

static void the_fullest_disk_counts(void **state)
{
    struct rp_alert_task task = new_task();
    (void)state;
    task.known.disk_count = 2;
    task.known.disks[0] = (struct rp_alert_disk){
        .directory = "/a", .at_ns = NOW - SECOND, .free_bytes = UINT64_C(5) << 30};
    task.known.disks[1] = (struct rp_alert_disk){.directory = "/b", .free_bytes = 0};
    struct rp_alert_findings found = rp_alert_find(NULL, &task, NOW);
    assert_true(found.view.free_bytes == RP_FREE_UNKNOWN); /* /b has not answered */
    task.known.disks[1].at_ns = NOW - SECOND;
    task.known.disks[1].free_bytes = UINT64_C(3) << 20;
    found = rp_alert_find(NULL, &task, NOW);
    assert_int_equal(found.view.free_bytes, 3 << 20);
    struct rp_alert_report report = rp_alert_report(&found, RP_ALERT_DISK_FREE, &task);
    assert_string_equal(report.message, "/b: 3 MiB are free, less than 1024 MiB");
    task.known.disks[1].lacks_inodes = true;
    report = rp_alert_report(&found, RP_ALERT_DISK_FREE, &task);
    assert_non_null(strstr(report.message, "no inodes are free"));
    task.known.disks[0].at_ns = NOW - 61 * SECOND; /* too old, but /b is too full anyway */
    assert_int_equal(rp_alert_find(NULL, &task, NOW).view.free_bytes, 3 << 20);
}

static void stat_has_what_is_known(void **state)
{
    struct rp_alert_task task = new_task();
    json_t *stat = json_object();
    (void)state;
    rp_alert_add_to_stat(stat, NULL, NOW);
    assert_int_equal(json_array_size(json_object_get(stat, "alerts")), 0);
    assert_true(json_is_array(json_object_get(stat, "disks")));
    task.known.alerts[RP_ALERT_SKEW] = (struct rp_alert){
        .state = RP_ALERT_OWED, .raised_ns = NOW - 2 * SECOND, .times = 3, .commands = 1};
    snprintf(task.known.reports[RP_ALERT_SKEW].message, 8, "\xff!");
    task.known.command_failures[RP_ALERT_SKEW] = 1;
    rp_alert_add_to_stat(stat, &task, NOW);
    const json_t *alerts = json_object_get(stat, "alerts");
    assert_int_equal(json_array_size(alerts), RP_ALERT_KINDS);
    char *text = json_dumps(json_array_get(alerts, RP_ALERT_SKEW), JSON_COMPACT);
    assert_string_equal(text, "{\"alert\":\"skew\",\"raised\":true,\"times\":3,\"age_seconds\":2.0,"
                              "\"message\":\"?!\",\"commands\":1,\"command_failures\":1}");
    free(text);
    assert_true(json_is_null(json_object_get(json_array_get(alerts, 0), "message")));
    task.program[0] = '\0';
    rp_alert_add_to_stat(stat, &task, NOW);
    alerts = json_object_get(stat, "alerts");
    const json_t *skew = json_array_get(alerts, RP_ALERT_SKEW);
    assert_int_equal(json_integer_value(json_object_get(skew, "commands")), 0);
    json_decref(stat);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trainer_is_starved_where_no_batch_is_there),
        cmocka_unit_test(the_longest_wait_and_the_ends_of_a_node_are_named),
        cmocka_unit_test(a_failure_between_two_checks_counts),
        cmocka_unit_test(an_engine_fails_with_its_reason_or_without),
        cmocka_unit_test(the_fullest_disk_counts),
        cmocka_unit_test(stat_has_what_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
