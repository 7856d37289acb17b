/* SPDX-License-Identifier: Apache-2.0 */
/* passes.c — the two runs: the continuous one, and the one that is killed and resumed.
 *
 * The second run begins a life (engine and ranks), waits until a random number of rows was
 * recorded, kills something at random, and replaces it, or ends the life and begins the next one.
 * After the last row another pass begins, until there were enough kills. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "verify/killed_run.h"
#include "interrupt.h"

#define POLL_NS 200000u
#define STALL_NS UINT64_C(90000000000)
#define ENDING_NS UINT64_C(5000000000) /* more than a rank needs to end after its detach */
#define ROWS_A_KILL_MIN 48u            /* least average number of rows between kills */

/* ---- a life ---------------------------------------------------------------------------------- */

static void show_progress(struct rp_campaign *c)
{
    const struct rp_verify *v = c->v;
    uint64_t now = rp_now_ns();
    if (v->verbose || now - c->drawn_ns < 100000000u || isatty(STDERR_FILENO) != 1)
        return;
    c->drawn_ns = now;
    fprintf(stderr,
            "\r\033[Kverify: kill %" PRIu64 " of %" PRIu64 ", life %" PRIu64 ", %" PRIu64
            " rows compared, %" PRIu64 " different",
            v->kill_count, v->kills, v->lives, v->rows_compared, v->rows_different);
}

/* Whether a rank has had all rows that are compared: those that it lacks may be skipped. */
static bool is_all_read(const struct rp_campaign *c)
{
    const struct rp_verify *v = c->v;
    return c->furthest >= v->rows || rp_plan_skips(v->plan, c->furthest, v->rows - c->furthest);
}

/* The engine has ended while ranks run. Either the ranks are also ending, and the end of their
 * journals has not been read. Or a rank was killed after its last batch, so that the engine took it
 * for done, and was started again. */
static int follow_engine(struct rp_campaign *c, struct rp_error *error)
{
    bool is_well = rp_child_ended_well(&c->engine);
    if (is_well && is_all_read(c))
        return rp_verify_start_engine(c, NULL, error);
    uint64_t now = rp_now_ns();
    c->ended_ns = c->ended_ns ? c->ended_ns : now;
    return is_well && now - c->ended_ns < ENDING_NS ? 0
                                                    : rp_verify_fail_ended(c, &c->engine, error);
}

/* Check for processes that have ended. *done: all ranks have had all of their rows. *killed_itself:
 * a process has killed itself and must be replaced. */
static int check_children(struct rp_campaign *c, bool *done, bool *killed_itself,
                          struct rp_error *error)
{
    *done = true;
    *killed_itself = false;
    for (uint32_t r = 0; r < c->life.world; r++) {
        struct rp_rank *rank = &c->life.ranks[r];
        bool is_gone = !rank->done && !rp_child_runs(&rank->child);
        if (is_gone && rp_verify_killed_itself(c, &rank->child))
            *killed_itself = true;
        else if (is_gone) {
            if (!rp_child_ended_well(&rank->child))
                return rp_verify_fail_ended(c, &rank->child, error);
            rank->done = true;
        }
        *done = *done && rank->done;
    }
    if (*done || *killed_itself || rp_child_runs(&c->engine))
        return 0;
    *killed_itself = rp_verify_killed_itself(c, &c->engine);
    if (*killed_itself)
        return 0;
    return follow_engine(c, error);
}

#define AT_ONCE UINT64_C(0)
#define AT_THE_END (UINT64_MAX / 2)

/* Wait until `rows` more rows were compared, or a process has killed itself. AT_ONCE: only for a
 * moment, while processes are starting. AT_THE_END: until the last row was recorded, while
 * processes are ending. *done: the pass is over. */
static int run_until(struct rp_campaign *c, uint64_t rows, bool *done, struct rp_error *error)
{
    struct rp_verify *v = c->v;
    uint64_t until = v->rows_compared + rows, seen = v->rows_compared, seen_ns = rp_now_ns();
    uint64_t patience_ns = rows ? STALL_NS : rp_verify_draw(c, 30000000);
    for (bool any_killed_itself = false;;) {
        int code = rp_verify_take_journals(c, error);
        if (code >= 0)
            code = rp_interrupt_check(RP_JOB_IS_SAFE, error);
        if (code >= 0)
            code = check_children(c, done, &any_killed_itself, error);
        if (code < 0 || *done || any_killed_itself || (rows && v->rows_compared >= until) ||
            (rows == AT_THE_END && is_all_read(c)))
            return code;
        uint64_t now = rp_now_ns();
        if (v->rows_compared != seen) {
            seen = v->rows_compared;
            seen_ns = rows ? now : seen_ns;
        }
        if (now - seen_ns > patience_ns)
            return rows ? rp_verify_fail_stalled(c, STALL_NS, error) : 0;
        show_progress(c);
        rp_sleep_ns(POLL_NS);
    }
}

