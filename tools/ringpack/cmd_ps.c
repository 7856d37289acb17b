/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_ps.c — `ringpack ps`: the engines of this node and user, one line for each. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cmd.h"
#include "options.h"
#include "watch/watch.h"

#define PATIENCE_NS UINT64_C(1000000000)

struct arguments {
    struct rp_cmd_line line;
    bool all, json;
};

static const struct rp_option options[] = {
    {RP_FLAG("all", struct arguments, all), .letter = 'a',
     .help = "also runs whose engine was killed and not started again"},
    {RP_FLAG("json", struct arguments, json), .help = "print JSON"},
    {0},
};

static void print_run(const struct rp_watched *run)
{
    char uptime[RP_CMD_TEXT_BYTES] = "-", row[RP_CMD_TEXT_BYTES] = "-";
    char speed[RP_CMD_TEXT_BYTES] = "-", ranks[RP_CMD_TEXT_BYTES] = "-", pid[16] = "-";
    bool runs = run->state == RP_WATCH_RUNNING;
    double seconds = rp_watch_lives(run) ? rp_watch_uptime(run->pid) : -1;
    if (seconds >= 0)
        rp_cmd_seconds_text(seconds, uptime);
    if (rp_watch_lives(run) && run->pid > 0)
        snprintf(pid, sizeof pid, "%d", run->pid);
    if (runs) {
        const json_t *array = json_object_get(run->stat, "ranks");
        rp_cmd_count_text((uint64_t)rp_watch_number(run->stat, "next_row"), row);
        rp_cmd_short_text(rp_watch_number(run->stat, "tokens_per_second_1min"), speed);
        snprintf(ranks, sizeof ranks, "%zu of %zu", rp_watch_attached(run->stat),
                 json_array_size(array));
    }
    printf("%-24s %-9s %8s %14s %16s %10s %9s\n", run->run, rp_watch_state_word(run->state), pid,
           uptime, row, speed, ranks);
}

static void print_table(const struct rp_watch *watch)
{
    if (watch->count == 0) {
        printf("no engine is running\n");
        return;
    }
    printf("%-24s %-9s %8s %14s %16s %10s %9s\n", "run", "state", "pid", "uptime", "next row",
           "tokens/s", "trainers");
    for (size_t i = 0; i < watch->count; i++)
        print_run(&watch->runs[i]);
    if (watch->is_full)
        printf("and more: at most %u runs are listed\n", RP_WATCHED_MAX);
}

static void print_json(const struct rp_watch *watch)
{
    json_t *array = json_array();
    uint64_t now = rp_now_ns();
    for (size_t i = 0; i < watch->count; i++)
        json_array_append_new(array, rp_watch_json(&watch->runs[i], now));
    rp_cmd_print_json(array);
}

static int run(const struct arguments *arguments)
{
    struct rp_watch watch;
    struct rp_error error = {0};
    const char *run_dir = arguments->line.run_dir;
    if (run_dir && access(run_dir, F_OK) < 0) { /* a mistyped name has no engines either */
        (void)rp_fail(&error, -errno, "leave --run-dir out for the default ones",
                      "run directory %s: %s", run_dir, strerror(errno));
        return rp_cmd_report(&error);
    }
    int code = rp_watch_open(&watch, run_dir, arguments->line.words, arguments->line.count, &error);
    watch.finds_leftovers = arguments->all;
    if (code == 0)
        code = rp_watch_poll(&watch, PATIENCE_NS, &error);
    bool all_run = true;
    for (size_t i = 0; i < watch.count; i++)
        all_run &= watch.runs[i].state == RP_WATCH_RUNNING || !watch.runs[i].is_named;
    if (code == 0 && arguments->json)
        print_json(&watch);
    else if (code == 0)
        print_table(&watch);
    rp_watch_close(&watch);
    if (code < 0)
        return rp_cmd_report(&error);
    return all_run ? RP_EXIT_FINE : RP_EXIT_DIFFERS;
}

int rp_cmd_ps(int argc, char **argv)
{
    static const struct rp_verb verb = {
        .name = "ps",
        .usage = "[RUN...]",
        .help = "List the engines of this machine and user.",
        .notes = "Exit status 1: a named run has no engine, or one that does not answer.",
        .options = options,
        .takes = RP_TAKES_RUN,
        .words_most = SIZE_MAX};
    struct arguments arguments = {0};
    if (rp_cmd_parse(&verb, argc, argv, &arguments) != RP_EXIT_FINE)
        return RP_EXIT_TROUBLE;
    return run(&arguments);
}
