/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_bench.c — `ringpack bench`: how fast a config is on this machine, how fast the machine could
 * be, and the cause of the difference.
 *
 * Order: the limits of the machine; the config with the corpus in the page cache; the config with
 * the corpus dropped from it; the report, which is also printed after an interrupt. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/available.h"
#include "bench/bench.h"
#include "bench/saves.h"
#include "cmd.h"
#include "stream.h"
#include "interrupt.h"

#define SECONDS_STANDARD 10.0
#define SECONDS_MIN 0.05
#define SECONDS_MAX 3600.0
#define STEP_MS_STANDARD 10u
#define STEP_MS_MAX 60000u

struct arguments {
    struct rp_cmd_line line;
    double seconds;
    uint64_t step_ms;
    bool hot, cold, limits, checkpoint, step_given, json, verbose;
};

static bool take_seconds(const char *text, void *place)
{
    char *end;
    double *seconds = place;
    errno = 0;
    *seconds = strtod(text, &end);
    return errno == 0 && end != text && !*end && *seconds >= SECONDS_MIN && *seconds <= SECONDS_MAX;
}

static const struct rp_option own_options[] = {
    {RP_TAKE("seconds", "S", struct arguments, seconds, take_seconds),
     .expected = "a number from 0.05 to 3600", .help = "measure each run for S seconds (10)"},
    {RP_FLAG("hot", struct arguments, hot), .help = "only with the corpus in the page cache"},
    {RP_FLAG("cold", struct arguments, cold),
     .help = "only with the corpus dropped from the page cache"},
    {RP_FLAG("limits", struct arguments, limits),
     .help = "measure the limits of the machine only: no engine is started"},
    {RP_FLAG("checkpoint", struct arguments, checkpoint),
     .help = "measure saves instead: their parts, the pauses of trainers, and their cost by "
             "interval"},
    {RP_COUNT("step-ms", "N", struct arguments, step_ms),
     .given = offsetof(struct arguments, step_given), .most = STEP_MS_MAX,
     .help = "with --checkpoint: a trainer takes N ms for a batch (10)"},
    {RP_FLAG("json", struct arguments, json), .help = "print JSON"},
    {RP_FLAG("verbose", struct arguments, verbose), .letter = 'v',
     .help = "show the output of engine and trainers"},
    {0},
};

static int check(void *argument)
{
    const struct arguments *a = argument;
    if (a->step_given && !a->checkpoint)
        return rp_cmd_misuse("bench", "--step-ms needs --checkpoint");
    if (a->checkpoint && (a->hot || a->cold || a->limits))
        return rp_cmd_misuse("bench", "--hot, --cold and --limits exclude --checkpoint");
    return RP_EXIT_FINE;
}

/* The first shard that is an object in a store, or NULL. */
static const struct rp_shard *find_object(const struct rp_corpus *corpus)
{
    for (uint32_t i = 0; i < rp_corpus_data_count(corpus); i++)
        if (rp_corpus_shard(corpus, i)->url)
            return rp_corpus_shard(corpus, i);
    return NULL;
}

static int check_files(const struct arguments *arguments, const struct rp_shard *object,
                       struct rp_error *error)
{
    return object && (arguments->hot || arguments->cold)
               ? rp_fail(error, -RP_E_USAGE, "leave --hot and --cold away",
                         "%s: an object in a store is not in the page cache", object->path)
               : 0;
}

static int count_corpus(struct rp_bench *bench, struct rp_error *error)
{
    for (uint32_t i = 0; i < rp_corpus_source_count(bench->corpus); i++) {
        bench->documents += rp_source_documents(rp_corpus_source(bench->corpus, i));
        bench->tokens += rp_source_tokens(rp_corpus_source(bench->corpus, i));
    }
    for (uint32_t i = 0; i < rp_corpus_data_count(bench->corpus); i++)
        bench->bytes += rp_corpus_shard(bench->corpus, i)->bytes;
    return bench->tokens ? 0 : rp_fail(error, -RP_E_FORMAT, NULL, "the corpus has no token");
}

static int measure_limits(struct rp_bench *bench, bool hot, bool cold, struct rp_error *error)
{
    int code = rp_bench_measure_limit(bench, RP_BENCH_MEMCPY, error);
    if (code >= 0)
        code = rp_bench_measure_limit(bench, RP_BENCH_PLAN, error);
    if (code >= 0 && cold)
        code = rp_bench_cool(bench, error);
    if (code >= 0 && cold)
        code = rp_bench_measure_limit(bench, RP_BENCH_READ_COLD, error);
    if (code >= 0 && hot)
        code = rp_bench_warm(bench, error);
    if (code >= 0 && hot)
        code = rp_bench_measure_limit(bench, RP_BENCH_READ_HOT, error);
    return code;
}

/* Returns 0 also after an interrupt, because measurements are reported. */
static int measure_run(struct rp_bench *bench, int which, struct rp_error *error)
{
    int code = rp_interrupted() ? 0 : rp_bench_measure_run(bench, &bench->runs[which], error);
    return rp_interrupted() ? 0 : code;
}

