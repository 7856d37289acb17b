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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(two_ranks_behind_hold_up_nobody, end_newest),
        cmocka_unit_test_teardown(all_ranks_may_fall_behind_one_by_one, end_newest),
        cmocka_unit_test_teardown(two_ranks_fall_behind_near_the_end, end_newest),
    };
    return cmocka_run_group_tests(tests, engine_enter, engine_leave);
}
