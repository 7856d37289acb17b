/* SPDX-License-Identifier: Apache-2.0 */
/* director.c — starts and ends the processes of a story, and knows the possible first rows of each
 * trainer. story.h defines the terms.
 *
 * The director sleeps in simulated time, and acts when it wakes. A kill happens at one of the next
 * steps of a process. Each use of a shared word is a step, so a process may die at any of them. */
#include "story.h"

#include <signal.h>
#include <string.h>

#include "base/bits.h"
#include "base/clock.h"
#include "checkpoint/checkpoint.h"
#include "director.h"
#include "server/server.h"

#define PATIENCE_NS (300 * SIM_S)
#define END_PATIENCE_NS (660 * SIM_S) /* at the end an engine waits 600 s for absent trainers */

static bool everybody(const struct story *story, bool (*is)(const struct trainer *))
{
    for (uint32_t r = 0; r < story->life.trainers; r++)
        if (!is(&story->trainers[r]))
            return false;
    return true;
}

static bool is_gone(const struct trainer *trainer)
{
    return trainer->process->dead;
}

static bool has_saved(const struct trainer *trainer)
{
    return trainer->saved.size > 0;
}

static void await_batches(struct story *story)
{
    uint64_t wanted = story->life.batches + story_below(story, 8);
    uint64_t until = sim.now_ns + story_below(story, 400 * SIM_MS);
    while (story->life.batches < wanted && sim.now_ns < until)
        rp_sleep_ns(SIM_MS);
}

/* ---- engines --------------------------------------------------------------------------------- */

/* An engine of another stream, which must not resume from this story's checkpoints. */
static void *intruder_main(void *argument)
{
    struct story *story = argument;
    struct rp_config config;
    struct rp_error error = {0};
    story->engine_code = keys_configure(&story->engine_keys, &config, &error);
    struct rp_engine_options options = {.config = &config, .ready_fd = -1, .lifeline_fd = -1};
    if (story->engine_code >= 0)
        story->engine_code = rp_engine_run(&options, &error);
    sim_exit(2);
}

/* An engine without a stop request may end only when all trainers have had all rows. */
static void check_end(const struct story *story)
{
    if (story->engine_told || story->rollback_pending || story->end_is_open)
        return;
    for (uint32_t r = 0; r < story->life.trainers; r++) {
        const struct trainer *trainer = &story->trainers[r];
        if (!trainer_has_had_all(trainer))
            sim_fail("the engine ends, and %s has come to row %u of %u", trainer->name,
                     (unsigned)trainer->farthest, (unsigned)story->reference.row_count);
    }
}

static void *engine_main(void *argument)
{
    struct story *story = argument;
    struct rp_config config;
    struct rp_error error = {0};
    int code = keys_configure(&story->engine_keys, &config, &error);
    if (code < 0)
        sim_fail("a config: %s", error.message);
    struct rp_engine_options options = {.config = &config, .ready_fd = -1, .lifeline_fd = -1};
    code = rp_engine_run(&options, &error);
    rp_config_free(&config);
    if (code < 0) {
        sim_trace("the engine fails: %s", error.message);
        if (!story->engine_faults)
            sim_fail("the engine: %s", error.message);
    } else {
        check_end(story);
    }
    sim_exit(code < 0 ? 2 : 0);
}

/* The options that differ from engine to engine; none of them may change a row. */
static void draw_engine(struct story *story)
{
    static const char *const ios[] = {"auto", "auto", "pread", "pread", "mapped"};
    static const char *const directs[] = {"auto", "on", "off"};
    const struct life *life = &story->life;
    struct keys *keys = &story->engine_keys;
    *keys = story->stream;
    keys_set(keys, "batch_size", "%u", life->batch);
    keys_set(keys, "dp_world_size", "%u", life->world);
    keys_set(keys, "global_batch_size", "%u", (unsigned)life->global);
    keys_set(keys, "ranks", "%u-%u", life->rank_first, life->rank_first + life->ranks - 1);
    keys_set(keys, "consumers_per_rank", "%u", life->replicas);
    keys_set(keys, "readers", "%u", 1u + (unsigned)story_below(story, 3));
    keys_set(keys, "packers", "%u", 1u + (unsigned)story_below(story, 3));
    keys_set(keys, "packer_processes", story_chance(story, 250) ? "true" : "false");
    keys_set(keys, "prefetch_factor", "%u", 2u << story_below(story, 2));
    keys_set(keys, "prefetch_bytes", "%ukb", 64u << story_below(story, 2));
    keys_set(keys, "io_depth", "%u", 1u + (unsigned)story_below(story, 6));
    keys_set(keys, "io", "%s", ios[story_below(story, RP_ARRAY_COUNT(ios))]);
    keys_set(keys, "o_direct", "%s", directs[story_below(story, RP_ARRAY_COUNT(directs))]);
    if (!story->checkpoints)
        return;
    keys_set(keys, "checkpoint_dir", "/checkpoints");
    keys_set(keys, "mount_guard_dir", "none");
    keys_set(keys, "checkpoint_contents", story_chance(story, 700) ? "true" : "false");
    keys_set(keys, "checkpoint_keep", "%u", 2u + (unsigned)story_below(story, 2));
    keys_set(keys, "checkpoint_scrub_seconds", "0"); /* a day of simulated time is no story */
    keys_set(keys, "checkpoint_steps", "%u", (unsigned)story_below(story, 4));
}

