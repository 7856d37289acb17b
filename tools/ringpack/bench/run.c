/* SPDX-License-Identifier: Apache-2.0 */
/* run.c — one run: how fast the engine of the config feeds trainers that release every batch at
 * once.
 *
 * The window begins when every rank has had its first batch. At both of its ends the counts are
 * read from shared memory, written by the trainers, and from /proc. The engine gets no request
 * while the window is open. */
#include <stdio.h>
#include <string.h>

#include "base/atomic.h"
#include "base/bits.h"
#include "base/clock.h"
#include "bench/processes.h"
#include "interrupt.h"

#define SECOND_NS 1e9
#define POLL_NS 2000000u

/* Shares of the time that count as nearly all and as nearly none of it. */
#define BUSY 0.85
#define IDLE 0.05

/* The counts of one moment. */
struct sample {
    uint64_t ns;
    double batches, tokens, wait_seconds;
    struct rp_bench_threads engine;
    double trainer_seconds;
};

/* ---- the window ------------------------------------------------------------------------------ */

static void take_sample(const struct rp_bench_processes *processes, struct sample *sample)
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

static bool has_moved_since(const struct rp_bench_processes *processes, const struct sample *first)
{
    struct sample now;
    take_sample(processes, &now);
    return now.tokens > first->tokens;
}

/* The window is longer than `seconds` if the machine is too busy for one batch in that time. */
static int hold_window(struct rp_bench_processes *processes, struct rp_bench_run *run,
                       struct rp_error *error)
{
    struct sample first, last;
    take_sample(processes, &first);
    uint64_t until_ns = first.ns + (uint64_t)(processes->bench->seconds * SECOND_NS);
    int code = 0;
    while ((rp_now_ns() < until_ns || !has_moved_since(processes, &first)) &&
           (code = rp_bench_check(processes, error)) >= 0)
        rp_sleep_ns(POLL_NS);
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
    struct rp_bench_processes processes = {.bench = bench};
    int code = rp_bench_start(&processes, error);
    if (code >= 0)
        code = rp_bench_wait_for_batches(&processes, error);
    if (code >= 0)
        code = hold_window(&processes, run, error);
    rp_bench_end(&processes);
    if (run->measured)
        find_bottleneck(bench, run);
    return code;
}
