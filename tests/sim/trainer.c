/* SPDX-License-Identifier: Apache-2.0 */
/* trainer.c — one replica of a rank. It takes batches, compares them when it takes them and again
 * before it releases them, in any order, and keeps its state (story.h). It may die at any step; its
 * next process begins at the state that was kept last. */
#include "story.h"

#include <signal.h>
#include <string.h>
#include <time.h>

#include "base/bits.h"
#include "base/clock.h"
#include "shm/layout.h"

#define LEASES_MAX 4u
#define WAIT_MAX_NS (50 * SIM_MS) /* a sleep that is not woken ends after 100 ms */

static void keep_state(struct trainer *trainer, const struct rp_client *client, uint64_t row)
{
    size_t size = rp_client_state(client, NULL, 0);
    void *bytes = sim_take(size, 16);
    rp_client_state(client, bytes, size);
    trainer->older = trainer->saved;
    trainer->saved = (struct token){bytes, size, row};
    if (!trainer->first.size)
        trainer->first = trainer->saved;
}

static bool is_kept(const struct trainer *trainer)
{
    const struct life *life = &trainer->story->life;
    switch (life->keeping) {
    case ALWAYS:
        return true;
    case BETWEEN_STEPS:
        return (trainer->at - life->step_row) % life->global == 0;
    default:
        return story_chance(trainer->story, 300);
    }
}

static struct rp_client *attach(struct trainer *trainer)
{
    const struct life *life = &trainer->story->life;
    struct rp_client_options options = {.struct_size = sizeof options,
                                        .run_dir = "/run",
                                        .rank = trainer->rank,
                                        .replica = trainer->replica,
                                        .replicas = life->replicas,
                                        .world = life->world,
                                        .rows = life->batch,
                                        .state = trainer->start.size ? trainer->start.bytes : NULL,
                                        .state_bytes = trainer->start.size,
                                        .connect_timeout_ns = 30 * SIM_S,
                                        .restart_timeout_ns = 30 * SIM_S};
    struct rp_client *client;
    struct rp_error error = {0};
    if (rp_client_attach(&client, &options, &error) == 0)
        return client;
    sim_trace("cannot attach: %s", error.message);
    if (!trainer->story->engine_faults)
        sim_fail("%s cannot attach: %s", trainer->name, error.message);
    trainer->failed = true;
    return NULL;
}

/* All ranks have taken the rows below the lowest `farthest`, so no checkpoint is of a later row.
 * Not all of these rows need be released: after the death of an engine a trainer's new ring begins
 * after its leases. */
static void note_progress(struct story *story)
{
    uint64_t lowest = UINT64_MAX;
    for (uint32_t r = 0; r < story->life.trainers; r++) {
        struct trainer *trainer = &story->trainers[r];
        if (trainer->at > trainer->farthest)
            trainer->farthest = trainer->at;
        lowest = trainer->farthest < lowest ? trainer->farthest : lowest;
    }
    story->row_high = lowest > story->row_high ? lowest : story->row_high;
    story->row_now = rp_max_u64(lowest, story->row_now);
    story->row_peak = rp_max_u64(story->row_peak, story->row_now);
}

uint64_t trainers_come_to(const struct story *story)
{
    uint64_t lowest = UINT64_MAX;
    for (uint32_t r = 0; r < story->life.trainers; r++)
        lowest = rp_min_u64(lowest, story->trainers[r].at);
    return lowest;
}

static bool is_another_attached(const struct trainer *trainer)
{
    const struct story *story = trainer->story;
    for (uint32_t r = 0; r < story->life.trainers; r++) {
        const struct trainer *other = &story->trainers[r];
        if (other != trainer && other->engine == story->engine && !other->process->dead &&
            !other->detaches)
            return true;
    }
    return false;
}

/* Has every rank that is attached fallen behind at some time? As long as one has not, the engine's
 * flow continues. One that has ended is absent, and the others may wait until it is skipped. */
static bool have_all_fallen_back(const struct story *story)
{
    for (uint32_t r = 0; r < story->life.trainers; r++)
        if (!story->trainers[r].has_fallen_back && !story->trainers[r].ended)
            return false;
    return true;
}

