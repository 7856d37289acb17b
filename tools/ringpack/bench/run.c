/* SPDX-License-Identifier: Apache-2.0 */
/* run.c — one run: the engine of the config, and a trainer process per local rank that returns
 * every batch at once.
 *
 * Flow: start all → the window begins when every rank has had its first batch → both ends of the
 * window are read from words that the trainers write into shared memory, and from /proc → judge.
 * The engine is asked nothing while the window is open. */
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

/* Judging: a part of the time that is nearly all, or nearly none of it. */
#define BUSY 0.85
#define IDLE 0.05

/* Written by one trainer, read by us; the numbers need not be of one moment. */
struct counts {
    struct rp_a64 batches, tokens, wait_ns;
    uint8_t padding[40]; /* no two trainers in one cache line */
};

struct rank {
    struct rp_bench *bench;
    struct counts *counts;
    struct rp_child child;
    uint32_t rank;
};

struct live {
    struct rp_bench *bench;
    struct rp_child engine;
    struct rank *ranks; /* [rank_count] */
    struct counts *counts;
    uint32_t rank_count;
};

/* What can be read at one moment. */
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

static int start_engine(struct live *live, struct rp_error *error)
{
    struct rp_bench *bench = live->bench;
    struct rp_words words = {.count = 0};
    rp_cmd_config_words(bench->arguments, &words);
    rp_words_add(&words, "--num-epochs=endless");
    rp_words_add(&words, "--replicas=1"); /* one trainer of each rank is run here */
    if (bench->config->checkpoint_dir)    /* not among the user's */
        rp_words_add(&words, "--checkpoint-dir=%s/checkpoints", bench->job.dir);
    if (bench->config->checkpoint_copy_dir)
        rp_words_add(&words, "--checkpoint-copy-dir=%s/copies", bench->job.dir);
    rp_words_add(&words, "--fresh");
    int code = rp_job_serve(&bench->job, &live->engine, &words, error);
    rp_words_free(&words);
    return code < 0 ? code : rp_job_wait_ready(&bench->job, &live->engine, error);
}

static int start(struct live *live, struct rp_error *error)
{
    const struct rp_config *config = live->bench->config;
    live->engine = RP_NO_CHILD;
    live->rank_count = config->rank_count;
    live->ranks = rp_calloc(live->rank_count, sizeof *live->ranks);
    live->counts = mmap(NULL, live->rank_count * sizeof *live->counts, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!live->ranks || live->counts == MAP_FAILED)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for %u trainers", live->rank_count);
    for (uint32_t i = 0; i < live->rank_count; i++)
        live->ranks[i] = (struct rank){.bench = live->bench,
                                       .counts = &live->counts[i],
                                       .child = RP_NO_CHILD,
                                       .rank = config->rank_first + i};
    int code = start_engine(live, error);
    for (uint32_t i = 0; i < live->rank_count && code >= 0; i++)
        code = rp_job_fork(&live->bench->job, &live->ranks[i].child, "a trainer", train,
                           &live->ranks[i], error);
    return code;
}

static void end(struct live *live)
{
    for (uint32_t i = 0; live->ranks && i < live->rank_count; i++)
        rp_child_signal(&live->ranks[i].child, SIGKILL, true);
    rp_child_signal(&live->engine, SIGKILL, true);
    if (live->counts && live->counts != MAP_FAILED)
        munmap(live->counts, live->rank_count * sizeof *live->counts);
    free(live->ranks);
}

/* ---- the window ------------------------------------------------------------------------------ */

static int check_children(struct live *live, struct rp_error *error)
{
    int code = rp_interrupt_check(RP_JOB_IS_SAFE, error);
    if (code >= 0 && !rp_child_runs(&live->engine))
        code = rp_job_explain(&live->bench->job, &live->engine, error);
    for (uint32_t i = 0; i < live->rank_count && code >= 0; i++)
        if (!rp_child_runs(&live->ranks[i].child))
            code = rp_job_explain(&live->bench->job, &live->ranks[i].child, error);
    return code;
}

static bool has_begun(const struct live *live)
{
    for (uint32_t i = 0; i < live->rank_count; i++)
        if (rp_a64_load_relaxed(&live->counts[i].batches) == 0)
            return false;
    return true;
}

static int wait_for_first_batches(struct live *live, struct rp_error *error)
{
    uint64_t until_ns = rp_now_ns() + FIRST_BATCH_NS;
    int code = 0;
    while (!has_begun(live) && (code = check_children(live, error)) >= 0) {
        if (rp_now_ns() > until_ns)
            return rp_fail(error, -RP_E_TIMEOUT, "run it again with -v",
                           "no batch came within %.0f s", (double)FIRST_BATCH_NS / SECOND_NS);
        rp_sleep_ns(LOOK_NS);
    }
    return code;
}

static void take_sample(const struct live *live, struct sample *sample)
{
    *sample = (struct sample){.ns = rp_now_ns()};
    for (uint32_t i = 0; i < live->rank_count; i++) {
        struct rp_bench_threads trainer;
        sample->batches += (double)rp_a64_load_relaxed(&live->counts[i].batches);
        sample->tokens += (double)rp_a64_load_relaxed(&live->counts[i].tokens);
        sample->wait_seconds += (double)rp_a64_load_relaxed(&live->counts[i].wait_ns) / SECOND_NS;
        rp_bench_threads_read(&trainer, live->ranks[i].child.pid);
        sample->trainer_seconds += rp_bench_threads_sum(&trainer);
    }
    rp_bench_threads_read(&sample->engine, live->engine.pid);
}