void director_intrude(struct story *story)
{
    struct rp_checkpoint *checkpoint;
    struct rp_error error;
    if (!story->checkpoints ||
        rp_checkpoint_newest(&checkpoint, "/checkpoints", false, &error) != 1)
        return;
    rp_checkpoint_close(checkpoint);
    draw_engine(story);
    keys_set(&story->engine_keys, "seed", "1000");
    struct sim_process *engine = sim_spawn("intruder", intruder_main, story);
    uint64_t until = sim.now_ns + SIM_S;
    while (!engine->dead && sim.now_ns < until)
        rp_sleep_ns(SIM_MS);
    if (!engine->dead || story->engine_code != -RP_E_MISMATCH)
        sim_fail("an engine of another stream was not refused: %d", story->engine_code);
}

void director_start_engine(struct story *story)
{
    draw_engine(story);
    story->row_now = story->row_high; /* where its checkpoint may be */
    story->rollback_pending = story->engine_told = story->end_is_open = false;
    story->engine = sim_spawn("engine", engine_main, story);
    story->life.may_wait |= story->life.begun;
    story->counts.engines++;
}

/* ---- trainers -------------------------------------------------------------------------------- */

/* The engine may count a trainer's state, even if it dies before its first batch. */
static void note_claims(struct story *story)
{
    story->row_peak = rp_max_u64(story->row_peak, trainers_come_to(story));
    story->row_high = rp_max_u64(story->row_high, trainers_come_to(story));
    story->row_now = rp_max_u64(story->row_now, trainers_come_to(story));
}

void director_start_trainer(struct story *story, uint32_t number)
{
    struct trainer *trainer = &story->trainers[number];
    note_claims(story);
    trainer->done = trainer->failed = trainer->ended = trainer->detaches = false;
    trainer->at = trainer->start.row;
    trainer->attaches = true;
    snprintf(trainer->name, sizeof trainer->name, "trainer%u.%u", trainer->rank % 100,
             trainer->replica);
    note_claims(story);
    trainer->process = sim_spawn(trainer->name, trainer_main, trainer);
    story->counts.trainers++;
}

void director_restart_trainer(struct story *story, uint32_t number, struct token token)
{
    struct trainer *trainer = &story->trainers[number];
    if (token.size) {
        trainer->start = token;
        trainer->start_low = trainer->start_high = token.row;
        director_expect_earlier(story, token.row);
    }
    director_start_trainer(story, number);
}

/* Restart a trainer from the state that it has kept last. */
static void restart_trainer(struct story *story, uint32_t number)
{
    director_restart_trainer(story, number, story->trainers[number].saved);
}

/* ---- events in a life ------------------------------------------------------------------ */

void director_kill_soon(struct story *story, struct sim_process *victim)
{
    uint64_t reach = 1ull << (4 + story_below(story, 9));
    victim->kill_at = victim->steps + 1 + story_below(story, reach);
    uint64_t until = sim.now_ns + 50 * SIM_MS;
    while (!victim->dead && sim.now_ns < until)
        rp_sleep_ns(500000);
    sim_kill(victim);
    story->counts.kills++;
}

bool director_engine_lives(const struct story *story)
{
    return story->engine && !story->engine->dead;
}