/* Check a trainer's first row: the row of its state token or, without one, a possible row of the
 * engine. All rows after the last one count as the end. */
static void begin(struct trainer *trainer, uint64_t row)
{
    bool at_end = row >= trainer->story->reference.row_count &&
                  trainer->start_high >= trainer->story->reference.row_count;
    if (row < trainer->start_low || (row > trainer->start_high && !at_end))
        sim_fail("%s begins at row %u; %u to %u expected", trainer->name, (unsigned)row,
                 (unsigned)trainer->start_low, (unsigned)trainer->start_high);
    trainer->at = trainer->began = row;
    trainer->engine = trainer->story->engine;
    struct life *life = &trainer->story->life;
    if (!life->begun)
        life->step_row = row;
    life->begun = true;
    if (trainer->story->rollback_pending) /* by this attach the engine learns of the rollback */
        trainer->story->row_now = 0;
    trainer->story->rollback_pending = false;
    if (trainer->falls_back) {
        trainer->farthest = row;
        trainer->has_fallen_back = true;
        trainer->story->row_now = 0;
        life->may_wait |= life->replicas > 1 || !is_another_attached(trainer) ||
                          have_all_fallen_back(trainer->story);
    }
    trainer->falls_back = trainer->attaches = false;
    note_progress(trainer->story);
}

/* Check a trainer's last row. If states are kept only between steps, all ranks end at the same row.
 * In the calm life steps are counted from the first row of all trainers, and a rank that falls
 * behind begins between two steps. So the row is known: the end of the last step, which is padded
 * or dropped. */
static void end(const struct trainer *trainer)
{
    const struct reference *reference = &trainer->story->reference;
    struct life *life = &trainer->story->life;
    uint64_t count = reference->row_count, began = life->step_row;
    if (trainer->began >= count) /* its token does not count rows of padding */
        return;
    if (life->keeping == BETWEEN_STEPS && life->end_row && trainer->at != life->end_row)
        sim_fail("%s ends at row %u, the first rank that came to the end at row %u", trainer->name,
                 (unsigned)trainer->at, (unsigned)life->end_row);
    life->end_row = trainer->at;
    if (!life->calm || (life->may_wait && life->keeping != BETWEEN_STEPS))
        return;
    uint64_t rows = count - began, rest = rows % life->global;
    rows += rest == 0 ? 0 : reference->drop_last ? -rest : life->global - rest;
    if (trainer->at != began + rows)
        sim_fail("%s: steps of %u rows from row %u of %u: the end at row %u expected, at row %u "
                 "found",
                 trainer->name, (unsigned)life->global, (unsigned)began, (unsigned)count,
                 (unsigned)(began + rows), (unsigned)trainer->at);
}

bool trainer_has_had_all(const struct trainer *trainer)
{
    const struct story *story = trainer->story;
    return trainer->farthest + story->life.global > story->reference.row_count;
}

/* Choose the step of death of a trainer that is to be killed after its last row. */
static void choose_death(struct trainer *trainer)
{
    uint64_t reach = 1ull << story_below(trainer->story, 10);
    if (!trainer->kill_row || trainer->at < trainer->kill_row)
        return;
    trainer->kill_row = 0;
    trainer->process->kill_at = trainer->process->steps + 1 + story_below(trainer->story, reach);
}

static void take(struct trainer *trainer, struct rp_client *client, const struct rp_batch *batch)
{
    struct story *story = trainer->story;
    struct life *life = &story->life;
    uint64_t row = batch->first_row - (uint64_t)trainer->rank * life->batch;
    sim_trace("takes row %u", (unsigned)batch->first_row);
    bool pads = trainer->at == trainer->began && row >= story->reference.row_count;
    /* A token does not count rows of padding. */
    if (pads && trainer->at >= story->reference.row_count)
        trainer->at = row;
    if (row != trainer->at)
        sim_fail("%s: the micro-batch at row %u expected, at row %u found", trainer->name,
                 (unsigned)trainer->at, (unsigned)row);
    reference_compare(story, rp_client_geometry(client), batch, "taken");
    reference_compare_state(story, client);
    trainer->at += (uint64_t)life->batch * life->world;
    note_progress(story);
    story->counts.rows += batch->rows;
    life->batches++;
    if (batch->next_row == trainer->at && is_kept(trainer))
        keep_state(trainer, client, trainer->at);
    choose_death(trainer);
}

