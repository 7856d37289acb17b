/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.c — trainers in C and in Python, and their journals. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/mem.h"
#include "cmd.h"
#include "demo/demo.h"
#include "job/trainer.h"
#include "interrupt.h"
#include "python.h"

#define LINE_NS 1000000000u

static int start_python(struct rp_demo_ranks *ranks, struct rp_job *job, const char *python,
                        const struct rp_trainer_task *task, struct rp_error *error)
{
    struct rp_words words = {.count = 0};
    char *program = rp_python_find(python);
    rp_python_keep_imports_away();
    rp_words_add(&words, "%s", program ? program : python);
    rp_words_add(&words, "-c");
    rp_words_add(&words, "%s", RP_PYTHON_RUN("ringpack.trainer"));
    free(program);
    rp_words_add(&words, "--run=" RP_JOB_RUN);
    rp_words_add(&words, "--run-dir=%s/run", job->dir);
    rp_words_add(&words, "--rank=%u", task->rank);
    rp_words_add(&words, "--world=%u", ranks->world);
    rp_words_add(&words, "--journal=%s", task->journal);
    if (task->until_row != UINT64_MAX)
        rp_words_add(&words, "--until-row=%" PRIu64, task->until_row);
    int code = rp_job_spawn(job, &ranks->ranks[task->rank].child, "a Python trainer", &words,
                            error);
    rp_words_free(&words);
    return code;
}

int rp_demo_start_ranks(struct rp_demo_ranks *ranks, struct rp_job *job, const char *python,
                        const char *name, uint64_t until_row, struct rp_error *error)
{
    int code = 0;
    for (uint32_t r = 0; r < ranks->world && code >= 0; r++) {
        struct rp_demo_rank *rank = &ranks->ranks[r];
        rank->child = RP_NO_CHILD;
        char *path = rp_job_path(job, "%s-%u", name, r);
        code = path ? rp_journal_open(&rank->journal, path, error)
                    : rp_fail(error, -ENOMEM, NULL, "out of memory");
        struct rp_trainer_task task = {.rank = r, .journal = path, .until_row = until_row};
        if (code >= 0 && python && r >= ranks->world / 2)
            code = start_python(ranks, job, python, &task, error);
        else if (code >= 0)
            code = rp_job_train(job, &rank->child, &task, error);
        free(path);
    }
    return code;
}

static int note(struct rp_demo_ranks *ranks, struct rp_demo_rank *rank,
                const struct rp_journal_record *record, struct rp_error *error)
{
    rank->next_row = record->next_row;
    if (record->rows == 0) {
        ranks->start_row = record->first_row;
        return 0;
    }
    if (!RP_GROW(ranks->batches, ranks->batch_capacity, ranks->batch_count + 1))
        return rp_fail(error, -ENOMEM, "give fewer --seconds", "out of memory");
    ranks->batches[ranks->batch_count++] = (struct rp_demo_batch){
        record->next_row, record->rows, record->tokens, {record->digest[0], record->digest[1]}};
    if (ranks->first_ns == 0)
        ranks->first_ns = ranks->drawn_ns = rp_now_ns();
    ranks->rows += record->rows;
    ranks->tokens += record->tokens;
    return 0;
}

static int read_journals(struct rp_demo_ranks *ranks, struct rp_error *error)
{
    const struct rp_journal_record *record;
    for (uint32_t r = 0; r < ranks->world; r++) {
        int code;
        while ((code = rp_journal_next(&ranks->ranks[r].journal, &record, error)) == 1) {
            code = note(ranks, &ranks->ranks[r], record, error);
            if (code < 0)
                return code;
        }
        if (code < 0)
            return code;
    }
    return 0;
}

static void print_line(struct rp_demo_ranks *ranks)
{
    uint64_t now = rp_now_ns();
    if (ranks->first_ns == 0 || now - ranks->drawn_ns < LINE_NS)
        return;
    double rate = (double)(ranks->tokens - ranks->drawn_tokens) * 1e9 /
                  (double)(now - ranks->drawn_ns);
    char a[RP_CMD_TEXT_BYTES], b[RP_CMD_TEXT_BYTES];
    uint64_t row = rp_max_u64(ranks->start_row, rp_demo_common_row(ranks));
    printf("  %5.1f s  %8s%stok/s   fill %.3f %%   row %s\n", (double)(now - ranks->first_ns) / 1e9,
           rp_cmd_short_text(rate, a), rate < 1000 ? " " : "",
           100 * (double)ranks->tokens / ((double)ranks->rows * RP_DEMO_SEQ_LEN),
           rp_cmd_count_text(row, b));
    fflush(stdout);
    ranks->drawn_ns = now;
    ranks->drawn_tokens = ranks->tokens;
}

int rp_demo_poll_ranks(struct rp_demo_ranks *ranks, struct rp_job *job, struct rp_error *error)
{
    int code = rp_interrupt_check(RP_JOB_IS_SAFE, error);
    for (uint32_t r = 0; r < ranks->world && code >= 0; r++) {
        struct rp_demo_rank *rank = &ranks->ranks[r];
        if (rank->done || rp_child_runs(&rank->child))
            continue;
        rank->done = true;
        if (!rp_child_ended_well(&rank->child))
            code = rp_job_explain(job, &rank->child, error);
    }
    if (code >= 0)
        code = read_journals(ranks,
                             error); /* after the check for ended ranks, so no row is missed */
    print_line(ranks);
    return code;
}

uint64_t rp_demo_common_row(const struct rp_demo_ranks *ranks)
{
    uint64_t row = UINT64_MAX;
    for (uint32_t r = 0; r < ranks->world; r++)
        row = rp_min_u64(row, ranks->ranks[r].next_row);
    return row;
}

bool rp_demo_ranks_done(const struct rp_demo_ranks *ranks)
{
    for (uint32_t r = 0; r < ranks->world; r++)
        if (!ranks->ranks[r].done)
            return false;
    return true;
}

int rp_demo_kill_ranks(struct rp_demo_ranks *ranks, struct rp_error *error)
{
    for (uint32_t r = 0; r < ranks->world; r++)
        rp_child_signal(&ranks->ranks[r].child, SIGKILL, false);
    for (uint32_t r = 0; r < ranks->world; r++)
        rp_child_signal(&ranks->ranks[r].child, 0, true);
    return read_journals(ranks, error);
}

void rp_demo_sum(const struct rp_demo_ranks *ranks, uint64_t from, uint64_t to, uint64_t *rows,
                 struct rp_hash128 *digest)
{
    for (uint64_t i = 0; i < ranks->batch_count; i++) {
        const struct rp_demo_batch *batch = &ranks->batches[i];
        if (batch->next_row <= from || batch->next_row > to)
            continue;
        *rows += batch->rows;
        *digest = rp_hash128_sum(*digest, batch->digest);
    }
}

void rp_demo_release_ranks(struct rp_demo_ranks *ranks)
{
    for (uint32_t r = 0; r < ranks->world; r++) {
        rp_child_signal(&ranks->ranks[r].child, SIGKILL, true);
        rp_journal_release(&ranks->ranks[r].journal);
    }
    free(ranks->batches);
    *ranks = (struct rp_demo_ranks){.world = 0};
}