static int measure(const struct arguments *arguments, struct rp_bench *bench, bool hot, bool cold,
                   struct rp_error *error)
{
    bool fits = bench->bytes < rp_memory_available().bytes / 2;
    if (hot && !fits)
        bench->runs[RP_BENCH_HOT].skipped = "the corpus does not fit into half of the memory";
    hot = hot && fits;
    int code = measure_limits(bench, hot, cold, error);
    if (code < 0 || arguments->limits)
        return rp_interrupted() ? 0 : code;
    if (hot)
        code = measure_run(bench, RP_BENCH_HOT, error);
    if (code >= 0 && cold && !rp_interrupted())
        code = rp_bench_cool(bench, error);
    if (code >= 0 && cold)
        code = measure_run(bench, RP_BENCH_COLD, error);
    return rp_interrupted() ? 0 : code;
}

/* Plain reads of a store are not measured: they would be paid for twice. */
static int measure_store(const struct arguments *arguments, struct rp_bench *bench,
                         struct rp_error *error)
{
    int code = measure_limits(bench, false, false, error);
    return code < 0 || arguments->limits ? code : measure_run(bench, RP_BENCH_STORE, error);
}

/* With no save at all, an interrupt has ended it too early. */
static int bench_saves(const struct arguments *arguments, struct rp_bench *bench,
                       struct rp_error *error)
{
    struct rp_bench_saves saves = {.count = 0};
    int code = rp_bench_measure_saves(bench, (double)arguments->step_ms / 1000, &saves, error);
    if (code >= 0 && arguments->json)
        rp_bench_print_saves_json(&saves);
    else if (code >= 0)
        rp_bench_print_saves(&saves);
    return code;
}

static int bench_speed(const struct arguments *arguments, struct rp_bench *bench,
                       struct rp_error *error)
{
    bool both = arguments->hot == arguments->cold;
    const struct rp_shard *object = find_object(bench->corpus);
    int code = check_files(arguments, object, error);
    if (code >= 0)
        code = object ? measure_store(arguments, bench, error)
                      : measure(arguments, bench, both || arguments->hot, both || arguments->cold,
                                error);
    if (code >= 0 && arguments->json)
        rp_bench_print_json(bench);
    else if (code >= 0)
        rp_bench_print(bench);
    return code;
}

static int bench(void *argument, const struct rp_config *config)
{
    struct arguments *arguments = argument;
    struct rp_error error = {0};
    struct rp_corpus *corpus = NULL;
    struct rp_bench bench = {
        .arguments = &arguments->line,
        .config = config,
        .seconds = arguments->seconds,
        .cores = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN),
        .limits = {[RP_BENCH_MEMCPY] = {.name = "memcpy", .what = "the bytes of the corpus"},
                   [RP_BENCH_PLAN] = {.name = "planning", .what = "no token is touched"},
                   [RP_BENCH_READ_HOT] = {.name = "reading, hot", .what = "in file order"},
                   [RP_BENCH_READ_COLD] = {.name = "reading, cold",
                                           .what = "in file order, past the page cache"}},
        .runs = {[RP_BENCH_HOT] = {.name = "hot"},
                 [RP_BENCH_COLD] = {.name = "cold"},
                 [RP_BENCH_STORE] = {.name = "from stores"}}};
    int code = rp_stream_open_corpus(&corpus, config, false, &error);
    bench.corpus = corpus;
    if (code >= 0)
        code = count_corpus(&bench, &error);
    if (code >= 0)
        code = rp_job_open(&bench.job, NULL, arguments->verbose, &error);
    if (code >= 0) {
        code = arguments->checkpoint ? bench_saves(arguments, &bench, &error)
                                     : bench_speed(arguments, &bench, &error);
        rp_job_close(&bench.job);
    }
    rp_corpus_close(corpus);
    return code < 0 ? rp_cmd_report(&error) : RP_EXIT_FINE;
}

int rp_cmd_bench(int argc, char **argv)
{
    static const struct rp_verb verb = {
        .name = "bench",
        .help = "Benchmark a config against the limits of this machine: memcpy of the same bytes, "
                "plain reads of the files, planning only. The report names the bottleneck.",
        .notes =
            "Every local rank has a trainer that returns each batch at once. `cold` drops the "
            "token files from the page cache first. A corpus in stores is measured once. Ctrl-C "
            "ends the measurement, and the report has all results so far.\n\n"
            "With --checkpoint, the engine saves again and again for S seconds, to a directory "
            "of its own next to checkpoint_dir (it is removed at the end), while trainers take a "
            "batch every --step-ms. The report has the time of each part of a save, the time of "
            "next() during one, and the share of a run that saves cost at each interval. "
            "`-c CHECKPOINT` takes the config of a run.",
        .options = own_options,
        .takes = RP_TAKES_CONFIG,
        .check = check,
        .run = bench};
    struct arguments arguments = {.seconds = SECONDS_STANDARD, .step_ms = STEP_MS_STANDARD};
    return rp_cmd_config_run(&verb, &arguments, argc, argv);
}