/* Release one of the leases, which are in the order of their batches. Returns how many are left. */
static uint32_t release_lease(struct trainer *trainer, struct rp_client *client,
                              struct rp_batch *leases, uint32_t count, uint32_t pick)
{
    struct story *story = trainer->story;
    struct rp_batch batch = leases[pick];
    reference_compare(story, rp_client_geometry(client), &batch, "on lease");
    memmove(&leases[pick], &leases[pick + 1], (count - pick - 1) * sizeof *leases);
    count--;
    if (rp_client_release(client, &batch) != 0)
        sim_fail("%s cannot release a lease", trainer->name);
    return count;
}

/* Break the trainer's connection while the trainer runs and reads. */
static void lose_connection(const struct trainer *trainer)
{
    if (story_chance(trainer->story, trainer->story->life.hang_up))
        sim_hang_up(trainer->process);
}

/* Write a wrong release watermark, and die. The engine must give this trainer no more batches, and
 * other trainers must not notice. */
static void write_wrong_release(const struct trainer *trainer)
{
    if (!story_chance(trainer->story, trainer->story->life.wrong_releases))
        return;
    struct rp_ring_control *control = sim_find_map(trainer->process, RP_PAGE_BYTES);
    if (!control)
        return;
    uint64_t release = rp_a64_load_relaxed(&control->release);
    sim_trace("writes a wrong release watermark, and dies");
    rp_a64_store_release(&control->release,
                         story_chance(trainer->story, 500) ? release + 1000 : release - 1);
    sim_exit(3);
}

static void fail(struct trainer *trainer, const struct rp_error *error)
{
    sim_trace("fails: %s", error->message);
    if (!trainer->story->engine_faults)
        sim_fail("%s: %s", trainer->name, error->message);
    trainer->failed = true;
}

static void run(struct trainer *trainer, struct rp_client *client)
{
    struct story *story = trainer->story;
    const struct life *life = &story->life;
    struct rp_batch leases[LEASES_MAX];
    uint32_t count = 0;
    while (!life->leave) {
        leases[count].struct_size = sizeof *leases;
        struct rp_error error = {0};
        uint64_t begin = sim.now_ns;
        int code = rp_client_next(client, story_chance(story, 100) ? 0 : 200 * SIM_MS,
                                  &leases[count], &error);
        if (life->calm && !life->may_wait && code == RP_NEXT_BATCH &&
            sim.now_ns > begin + WAIT_MAX_NS)
            sim_fail("%s waited %u ms although nothing held the engine up: a lost wake-up",
                     trainer->name, (unsigned)((sim.now_ns - begin) / SIM_MS));
        if (code == RP_NEXT_END) {
            trainer->ended = true;
            end(trainer);
            break;
        }
        if (code == -RP_E_USAGE && count) { /* all slots are on lease */
            count = release_lease(trainer, client, leases, count, 0);
            continue;
        }
        if (code < 0) {
            fail(trainer, &error);
            break;
        }
        if (code == RP_NEXT_BATCH)
            take(trainer, client, &leases[count++]);
        lose_connection(trainer);
        write_wrong_release(trainer);
        if (life->work_ns)
            rp_sleep_ns(story_below(story, 2 * life->work_ns));
        while (count == life->lease_max || count > story_below(story, life->lease_max))
            count = release_lease(trainer, client, leases, count,
                                  story_chance(story, 700) ? 0
                                                           : (uint32_t)story_below(story, count));
    }
    while (count)
        count = release_lease(trainer, client, leases, count, 0);
}

void *trainer_main(void *argument)
{
    struct trainer *trainer = argument;
    struct rp_client *client = attach(trainer);
    if (!client)
        return NULL;
    begin(trainer, rp_client_next_row(client));
    if (trainer->at <=
        trainer->story->reference.row_count) /* otherwise it has that state already */
        keep_state(trainer, client, trainer->at);
    run(trainer, client);
    trainer->detaches = true;
    rp_client_detach(client);
    trainer->done = true;
    return NULL;
}
