/* SPDX-License-Identifier: Apache-2.0 */
/* All samples of a family stand together, as OpenMetrics requires, so each family walks over all
 * runs. A value that an answer lacks, or has as another type, is left out. */
#include "metrics/text.h"

#include <string.h>

#include "base/escape.h"
#include "base/clock.h"
#include "metrics/families.h"

#define PREFIX "ringpack_"

struct writer {
    FILE *out;
    enum rp_metrics_form form;
};

/* A label's value: backslash, quote and line feed are escaped, and other control characters have
 * their octal digits, as in a terminal: pages that draw a name would obey them. */
static void put_escaped(FILE *out, const char *text)
{
    for (; *text; text++) {
        size_t controls = *text == '\n' ? 0 : rp_control_bytes(text);
        for (size_t i = 0; i < controls; i++)
            fprintf(out, "\\\\%03o", (unsigned char)text[i]);
        if (controls) {
            text += controls - 1;
            continue;
        }
        if (*text == '\n') {
            fputs("\\n", out);
            continue;
        }
        if (*text == '\\' || *text == '"')
            putc('\\', out);
        putc(*text, out);
    }
}

/* A metric type, and the suffix that its # TYPE line carries. */
struct kind {
    const char *type, *old_type, *suffix;
};
static const struct kind gauge = {"gauge", "gauge", ""}, counter = {"counter", "counter", "_total"},
                         histogram = {"histogram", "histogram", ""},
                         stateset = {"stateset", "gauge", ""}, info = {"info", "gauge", "_info"};

/* `help` needs no escapes: families.c has plain words. */
static void put_head(const struct writer *to, const char *name, const struct kind *kind,
                     const char *unit, const char *help)
{
    bool is_open = to->form == RP_METRICS_OPEN;
    const char *suffix = is_open ? "" : kind->suffix;
    fprintf(to->out, "# TYPE " PREFIX "%s%s %s\n", name, suffix,
            is_open ? kind->type : kind->old_type);
    if (unit && is_open)
        fprintf(to->out, "# UNIT " PREFIX "%s %s\n", name, unit);
    fprintf(to->out, "# HELP " PREFIX "%s%s %s\n", name, suffix, help);
}

static void put_label(FILE *out, const char *name, const json_t *value)
{
    fprintf(out, ",%s=\"", name);
    if (json_is_string(value))
        put_escaped(out, json_string_value(value));
    else if (json_is_integer(value))
        fprintf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    putc('"', out);
}

/* ---- families of the engine's answer --------------------------------------------------------- */

/* The value of a key; a dot leads into an object. */
static const json_t *find(const json_t *object, const char *key)
{
    char part[64];
    const char *dot = strchr(key, '.');
    if (!dot)
        return json_object_get(object, key);
    snprintf(part, sizeof part, "%.*s", (int)(dot - key), key);
    return find(json_object_get(object, part), dot + 1);
}

static void put_sample(FILE *out, const struct rp_family_group *group,
                       const struct rp_family *family, const char *run, const json_t *object)
{
    const json_t *value = find(object, family->key);
    if (!json_is_number(value) && !json_is_boolean(value))
        return;
    fprintf(out, PREFIX "%s%s{run=\"%s\"", family->name, family->type == RP_COUNTER ? "_total" : "",
            run);
    for (size_t i = 0; i < RP_LABELS_MAX && group->labels[i]; i++)
        put_label(out, group->labels[i], json_object_get(object, group->labels[i]));
    if (json_is_real(value))
        fprintf(out, "} %.15g\n", json_real_value(value));
    else if (json_is_integer(value))
        fprintf(out, "} %" JSON_INTEGER_FORMAT "\n", json_integer_value(value));
    else
        fprintf(out, "} %d\n", json_is_true(value));
}

