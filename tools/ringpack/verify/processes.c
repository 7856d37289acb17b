/* SPDX-License-Identifier: Apache-2.0 */
/* processes.c — starting, killing and replacing the engines and ranks of a life. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "verify/killed_run.h"
#include "job/trainer.h"

#define DEAL_BYTES 512u
#define TOPOLOGIES_MAX 128u
#define PAUSE_NS 15000000u

const char *rp_kill_name(enum rp_kill kind)
{
    static const char *const names[RP_KILL_COUNT] = {"engine",
                                                     "one trainer",
                                                     "all trainers",
                                                     "everything, from the checkpoint",
                                                     "everything, from a state token",
                                                     "packing process",
                                                     "SIGTERM",
                                                     "a process by itself"};
    return names[kind];
}

/* splitmix64 */
uint64_t rp_verify_draw(struct rp_campaign *c, uint64_t below)
{
    uint64_t z = c->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % below;
}

static void say(const struct rp_campaign *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void say(const struct rp_campaign *c, const char *format, ...)
{
    if (!c->v->verbose)
        return;
    va_list arguments;
    va_start(arguments, format);
    fputs("verify: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
}

/* ---- starting -------------------------------------------------------------------------------- */

int rp_verify_start_rank(struct rp_campaign *c, uint32_t r, const struct rp_verify_token *token,
                         struct rp_error *error)
{
    struct rp_rank *rank = &c->life.ranks[r];
    struct rp_verify *v = c->v;
    rp_journal_release(&rank->journal);
    char *path = rp_job_path(&v->job, "journal-%" PRIu64, c->journals++);
    int code = path ? rp_journal_open(&rank->journal, path, error)
                    : rp_fail(error, -ENOMEM, NULL, "out of memory");
    struct rp_trainer_task task = {.rank = r,
                                   .journal = path,
                                   .state = token->data,
                                   .state_bytes = token->bytes,
                                   .until_row = v->rows,
                                   .states = true,
                                   .details = true};
    if (code >= 0)
        code = rp_job_train(&v->job, &rank->child, &task, error);
    rank->done = false;
    free(path);
    return code;
}

void rp_verify_add_typed(const struct rp_verify *v, struct rp_words *words)
{
    rp_cmd_config_words(v->arguments, words);
    rp_words_add(words, "--consumers-per-rank=1"); /* one trainer of each rank is run here */
}

/* A deal that takes ranks and batches from the job gets the config's, because the lives
 * begin with others. */
static void add_deal(const struct rp_config *config, struct rp_words *words)
{
    const struct rp_config_deal *deal = &config->deal;
    uint64_t ranks = config->dp_world_size, rows = config->batch_size;
    char text[DEAL_BYTES], bundle[48] = "";
    if (!rp_verify_is_of_job(deal))
        return;
    rp_config_value_text(config, "deal", text, sizeof text);
    char *end = strrchr(text, '}'); /* none: `auto` */
    if (end)
        *end = '\0';
    if (!(deal->sets & RP_DEAL_BUNDLE))
        snprintf(bundle, sizeof bundle, ", bundle: %" PRIu64, rows);
    rp_words_add(words, "--deal=%s%stier: %" PRIu64 "%s%s}", end ? text : "{", end ? ", " : "",
                 ranks * rows, bundle, deal->sets & RP_DEAL_ORDER ? "" : ", order: middle");
}

/* The topology, and a checkpoint directory that is not the user's. drop_last is off, because the
 * rows that it drops depend on the first row of a run. */
void rp_verify_add_topology(const struct rp_verify *v, struct rp_words *words, uint32_t world,
                            uint32_t rows)
{
    rp_words_add(words, "--checkpoint-dir=%s/checkpoints", v->job.dir);
    if (v->config->checkpoint_mirror_dir)
        rp_words_add(words, "--checkpoint-mirror-dir=%s/copies", v->job.dir);
    rp_words_add(words, "--global-batch-size=%" PRIu64, v->config->global_batch_size);
    rp_words_add(words, "--dp-world-size=%u", world);
    rp_words_add(words, "--batch-size=%u", rows);
    rp_words_add(words, "--ranks=0-%u", world - 1);
    rp_words_add(words, "--drop-last=false");
    add_deal(v->config, words);
}

int rp_verify_start_engine(struct rp_campaign *c, const char *token, struct rp_error *error)
{
    struct rp_verify *v = c->v;
    struct rp_words words = {.count = 0};
    uint64_t readers = 1 + rp_verify_draw(c, 3), packers = 1 + rp_verify_draw(c, 2),
             contents = rp_verify_draw(c, 2);
    uint64_t step_rows = v->config->global_batch_size, factor = UINT64_C(2) << rp_verify_draw(c, 2);
    static const char *const methods[] = {"auto", "pread", "mapped"};
    const char *io = methods[rp_verify_draw(c, RP_ARRAY_COUNT(methods))];
    c->packer_processes = rp_verify_draw(c, 3) == 0;
    rp_verify_add_typed(v, &words);
    rp_verify_add_topology(v, &words, c->life.world, c->life.rows);
    rp_words_add(&words, "--readers=%" PRIu64, readers);
    rp_words_add(&words, "--packers=%" PRIu64, packers);
    rp_words_add(&words, "--packer-processes=%s", c->packer_processes ? "true" : "false");
    rp_words_add(&words, "--io=%s", io);
    rp_words_add(&words, "--prefetch-factor=%" PRIu64, factor);
    rp_words_add(&words, "--prefetch-bytes=%u", 2u << 20);
    rp_words_add(&words, "--checkpoint-contents=%s", contents ? "true" : "false");
    rp_words_add(&words, "--checkpoint-steps=%" PRIu64,
                 1 + rp_verify_draw(c, 1 + c->rows_a_kill / step_rows));
    if (token)
        rp_words_add(&words, "--state=%s", token);
    say(c,
        "engine: %u ranks x %u rows, %" PRIu64 " readers, %" PRIu64
        " packers (%s), io %s, contents %s%s",
        c->life.world, c->life.rows, readers, packers,
        c->packer_processes ? "processes" : "threads", io, contents ? "on" : "off",
        token ? ", from a state token" : "");
    c->engine_ready = false;
    c->ended_ns = 0;
    int code = rp_job_serve(&v->job, &c->engine, &words, error);
    rp_words_free(&words);
    return code;
}

void rp_verify_draw_topology(struct rp_campaign *c)
{
    uint64_t step = c->v->config->global_batch_size;
    uint32_t count = 0, worlds[TOPOLOGIES_MAX], rows[TOPOLOGIES_MAX];
    /* Stages end with steps of the first life: later lives have the same steps. */
    bool is_whole = c->v->config->stages.count > 1;
    for (uint32_t world = 1; world <= RP_VERIFY_RANKS_MAX; world++)
        for (uint32_t m = 1; m <= 64 && count < TOPOLOGIES_MAX; m++)
            if (is_whole ? step == (uint64_t)world * m : step % ((uint64_t)world * m) == 0) {
                worlds[count] = world;
                rows[count++] = m;
            }
    if (count == 0) { /* steps of more rows than that */
        worlds[0] = 1;
        rows[count++] = (uint32_t)step;
    }
    uint64_t chosen = rp_verify_draw(c, count);
    c->life.world = worlds[chosen];
    c->life.rows = rows[chosen];
}

int rp_verify_start_ranks(struct rp_campaign *c, struct rp_error *error)
{
    int code = 0;
    c->v->lives++;
    for (uint32_t r = 0; r < c->life.world && code >= 0; r++)
        code = rp_verify_start_rank(c, r, &c->life.given, error);
    return code;
}

/* ---- ending ---------------------------------------------------------------------------------- */

static void kill_ranks(struct rp_campaign *c)
{
    for (uint32_t r = 0; r < c->life.world; r++)
        rp_child_signal(&c->life.ranks[r].child, SIGKILL, false);
    for (uint32_t r = 0; r < c->life.world; r++)
        rp_child_signal(&c->life.ranks[r].child, 0, true);
}

/* Check the end of a child that was sent signal_number (0 = none): it may have ended before, but
 * only with status 0. */
static int check_end(struct rp_campaign *c, const struct rp_child *child, int signal_number,
                     struct rp_error *error)
{
    bool is_killed = signal_number == SIGKILL ? rp_child_was_killed(child)
                                              : rp_verify_killed_itself(c, child);
    return is_killed || rp_child_ended_well(child) ? 0 : rp_verify_fail_ended(c, child, error);
}

void rp_verify_end_life(struct rp_campaign *c)
{
    struct rp_killed_life *life = &c->life;
    kill_ranks(c);
    for (uint32_t r = 0; r < RP_VERIFY_RANKS_MAX; r++) {
        rp_journal_release(&life->ranks[r].journal);
        free(life->ranks[r].state.data);
        life->ranks[r] = (struct rp_rank){.child = RP_NO_CHILD, .journal.fd = -1};
    }
    if (life->begun) { /* otherwise it has no rows, and the rows of the previous life stay pending
                        */
        free(c->pending.notes);
        c->pending = life->notes;
        life->notes = (struct rp_notes){.count = 0};
    }
    free(life->start.data);
    life->start = (struct rp_verify_token){NULL, 0};
    life->begun = false;
}

/* ---- killing --------------------------------------------------------------------------------- */

static int ensure_ready(struct rp_campaign *c, struct rp_error *error)
{
    if (c->engine_ready ||
        !rp_child_runs(&c->engine)) /* an end is checked where the engine is ended */
        return 0;
    c->engine_ready = true;
    int code = rp_job_wait_ready(&c->v->job, &c->engine, error);
    if (code == -RP_E_TIMEOUT)
        rp_verify_show_processes(c);
    return code < 0 && rp_verify_killed_itself(c, &c->engine) ? 0 : code;
}

static bool some_rank_done(struct rp_killed_life *life)
{
    for (uint32_t r = 0; r < life->world; r++) {
        struct rp_rank *rank = &life->ranks[r];
        rank->done = rank->done ||
                     (!rp_child_runs(&rank->child) && rp_child_ended_well(&rank->child));
        if (rank->done)
            return true;
    }
    return false;
}

/* Whether every rank will attach to the engine's successor at a known row. A rank that has had all
 * of its rows will not attach, and the successor would wait for it. A rank that has not attached
 * yet, and got no state token, would begin at the row of the others. */
static bool all_ranks_return(struct rp_killed_life *life)
{
    for (uint32_t r = 0; r < life->world; r++)
        if (!life->ranks[r].attached && !life->given.data)
            return false;
    return !some_rank_done(life);
}

static int kill_everything(struct rp_campaign *c, struct rp_error *error)
{
    rp_child_signal(&c->engine, SIGKILL, true);
    kill_ranks(c);
    int code = check_end(c, &c->engine, SIGKILL, error);
    for (uint32_t r = 0; r < c->life.world && code >= 0; r++)
        code = check_end(c, &c->life.ranks[r].child, SIGKILL, error);
    return code < 0 ? code : rp_verify_take_journals(c, error);
}

/* End the life. The next one has another topology, and resumes from the newest checkpoint. */
static int resume_from_checkpoint(struct rp_campaign *c, struct rp_error *error)
{
    int code = kill_everything(c, error);
    rp_verify_end_life(c);
    rp_verify_draw_topology(c);
    if (code >= 0)
        code = rp_verify_copy_token(&c->life.given, NULL, 0, error);
    if (code >= 0)
        code = rp_verify_start_engine(c, NULL, error);
    return code < 0 ? code : rp_verify_start_ranks(c, error);
}

/* The same, but the engine gets a state token in a file. */
static int resume_from_token(struct rp_campaign *c, struct rp_error *error)
{
    int code = kill_everything(c, error);
    struct rp_verify_token given = {NULL, 0};
    const struct rp_verify_token *common = rp_verify_common_state(&c->life);
    if (code >= 0)
        code = rp_verify_copy_token(&given, common->data, common->bytes, error);
    if (code < 0 || !given.data)
        return code < 0 ? code : resume_from_checkpoint(c, error);
    rp_verify_end_life(c);
    rp_verify_draw_topology(c);
    free(c->life.given.data);
    c->life.given = given;
    char *path = rp_job_path(&c->v->job, "token");
    code = path ? rp_file_replace(path, given.data, given.bytes, error)
                : rp_fail(error, -ENOMEM, NULL, "out of memory");
    if (code >= 0)
        code = rp_verify_start_engine(c, path, error);
    free(path);
    return code < 0 ? code : rp_verify_start_ranks(c, error);
}

/* Kill and replace all trainers, while the engine runs. */
static int replace_trainers(struct rp_campaign *c, struct rp_error *error)
{
    kill_ranks(c);
    int code = rp_verify_take_journals(c, error);
    const struct rp_verify_token *common = rp_verify_common_state(&c->life);
    struct rp_verify_token given = {NULL, 0};
    if (code >= 0)
        code = rp_verify_copy_token(&given, common->data, common->bytes, error);
    if (code < 0)
        return code;
    rp_verify_end_life(c);
    free(c->life.given.data);
    c->life.given = given;
    return rp_verify_start_ranks(c, error);
}

static int replace_trainer(struct rp_campaign *c, uint32_t r, struct rp_error *error)
{
    struct rp_rank *rank = &c->life.ranks[r];
    rp_child_signal(&rank->child, SIGKILL, true);
    int code = rp_verify_take_journals(c, error);
    return code < 0
               ? code
               : rp_verify_start_rank(c, r, rank->attached ? &rank->state : &c->life.given, error);
}

static int replace_engine(struct rp_campaign *c, int signal_number, struct rp_error *error)
{
    int code = signal_number == SIGTERM ? ensure_ready(c, error) : 0;
    if (code < 0)
        return code;
    rp_child_signal(&c->engine, signal_number, true);
    code = check_end(c, &c->engine, signal_number, error);
    if (code >= 0)
        code = rp_verify_take_journals(c, error);
    if (code < 0)
        return code;
    if (!all_ranks_return(&c->life) || (signal_number == SIGTERM && rp_verify_draw(c, 2)))
        return resume_from_checkpoint(c, error);
    return rp_verify_start_engine(c, NULL, error);
}

static int kill_packer(struct rp_campaign *c, struct rp_error *error)
{
    int code = ensure_ready(c, error);
    if (code < 0)
        return code;
    pid_t packer = rp_child_of(c->engine.pid);
    if (packer == 0)
        return replace_engine(c, SIGKILL, error);
    kill(packer, SIGKILL);
    return 0;
}

/* ---- processes that kill themselves ---------------------------------------------------------- */

bool rp_verify_killed_itself(const struct rp_campaign *c, const struct rp_child *child)
{
    return c->v->points && rp_child_was_killed(child);
}

int rp_verify_recover(struct rp_campaign *c, struct rp_error *error)
{
    struct rp_verify *v = c->v;
    int code = 0, count = 0;
    uint64_t life = v->lives;
    if (!rp_child_runs(&c->engine))
        code = check_end(c, &c->engine, 0, error);
    if (code >= 0 && rp_verify_killed_itself(c, &c->engine)) {
        say(c, "the engine has killed itself");
        count++;
        code = replace_engine(c, SIGKILL, error);
    }
    /* If a new life has begun, all ranks are new. */
    for (uint32_t r = 0; r < c->life.world && code >= 0 && v->lives == life; r++) {
        struct rp_rank *rank = &c->life.ranks[r];
        if (rank->done || rp_child_runs(&rank->child) || !rp_verify_killed_itself(c, &rank->child))
            continue;
        say(c, "rank %u has killed itself", r);
        count++;
        code = some_rank_done(&c->life) ? replace_trainers(c, error) : replace_trainer(c, r, error);
    }
    v->kill_counts[RP_KILL_ITSELF] += (uint64_t)count;
    v->kill_count += (uint64_t)count;
    return code < 0 ? code : count;
}

int rp_verify_end_engine(struct rp_campaign *c, struct rp_error *error)
{
    for (;;) {
        int code = ensure_ready(c, error);
        if (code < 0)
            return code;
        rp_child_signal(&c->engine, SIGTERM, true);
        if (rp_child_ended_well(&c->engine))
            return 0;
        if (!rp_verify_killed_itself(c, &c->engine))
            return rp_verify_fail_ended(c, &c->engine, error);
        code = rp_verify_start_engine(c, NULL, error);
        if (code < 0)
            return code;
    }
}

/* ---- kills ----------------------------------------------------------------------------------- */

static enum rp_kill draw_kind(struct rp_campaign *c)
{
    static const enum rp_kill kinds[] = {
        RP_KILL_ENGINE,     RP_KILL_ENGINE,     RP_KILL_ENGINE, RP_KILL_TRAINER, RP_KILL_TRAINER,
        RP_KILL_TRAINERS,   RP_KILL_TRAINERS,   RP_KILL_TOKEN,  RP_KILL_TOKEN,   RP_KILL_CHECKPOINT,
        RP_KILL_CHECKPOINT, RP_KILL_CHECKPOINT, RP_KILL_TERM,   RP_KILL_TERM};
    if (c->packer_processes && rp_verify_draw(c, 3) == 0)
        return RP_KILL_PACKER;
    return kinds[rp_verify_draw(c, RP_ARRAY_COUNT(kinds))];
}

static int kill_one(struct rp_campaign *c, enum rp_kill kind, struct rp_error *error)
{
    struct rp_verify *v = c->v;
    v->kill_counts[kind]++;
    v->kill_count++;
    say(c, "kill %" PRIu64 " of %" PRIu64 ", life %" PRIu64 ": %s", v->kill_count, v->kills,
        v->lives, rp_kill_name(kind));
    switch (kind) {
    case RP_KILL_ENGINE:
        return replace_engine(c, SIGKILL, error);
    case RP_KILL_TERM:
        return replace_engine(c, SIGTERM, error);
    case RP_KILL_TRAINER:
        return replace_trainer(c, (uint32_t)rp_verify_draw(c, c->life.world), error);
    case RP_KILL_TRAINERS:
        return replace_trainers(c, error);
    case RP_KILL_PACKER:
        return kill_packer(c, error);
    case RP_KILL_TOKEN:
        return resume_from_token(c, error);
    default:
        return resume_from_checkpoint(c, error);
    }
}

int rp_verify_kill(struct rp_campaign *c, struct rp_error *error)
{
    enum rp_kill kind = draw_kind(c);
    if (kind == RP_KILL_TRAINER && some_rank_done(&c->life))
        kind = RP_KILL_TRAINERS;
    return kill_one(c, kind, error);
}

/* ---- stops ----------------------------------------------------------------------------------- */

int rp_verify_pause(struct rp_campaign *c, struct rp_error *error)
{
    struct rp_child *stopped[RP_VERIFY_RANKS_MAX + 1];
    size_t count = 0;
    for (uint32_t r = 0; r < c->life.world; r++)
        if (c->life.ranks[r].child.pid > 0 && rp_verify_draw(c, 2))
            stopped[count++] = &c->life.ranks[r].child;
    if (c->engine.pid > 0 && rp_verify_draw(c, 2))
        stopped[count++] = &c->engine;
    for (size_t i = 0; i < count; i++)
        rp_child_signal(stopped[i], SIGSTOP, false);
    if (count)
        rp_sleep_ns(rp_verify_draw(c, PAUSE_NS));
    c->v->stops += count;
    if (count && c->v->kill_count < c->v->kills && rp_verify_draw(c, 3) == 0)
        return kill_one(c, RP_KILL_CHECKPOINT, error); /* while they are stopped */
    for (size_t i = 0; i < count; i++)
        rp_child_signal(stopped[i], SIGCONT, false);
    return 0;
}
