/* SPDX-License-Identifier: Apache-2.0 */
#include "alerts/findings.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cmd.h"

#define DISK_PATIENCE_NS UINT64_C(60000000000) /* an older answer is not used */
/* A trainer's first batch after it has attached may take longer: readers begin, rings are rebuilt.
 */
#define FIRST_BATCH_NS UINT64_C(30000000000)
#define SEAT_BYTES 64u

/* ---- an answer ------------------------------------------------------------------------------- */

/* A count, which is not negative; 0 if it is absent. */
static uint64_t count_of(const json_t *object, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(object, key));
    return value > 0 ? (uint64_t)value : 0;
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static bool has_text(const json_t *object, const char *key)
{
    return json_is_string(json_object_get(object, key));
}

/* ---- ranks ----------------------------------------------------------------------------------- */

/* How long the rank's trainer has waited for a batch that is not there. A full ring has batches: a
 * trainer that was stopped in the middle of a wait has not seen them yet. */
static uint64_t starved_ns(const json_t *rank, uint64_t limit_ns)
{
    double waits = json_number_value(json_object_get(rank, "waiting_seconds"));
    uint64_t waits_ns = waits > 0 && waits < 1e9 ? (uint64_t)(waits * 1e9) : 0;
    uint64_t release = count_of(rank, "release");
    if (release + count_of(rank, "slots") == count_of(rank, "tail"))
        return 0;
    if (waits_ns < limit_ns || waits_ns >= FIRST_BATCH_NS)
        return waits_ns;
    return release <= count_of(rank, "attach_batch") ? 0 : waits_ns;
}

static void find_ranks(const json_t *stat, uint64_t limit_ns, struct rp_alert_findings *found)
{
    const json_t *ranks = json_object_get(stat, "ranks");
    for (size_t i = 0; i < json_array_size(ranks); i++) {
        const json_t *rank = json_array_get(ranks, i);
        if (!json_is_true(json_object_get(rank, "attached")))
            continue;
        uint64_t waits_ns = starved_ns(rank, limit_ns), release = count_of(rank, "release");
        if (waits_ns > found->view.starved_ns) {
            found->view.starved_ns = waits_ns;
            found->starved = rank;
        }
        if (!found->first || release > count_of(found->first, "release"))
            found->first = rank;
        if (!found->last || release < count_of(found->last, "release"))
            found->last = rank;
    }
    uint64_t apart = count_of(found->first, "release") - count_of(found->last, "release");
    found->view.skew_rows = apart * count_of(stat, "batch_size");
}

/* ---- disks and failures ---------------------------------------------------------------------- */

/* The disk with the least room. One that has not answered recently is not known; another one may
 * still be too full. */
static void find_disks(const struct rp_alert_task *task, uint64_t now_ns,
                       struct rp_alert_findings *found)
{
    bool is_known = true;
    found->view.free_bytes = RP_FREE_UNKNOWN;
    for (size_t i = 0; i < task->known.disk_count; i++) {
        const struct rp_alert_disk *disk = &task->known.disks[i];
        if (disk->at_ns == 0 || now_ns - disk->at_ns > DISK_PATIENCE_NS) {
            is_known = false;
        } else if (disk->free_bytes < found->view.free_bytes) {
            found->view.free_bytes = disk->free_bytes;
            found->disk = disk;
        }
    }
    if (!is_known && found->view.free_bytes >= task->limits.free_bytes)
        found->view.free_bytes = RP_FREE_UNKNOWN;
}

static bool find_failure(const json_t *stat, const char *error, const char *count, uint64_t *before)
{
    uint64_t failures = count_of(stat, count);
    bool has_failed = has_text(stat, error) || failures > *before;
    *before = failures;
    return has_failed;
}

struct rp_alert_findings rp_alert_find(const json_t *stat, struct rp_alert_task *task,
                                       uint64_t now_ns)
{
    struct rp_alert_known *known = &task->known;
    struct rp_alert_findings found = {.stat = stat, .view.answers = stat != NULL};
    found.view.is_running = !strcmp(text_of(stat, "phase"), "running");
    find_ranks(stat, task->limits.starved_ns, &found);
    find_disks(task, now_ns, &found);
    found.view.engine_failed = known->alerts[RP_ALERT_ENGINE_FAILED].state != RP_ALERT_QUIET;
    if (!stat)
        return found;
    /* counted without a command as well: a failure hastens the next look at the disks */
    bool save = find_failure(stat, "save_error", "save_failures", &known->save_failures);
    bool copy = find_failure(stat, "copy_error", "copy_failures", &known->copy_failures);
    bool has_command = task->program[0];
    found.view.engine_failed |= has_command && has_text(stat, "error");
    found.view.save_failed = has_command && save;
    found.view.copy_failed = has_command && copy;
    return found;
}

/* ---- texts ----------------------------------------------------------------------------------- */

static const char *seat_text(const json_t *stat, const json_t *rank, char text[SEAT_BYTES])
{
    int length = snprintf(text, SEAT_BYTES, "rank %" PRIu64, count_of(rank, "rank"));
    if (count_of(stat, "replicas") > 1)
        snprintf(text + length, SEAT_BYTES - (size_t)length, ", replica %" PRIu64,
                 count_of(rank, "replica"));
    return text;
}