static void put_family(const struct writer *to, const struct rp_watch *watch,
                       const struct rp_family_group *group, const struct rp_family *family)
{
    FILE *out = to->out;
    put_head(to, family->name, family->type == RP_COUNTER ? &counter : &gauge, family->unit,
             family->help);
    for (size_t i = 0; i < watch->count; i++) {
        const struct rp_watched *run = &watch->runs[i];
        if (run->state != RP_WATCH_RUNNING)
            continue;
        if (!group->array)
            put_sample(out, group, family, run->run, run->stat);
        const json_t *array = group->array ? json_object_get(run->stat, group->array) : NULL;
        for (size_t n = 0; n < json_array_size(array); n++)
            put_sample(out, group, family, run->run, json_array_get(array, n));
    }
}

/* ---- waits ----------------------------------------------------------------------------------- */

/* Bucket i has the waits below 2^i microseconds, the last one all others. */
static void put_histogram(FILE *out, const char *run, const json_t *rank)
{
    const json_t *counts = json_object_get(rank, "wait_histogram");
    json_int_t number = json_integer_value(json_object_get(rank, "rank")),
               replica = json_integer_value(json_object_get(rank, "replica")), sum = 0;
    char labels[160];
    snprintf(labels, sizeof labels,
             "{run=\"%s\",rank=\"%" JSON_INTEGER_FORMAT "\",replica=\"%" JSON_INTEGER_FORMAT "\"",
             run, number, replica);
    size_t count = json_array_size(counts);
    for (size_t i = 0; i < count && i < 63; i++) {
        sum += json_integer_value(json_array_get(counts, i));
        fprintf(out, PREFIX "rank_wait_seconds_bucket%s,le=\"", labels);
        if (i + 1 < count)
            fprintf(out, "%.10g\"} %" JSON_INTEGER_FORMAT "\n", 1e-6 * (double)(UINT64_C(1) << i),
                    sum);
        else
            fprintf(out, "+Inf\"} %" JSON_INTEGER_FORMAT "\n", sum);
    }
    if (count > 0)
        fprintf(out,
                PREFIX "rank_wait_seconds_count%s} %" JSON_INTEGER_FORMAT "\n" PREFIX
                       "rank_wait_seconds_sum%s} %.9g\n",
                labels, sum, labels, json_number_value(json_object_get(rank, "wait_seconds")));
}

/* The waits of the rank: a sample for each cause that the engine names. */
static void put_rank_causes(FILE *out, const char *run, const json_t *rank)
{
    json_t *causes = json_object_get(rank, "cause_seconds");
    for (void *i = json_object_iter(causes); i; i = json_object_iter_next(causes, i)) {
        fprintf(out, PREFIX "rank_wait_cause_seconds_total{run=\"%s\"", run);
        put_label(out, "rank", json_object_get(rank, "rank"));
        put_label(out, "replica", json_object_get(rank, "replica"));
        fputs(",cause=\"", out);
        put_escaped(out, json_object_iter_key(i));
        fprintf(out, "\"} %.9g\n", json_number_value(json_object_iter_value(i)));
    }
}

static void put_of_ranks(const struct writer *to, const struct rp_watch *watch,
                         void (*put)(FILE *out, const char *run, const json_t *rank))
{
    for (size_t i = 0; i < watch->count; i++) {
        const struct rp_watched *run = &watch->runs[i];
        const json_t *ranks = json_object_get(run->stat, "ranks");
        for (size_t n = 0; run->state == RP_WATCH_RUNNING && n < json_array_size(ranks); n++)
            put(to->out, run->run, json_array_get(ranks, n));
    }
}

static void put_waits(const struct writer *to, const struct rp_watch *watch)
{
    put_head(to, "rank_wait_seconds", &histogram, "seconds",
             "Waits of the rank's trainers for a batch that was not there.");
    put_of_ranks(to, watch, put_histogram);
    put_head(to, "rank_wait_cause_seconds", &counter, "seconds",
             "Time that the rank's trainers waited for a stage, as seen ten times a second.");
    put_of_ranks(to, watch, put_rank_causes);
}

/* ---- families of the watch itself ------------------------------------------------------------ */

