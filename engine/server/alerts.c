/* SPDX-License-Identifier: Apache-2.0 */
/* See alerts.h. */
#include "server/alerts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "cache/cache.h"
#include "server/alert.h"
#include "server/alert_command.h"
#include "server/cause.h"
#include "server/disk_watch.h"
#include "server/seats.h"
#include "server/stat_parts.h"

#define DISK_PERIOD_NS UINT64_C(10000000000)
#define DISK_PATIENCE_NS UINT64_C(60000000000) /* an older answer says nothing */
/* A trainer's first batch after it has attached may take longer: readers begin, rings are rebuilt.
 */
#define FIRST_BATCH_NS UINT64_C(30000000000)
#define DISKS_MAX 3u
#define VARIABLES 7u

static const struct rp_alert_patience patience = {.run_ns = UINT64_C(60000000000),
                                                  .end_ns = UINT64_C(5000000000)};

/* What an alert says when it is raised. */
struct report {
    char message[sizeof(((struct rp_error *)0)->message)];
    uint64_t value, limit;
    const char *cause; /* of starved: as in `ringpack stat`; else "" */
};

struct rp_alerts {
    struct rp_alert_limits limits;
    struct rp_alert alerts[RP_ALERT_KINDS];
    struct report reports[RP_ALERT_KINDS];
    struct rp_alert_command *command; /* NULL = alerts are logged, and nothing is run */
    struct rp_disk_watch *disks[DISKS_MAX];
    size_t disk_count;
    uint64_t save_failures, copy_failures; /* at the last check */
    uint64_t failures_of_disks;            /* for which the disks were checked */
};

/* ---- what is seen ---------------------------------------------------------------------------- */

/* The seats, disks and reasons that a check has found. */
struct found {
    struct rp_alert_view view;
    const struct rp_seat *starved, *first, *last; /* NULL = none */
    const char *disk;
    bool lacks_inodes;
    struct rp_copy_counts copies;
};

/* Has the consumer released nothing since it attached? */
static bool awaits_first_batch(const struct rp_engine *engine, const struct rp_seat *seat)
{
    for (uint32_t i = 0; i < RP_CONNECTIONS_MAX; i++) {
        const struct rp_connection *connection = &engine->connections[i];
        if (connection->fd >= 0 && connection->seat == seat)
            return rp_seat_position(seat) <= connection->first_batch;
    }
    return true;
}

/* How long the seat's trainer has waited for a batch that is not there. A full ring has batches: a
 * trainer that was stopped in the middle of a wait has not seen them yet. */
static uint64_t starved_ns(const struct rp_engine *engine, const struct rp_alerts *alerts,
                           const struct rp_seat *seat)
{
    uint64_t since = rp_seat_waits_since_ns(seat), now = rp_now_ns();
    if (since == 0 || since >= now || rp_seat_fills_ring(seat))
        return 0;
    uint64_t waits_ns = now - since;
    if (waits_ns < alerts->limits.starved_ns || waits_ns >= FIRST_BATCH_NS)
        return waits_ns;
    return awaits_first_batch(engine, seat) ? 0 : waits_ns;
}

static void check_seats(const struct rp_engine *engine, const struct rp_alerts *alerts,
                        struct found *found)
{
    for (uint32_t s = 0; s < engine->seat_count; s++) {
        const struct rp_seat *seat = &engine->seats[s];
        if (!rp_seat_is_attached(seat))
            continue;
        uint64_t waits_ns = starved_ns(engine, alerts, seat);
        if (waits_ns > found->view.starved_ns) {
            found->view.starved_ns = waits_ns;
            found->starved = seat;
        }
        if (!found->first || rp_seat_position(seat) > rp_seat_position(found->first))
            found->first = seat;
        if (!found->last || rp_seat_position(seat) < rp_seat_position(found->last))
            found->last = seat;
    }
    if (found->first)
        found->view.skew_rows = (rp_seat_position(found->first) - rp_seat_position(found->last)) *
                                engine->config->batch_size;
}

