/* SPDX-License-Identifier: Apache-2.0 */
/* bench.h — shared declarations of `ringpack bench`: cmd_bench.c (arguments, order of
 * measurements), limits.c (the machine without an engine), run.c (an engine and its trainers),
 * threads.c (processor time of threads), report.c (the output).
 *
 * A *limit* is the speed of the machine at one part of the work while no engine runs. A *run* is
 * the config itself, with a trainer process for each local rank that releases every batch at once.
 * Both are measured over a window of time. An interrupt ends the window, and the measurements up to
 * then are reported. */
#ifndef RP_TOOLS_BENCH_H
#define RP_TOOLS_BENCH_H

#include "cmd_config.h"
#include "corpus/corpus.h"
#include "job/job.h"

struct rp_bench_limit {
    const char *name, *what;
    bool measured;
    double tokens_per_second; /* in rows of local ranks */
    double cpu_seconds;       /* this process's, for 10^9 tokens */
};
enum { RP_BENCH_MEMCPY, RP_BENCH_PLAN, RP_BENCH_READ_HOT, RP_BENCH_READ_COLD, RP_BENCH_LIMITS };

#define RP_BENCH_THREADS_MAX 160u
#define RP_BENCH_THREAD_NAME 20u
struct rp_bench_thread {
    int32_t process, thread;
    char name[RP_BENCH_THREAD_NAME];
    double seconds;        /* processor time */
    double queued_seconds; /* ready to run, but no core was free */
};
/* The threads of a process and of its children. */
struct rp_bench_threads {
    struct rp_bench_thread thread[RP_BENCH_THREADS_MAX];
    size_t count;
};
/** Read the processor time of the threads so far. A process that has ended has no threads. */
void rp_bench_threads_read(struct rp_bench_threads *threads, pid_t process);
/** Subtract `first` from `last`, and sort `last` by processor time, descending. */
void rp_bench_threads_since(struct rp_bench_threads *last, const struct rp_bench_threads *first);
double rp_bench_threads_sum(const struct rp_bench_threads *threads);

/* The bottleneck of a run. */
enum rp_bench_bottleneck {
    RP_BOTTLENECK_WAITS,
    RP_BOTTLENECK_TRAINER,
    RP_BOTTLENECK_PROCESSOR,
    RP_BOTTLENECK_PLANNING,
    RP_BOTTLENECK_READING,
    RP_BOTTLENECK_PACKING,
    RP_BOTTLENECK_DELIVERY,
    RP_BOTTLENECK_THREAD, /* a thread of the engine whose name is not known here */
};
const char *rp_bench_bottleneck_name(enum rp_bench_bottleneck bottleneck);

struct rp_bench_run {
    const char *name;    /* "hot", "cold", "from stores" */
    const char *skipped; /* why it was not measured; NULL = it was measured, or not wanted */
    bool measured;
    double seconds;
    double tokens, batches;
    double tokens_per_second, cpu_seconds; /* per 10^9 tokens: of the engine */
    double trainer_waits;                  /* share of the time that trainers waited: 0 .. 1 */
    double processor;                      /* share of all cores that engine and trainers used */
    struct rp_bench_threads threads;
    enum rp_bench_bottleneck bottleneck;
    char why[200];
};
/* A corpus that has objects of stores is measured once, as it is. */
enum { RP_BENCH_HOT, RP_BENCH_COLD, RP_BENCH_STORE, RP_BENCH_RUNS };

struct rp_bench {
    struct rp_cmd_line *arguments; /* as typed, for the engine */
    const struct rp_config *config;
    const struct rp_corpus *corpus;
    struct rp_job job;
    double seconds;                    /* a run's; a limit takes a quarter */
    uint64_t documents, tokens, bytes; /* the corpus's, in an epoch */
    uint32_t cores;
    struct rp_bench_limit limits[RP_BENCH_LIMITS];
    struct rp_bench_run runs[RP_BENCH_RUNS];
};

/** Measure one limit. Returns 0 also when an interrupt ended it early. */
RP_MUST_CHECK int rp_bench_measure_limit(struct rp_bench *bench, int which, struct rp_error *error);
/** Read the token files into the page cache, or drop them from it. */
RP_MUST_CHECK int rp_bench_warm(struct rp_bench *bench, struct rp_error *error);
RP_MUST_CHECK int rp_bench_cool(struct rp_bench *bench, struct rp_error *error);
/** Measure one run, and find its bottleneck. */
RP_MUST_CHECK int rp_bench_measure_run(struct rp_bench *bench, struct rp_bench_run *run,
                                       struct rp_error *error);

void rp_bench_print(const struct rp_bench *bench);
void rp_bench_print_json(const struct rp_bench *bench);

#endif
