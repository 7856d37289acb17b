/* SPDX-License-Identifier: Apache-2.0 */
/* behind.c — a rank falls far behind the others, so that a catch-up flow serves it
 * (engine/flow/catch_up.h): its trainer is killed at a chosen row, and restarts from an old state
 * while the trainers of other ranks continue.
 *
 * Often the chosen row is so close to the end that all of the stream is planned when the trainer
 * restarts. While the rank catches up, the engine may be killed or stopped, a checkpoint may be
 * requested, another rank may fall behind as well, and gets a catch-up flow of its own, or the same
 * trainer may die again and restart further ahead or behind. A trainer restarts only from states
 * between two steps, so steps are counted from the same row whoever is attached. */
#include "base/clock.h"
#include "director.h"

#define ROUNDS_MAX 3u
#define NEAR_BATCHES 14u /* more than a flow reads ahead */
#define PATIENCE_NS (300 * SIM_S)
#define FAULTY_PATIENCE_NS                                                                         \
    (300 * SIM_MS) /* with faults, a trainer may wait for one that is dead                         \
                    */

/* Let others run for a while, which may end at any step of theirs. */
static void let_run(struct story *story)
{
    for (uint64_t left = story_below(story, 1ull << story_below(story, 10)); left > 0; left--)
        sim_yield();
}

static bool is_running(const struct trainer *trainer)
{
    return !trainer->process->dead && !trainer->failed;
}

/* A row to come: any, or one that is a few batches before the end of the stream. */
static uint64_t choose_row(struct story *story, const struct trainer *trainer)
{
    uint64_t count = story->reference.row_count, batch = story->life.batch * story->life.world;
    uint64_t before = batch * story_below(story, NEAR_BATCHES);
    if (story_chance(story, 600) && before < count)
        return count - before;
    return trainer->at < count ? trainer->at + 1 + story_below(story, count - trainer->at) : count;
}

/* Have the trainer killed after that row, and wait for that. False if it ends by itself. */
static bool kill_after(struct story *story, struct trainer *trainer, uint64_t row)
{
    uint64_t patience = story->life.calm ? PATIENCE_NS : FAULTY_PATIENCE_NS;
    uint64_t until = sim.now_ns + patience;
    trainer->kill_row = row;
    while (is_running(trainer) && sim.now_ns < until) {
        if (!director_engine_lives(story)) /* it has ended because no rank had rows to come */
            director_start_engine(story);
        rp_sleep_ns(SIM_MS);
    }
    trainer->kill_row = 0;
    if (story->life.calm && is_running(trainer))
        sim_fail("%s has come to row %u and not to row %u", trainer->name, (unsigned)trainer->at,
                 (unsigned)row);
    bool was_killed = trainer->process->killed;
    story->counts.kills += was_killed;
    return was_killed && !trainer->done;
}

static bool is_between_steps(const struct life *life, struct token token)
{
    return token.size && token.row % life->global == life->step_row % life->global;
}

/* The state that the trainer restarts from: one of its own or, to move ahead, another's. */
static struct token choose_token(struct story *story, const struct trainer *trainer)
{
    const struct trainer *other = &story->trainers[story_below(story, story->life.trainers)];
    const struct token tokens[] = {trainer->first, trainer->first, trainer->first,
                                   trainer->older, trainer->saved, other->saved};
    struct token token = tokens[story_below(story, sizeof tokens / sizeof *tokens)];
    return is_between_steps(&story->life, token) ? token : trainer->first;
}

/* The engine does not know that the trainer is to repeat rows that it had already released. So
 * where it has had all, the engine may end. */
void director_fall_back(struct story *story, uint32_t number)
{
    struct trainer *trainer = &story->trainers[number];
    struct token token = choose_token(story, trainer);
    story->end_is_open |= trainer_has_had_all(trainer);
    story->life.saves_ahead = true;
    trainer->falls_back = token.size > 0;
    sim_trace("%s restarts at row %u, after row %u", trainer->name, (unsigned)token.row,
              (unsigned)trainer->at);
    director_restart_trainer(story, number, token);
    story->counts.fallbacks++;
}

static void disturb_engine(struct story *story)
{
    if (!director_engine_lives(story))
        return;
    if (story_chance(story, 500))
        director_stop_engine(story);
    else
        director_kill_soon(story, story->engine);
    director_start_engine(story);
}

static void disturb_another(struct story *story, uint32_t number)
{
    uint32_t other = (uint32_t)story_below(story, story->life.trainers);
    struct trainer *trainer = &story->trainers[other];
    if (other == number || !is_running(trainer))
        return;
    if (story_chance(story, 700)) { /* at once, so that both are behind together */
        sim_kill(trainer->process);
        story->counts.kills++;
    } else {
        director_kill_soon(story, trainer->process);
    }
    if (trainer->process->killed && !trainer->done)
        director_fall_back(story, other);
}

static void disturb(struct story *story, uint32_t number)
{
    let_run(story);
    switch (story_below(story, 8)) {
    case 0:
        disturb_engine(story);
        break;
    case 1:
    case 2:
        if (story->checkpoints && director_engine_lives(story))
            director_ask_checkpoint(story);
        break;
    case 3:
    case 5:
        disturb_another(story, number);
        break;
    case 4:
        if (director_engine_lives(story))
            director_send_stranger(story);
        break;
    default:
        break;
    }
}

void director_let_fall_behind(struct story *story)
{
    uint32_t number = (uint32_t)story_below(story, story->life.trainers);
    struct trainer *trainer = &story->trainers[number];
    uint32_t rounds = 1 + (uint32_t)story_below(story, ROUNDS_MAX);
    for (uint32_t i = 0; i < rounds && is_running(trainer); i++) {
        if (!kill_after(story, trainer, choose_row(story, trainer)))
            return;
        director_fall_back(story, number);
        disturb(story, number);
    }
}