static bool has_moved_since(const struct live *live, const struct sample *first)
{
    struct sample now;
    take_sample(live, &now);
    return now.tokens > first->tokens;
}

/* As long as was asked for, and longer where the machine is too busy for one batch in that time. */
static int hold_window(struct live *live, struct rp_bench_run *run, struct rp_error *error)
{
    struct sample first, last;
    take_sample(live, &first);
    uint64_t until_ns = first.ns + (uint64_t)(live->bench->seconds * SECOND_NS);
    int code = 0;
    while ((rp_now_ns() < until_ns || !has_moved_since(live, &first)) &&
           (code = check_children(live, error)) >= 0)
        rp_sleep_ns(LOOK_NS);
    if (code < 0 && !rp_interrupted())
        return code;
    take_sample(live, &last);
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
    double waited = (last.wait_seconds - first.wait_seconds) / run->seconds / live->rank_count;
    run->trainer_waits = waited < 1 ? waited : 1; /* a wait may have begun before the window */
    run->processor = (engine_seconds + last.trainer_seconds - first.trainer_seconds) /
                     (run->seconds * live->bench->cores);
    return 0;
}

/* ---- judging --------------------------------------------------------------------------------- */

const char *rp_bench_holder_name(enum rp_bench_holder holder)
{
    static const char *const names[] = {
        [RP_BENCH_HELD_WAITS] = "stages that wait for each other",
        [RP_BENCH_HELD_TRAINER] = "trainer",
        [RP_BENCH_HELD_PROCESSOR] = "processor",
        [RP_BENCH_HELD_PLANNING] = "planning",
        [RP_BENCH_HELD_READING] = "reading",
        [RP_BENCH_HELD_PACKING] = "packing",
        [RP_BENCH_HELD_DELIVERY] = "delivery",
        [RP_BENCH_HELD_THREAD] = "one thread",
    };
    return names[holder];
}

/* What a thread does, by its name; the engine's first thread delivers. */
static enum rp_bench_holder role_of(const struct rp_bench_thread *thread)
{
    static const struct {
        const char *name;
        enum rp_bench_holder role;
    } roles[] = {{"plan", RP_BENCH_HELD_PLANNING},
                 {"read", RP_BENCH_HELD_READING},
                 {"pack", RP_BENCH_HELD_PACKING}};
    for (size_t i = 0; i < RP_ARRAY_COUNT(roles); i++)
        if (!strncmp(thread->name, roles[i].name, strlen(roles[i].name)))
            return roles[i].role;
    return thread->process == thread->thread ? RP_BENCH_HELD_DELIVERY : RP_BENCH_HELD_THREAD;
}

/* A thread that is never idle is the one to look at, whether or not it gets a core. */
static bool judge_threads(const struct rp_bench *bench, struct rp_bench_run *run)
{
    for (size_t i = 0; i < run->threads.count; i++) {
        const struct rp_bench_thread *thread = &run->threads.thread[i];
        double busy = thread->seconds / run->seconds,
               queued = thread->queued_seconds / run->seconds;
        if (busy >= BUSY) {
            snprintf(run->why, sizeof run->why,
                     "thread `%s` of the engine is busy %.0f %% of the time", thread->name,
                     100 * busy);
            run->holder = role_of(thread);
            return true;
        }
        if (busy + queued >= BUSY) {
            snprintf(run->why, sizeof run->why,
                     "thread `%s` of the engine waits %.0f %% of the time for one of the %u cores",
                     thread->name, 100 * queued, bench->cores);
            run->holder = RP_BENCH_HELD_PROCESSOR;
            return true;
        }
    }
    return false;
}

static void judge(const struct rp_bench *bench, struct rp_bench_run *run)
{
    bool cold = run == &bench->runs[RP_BENCH_COLD];
    const struct rp_bench_limit *read = &bench->limits[RP_BENCH_READ_COLD];
    if (run->trainer_waits < IDLE) {
        snprintf(run->why, sizeof run->why, "trainers waited only %.1f %% of the time",
                 100 * run->trainer_waits);
        run->holder = RP_BENCH_HELD_TRAINER;
    } else if (judge_threads(bench, run)) {
        return;
    } else if (cold && read->measured) {
        snprintf(run->why, sizeof run->why,
                 "no thread is busy, and plain reads in file order are %.2f times as fast",
                 read->tokens_per_second / run->tokens_per_second);
        run->holder = RP_BENCH_HELD_READING;
    } else {
        snprintf(run->why, sizeof run->why,
                 "trainers wait %.0f %% of the time, and no thread is busy: more prefetch_factor "
                 "may help",
                 100 * run->trainer_waits);
        run->holder = RP_BENCH_HELD_WAITS;
    }
}

int rp_bench_measure_run(struct rp_bench *bench, struct rp_bench_run *run, struct rp_error *error)
{
    struct live live = {.bench = bench};
    int code = start(&live, error);
    if (code >= 0)
        code = wait_for_first_batches(&live, error);
    if (code >= 0)
        code = hold_window(&live, run, error);
    end(&live);
    if (run->measured)
        judge(bench, run);
    return code;
}
