/* SPDX-License-Identifier: Apache-2.0 */
/* processes.h — the engine of a bench, and a trainer process for each local rank that releases
 * every batch: at once, or when it has slept as long as a step takes. */
#ifndef RP_TOOLS_BENCH_PROCESSES_H
#define RP_TOOLS_BENCH_PROCESSES_H

#include "base/atomic.h"
#include "bench/bench.h"

/* Written by one trainer, read by the parent. The numbers need not be of the same moment. */
struct rp_bench_counts {
    struct rp_a64 batches, tokens, wait_ns, calls;
    uint8_t padding[32]; /* a cache line for each trainer */
};

/* A call of next(). */
struct rp_bench_call {
    uint64_t begin_ns, ns;
};

struct rp_bench_rank {
    const struct rp_bench_processes *processes;
    struct rp_bench_call *calls; /* [calls_max] `counts->calls` of them, the first ones */
    struct rp_bench_counts *counts;
    struct rp_child child;
    uint32_t rank;
};

struct rp_bench_processes {
    struct rp_bench *bench;
    const char *checkpoint_dir; /* the engine's; NULL = in the job's directory, if it has one */
    uint64_t step_ns;           /* that a trainer takes for a batch */
    size_t calls_max;           /* that are noted of each trainer */
    /* this module's */
    struct rp_child engine;
    struct rp_bench_rank *ranks; /* [rank_count] */
    struct rp_bench_counts *counts;
    struct rp_bench_call *calls;
    uint32_t rank_count;
};

/** Start the engine and, when it is ready, the trainers. Call rp_bench_end also after an error. */
RP_MUST_CHECK int rp_bench_start(struct rp_bench_processes *processes, struct rp_error *error);
void rp_bench_end(struct rp_bench_processes *processes);

/** An error after an interrupt, or if a process has ended. */
RP_MUST_CHECK int rp_bench_check(struct rp_bench_processes *processes, struct rp_error *error);
/** Wait until every rank has had a batch. */
RP_MUST_CHECK int rp_bench_wait_for_batches(struct rp_bench_processes *processes,
                                            struct rp_error *error);

#endif
