/* SPDX-License-Identifier: Apache-2.0 */
/* saves_report.c — the output of `ringpack bench --checkpoint`. */
#include <jansson.h>
#include <stdio.h>

#include "base/bits.h"
#include "bench/saves.h"
#include "cmd.h"
#include "interrupt.h"

static const struct {
    const char *key, *what;
} parts[] = {
#define PART_TEXT(name, key, what) {key, what},
    RP_BENCH_PARTS(PART_TEXT)
#undef PART_TEXT
};

static const double intervals[] = {10, 60, 300, 900, 3600}; /* seconds */

/* The share of a run that saves so often: at most all of it. */
static double cost_at(const struct rp_bench_saves *saves, double interval)
{
    double share = saves->lost_seconds / interval;
    return share < 1 ? share : 1;
}

static double busy_at(const struct rp_bench_saves *saves, double interval)
{
    double share = saves->busy_seconds / interval;
    return share < 1 ? share : 1;
}

static double steps_in(const struct rp_bench_saves *saves, double seconds)
{
    double step = saves->batch_seconds * saves->step_batches;
    return step > 0 ? seconds / step : 0;
}

static char *time_text(double seconds, char text[RP_CMD_TEXT_BYTES])
{
    if (seconds >= 0.1)
        return rp_cmd_seconds_text(seconds, text);
    snprintf(text, RP_CMD_TEXT_BYTES, seconds < 1e-3 ? "%.0f us" : "%.1f ms",
             seconds * (seconds < 1e-3 ? 1e6 : 1e3));
    return text;
}

static void print_time(const char *label, double seconds, const char *rest)
{
    char text[RP_CMD_TEXT_BYTES];
    printf("  %-18s%12s  %s\n", label, time_text(seconds, text), rest);
}

static void print_pause(const char *label, const struct rp_bench_pause *pause)
{
    char a[RP_CMD_TEXT_BYTES], b[RP_CMD_TEXT_BYTES], c[RP_CMD_TEXT_BYTES];
    if (pause->calls)
        printf("  %-18s%12s%12s%12s\n", label, time_text(pause->median, a),
               time_text(pause->p99, b), time_text(pause->longest, c));
}

static void print_intervals(const struct rp_bench_saves *saves)
{
    char text[RP_CMD_TEXT_BYTES];
    printf("%-20s%12s%12s%12s\n", "a save every", "costs", "disk busy", "steps");
    for (size_t i = 0; i < RP_ARRAY_COUNT(intervals); i++)
        printf("  %-18s%10.4f %%%10.3f %%%12.0f\n", rp_cmd_seconds_text(intervals[i], text),
               100 * cost_at(saves, intervals[i]), 100 * busy_at(saves, intervals[i]),
               steps_in(saves, intervals[i]));
}

void rp_bench_print_saves(const struct rp_bench_saves *saves)
{
    char bytes[RP_CMD_TEXT_BYTES], text[RP_CMD_TEXT_BYTES], steps[RP_CMD_TEXT_BYTES], rest[64];
    if (saves->count == 0) {
        puts("no save was measured");
        return;
    }
    printf("a checkpoint        %12s  medians of %zu saves\n",
           rp_cmd_bytes_text((uint64_t)saves->bytes, bytes), saves->count);
    print_time("save", saves->seconds, "until it is acknowledged: durable under its name");
    for (int i = 0; i < RP_BENCH_PART_COUNT; i++)
        print_time(parts[i].key, saves->parts[i], parts[i].what);
    snprintf(rest, sizeof rest, "and fsync of the same bytes: a save has %.2f of its rate",
             saves->per_plain);
    print_time("plain write", saves->plain_seconds, rest);
    printf("%-20s%12s%12s%12s\n", "next() of a trainer", "median", "p99", "longest");
    print_pause("no save", &saves->quiet);
    print_pause("during a save", &saves->saving);
    print_time("lost by a save", saves->lost_seconds, "of each trainer's time");
    if (!saves->began_full)
        puts("the rings were not full when the first save began: give more --seconds or --step-ms");
    print_intervals(saves);
    printf("a save every %s, which is %s steps of these trainers, costs at most 0.1 %%\n",
           time_text(saves->cheap_seconds, text),
           rp_cmd_count_text((uint64_t)steps_in(saves, saves->cheap_seconds) + 1, steps));
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *pause_object(const struct rp_bench_pause *pause)
{
    return json_pack("{s:I, s:f, s:f, s:f}", "calls", (json_int_t)pause->calls, "median_seconds",
                     pause->median, "p99_seconds", pause->p99, "longest_seconds", pause->longest);
}

static json_t *intervals_array(const struct rp_bench_saves *saves)
{
    json_t *array = json_array();
    for (size_t i = 0; i < RP_ARRAY_COUNT(intervals); i++)
        json_array_append_new(array, json_pack("{s:f, s:f, s:f, s:f}", "seconds", intervals[i],
                                               "cost", cost_at(saves, intervals[i]), "disk_busy",
                                               busy_at(saves, intervals[i]), "steps",
                                               steps_in(saves, intervals[i])));
    return array;
}

void rp_bench_print_saves_json(const struct rp_bench_saves *saves)
{
    json_t *times = json_object();
    for (int i = 0; i < RP_BENCH_PART_COUNT; i++)
        json_object_set_new(times, parts[i].key, json_real(saves->parts[i]));
    rp_cmd_print_json(json_pack(
        "{s:b, s:b, s:I, s:I, s:f, s:f, s:o, s:f, s:f, s:o, s:o, s:f, s:f, s:o, s:{s:f, s:f}}",
        "interrupted", rp_interrupted(), "began_full", saves->began_full, "saves",
        (json_int_t)saves->count, "bytes", (json_int_t)saves->bytes, "seconds", saves->seconds,
        "busy_seconds", saves->busy_seconds, "parts_seconds", times, "plain_write_seconds",
        saves->plain_seconds, "save_per_plain_write", saves->per_plain, "next_without_save",
        pause_object(&saves->quiet), "next_during_save", pause_object(&saves->saving),
        "lost_seconds", saves->lost_seconds, "batch_seconds", saves->batch_seconds, "intervals",
        intervals_array(saves), "costs_a_thousandth", "seconds", saves->cheap_seconds, "steps",
        steps_in(saves, saves->cheap_seconds)));
}