/* The disk with the least room. One that has not answered recently is not known; another one may
 * still be too full. */
static void check_disks(const struct rp_save_counts *saves, struct rp_alerts *alerts,
                        struct found *found)
{
    uint64_t now = rp_now_ns();
    bool is_known = true;
    found->view.free_bytes = RP_FREE_UNKNOWN;
    for (size_t i = 0; i < alerts->disk_count; i++) {
        struct rp_disk_answer answer = rp_disk_watch_answer(alerts->disks[i]);
        if (answer.at_ns == 0 || now - answer.at_ns > DISK_PATIENCE_NS) {
            is_known = false;
        } else if (answer.free_bytes < found->view.free_bytes) {
            found->view.free_bytes = answer.free_bytes;
            found->disk = rp_disk_watch_path(alerts->disks[i]);
            found->lacks_inodes = answer.lacks_inodes;
        }
    }
    uint64_t failures = found->copies.failures + saves->failures;
    for (size_t i = 0; i < alerts->disk_count && failures != alerts->failures_of_disks; i++)
        rp_disk_watch_hurry(alerts->disks[i]); /* it may have filled up since */
    alerts->failures_of_disks = failures;
    if (!is_known && found->view.free_bytes >= alerts->limits.free_bytes)
        found->view.free_bytes = RP_FREE_UNKNOWN;
}

/* Failures are alerts where someone is notified of them: the log names each anyway. */
static void check_saves(const struct rp_engine *engine, struct rp_alerts *alerts,
                        struct found *found)
{
    const struct rp_save_counts *saves = &engine->save_counts;
    if (!alerts->command)
        return;
    if (engine->checkpoints)
        rp_checkpoint_dir_copies(engine->checkpoints, &found->copies);
    found->view.engine_failed = engine->exit_code < 0;
    found->view.save_failed = saves->has_failed || saves->failures > alerts->save_failures;
    found->view.copy_failed = found->copies.has_failed ||
                              found->copies.failures > alerts->copy_failures;
    alerts->save_failures = saves->failures;
    alerts->copy_failures = found->copies.failures;
}

/* ---- what is said ---------------------------------------------------------------------------- */

