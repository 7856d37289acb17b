/* SPDX-License-Identifier: Apache-2.0 */
/* run.c — one run: the engine of the config, and a trainer process for each local rank that
 * releases every batch at once.
 *
 * The window begins when every rank has had its first batch. At both of its ends the counts are
 * read from shared memory, to which the trainers write them, and from /proc. The engine gets no
 * request while the window is open. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/bits.h"
#include "base/clock.h"
#include "base/mem.h"
#include "bench/bench.h"
#include "cmd.h"
#include "ringpack/client.h"
#include "interrupt.h"

#define SECOND_NS 1e9
#define CONNECT_NS UINT64_C(60000000000)
#define FIRST_BATCH_NS UINT64_C(60000000000)
#define LOOK_NS 2000000u

/* Shares of the time that count as nearly all and as nearly none of it. */
#define BUSY 0.85
#define IDLE 0.05

/* Written by one trainer, read by the parent. The numbers need not be of the same moment. */
struct counts {
    struct rp_a64 batches, tokens, wait_ns;
    uint8_t padding[40]; /* a cache line for each trainer */
};

struct rank {
    struct rp_bench *bench;
    struct counts *counts;
    struct rp_child child;
    uint32_t rank;
};

struct processes {
    struct rp_bench *bench;
    struct rp_child engine;
    struct rank *ranks; /* [rank_count] */
    struct counts *counts;
    uint32_t rank_count;
};

/* The counts of one moment. */
struct sample {
    uint64_t ns;
    double batches, tokens, wait_seconds;
    struct rp_bench_threads engine;
    double trainer_seconds;
};

/* ---- a trainer ------------------------------------------------------------------------------- */

static void publish(struct rank *rank, const struct rp_client *client)
{
    struct rp_client_counts counts = {.struct_size = sizeof counts};
    rp_client_counts(client, &counts);
    rp_a64_store_relaxed(&rank->counts->tokens, counts.tokens);
    rp_a64_store_relaxed(&rank->counts->wait_ns, counts.wait_ns);
    rp_a64_store_relaxed(&rank->counts->batches, counts.batches);
}

static int train(void *argument)
{
    struct rank *rank = argument;
    struct rp_error error = {0};
    struct rp_client *client = NULL;
    struct rp_batch batch = {.struct_size = sizeof batch};
    char *run_dir = rp_job_path(&rank->bench->job, "run");
    struct rp_client_options options = {.struct_size = sizeof options,
                                        .run = RP_JOB_RUN,
                                        .run_dir = run_dir,
                                        .rank = rank->rank,
                                        .connect_timeout_ns = CONNECT_NS};
    int code = rp_client_attach(&client, &options, &error);
    while (code >= 0 && (code = rp_client_next(client, -1, &batch, &error)) == RP_NEXT_BATCH) {
        publish(rank, client);
        code = rp_client_release(client, &batch);
    }
    rp_client_detach(client);
    free(run_dir);
    return code < 0 ? rp_cmd_report(&error) : RP_EXIT_FINE;
}

/* ---- starting and ending --------------------------------------------------------------------- */

static int start_engine(struct processes *processes, struct rp_error *error)
{
    struct rp_bench *bench = processes->bench;
    struct rp_words words = {.count = 0};
    rp_cmd_config_words(bench->arguments, &words);
    rp_words_add(&words, "--num-epochs=endless");
    rp_words_add(&words, "--replicas=1"); /* one trainer of each rank is run here */
    if (bench->config->checkpoint_dir)    /* the user's checkpoints are not touched */
        rp_words_add(&words, "--checkpoint-dir=%s/checkpoints", bench->job.dir);
    if (bench->config->checkpoint_copy_dir)
        rp_words_add(&words, "--checkpoint-copy-dir=%s/copies", bench->job.dir);
    rp_words_add(&words, "--fresh");
    int code = rp_job_serve(&bench->job, &processes->engine, &words, error);
    rp_words_free(&words);
    return code < 0 ? code : rp_job_wait_ready(&bench->job, &processes->engine, error);
}

