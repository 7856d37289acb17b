/* SPDX-License-Identifier: Apache-2.0 */
/* lives.c — chooses the next life at random: its ranks and batches, its faults, and the first rows
 * of its trainers. */
#include <string.h>

#include "director.h"

static void draw_shape(struct story *story, uint32_t number, bool calm)
{
    struct life *life = &story->life;
    *life = (struct life){.number = number, .calm = calm, .row_high = story->row_high};
    life->world = life->ranks = 1 + (uint32_t)story_below(story, RANKS_MAX);
    if (story_chance(story, 250)) { /* the others are served by other nodes */
        life->ranks = 1 + (uint32_t)story_below(story, life->world);
        life->rank_first = (uint32_t)story_below(story, life->world - life->ranks + 1);
    }
    life->replicas = story_chance(story, 300) ? 1 + (uint32_t)story_below(story, REPLICAS_MAX) : 1;
    life->trainers = life->ranks * life->replicas;
    life->batch = 1 + (uint32_t)story_below(story, 3);
    life->micro_batches = 1 + (uint32_t)story_below(story, 2);
    life->global = (uint64_t)life->world * life->batch * life->micro_batches;
    life->lease_max = 1 + (uint32_t)story_below(story, 2);
    life->keeping = (enum keeping)story_below(story, KEEPINGS);
    life->work_ns = story_chance(story, 500) ? 0 : story_below(story, 2 * SIM_MS);
}

static void draw_faults(struct story *story)
{
    struct life *life = &story->life;
    sim_faults = (struct sim_faults){.injected = sim_faults.injected};
    story->engine_faults = false;
    if (life->calm)
        return;
    if (story_chance(story, 500)) {
        sim_faults.short_read = (unsigned)story_below(story, 200);
        sim_faults.interrupted = (unsigned)story_below(story, 50);
        sim_faults.delay = (unsigned)story_below(story, 200);
        sim_faults.spurious = (unsigned)story_below(story, 20);
    }
    if (story_chance(story, 200))
        life->hang_up = (unsigned)story_below(story, 100);
    if (story_chance(story, 100))
        life->wrong_releases = (unsigned)story_below(story, 50);
    if (story_chance(story, 300))
        sim_faults.time_jump = (unsigned)story_below(story, 20);
    if (story_chance(story, 150)) {
        sim_faults.read_error = 1 + (unsigned)story_below(story, 30);
        story->engine_faults = true;
    }
    if (story->sidecars && story_chance(story, 300)) {
        sim_faults.flip = 1 + (unsigned)story_below(story, 30);
        story->engine_faults = true;
    }
    if (story_chance(story, 250)) {
        sim_faults.save_error = 1 + (unsigned)story_below(story, 60);
        story->engine_faults = true;
    }
}

/* No faults: a calm life has such a machine as well. */
static void draw_page_cache(struct story *story)
{
    sim_page_cache = (struct sim_page_cache){
        .asked = (enum sim_page_cache_asked)story_below(story, SIM_ASKED_WAYS),
        .go = story_chance(story, 600) ? (unsigned)story_below(story, 600) : 0,
        .come = story_chance(story, 600) ? (unsigned)story_below(story, 600) : 0,
        .is_short = story_chance(story, 400),
    };
}

/* The token of the rank that is farthest behind, the beginning of all ranks, as with a checkpoint
 * of the model. NULL if no rank has kept one. */
static const struct token *common_token(const struct story *story)
{
    const struct token *found = NULL;
    for (uint32_t r = 0; r < TRAINERS_MAX; r++) {
        const struct token *token = &story->trainers[r].saved;
        if (token->size && (!found || token->row < found->row))
            found = token;
    }
    return found;
}

static void place_trainers(struct story *story)
{
    const struct token *common = common_token(story);
    bool with_token = common && story_chance(story, 600);
    struct token token = with_token ? *common : (struct token){0};
    if (with_token)
        director_expect_earlier(story, token.row);
    for (uint32_t r = 0; r < TRAINERS_MAX; r++) {
        struct trainer *trainer = &story->trainers[r];
        *trainer = (struct trainer){.story = story,
                                    .rank = story->life.rank_first + r / story->life.replicas,
                                    .replica = r % story->life.replicas,
                                    .start = token};
        trainer->start_low = with_token ? token.row : story->row_safe;
        trainer->start_high = with_token ? token.row : story->checkpoints ? story->row_high : 0;
        trainer->farthest = trainer->start_high;
        trainer->saved = trainer->older = trainer->first = token;
    }
}

void director_begin_life(struct story *story, uint32_t number, bool calm)
{
    draw_shape(story, number, calm);
    sim_faults = (struct sim_faults){.injected = sim_faults.injected};
    draw_page_cache(story);
    if (story_chance(story, 100))
        director_intrude(story);
    draw_faults(story);
    place_trainers(story);
    const struct life *life = &story->life;
    sim_trace("life %u%s: %u ranks x %u rows for %u, steps of %u rows, from %s row %u", number,
              calm ? ", calm" : "", life->world, life->batch, life->replicas,
              (unsigned)life->global,
              story->trainers[0].start.size ? "the token of" : "a checkpoint between",
              (unsigned)story->trainers[0].start_low);
    director_start_engine(story);
    for (uint32_t r = 0; r < life->trainers; r++)
        director_start_trainer(story, r);
}