static void kill_packer(struct story *story)
{
    for (uint32_t i = sim.process_count; i-- > 0;) {
        struct sim_process *process = &sim.processes[i];
        if (process->dead || strcmp(process->name, "packer"))
            continue;
        process->kill_at = process->steps + 1 + story_below(story, 200);
        story->counts.kills++;
        return;
    }
}

void director_stop_engine(struct story *story)
{
    if (!director_engine_lives(story))
        return;
    sim_trace("SIGTERM to the engine");
    story->engine_told = true;
    story->engine->signals |= 1u << SIGTERM;
    sim_poke();
    uint64_t until = sim.now_ns + 60 * SIM_S;
    while (!story->engine->dead)
        if (rp_sleep_ns(500000), sim.now_ns > until)
            sim_fail("the engine does not stop at SIGTERM");
}

void director_expect_earlier(struct story *story, uint64_t row)
{
    row -= rp_min_u64(row, story->life.global - 1);
    story->row_safe = rp_min_u64(story->row_safe, row);
    story->row_low = rp_min_u64(story->row_low, row);
}

/* The state of a rollback: the oldest of the trainers' newest states, or of the states before the
 * newest. */
static struct token oldest_state(const struct story *story, bool last)
{
    struct token oldest = {.row = UINT64_MAX};
    for (uint32_t r = 0; r < story->life.trainers; r++) {
        const struct trainer *trainer = &story->trainers[r];
        struct token token = last || !trainer->older.size ? trainer->saved : trainer->older;
        oldest = token.row < oldest.row ? token : oldest;
    }
    return oldest;
}

/* Whether a trainer that began from this state has had all rows. If trainers begin from it again,
 * the engine cannot distinguish them from late trainers: it may end without them, but no checkpoint
 * may count their released batches. */
static bool is_done_from(const struct story *story, struct token token)
{
    for (uint32_t r = 0; r < story->life.trainers; r++) {
        const struct trainer *trainer = &story->trainers[r];
        if (trainer->start.size && trainer->start.row == token.row && trainer_has_had_all(trainer))
            return true;
    }
    return false;
}

static void reset_progress(struct story *story, struct token token)
{
    for (uint32_t r = 0; r < story->life.trainers; r++) {
        struct trainer *trainer = &story->trainers[r];
        trainer->saved = trainer->older = trainer->first = token;
        trainer->at = trainer->farthest = token.row;
        trainer->done = trainer->ended = false;
    }
    story->life.end_row = 0;
    director_expect_earlier(story, token.row);
    story->rollback_pending = true;
    story->counts.rollbacks++;
}

/* Roll the job back: all trainers die and restart from one state, some now and the others in
 * revive. The engine may die as well. If the trainers keep their states before they release the
 * batches, and always restart from the newest, no checkpoint of this life is of a later row. */
static void roll_back_all(struct story *story)
{
    struct life *life = &story->life;
    if (!everybody(story, has_saved))
        return;
    for (uint32_t r = 0; r < life->trainers; r++)
        if (!story->trainers[r].process->dead)
            director_kill_soon(story, story->trainers[r].process);
    if (director_engine_lives(story) && story_chance(story, 300)) {
        director_send_stranger(story); /* no trainer is attached, so the engine plans to its row */
        rp_sleep_ns(1 + story_below(story, SIM_MS));
    }
    bool last = story_chance(story, 700);
    struct token token = oldest_state(story, last);
    story->end_is_open |= is_done_from(story, token);
    sim_trace("all trainers roll back to row %u", (unsigned)token.row);
    reset_progress(story, token);
    bool is_last = token.row + life->global >
                   story->reference.row_count; /* no state after it was kept */
    life->saves_ahead |= !last || life->keeping == NOW_AND_THEN || is_last;
    if (!life->saves_ahead)
        story->row_high = rp_max_u64(life->row_high, token.row);
    if (director_engine_lives(story) && story_chance(story, 150))
        director_kill_soon(story, story->engine);
    unsigned share = story_chance(story, 500) ? 700 : 400;
    for (uint32_t r = 0; r < life->trainers; r++)
        if (story_chance(story, share))
            restart_trainer(story, r);
    await_batches(story);
    if (story->checkpoints && director_engine_lives(story) && story_chance(story, 500))
        director_ask_checkpoint(story);
}

