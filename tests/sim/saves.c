/* SPDX-License-Identifier: Apache-2.0 */
/* saves.c — checkpoints that a peer requests: while the job runs undisturbed, or while a trainer
 * dies and returns.
 *
 * A save with contents copies packed batches from the rings while the flow runs. A trainer that
 * returns meanwhile gets a new ring in place of one that is being copied. */
#include "story.h"

#include "base/bits.h"
#include "base/clock.h"
#include "checkpoint/checkpoint.h"
#include "director.h"

#define RETURNS_MAX 4u
#define PATIENCE_NS (10 * SIM_S)

/* To be called before anything happens that the engine may learn of later. */
static void note_rows(struct story *story)
{
    story->row_low = UINT64_MAX;
    for (uint32_t r = 0; r < story->life.trainers; r++) /* the save may not count its restart */
        if (story->trainers[r].attaches && story->trainers[r].start.size > 0)
            director_expect_earlier(story, story->trainers[r].at);
    story->row_peak = rp_max_u64(story->row_now, trainers_come_to(story));
}

static void ask(struct story *story)
{
    char *path = NULL;
    struct rp_error error = {0};
    if (rp_run_checkpoint("/run", NULL, &path, &error) < 0) {
        sim_trace("no checkpoint: %s", error.message);
        return;
    }
    struct rp_checkpoint *checkpoint;
    struct rp_state_info info;
    size_t bytes;
    if (rp_checkpoint_open(&checkpoint, path, &error) == 0) { /* a newer save may have pruned it */
        const void *state = rp_checkpoint_section(checkpoint, RP_CHECKPOINT_STATE, &bytes);
        if (rp_state_info(state, bytes, &info, &error) < 0)
            sim_fail("%s: %s", path, error.message);
        sim_trace("promised: %s, row %u", path, (unsigned)info.next_row);
        if (info.next_row > story->row_peak)
            sim_fail("%s is of row %u; all ranks have come to row %u", path,
                     (unsigned)info.next_row, (unsigned)story->row_peak);
        story->row_safe = rp_min_u64(info.next_row,
                                     story->row_low); /* a newer one may be earlier */
        /* A trainer that is not attached may resume at an earlier row. */
        for (uint32_t r = 0; r < story->life.trainers; r++)
            director_expect_earlier(story, story->trainers[r].at);
        story->counts.saves++;
        rp_checkpoint_close(checkpoint);
    }
    rp_text_free(path);
}

void director_ask_checkpoint(struct story *story)
{
    note_rows(story);
    ask(story);
}

static void *saver_main(void *argument)
{
    struct story *story = argument;
    ask(story);
    sim_exit(0);
}

static void let_run(struct story *story)
{
    for (uint64_t left = story_below(story, 1ull << story_below(story, 9)); left > 0; left--)
        sim_yield();
}

/* The engine saves in a thread of its own, which begins with the copy of the rings. */
static void await_thread(const struct sim_process *saver)
{
    uint64_t started = sim.fibers_started, until = sim.now_ns + SIM_S;
    while (!saver->dead && sim.fibers_started == started && sim.now_ns < until)
        rp_sleep_ns(SIM_MS / 50);
}

/* An engine does not know how far trainers have come that have not attached to it. */
static bool are_known(const struct story *story)
{
    for (uint32_t r = 0; r < story->life.trainers; r++)
        if (story->trainers[r].engine != story->engine)
            return false;
    return true;
}

/* The trainer dies during the copy, and returns at once. */
static void return_during_save(struct story *story, uint32_t number)
{
    struct trainer *trainer = &story->trainers[number];
    note_rows(story);
    struct sim_process *saver = sim_spawn("saver", saver_main, story);
    await_thread(saver);
    let_run(story);
    story->counts.kills += !trainer->process->dead;
    sim_kill(trainer->process);
    if (!trainer->done && are_known(story) && story_chance(story, 600))
        director_fall_back(story, number);
    else if (!trainer->done)
        director_restart_trainer(story, number, trainer->saved);
    uint64_t until = sim.now_ns + PATIENCE_NS;
    while (!saver->dead && sim.now_ns < until)
        rp_sleep_ns(SIM_MS);
    sim_kill(saver);
}

void director_return_during_saves(struct story *story)
{
    uint32_t number = (uint32_t)story_below(story, story->life.trainers);
    uint32_t returns = 1 + (uint32_t)story_below(story, RETURNS_MAX);
    for (uint32_t i = 0; i < returns && director_engine_lives(story); i++)
        return_during_save(story, number);
}
