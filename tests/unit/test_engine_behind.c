/* SPDX-License-Identifier: Apache-2.0 */
/* A whole engine of several ranks, more than one of them far behind: each of these gets a catch-up
 * flow (flow/catch_up.h), without an effect on the other ranks. */
#define RANKS 3u
#include "engine_kit.h"

#define BEHIND 6u /* batches; a ring has 2 */
#define LAST 2u   /* the rank that never falls behind, but in one test */
#define WORLD "dp_world_size", "3", "global_batch_size", "12"
#define FEW_BYTES (4u << 20) /* a start of the flow reads 8 MiB */

struct job {
    struct engine engine;
    struct rp_client *clients[RANKS];
    uint8_t tokens[RANKS][KIT_STATE_MAX]; /* after the first batch */
    size_t token_bytes[RANKS];
};
static struct job job;

/* All ranks take batches up to `end`, and keep their states after the first one. */
static void begin(const char *const *options, uint64_t end)
{
    assert_true(4 * BEHIND * RANKS * ROWS <= kit.row_count);
    job.engine = engine_start(options);
    for (uint32_t r = 0; r < RANKS; r++)
        job.clients[r] = trainer(r, NULL, 0);
    take_by_turns(job.clients, 0, 1);
    for (uint32_t r = 0; r < RANKS; r++) {
        job.token_bytes[r] = rp_client_state(job.clients[r], job.tokens[r], KIT_STATE_MAX);
        assert_true(job.token_bytes[r] <= KIT_STATE_MAX);
    }
    take_by_turns(job.clients, 1, end);
    (void)bytes_read_ahead();
}

/* The rank restarts from its state after the first batch. */
static void fall_behind(uint32_t rank)
{
    rp_client_detach(job.clients[rank]);
    job.clients[rank] = trainer(rank, job.tokens[rank], job.token_bytes[rank]);
}

static void end(void)
{
    for (uint32_t r = 0; r < RANKS; r++)
        rp_client_detach(job.clients[r]);
    assert_int_equal(engine_end(&job.engine, SIGTERM), 0);
    forget_checkpoints();
}

/* While two ranks are behind, the third continues, and no row is read again for it; a save works;
 * each of the two comes to the others in its own time, and one of them falls behind again. */
static void let_two_fall_behind(const char *prefetch_bytes)
{
    const char *const options[] = {
        WORLD,          "num_epochs",     "0",           "packers", "2", "prefetch_bytes",
        prefetch_bytes, "checkpoint_dir", "checkpoints", NULL};
    begin(options, BEHIND);
    uint64_t bytes = bytes_read();
    fall_behind(0);
    fall_behind(1);
    take_batches(job.clients[LAST], LAST, BEHIND, 2 * BEHIND);
    save_now();
    take_batches(job.clients[1], 1, 1, 2 * BEHIND);
    take_batches(job.clients[0], 0, 1, BEHIND);
    fall_behind(1);
    take_batches(job.clients[1], 1, 1, BEHIND);
    assert_true(bytes_read_ahead() - bytes < FEW_BYTES);
    take_batches(job.clients[0], 0, BEHIND, 2 * BEHIND);
    take_batches(job.clients[1], 1, BEHIND, 2 * BEHIND);
    take_by_turns(job.clients, 2 * BEHIND, 4 * BEHIND);
    end();
}

static void two_ranks_behind_hold_up_nobody(void **state)
{
    (void)state;
    let_two_fall_behind("8mb");
    let_two_fall_behind("128kb"); /* so little is read ahead that the flow joins their rings */
}

/* If no rank is left that the others could catch up with, the flow starts again. */
static void all_ranks_may_fall_behind_one_by_one(void **state)
{
    (void)state;
    static const char *const options[] = {WORLD, "num_epochs", "0", NULL};
    begin(options, BEHIND);
    for (uint32_t r = 0; r < RANKS; r++)
        fall_behind(r);
    take_batches(job.clients[1], 1, 1, 2);
    take_batches(job.clients[0], 0, 1, 2);
    take_batches(job.clients[2], 2, 1, 2);
    take_by_turns(job.clients, 2, 3 * BEHIND);
    end();
}

