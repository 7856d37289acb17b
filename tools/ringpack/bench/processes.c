/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/processes.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/mem.h"
#include "cmd.h"
#include "interrupt.h"
#include "ringpack/client.h"

#define SECOND_NS 1e9
#define CONNECT_NS UINT64_C(60000000000)
#define FIRST_BATCH_NS UINT64_C(60000000000)
#define POLL_NS 2000000u

/* ---- a trainer ------------------------------------------------------------------------------- */

static void publish(struct rp_bench_rank *rank, const struct rp_client *client)
{
    struct rp_client_counts counts = {.struct_size = sizeof counts};
    rp_client_counts(client, &counts);
    rp_a64_store_relaxed(&rank->counts->tokens, counts.tokens);
    rp_a64_store_relaxed(&rank->counts->wait_ns, counts.wait_ns);
    rp_a64_store_relaxed(&rank->counts->batches, counts.batches);
}

/* next(), noted. */
static int next(struct rp_bench_rank *rank, struct rp_client *client, struct rp_batch *batch,
                struct rp_error *error)
{
    uint64_t begin_ns = rp_now_ns();
    int code = rp_client_next(client, -1, batch, error);
    uint64_t count = rp_a64_load_relaxed(&rank->counts->calls);
    if (count < rank->processes->calls_max) {
        rank->calls[count] = (struct rp_bench_call){begin_ns, rp_now_ns() - begin_ns};
        rp_a64_store_release(&rank->counts->calls, count + 1); /* PAIRS bench-calls */
    }
    return code;
}

static int train(void *argument)
{
    struct rp_bench_rank *rank = argument;
    struct rp_error error = {0};
    struct rp_client *client = NULL;
    struct rp_batch batch = {.struct_size = sizeof batch};
    char *run_dir = rp_job_path(&rank->processes->bench->job, "run");
    struct rp_client_options options = {.struct_size = sizeof options,
                                        .run = RP_JOB_RUN,
                                        .run_dir = run_dir,
                                        .rank = rank->rank,
                                        .connect_timeout_ns = CONNECT_NS};
    int code = rp_client_attach(&client, &options, &error);
    while (code >= 0 && (code = next(rank, client, &batch, &error)) == RP_NEXT_BATCH) {
        publish(rank, client);
        if (rank->processes->step_ns)
            rp_sleep_ns(rank->processes->step_ns);
        code = rp_client_release(client, &batch);
    }
    rp_client_detach(client);
    free(run_dir);
    return code < 0 ? rp_cmd_report(&error) : RP_EXIT_FINE;
}

/* ---- starting and ending --------------------------------------------------------------------- */

static int start_engine(struct rp_bench_processes *processes, struct rp_error *error)
{
    struct rp_bench *bench = processes->bench;
    struct rp_words words = {.count = 0};
    rp_cmd_config_words(bench->arguments, &words);
    rp_words_add(&words, "--num-epochs=endless");
    rp_words_add(&words, "--consumers-per-rank=1"); /* one trainer of each rank is run here */
    if (processes->checkpoint_dir) {
        rp_words_add(&words, "--checkpoint-dir=%s", processes->checkpoint_dir);
        rp_words_add(&words, "--checkpoint-steps=0"); /* it saves on request only */
    } else if (bench->config->checkpoint_dir)         /* the user's checkpoints are not touched */
        rp_words_add(&words, "--checkpoint-dir=%s/checkpoints", bench->job.dir);
    if (bench->config->checkpoint_mirror_dir)
        rp_words_add(&words, "--checkpoint-mirror-dir=%s/copies", bench->job.dir);
    rp_words_add(&words, "--fresh");
    int code = rp_job_serve(&bench->job, &processes->engine, &words, error);
    rp_words_free(&words);
    return code < 0 ? code : rp_job_wait_ready(&bench->job, &processes->engine, error);
}

/* Memory that the trainers write to. NULL when out of memory. */
static void *share(size_t bytes)
{
    void *memory = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static size_t calls_bytes(const struct rp_bench_processes *processes)
{
    return processes->rank_count * processes->calls_max * sizeof *processes->calls;
}

int rp_bench_start(struct rp_bench_processes *processes, struct rp_error *error)
{
    const struct rp_config *config = processes->bench->config;
    processes->engine = RP_NO_CHILD;
    processes->rank_count = config->rank_count;
    processes->ranks = rp_calloc(processes->rank_count, sizeof *processes->ranks);
    processes->counts = share(processes->rank_count * sizeof *processes->counts);
    processes->calls = share(calls_bytes(processes));
    if (!processes->ranks || !processes->counts || !processes->calls)
        return rp_fail(error, -ENOMEM, NULL, "out of memory for %u trainers",
                       processes->rank_count);
    for (uint32_t i = 0; i < processes->rank_count; i++)
        processes->ranks[i] = (struct rp_bench_rank){.processes = processes,
                                                     .calls = processes->calls +
                                                              i * processes->calls_max,
                                                     .counts = &processes->counts[i],
                                                     .child = RP_NO_CHILD,
                                                     .rank = config->rank_first + i};
    int code = start_engine(processes, error);
    for (uint32_t i = 0; i < processes->rank_count && code >= 0; i++)
        code = rp_job_fork(&processes->bench->job, &processes->ranks[i].child, "a trainer", train,
                           &processes->ranks[i], error);
    return code;
}

void rp_bench_end(struct rp_bench_processes *processes)
{
    for (uint32_t i = 0; processes->ranks && i < processes->rank_count; i++)
        rp_child_signal(&processes->ranks[i].child, SIGKILL, true);
    rp_child_signal(&processes->engine, SIGKILL, true);
    if (processes->counts)
        munmap(processes->counts, processes->rank_count * sizeof *processes->counts);
    if (processes->calls)
        munmap(processes->calls, rp_max_u64(calls_bytes(processes), 1));
    free(processes->ranks);
}

int rp_bench_check(struct rp_bench_processes *processes, struct rp_error *error)
{
    int code = rp_interrupt_check(RP_JOB_IS_SAFE, error);
    if (code >= 0 && !rp_child_runs(&processes->engine))
        code = rp_job_explain(&processes->bench->job, &processes->engine, error);
    for (uint32_t i = 0; i < processes->rank_count && code >= 0; i++)
        if (!rp_child_runs(&processes->ranks[i].child))
            code = rp_job_explain(&processes->bench->job, &processes->ranks[i].child, error);
    return code;
}

static bool has_begun(const struct rp_bench_processes *processes)
{
    for (uint32_t i = 0; i < processes->rank_count; i++)
        if (rp_a64_load_relaxed(&processes->counts[i].batches) == 0)
            return false;
    return true;
}

int rp_bench_wait_for_batches(struct rp_bench_processes *processes, struct rp_error *error)
{
    uint64_t until_ns = rp_now_ns() + FIRST_BATCH_NS;
    int code = 0;
    while (!has_begun(processes) && (code = rp_bench_check(processes, error)) >= 0) {
        if (rp_now_ns() > until_ns)
            return rp_fail(error, -RP_E_TIMEOUT, "run it again with -v",
                           "no batch came within %.0f s", (double)FIRST_BATCH_NS / SECOND_NS);
        rp_sleep_ns(POLL_NS);
    }
    return code;
}