static void say(struct rp_alert_report *report, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void say(struct rp_alert_report *report, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(report->message, sizeof report->message, format, arguments);
    va_end(arguments);
}

static void say_disk(struct rp_alert_report *report, const struct rp_alert_disk *disk,
                     uint64_t limit)
{
    report->value = disk->free_bytes;
    report->limit = limit;
    if (disk->lacks_inodes)
        say(report, "%s: no inodes are free, so no file can be made (`df -i`)", disk->directory);
    else
        say(report, "%s: %" PRIu64 " MiB are free, less than %" PRIu64 " MiB", disk->directory,
            disk->free_bytes >> 20, limit >> 20);
}

struct rp_alert_report rp_alert_report(const struct rp_alert_findings *found,
                                       enum rp_alert_kind kind, const struct rp_alert_task *task)
{
    const struct rp_alert_view *view = &found->view;
    char name[SEAT_BYTES], other[SEAT_BYTES];
    struct rp_alert_report report = {.value = 0};
    switch (kind) {
    case RP_ALERT_STARVED:
        report.value = view->starved_ns / 1000000;
        report.limit = task->limits.starved_ns / 1000000;
        snprintf(report.cause, sizeof report.cause, "%s", text_of(found->starved, "cause"));
        say(&report, "the trainer of %s has waited %" PRIu64 " ms for a batch; cause: %s",
            seat_text(found->stat, found->starved, name), report.value, report.cause);
        break;
    case RP_ALERT_SKEW:
        report.value = view->skew_rows;
        report.limit = task->limits.skew_rows;
        say(&report, "%s is %" PRIu64 " rows behind %s", seat_text(found->stat, found->last, name),
            view->skew_rows, seat_text(found->stat, found->first, other));
        break;
    case RP_ALERT_DISK_FREE:
        say_disk(&report, found->disk, task->limits.free_bytes);
        break;
    case RP_ALERT_SAVE_FAILED:
        say(&report, "%s", text_of(found->stat, "last_save_error"));
        break;
    case RP_ALERT_COPY_FAILED:
        say(&report, "%s", text_of(found->stat, "last_copy_error"));
        break;
    case RP_ALERT_ENGINE_FAILED:
        if (found->stat)
            say(&report, "%s", text_of(found->stat, "error"));
        else
            say(&report,
                "the engine of run %s (pid %d) was killed, or has crashed: its process ended "
                "without a reason",
                task->run, (int)task->engine);
        break;
    case RP_ALERT_ENGINE_SILENT:
        say(&report,
            "the engine of run %s (pid %d) has answered no question for %" PRIu64
            " s: it is stopped (SIGSTOP), or hangs",
            task->run, (int)task->engine, view->silent_ns / 1000000000);
        break;
    case RP_ALERT_KINDS:
        RP_ASSERT(false);
    }
    return report;
}

/* ---- stat ------------------------------------------------------------------------------------ */

static json_t *seconds_since(uint64_t moment_ns, uint64_t now_ns)
{
    return moment_ns ? json_real((double)(now_ns - moment_ns) * 1e-9) : json_null();
}

static json_t *alert_object(const struct rp_alert_task *task, enum rp_alert_kind kind,
                            uint64_t now_ns)
{
    const struct rp_alert_known *known = &task->known;
    const struct rp_alert *alert = &known->alerts[kind];
    return json_pack("{s:s, s:b, s:I, s:o, s:o, s:I, s:I}", "alert", rp_alert_name(kind), "raised",
                     alert->state != RP_ALERT_QUIET, "times", (json_int_t)alert->times,
                     "age_seconds", seconds_since(alert->raised_ns, now_ns), "message",
                     alert->times ? rp_cmd_json_text(known->reports[kind].message) : json_null(),
                     "commands", (json_int_t)(task->program[0] ? alert->commands : 0),
                     "command_failures", (json_int_t)known->command_failures[kind]);
}

void rp_alert_add_to_stat(json_t *stat, const struct rp_alert_task *task, uint64_t now_ns)
{
    json_t *kinds = json_array(), *disks = json_array();
    for (enum rp_alert_kind kind = 0; task && kind < RP_ALERT_KINDS; kind++)
        json_array_append_new(kinds, alert_object(task, kind, now_ns));
    for (size_t i = 0; task && i < task->known.disk_count; i++) {
        const struct rp_alert_disk *disk = &task->known.disks[i];
        json_t *bytes = disk->at_ns ? json_integer((json_int_t)disk->free_bytes) : json_null();
        json_array_append_new(disks,
                              json_pack("{s:o, s:o, s:o}", "directory",
                                        rp_cmd_json_text(disk->directory), "free_bytes", bytes,
                                        "age_seconds", seconds_since(disk->at_ns, now_ns)));
    }
    json_object_set_new(stat, "alerts", kinds);
    json_object_set_new(stat, "disks", disks);
}