static uint64_t draw_rows(struct rp_campaign *c)
{
    if (c->v->kill_count >= c->v->kills)
        return UINT32_MAX; /* no more */
    uint64_t when = rp_verify_draw(c, 10);
    return when == 0   ? AT_ONCE
           : when == 1 ? AT_THE_END
                       : 1 + rp_verify_draw(c, (c->v->points ? 8 : 2) * c->rows_a_kill);
}

static int run_pass(struct rp_campaign *c, struct rp_error *error)
{
    struct rp_verify *v = c->v;
    int code = rp_verify_begin_pass(c, error);
    rp_verify_draw_topology(c);
    if (code >= 0)
        code = rp_verify_start_engine(c, NULL, error);
    if (code >= 0)
        code = rp_verify_start_ranks(c, error);
    for (bool done = false; code >= 0;) {
        code = run_until(c, draw_rows(c), &done, error);
        if (code >= 0 && done)
            break;
        if (code >= 0 && rp_verify_draw(c, 4) == 0)
            code = rp_verify_pause(c, error);
        if (code >= 0)
            code = rp_verify_recover(c, error);
        if (code == 0 && v->kill_count < v->kills)
            code = rp_verify_kill(c, error);
    }
    if (code >= 0)
        code = rp_verify_take_journals(c, error);
    if (code >= 0)
        code = rp_verify_end_engine(c, error);
    rp_child_signal(&c->engine, SIGKILL, true);
    if (code >= 0)
        code = rp_verify_check_leftovers(c, error);
    if (code >= 0)
        rp_verify_check_pass(c);
    rp_verify_end_life(c);
    c->pending.count = 0;
    free(c->life.given.data);
    c->life.given = (struct rp_verify_token){NULL, 0};
    return code;
}

int rp_verify_killed_run(struct rp_verify *v, struct rp_error *error)
{
    struct rp_campaign c = {.v = v,
                            .engine = RP_NO_CHILD,
                            .random = v->seed,
                            .rows_a_kill = rp_max_u64(ROWS_A_KILL_MIN, v->rows / v->kills),
                            .committed = rp_calloc(v->rows, sizeof *c.committed)};
    for (uint32_t r = 0; r < RP_VERIFY_RANKS_MAX; r++)
        c.life.ranks[r] = (struct rp_rank){.child = RP_NO_CHILD, .journal.fd = -1};
    int code = c.committed ? 0 : rp_fail(error, -ENOMEM, "give --rows", "out of memory");
    uint64_t begin_ns = rp_now_ns();
    if (v->points && setenv("RP_POINTS", v->points, 1) != 0)
        code = rp_fail(error, -ENOMEM, NULL, "out of memory");
    while (code >= 0 && v->kill_count < v->kills)
        code = run_pass(&c, error);
    v->lives_seconds = (double)(rp_now_ns() - begin_ns) / 1e9;
    if (c.drawn_ns)
        fputs("\r\033[K", stderr);
    free(c.committed);
    free(c.pending.notes);
    free(c.life.notes.notes);
    return code;
}

/* ---- the continuous run ---------------------------------------------------------------------- */

static int record_rows(struct rp_campaign *c, struct rp_error *error)
{
    struct rp_verify *v = c->v;
    struct rp_rank *rank = &c->life.ranks[0];
    const struct rp_journal_record *record;
    for (bool done = false, any_killed_itself;;) {
        int code = check_children(c, &done, &any_killed_itself,
                                  error); /* before reading: so no row is missed */
        if (code >= 0)
            code = rp_interrupt_check(RP_JOB_IS_SAFE, error);
        while (code >= 0 && (code = rp_journal_next(&rank->journal, &record, error)) == 1)
            code = rp_reference_add(&v->reference, record, v->rows, error);
        if (code < 0 || done)
            return code;
        rp_sleep_ns(POLL_NS);
    }
}

int rp_verify_continuous_run(struct rp_verify *v, struct rp_error *error)
{
    struct rp_campaign c = {.v = v, .engine = RP_NO_CHILD, .journals = UINT32_MAX};
    struct rp_words words = {.count = 0};
    uint64_t begin_ns = rp_now_ns();
    c.life = (struct rp_killed_life){.world = 1, .rows = v->config->batch_size};
    for (uint32_t r = 0; r < RP_VERIFY_RANKS_MAX; r++)
        c.life.ranks[r] = (struct rp_rank){.child = RP_NO_CHILD, .journal.fd = -1};
    rp_verify_add_typed(v, &words);
    rp_verify_add_topology(v, &words, 1, c.life.rows);
    rp_words_add(&words, "--readers=1");
    rp_words_add(&words, "--packers=1");
    rp_words_add(&words, "--packer-processes=false");
    rp_words_add(&words, "--fresh");
    int code = rp_job_serve(&v->job, &c.engine, &words, error);
    rp_words_free(&words);
    if (code >= 0)
        code = rp_job_wait_ready(&v->job, &c.engine, error);
    if (code >= 0)
        code = rp_verify_start_rank(&c, 0, &c.life.given, error);
    if (code >= 0)
        code = record_rows(&c, error);
    rp_child_signal(&c.engine, SIGKILL, true);
    rp_verify_end_life(&c);
    v->reference_seconds = (double)(rp_now_ns() - begin_ns) / 1e9;
    return code;
}
