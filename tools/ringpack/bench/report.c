/* SPDX-License-Identifier: Apache-2.0 */
/* report.c — the output of `ringpack bench`: a table for people, or JSON with units in its keys. */
#include <jansson.h>
#include <stdio.h>

#include "bench/bench.h"
#include "cmd.h"
#include "interrupt.h"

#define THREADS_SHOWN 4u
#define BUSY_SHOWN 0.02 /* threads that were less busy are not shown */

static double bytes_of(const struct rp_bench *bench, double tokens)
{
    return tokens * (double)bench->bytes / (double)bench->tokens;
}

static void print_line(const struct rp_bench *bench, const char *name, double tokens_per_second,
                       double cpu_seconds, const char *rest)
{
    char tokens[RP_CMD_TEXT_BYTES], bytes[RP_CMD_TEXT_BYTES];
    printf("  %-18s%10s%12s/s%13.3f  %s\n", name, rp_cmd_short_text(tokens_per_second, tokens),
           rp_cmd_bytes_text((uint64_t)bytes_of(bench, tokens_per_second), bytes), cpu_seconds,
           rest);
}

static const char *plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

static void print_run(const struct rp_bench *bench, const struct rp_bench_run *run)
{
    if (run->skipped)
        printf("  %-18snot measured: %s\n", run->name, run->skipped);
    if (!run->measured)
        return;
    char rest[96];
    bool one = bench->config->rank_count == 1;
    snprintf(rest, sizeof rest, "%s %.0f %% of the time, cores are busy %.0f %%",
             one ? "the trainer waits" : "trainers wait", 100 * run->trainer_waits,
             100 * run->processor);
    print_line(bench, run->name, run->tokens_per_second, run->cpu_seconds, rest);
}

static void print_bottleneck(const struct rp_bench_run *run)
{
    if (!run->measured)
        return;
    printf("%s is held back by: %s (%s)\n", run->name, rp_bench_bottleneck_name(run->bottleneck),
           run->why);
    printf("  threads of the engine:");
    for (size_t i = 0; i < run->threads.count && i < THREADS_SHOWN; i++) {
        double busy = run->threads.thread[i].seconds / run->seconds;
        if (busy >= BUSY_SHOWN)
            printf("  %s %.0f %%", run->threads.thread[i].name, 100 * busy);
    }
    putchar('\n');
}

void rp_bench_print(const struct rp_bench *bench)
{
    const struct rp_config *config = bench->config;
    char documents[RP_CMD_TEXT_BYTES], tokens[RP_CMD_TEXT_BYTES], bytes[RP_CMD_TEXT_BYTES];
    printf("corpus    %s token%s in %s document%s, %s\n", rp_cmd_count_text(bench->tokens, tokens),
           plural(bench->tokens), rp_cmd_count_text(bench->documents, documents),
           plural(bench->documents), rp_cmd_bytes_text(bench->bytes, bytes));
    printf("batches   %u row%s of %u token%s, %u of %u rank%s here, %u core%s\n\n",
           config->batch_size, plural(config->batch_size), config->seq_len, plural(config->seq_len),
           config->rank_count, config->dp_world_size, plural(config->dp_world_size), bench->cores,
           plural(bench->cores));
    printf("%-20s%10s%14s%13s\n", "", "tokens/s", "stored", "CPU s/Gtok");
    puts("limits of this machine");
    for (int i = 0; i < RP_BENCH_LIMITS; i++)
        if (bench->limits[i].measured)
            print_line(bench, bench->limits[i].name, bench->limits[i].tokens_per_second,
                       bench->limits[i].cpu_seconds, bench->limits[i].what);
    bool has_runs = false;
    for (int i = 0; i < RP_BENCH_RUNS; i++)
        has_runs |= bench->runs[i].measured || bench->runs[i].skipped;
    if (!has_runs)
        return;
    puts("delivered to trainers (CPU of the engine)");
    for (int i = 0; i < RP_BENCH_RUNS; i++)
        print_run(bench, &bench->runs[i]);
    putchar('\n');
    for (int i = 0; i < RP_BENCH_RUNS; i++)
        print_bottleneck(&bench->runs[i]);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *limits_object(const struct rp_bench *bench)
{
    static const char *const keys[RP_BENCH_LIMITS] = {"memcpy", "planning", "reading_hot",
                                                      "reading_cold"};
    json_t *object = json_object();
    for (int i = 0; i < RP_BENCH_LIMITS; i++) {
        const struct rp_bench_limit *limit = &bench->limits[i];
        if (limit->measured)
            json_object_set_new(object, keys[i],
                                json_pack("{s:f, s:f, s:f}", "tokens_per_second",
                                          limit->tokens_per_second, "bytes_per_second",
                                          bytes_of(bench, limit->tokens_per_second),
                                          "cpu_seconds_per_gtok", limit->cpu_seconds));
    }
    return object;
}

static json_t *threads_array(const struct rp_bench_run *run)
{
    json_t *array = json_array();
    for (size_t i = 0; i < run->threads.count; i++)
        json_array_append_new(array,
                              json_pack("{s:s, s:f}", "name", run->threads.thread[i].name, "busy",
                                        run->threads.thread[i].seconds / run->seconds));
    return array;
}

static json_t *run_object(const struct rp_bench *bench, const struct rp_bench_run *run)
{
    if (!run->measured)
        return run->skipped ? json_pack("{s:s}", "skipped", run->skipped) : json_null();
    return json_pack(
        "{s:f, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:s, s:s, s:o}", "seconds", run->seconds,
        "batches", (json_int_t)run->batches, "tokens", (json_int_t)run->tokens, "tokens_per_second",
        run->tokens_per_second, "bytes_per_second", bytes_of(bench, run->tokens_per_second),
        "cpu_seconds_per_gtok", run->cpu_seconds, "trainers_wait", run->trainer_waits, "cores_busy",
        run->processor, "held_back_by", rp_bench_bottleneck_name(run->bottleneck), "why", run->why,
        "threads", threads_array(run));
}

void rp_bench_print_json(const struct rp_bench *bench)
{
    json_t *object = json_pack(
        "{s:b, s:{s:I, s:I, s:I}, s:i, s:o, s:o, s:o, s:o}", "interrupted", rp_interrupted(),
        "corpus", "tokens", (json_int_t)bench->tokens, "documents", (json_int_t)bench->documents,
        "bytes", (json_int_t)bench->bytes, "cores", (int)bench->cores, "limits",
        limits_object(bench), "hot", run_object(bench, &bench->runs[RP_BENCH_HOT]), "cold",
        run_object(bench, &bench->runs[RP_BENCH_COLD]), "store",
        run_object(bench, &bench->runs[RP_BENCH_STORE]));
    rp_cmd_print_json(object);
}