static int start(struct processes *processes, struct rp_error *error)
{
    const struct rp_config *config = processes->bench->config;
    processes->engine = RP_NO_CHILD;
    processes->rank_count = config->rank_count;
    processes->ranks = rp_calloc(processes->rank_count, sizeof *processes->ranks);
    processes->counts = mmap(NULL, processes->rank_count * sizeof *processes->counts,
                             PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!processes->ranks || processes->counts == MAP_FAILED)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for %u trainers",
                       processes->rank_count);
    for (uint32_t i = 0; i < processes->rank_count; i++)
        processes->ranks[i] = (struct rank){.bench = processes->bench,
                                            .counts = &processes->counts[i],
                                            .child = RP_NO_CHILD,
                                            .rank = config->rank_first + i};
    int code = start_engine(processes, error);
    for (uint32_t i = 0; i < processes->rank_count && code >= 0; i++)
        code = rp_job_fork(&processes->bench->job, &processes->ranks[i].child, "a trainer", train,
                           &processes->ranks[i], error);
    return code;
}

static void end(struct processes *processes)
{
    for (uint32_t i = 0; processes->ranks && i < processes->rank_count; i++)
        rp_child_signal(&processes->ranks[i].child, SIGKILL, true);
    rp_child_signal(&processes->engine, SIGKILL, true);
    if (processes->counts && processes->counts != MAP_FAILED)
        munmap(processes->counts, processes->rank_count * sizeof *processes->counts);
    free(processes->ranks);
}

/* ---- the window ------------------------------------------------------------------------------ */

static int check_children(struct processes *processes, struct rp_error *error)
{
    int code = rp_interrupt_check(RP_JOB_IS_SAFE, error);
    if (code >= 0 && !rp_child_runs(&processes->engine))
        code = rp_job_explain(&processes->bench->job, &processes->engine, error);
    for (uint32_t i = 0; i < processes->rank_count && code >= 0; i++)
        if (!rp_child_runs(&processes->ranks[i].child))
            code = rp_job_explain(&processes->bench->job, &processes->ranks[i].child, error);
    return code;
}

static bool has_begun(const struct processes *processes)
{
    for (uint32_t i = 0; i < processes->rank_count; i++)
        if (rp_a64_load_relaxed(&processes->counts[i].batches) == 0)
            return false;
    return true;
}

static int wait_for_first_batches(struct processes *processes, struct rp_error *error)
{
    uint64_t until_ns = rp_now_ns() + FIRST_BATCH_NS;
    int code = 0;
    while (!has_begun(processes) && (code = check_children(processes, error)) >= 0) {
        if (rp_now_ns() > until_ns)
            return rp_fail(error, -RP_E_TIMEOUT, "run it again with -v",
                           "no batch came within %.0f s", (double)FIRST_BATCH_NS / SECOND_NS);
        rp_sleep_ns(LOOK_NS);
    }
    return code;
}

static void take_sample(const struct processes *processes, struct sample *sample)
{
    *sample = (struct sample){.ns = rp_now_ns()};
    for (uint32_t i = 0; i < processes->rank_count; i++) {
        struct rp_bench_threads trainer;
        sample->batches += (double)rp_a64_load_relaxed(&processes->counts[i].batches);
        sample->tokens += (double)rp_a64_load_relaxed(&processes->counts[i].tokens);
        sample->wait_seconds += (double)rp_a64_load_relaxed(&processes->counts[i].wait_ns) /
                                SECOND_NS;
        rp_bench_threads_read(&trainer, processes->ranks[i].child.pid);
        sample->trainer_seconds += rp_bench_threads_sum(&trainer);
    }
    rp_bench_threads_read(&sample->engine, processes->engine.pid);
}

static bool has_moved_since(const struct processes *processes, const struct sample *first)
{
    struct sample now;
    take_sample(processes, &now);
    return now.tokens > first->tokens;
}

/* The window is longer than asked for where the machine is too busy for one batch in that time. */
static int hold_window(struct processes *processes, struct rp_bench_run *run,
                       struct rp_error *error)
{
    struct sample first, last;
    take_sample(processes, &first);
    uint64_t until_ns = first.ns + (uint64_t)(processes->bench->seconds * SECOND_NS);
    int code = 0;
    while ((rp_now_ns() < until_ns || !has_moved_since(processes, &first)) &&
           (code = check_children(processes, error)) >= 0)
        rp_sleep_ns(LOOK_NS);
    if (code < 0 && !rp_interrupted())
        return code;
    take_sample(processes, &last);
    run->seconds = (double)(last.ns - first.ns) / SECOND_NS;
    run->tokens = last.tokens - first.tokens;
    run->batches = last.batches - first.batches;
    if (run->tokens <= 0 || run->seconds <= 0)
        return code;
    run->measured = true;
    run->threads = last.engine;
    rp_bench_threads_since(&run->threads, &first.engine);
    double engine_seconds = rp_bench_threads_sum(&run->threads);
    run->tokens_per_second = run->tokens / run->seconds;
    run->cpu_seconds = engine_seconds / run->tokens * 1e9;
    double waited = (last.wait_seconds - first.wait_seconds) / run->seconds / processes->rank_count;
    run->trainer_waits = waited < 1 ? waited : 1; /* a wait may have begun before the window */
    run->processor = (engine_seconds + last.trainer_seconds - first.trainer_seconds) /
                     (run->seconds * processes->bench->cores);
    return 0;
}