/* All of the stream is planned, so both get the rest while the third continues. */
static void two_ranks_fall_behind_near_the_end(void **state)
{
    (void)state;
    static const char *const options[] = {
        "dp_world_size", "3", "global_batch_size", "12", "prefetch_bytes", "8mb", NULL};
    const uint64_t steps = rp_div_up(kit.row_count, 12), last = 2 * steps, slots = 2;
    begin(options, last - 2 * slots);
    fall_behind(0);
    fall_behind(1);
    take_batches(job.clients[1], 1, 1, last - slots);
    take_batches(job.clients[LAST], LAST, last - 2 * slots, last);
    assert_int_equal(take(job.clients[LAST], 0), RP_NEXT_END);
    take_batches(job.clients[0], 0, 1, last);
    assert_int_equal(take(job.clients[0], 0), RP_NEXT_END);
    take_batches(job.clients[1], 1, last - slots, last);
    assert_int_equal(take(job.clients[1], 0), RP_NEXT_END);
    for (uint32_t r = 0; r < RANKS; r++)
        rp_client_detach(job.clients[r]);
    assert_int_equal(engine_wait(&job.engine), 0);
}

/* ---- inside a step --------------------------------------------------------------------------- */

#define MICRO_BATCHES 3u               /* a step's */
#define LAST_STEP (16 * MICRO_BATCHES) /* the flow plans the step that begins here */
/* A flow of these options has 32 state slots, so this position has the slot of LAST_STEP + 2. A
 * step begins here. */
#define SHARED_SLOT (LAST_STEP + 2 - 32u)
#define FURTHER_BEHIND (2 * MICRO_BATCHES)

/* Take batches without a comparison: the kit has few of these ranks' rows. */
static void take_any(struct rp_client *client, uint64_t count)
{
    struct rp_error error = {0};
    struct rp_batch batch = {.struct_size = sizeof batch};
    for (uint64_t k = 0; k < count; k++) {
        if (rp_client_next(client, PATIENCE_NS, &batch, &error) != RP_NEXT_BATCH)
            fail_msg("%s", error.message);
        assert_int_equal(rp_client_release(client, &batch), 0);
    }
}

static void take_any_and_keep(uint32_t rank, uint64_t batch, uint64_t kept)
{
    take_any(job.clients[rank], 1);
    if (batch == kept)
        job.token_bytes[rank] = rp_client_state(job.clients[rank], job.tokens[rank], KIT_STATE_MAX);
}

/* Rank 1 falls behind to the second batch of a step, so the engine looks for the state before that
 * step. The flow, whose many rows to plan make trainers wait, takes its slot
 * meanwhile. Rank 0 is further behind: no rank has consumed the step. ThreadSanitizer is the judge.
 */
static void a_rank_falls_behind_inside_a_step(void **state)
{
    (void)state;
    static const char *const options[] = {"dp_world_size",     "256",   "ranks",      "0-2",
                                          "prefetch_bytes",    "128kb", "num_epochs", "0",
                                          "global_batch_size", "1536",  NULL};
    for (uint32_t round = 0; round < 3; round++) {
        job.engine = engine_start(options);
        for (uint32_t r = 0; r < RANKS; r++)
            job.clients[r] = trainer(r, NULL, 0);
        for (uint64_t k = 0; k < LAST_STEP; k++) {
            if (k == FURTHER_BEHIND)
                fall_behind(0);
            if (k < FURTHER_BEHIND)
                take_any_and_keep(0, k, 0);
            take_any_and_keep(1, k, SHARED_SLOT);
            take_any(job.clients[LAST], 1);
        }
        fall_behind(1);
        take_any(job.clients[1], MICRO_BATCHES);
        take_any(job.clients[LAST], 1);
        end();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(two_ranks_behind_hold_up_nobody, end_newest),
        cmocka_unit_test_teardown(all_ranks_may_fall_behind_one_by_one, end_newest),
        cmocka_unit_test_teardown(two_ranks_fall_behind_near_the_end, end_newest),
        cmocka_unit_test_teardown(a_rank_falls_behind_inside_a_step, end_newest),
    };
    return cmocka_run_group_tests(tests, engine_enter, engine_leave);
}