static void revive(struct story *story)
{
    if (!director_engine_lives(story))
        director_start_engine(story);
    for (uint32_t r = 0; r < story->life.trainers; r++) {
        const struct trainer *trainer = &story->trainers[r];
        if (trainer->process->dead && !trainer->done)
            restart_trainer(story, r);
    }
}

static void act(struct story *story)
{
    struct trainer *trainer = &story->trainers[story_below(story, story->life.trainers)];
    switch (story_below(story, 12)) {
    case 0:
    case 1:
        if (director_engine_lives(story))
            director_kill_soon(story, story->engine);
        break;
    case 2:
    case 3:
        if (!trainer->process->dead)
            director_kill_soon(story, trainer->process);
        break;
    case 4:
        director_stop_engine(story);
        break;
    case 5:
        trainer->process->stop_ns = story_below(story, 300 * SIM_MS);
        trainer->process->stop_at = trainer->process->steps + 1 + story_below(story, 500);
        break;
    case 6:
        if (story->checkpoints && director_engine_lives(story) && story->life.batches)
            director_ask_checkpoint(story);
        break;
    case 7:
        roll_back_all(story);
        break;
    case 8:
        if (director_engine_lives(story))
            director_send_stranger(story);
        break;
    case 9:
        director_let_fall_behind(story);
        break;
    case 10:
        if (story->checkpoints && director_engine_lives(story) && story->life.batches)
            director_return_during_saves(story);
        break;
    default:
        kill_packer(story);
    }
}

static bool has_failed(const struct story *story)
{
    for (uint32_t r = 0; r < story->life.trainers; r++)
        if (story->trainers[r].failed)
            return true;
    return false;
}

/* ---- a life ---------------------------------------------------------------------------------- */

static void live_with_faults(struct story *story)
{
    uint32_t events = (uint32_t)story_below(story, 6);
    uint64_t until = sim.now_ns + PATIENCE_NS;
    for (uint32_t i = 0; i < events && !has_failed(story) && !everybody(story, is_gone); i++) {
        await_batches(story);
        act(story);
        if (story_chance(story, 800))
            revive(story);
        if (sim.now_ns > until)
            sim_fail("the life does not end");
    }
}

/* Until all trainers have ended. A trainer that restarts after its engine's end needs a new one. */
static void await_trainers(struct story *story)
{
    uint64_t until = sim.now_ns + PATIENCE_NS;
    while (!everybody(story, is_gone)) {
        if (!director_engine_lives(story))
            director_start_engine(story);
        rp_sleep_ns(SIM_MS);
        if (sim.now_ns > until)
            sim_fail("the trainers do not end");
    }
}

static void await_engine(struct story *story)
{
    uint64_t until = sim.now_ns + END_PATIENCE_NS;
    while (director_engine_lives(story))
        if (rp_sleep_ns(SIM_MS), sim.now_ns > until)
            sim_fail("the engine does not end");
}

static void end_life(struct story *story)
{
    if (story_chance(story, 300) && !has_failed(story)) {
        revive(story);
        story->life.leave = true;
        await_trainers(story);
        director_stop_engine(story);
    }
    for (uint32_t i = 1; i < sim.process_count; i++)
        if (!sim.processes[i].dead)
            story->counts.kills++, sim_kill(&sim.processes[i]);
    if (story_chance(story, 300)) {
        story->counts.power_cuts++;
        sim_power_cut();
    }
    if (!story->has_rotted && story_chance(story, 150) && sim_rot("/checkpoints", "checkpoint-")) {
        story->has_rotted = true;
        story->row_safe = 0;
    }
}

static void live_calmly(struct story *story)
{
    if (story_chance(story, 400))
        director_let_fall_behind(story);
    await_trainers(story);
    if (story->life.may_wait) /* no trainer may have attached to the last engine */
        director_stop_engine(story);
    else
        await_engine(story);
    for (uint32_t r = 0; r < story->life.trainers; r++)
        if (!story->trainers[r].ended)
            sim_fail("%s did not reach the end", story->trainers[r].name);
}

void *director_main(void *argument)
{
    struct story *story = argument;
    reference_make(story);
    uint32_t lives = 1 + (uint32_t)story_below(story, 5);
    for (uint32_t number = 0; number < lives; number++) {
        director_begin_life(story, number, number + 1 == lives);
        if (story->life.calm) {
            live_calmly(story);
        } else {
            live_with_faults(story);
            end_life(story);
        }
        story->counts.lives++;
    }
    return NULL;
}