static void put_states(const struct writer *to, const struct rp_watch *watch)
{
    FILE *out = to->out;
    put_head(to, "engine_up", &gauge, NULL, "1 if the engine of the run answers.");
    for (size_t i = 0; i < watch->count; i++)
        fprintf(out, PREFIX "engine_up{run=\"%s\"} %d\n", watch->runs[i].run,
                watch->runs[i].state == RP_WATCH_RUNNING);
    put_head(to, "engine_state", &stateset, NULL, "State of the engine of the run.");
    for (size_t i = 0; i < watch->count; i++)
        for (unsigned state = 0; state < RP_WATCH_STATE_COUNT; state++)
            fprintf(out, PREFIX "engine_state{run=\"%s\"," PREFIX "engine_state=\"%s\"} %d\n",
                    watch->runs[i].run, rp_watch_state_word(state), watch->runs[i].state == state);
}

static void put_info(const struct writer *to, const struct rp_watch *watch)
{
    FILE *out = to->out;
    static const char *const keys[] = {"version", "stream", "io"};
    put_head(to, "engine", &info, NULL, "Facts that do not change while an engine lives.");
    for (size_t i = 0; i < watch->count; i++) {
        const struct rp_watched *run = &watch->runs[i];
        if (run->state != RP_WATCH_RUNNING)
            continue;
        fprintf(out, PREFIX "engine_info{run=\"%s\",pid=\"%d\"", run->run, run->pid);
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            put_label(out, keys[k], json_object_get(run->stat, keys[k]));
        fputs("} 1\n", out);
    }
}

static void put_times(const struct writer *to, const struct rp_watch *watch)
{
    FILE *out = to->out;
    uint64_t now = rp_now_ns();
    put_head(to, "answer_age_seconds", &gauge, "seconds",
             "Time since the engine's last answer, also of an engine that has ended.");
    for (size_t i = 0; i < watch->count; i++)
        if (watch->runs[i].stat)
            fprintf(out, PREFIX "answer_age_seconds{run=\"%s\"} %.3f\n", watch->runs[i].run,
                    (double)(now - watch->runs[i].answered_ns) * 1e-9);
    put_head(to, "engine_uptime_seconds", &gauge, "seconds",
             "Time since the engine's process began.");
    for (size_t i = 0; i < watch->count; i++) {
        bool lives = watch->runs[i].state == RP_WATCH_RUNNING;
        double uptime = lives ? rp_watch_uptime(watch->runs[i].pid) : -1;
        if (uptime >= 0)
            fprintf(out, PREFIX "engine_uptime_seconds{run=\"%s\"} %.2f\n", watch->runs[i].run,
                    uptime);
    }
}

void rp_metrics_text(FILE *out, const struct rp_watch *watch, enum rp_metrics_form form)
{
    struct writer to = {out, form};
    put_states(&to, watch);
    put_info(&to, watch);
    put_times(&to, watch);
    put_waits(&to, watch);
    for (size_t g = 0; g < rp_family_group_count; g++)
        for (size_t f = 0; f < rp_family_groups[g].count; f++)
            put_family(&to, watch, &rp_family_groups[g], &rp_family_groups[g].families[f]);
    if (form == RP_METRICS_OPEN)
        fputs("# EOF\n", out);
}

/* ---- health ---------------------------------------------------------------------------------- */

static bool is_ill(const struct rp_watched *run)
{
    switch (run->state) {
    case RP_WATCH_SILENT:
    case RP_WATCH_KILLED:
    case RP_WATCH_REFUSED:
        return true;
    case RP_WATCH_STOPPED:
        return run->is_named;
    default:
        return false;
    }
}

bool rp_metrics_health(FILE *out, const struct rp_watch *watch)
{
    size_t ill = 0, up = 0, finished = 0;
    for (size_t i = 0; i < watch->count; i++) {
        const struct rp_watched *run = &watch->runs[i];
        up += run->state == RP_WATCH_RUNNING;
        finished += run->state == RP_WATCH_FINISHED;
        ill += is_ill(run);
        fprintf(out, "run `%s`: %s: %s\n", run->run, rp_watch_state_word(run->state), run->why);
    }
    if (up + finished == 0)
        fputs("no engine answers\n", out);
    if (watch->is_full)
        fprintf(out, "more than %u runs: the others are not watched\n", RP_WATCHED_MAX);
    return ill == 0 && up + finished > 0;
}