static void say(struct report *report, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void say(struct report *report, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(report->message, sizeof report->message, format, arguments);
    va_end(arguments);
}

static struct report report_of(const struct rp_engine *engine, enum rp_alert_kind kind,
                               const struct found *found)
{
    const struct rp_alert_limits *limits = &engine->alerts->limits;
    const struct rp_alert_view *view = &found->view;
    char name[RP_SEAT_NAME_BYTES], other[RP_SEAT_NAME_BYTES];
    struct report report = {.cause = ""};
    switch (kind) {
    case RP_ALERT_STARVED:
        report.value = view->starved_ns / 1000000;
        report.limit = limits->starved_ns / 1000000;
        report.cause = rp_cause_name(rp_seat_cause(engine, found->starved).cause);
        say(&report, "the trainer of %s has waited %" PRIu64 " ms for a batch; cause: %s",
            rp_seat_name(found->starved, name), report.value, report.cause);
        break;
    case RP_ALERT_SKEW:
        report.value = view->skew_rows;
        report.limit = limits->skew_rows;
        say(&report, "%s is %" PRIu64 " rows behind %s", rp_seat_name(found->last, name),
            view->skew_rows, rp_seat_name(found->first, other));
        break;
    case RP_ALERT_DISK_FREE:
        report.value = view->free_bytes;
        report.limit = limits->free_bytes;
        if (found->lacks_inodes) {
            say(&report, "%s: no inodes are free, so no file can be made (`df -i`)", found->disk);
            break;
        }
        say(&report, "%s: %" PRIu64 " MiB are free, less than %" PRIu64 " MiB", found->disk,
            view->free_bytes >> 20, limits->free_bytes >> 20);
        break;
    case RP_ALERT_SAVE_FAILED:
        say(&report, "%s", engine->save_counts.reason);
        break;
    case RP_ALERT_COPY_FAILED:
        say(&report, "%s", found->copies.reason);
        break;
    case RP_ALERT_ENGINE_FAILED:
        say(&report, "%s", engine->error->message);
        break;
    case RP_ALERT_KINDS:
        RP_ASSERT(false);
    }
    return report;
}

/* A variable for which there was no memory is left out. */
static void add(char **variables, char *variable)
{
    size_t count = 0;
    while (variables[count])
        count++;
    RP_ASSERT(count < VARIABLES);
    variables[count] = variable;
}

static void run_command(const struct rp_engine *engine, enum rp_alert_kind kind)
{
    const struct rp_alerts *alerts = engine->alerts;
    const struct report *report = &alerts->reports[kind];
    char **variables = alerts->command ? rp_calloc(VARIABLES + 1, sizeof *variables) : NULL;
    if (!alerts->command)
        return;
    if (variables) {
        add(variables, rp_format("RINGPACK_ALERT=%s", rp_alert_name(kind)));
        add(variables, rp_format("RINGPACK_ALERT_MESSAGE=%s", report->message));
        add(variables, rp_format("RINGPACK_ALERT_RUN=%s", engine->config->run));
        add(variables, rp_format("RINGPACK_ALERT_PID=%d", (int)getpid()));
        add(variables, rp_format("RINGPACK_ALERT_VALUE=%" PRIu64, report->value));
        add(variables, rp_format("RINGPACK_ALERT_LIMIT=%" PRIu64, report->limit));
        add(variables, rp_format("RINGPACK_ALERT_CAUSE=%s", report->cause));
    }
    rp_alert_command_run(alerts->command, kind, variables);
}

static void do_step(struct rp_engine *engine, enum rp_alert_kind kind, enum rp_alert_step step,
                    const struct found *found)
{
    struct report *report = &engine->alerts->reports[kind];
    switch (step) {
    case RP_ALERT_NOTHING:
        return;
    case RP_ALERT_RAISE:
    case RP_ALERT_RAISE_AND_RUN:
        *report = report_of(engine, kind, found);
        rp_log_event(RP_EVENT_alert, "alert %s: %s", rp_alert_name(kind), report->message);
        if (step == RP_ALERT_RAISE_AND_RUN)
            run_command(engine, kind);
        return;
    case RP_ALERT_RUN:
        run_command(engine, kind);
        return;
    case RP_ALERT_CLEAR:
        rp_log_event(RP_EVENT_alert_cleared, "alert %s is over", rp_alert_name(kind));
        return;
    }
}

void rp_engine_look_at_alerts(struct rp_engine *engine)
{
    struct rp_alerts *alerts = engine->alerts;
    if (!alerts)
        return;
    uint64_t now = rp_now_ns();
    struct found found = {.view.is_running = engine->phase == RP_ENGINE_RUNNING};
    check_seats(engine, alerts, &found);
    check_saves(engine, alerts, &found);
    check_disks(&engine->save_counts, alerts, &found);
    for (enum rp_alert_kind kind = 0; kind < RP_ALERT_KINDS; kind++) {
        enum rp_alert_sign sign = rp_alert_sign(kind, &alerts->limits, &found.view);
        do_step(engine, kind, rp_alert_look(&alerts->alerts[kind], kind, sign, now), &found);
    }
}

/* ---- stat ------------------------------------------------------------------------------------ */

static json_t *seconds_since(uint64_t moment_ns)
{
    return moment_ns ? json_real(rp_stat_seconds(rp_now_ns() - moment_ns)) : json_null();
}

static json_t *utf8(const char *text)
{
    char copy[sizeof(((struct report *)0)->message)];
    snprintf(copy, sizeof copy, "%s", text);
    rp_text_make_utf8(copy);
    return json_string(copy);
}

static json_t *alert_object(const struct rp_alerts *alerts, enum rp_alert_kind kind)
{
    const struct rp_alert *alert = &alerts->alerts[kind];
    uint64_t failures = alerts->command ? rp_alert_command_failures(alerts->command, kind) : 0;
    return json_pack("{s:s, s:b, s:I, s:o, s:o, s:I, s:I}", "alert", rp_alert_name(kind), "raised",
                     alert->state != RP_ALERT_QUIET, "times", (json_int_t)alert->times,
                     "age_seconds", seconds_since(alert->raised_ns), "message",
                     alert->times ? utf8(alerts->reports[kind].message) : json_null(), "commands",
                     (json_int_t)(alerts->command ? alert->commands : 0), "command_failures",
                     (json_int_t)failures);
}

void rp_stat_add_alerts(json_t *object, const struct rp_engine *engine)
{
    const struct rp_alerts *alerts = engine->alerts;
    json_t *kinds = json_array(), *disks = json_array();
    for (enum rp_alert_kind kind = 0; alerts && kind < RP_ALERT_KINDS; kind++)
        json_array_append_new(kinds, alert_object(alerts, kind));
    for (size_t i = 0; alerts && i < alerts->disk_count; i++) {
        struct rp_disk_answer answer = rp_disk_watch_answer(alerts->disks[i]);
        json_t *bytes = answer.at_ns ? json_integer((json_int_t)answer.free_bytes) : json_null();
        json_array_append_new(disks,
                              json_pack("{s:o, s:o, s:o}", "directory",
                                        utf8(rp_disk_watch_path(alerts->disks[i])), "free_bytes",
                                        bytes, "age_seconds", seconds_since(answer.at_ns)));
    }
    json_object_set_new(object, "alerts", kinds);
    json_object_set_new(object, "disks", disks);
}

/* ---- opening --------------------------------------------------------------------------------- */

int rp_engine_watch_disks(struct rp_engine *engine, struct rp_error *error)
{
    struct rp_alerts *alerts = engine->alerts;
    const char *const paths[DISKS_MAX] = {engine->config->checkpoint_dir,
                                          engine->config->checkpoint_copy_dir,
                                          engine->cache ? rp_cache_place(engine->cache) : NULL};
    int code = 0;
    for (size_t i = 0; alerts && i < DISKS_MAX && code == 0; i++)
        if (paths[i] && alerts->limits.free_bytes > 0)
            code = rp_disk_watch_open(&alerts->disks[alerts->disk_count++], paths[i],
                                      DISK_PERIOD_NS, rp_disk_room, error);
    return code;
}

int rp_engine_open_alerts(struct rp_engine *engine, struct rp_error *error)
{
    const struct rp_config *config = engine->config;
    if (!config->alert_command && config->alert_starved_ms == 0 && config->alert_skew_rows == 0 &&
        config->alert_disk_free == 0)
        return 0;
    engine->alerts = rp_calloc(1, sizeof *engine->alerts);
    if (!engine->alerts)
        return rp_fail(error, -ENOMEM, NULL, "out of memory at start");
    engine->alerts->limits = (struct rp_alert_limits){.starved_ns = config->alert_starved_ms *
                                                                    UINT64_C(1000000),
                                                      .skew_rows = config->alert_skew_rows,
                                                      .free_bytes = config->alert_disk_free};
    int code = config->alert_command
                   ? rp_alert_command_open(&engine->alerts->command, config->alert_command,
                                           &patience, error)
                   : 0;
    return code;
}

void rp_engine_close_alerts(struct rp_engine *engine)
{
    if (!engine->alerts)
        return;
    for (size_t i = 0; i < engine->alerts->disk_count; i++)
        rp_disk_watch_close(engine->alerts->disks[i]);
    rp_alert_command_close(engine->alerts->command);
    free(engine->alerts);
    engine->alerts = NULL;
}