/* ---- the bottleneck -------------------------------------------------------------------------- */

const char *rp_bench_bottleneck_name(enum rp_bench_bottleneck bottleneck)
{
    static const char *const names[] = {
        [RP_BOTTLENECK_WAITS] = "stages that wait for each other",
        [RP_BOTTLENECK_TRAINER] = "trainer",
        [RP_BOTTLENECK_PROCESSOR] = "processor",
        [RP_BOTTLENECK_PLANNING] = "planning",
        [RP_BOTTLENECK_READING] = "reading",
        [RP_BOTTLENECK_PACKING] = "packing",
        [RP_BOTTLENECK_DELIVERY] = "delivery",
        [RP_BOTTLENECK_THREAD] = "one thread",
    };
    return names[bottleneck];
}

/* The work of a thread, by its name. The engine's first thread delivers. */
static enum rp_bench_bottleneck role_of(const struct rp_bench_thread *thread)
{
    static const struct {
        const char *name;
        enum rp_bench_bottleneck role;
    } roles[] = {{"plan", RP_BOTTLENECK_PLANNING},
                 {"read", RP_BOTTLENECK_READING},
                 {"pack", RP_BOTTLENECK_PACKING}};
    for (size_t i = 0; i < RP_ARRAY_COUNT(roles); i++)
        if (!strncmp(thread->name, roles[i].name, strlen(roles[i].name)))
            return roles[i].role;
    return thread->process == thread->thread ? RP_BOTTLENECK_DELIVERY : RP_BOTTLENECK_THREAD;
}

/* A thread that is never idle is the bottleneck; if it often waits for a core, the processor is. */
static bool find_busy_thread(const struct rp_bench *bench, struct rp_bench_run *run)
{
    for (size_t i = 0; i < run->threads.count; i++) {
        const struct rp_bench_thread *thread = &run->threads.thread[i];
        double busy = thread->seconds / run->seconds,
               queued = thread->queued_seconds / run->seconds;
        if (busy >= BUSY) {
            snprintf(run->why, sizeof run->why,
                     "thread `%s` of the engine is busy %.0f %% of the time", thread->name,
                     100 * busy);
            run->bottleneck = role_of(thread);
            return true;
        }
        if (busy + queued >= BUSY) {
            snprintf(run->why, sizeof run->why,
                     "thread `%s` of the engine waits %.0f %% of the time for one of the %u cores",
                     thread->name, 100 * queued, bench->cores);
            run->bottleneck = RP_BOTTLENECK_PROCESSOR;
            return true;
        }
    }
    return false;
}

static void find_bottleneck(const struct rp_bench *bench, struct rp_bench_run *run)
{
    bool cold = run == &bench->runs[RP_BENCH_COLD];
    const struct rp_bench_limit *read = &bench->limits[RP_BENCH_READ_COLD];
    if (run->trainer_waits < IDLE) {
        snprintf(run->why, sizeof run->why, "trainers waited only %.1f %% of the time",
                 100 * run->trainer_waits);
        run->bottleneck = RP_BOTTLENECK_TRAINER;
    } else if (find_busy_thread(bench, run)) {
        return;
    } else if (cold && read->measured) {
        snprintf(run->why, sizeof run->why,
                 "no thread is busy, and plain reads in file order are %.2f times as fast",
                 read->tokens_per_second / run->tokens_per_second);
        run->bottleneck = RP_BOTTLENECK_READING;
    } else {
        snprintf(run->why, sizeof run->why,
                 "trainers wait %.0f %% of the time, and no thread is busy: more prefetch_factor "
                 "may help",
                 100 * run->trainer_waits);
        run->bottleneck = RP_BOTTLENECK_WAITS;
    }
}

int rp_bench_measure_run(struct rp_bench *bench, struct rp_bench_run *run, struct rp_error *error)
{
    struct processes processes = {.bench = bench};
    int code = start(&processes, error);
    if (code >= 0)
        code = wait_for_first_batches(&processes, error);
    if (code >= 0)
        code = hold_window(&processes, run, error);
    end(&processes);
    if (run->measured)
        find_bottleneck(bench, run);
    return code;
}
