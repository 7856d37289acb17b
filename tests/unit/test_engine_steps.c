/* SPDX-License-Identifier: Apache-2.0 */
/* Engines that die within a step: whatever they have saved, the steps end where they would have
 * ended. A micro-batch has 2 rows here and a step 4 of them. */
#include "engine_kit.h"

#include <sys/mman.h>
#include <sys/syscall.h>

#define STEP 4u

static struct rp_a64 *minutes_ahead; /* offset of every clock, in all processes */

int clock_gettime(clockid_t clock, struct timespec *time)
{
    int code = (int)syscall(SYS_clock_gettime, clock, time);
    if (minutes_ahead)
        time->tv_sec += 60 * (time_t)rp_a64_load_relaxed(minutes_ahead);
    return code;
}

static const char *const padded[] = {"dp_world_size", "1", "prefetch_factor", "4", "checkpoint_dir",
                                     "checkpoints",   NULL};
static const char *const whole_steps[] = {
    "dp_world_size", "1", "prefetch_factor", "4", "checkpoint_dir", "checkpoints", "drop_last",
    "true",          NULL};

static const char *const longer[] = {"dp_world_size",
                                     "1",
                                     "prefetch_factor",
                                     "4",
                                     "checkpoint_dir",
                                     "checkpoints",
                                     "global_batch_size",
                                     "12",
                                     NULL};

/* Take micro-batches [first, last), or up to the end. Returns how many there are before it. */
static uint64_t take_up_to(struct rp_client *client, uint64_t first, uint64_t last)
{
    while (first < last && take(client, first * ROWS) == RP_NEXT_BATCH)
        first++;
    return first;
}

static uint64_t count_in_peace(const char *const *options)
{
    forget_checkpoints();
    struct engine engine = engine_start(options);
    struct rp_client *client = trainer(0, NULL, 0);
    uint64_t count = take_up_to(client, 0, UINT64_MAX);
    rp_client_detach(client);
    assert_int_equal(engine_wait(&engine), 0);
    assert_int_equal(count % STEP, 0);
    return count;
}

/* A trainer lives on while its engine is saved and killed after `saved` micro-batches. */
static void live_through(const char *const *options, uint64_t saved, uint64_t expected)
{
    forget_checkpoints();
    struct engine engine = engine_start(options);
    struct rp_client *client = trainer(0, NULL, 0);
    (void)take_up_to(client, 0, saved);
    save_now();
    (void)take_up_to(client, saved, saved + 3);
    engine_end(&engine, SIGKILL);
    engine = engine_start(options);
    assert_int_equal(take_up_to(client, saved + 3, UINT64_MAX), expected);
    rp_client_detach(client);
    assert_int_equal(engine_wait(&engine), 0);
}

static void a_trainer_that_lives_on_gets_as_many_batches(void **state)
{
    (void)state;
    const char *const *const options[] = {padded, whole_steps};
    for (size_t i = 0; i < RP_ARRAY_COUNT(options); i++) {
        uint64_t expected = count_in_peace(options[i]);
        for (uint64_t saved = 0; saved <= STEP + 1; saved++)
            live_through(options[i], saved, expected);
    }
}

/* Nodes of a job have saved at different places; all continue from the trainers' own state. */
static void a_state_gives_as_many_batches_whatever_was_saved(void **state)
{
    (void)state;
    static uint8_t token[1 << 16];
    uint64_t expected = count_in_peace(padded);
    for (uint64_t saved = 0; saved < 2 * STEP; saved += 3) {
        forget_checkpoints();
        struct engine engine = engine_start(padded);
        struct rp_client *client = trainer(0, NULL, 0);
        (void)take_up_to(client, 0, saved);
        save_now();
        (void)take_up_to(client, saved, 2 * STEP);
        size_t bytes = rp_client_state(client, token, sizeof token);
        rp_client_detach(client);
        engine_end(&engine, SIGKILL);
        engine = engine_start(padded);
        client = trainer(0, token, bytes);
        assert_int_equal(take_up_to(client, 2 * STEP, UINT64_MAX), expected);
        rp_client_detach(client);
        assert_int_equal(engine_wait(&engine), 0);
    }
}

/* The same where steps have another size from that state on. */
static void a_state_begins_a_step_whatever_was_saved(void **state)
{
    (void)state;
    static uint8_t token[1 << 16];
    const uint64_t at = 2 * STEP, rows = kit.row_count - at * ROWS;
    for (uint64_t saved = 0; saved < 2 * STEP; saved += STEP) {
        forget_checkpoints();
        struct engine engine = engine_start(padded);
        struct rp_client *client = trainer(0, NULL, 0);
        (void)take_up_to(client, 0, saved);
        save_now();
        (void)take_up_to(client, saved, at);
        size_t bytes = rp_client_state(client, token, sizeof token);
        rp_client_detach(client);
        engine_end(&engine, SIGKILL);
        engine = engine_start(longer);
        client = trainer(0, token, bytes);
        assert_int_equal(take_up_to(client, at, UINT64_MAX), at + rp_div_up(rows, 12) * 6);
        rp_client_detach(client);
        assert_int_equal(engine_wait(&engine), 0);
    }
}

/* A trainer that has begun a step of one size does not end it as one of another: nodes would
 * disagree where. */
static void other_steps_are_refused_by_who_lives_on(void **state)
{
    (void)state;
    struct rp_error error = {0};
    struct rp_batch batch = {.struct_size = sizeof batch};
    forget_checkpoints();
    struct engine engine = engine_start(padded);
    struct rp_client *client = trainer(0, NULL, 0);
    (void)take_up_to(client, 0, 3);
    engine_end(&engine, SIGKILL);
    engine = engine_start(longer);
    int code;
    while ((code = rp_client_next(client, PATIENCE_NS, &batch, &error)) == RP_NEXT_BATCH)
        assert_int_equal(rp_client_release(client, &batch), 0);
    assert_int_equal(code, -RP_E_MISMATCH);
    assert_says(&error, "global_batch_size differs: the trainer has 8, the engine has 12");
    rp_client_detach(client);
    assert_int_equal(engine_end(&engine, SIGTERM), 0);
}

/* And where the engine dies before it has saved anything of them: the trainer lives on, and its
 * steps end where they would have ended. */
static void a_trainer_that_lives_on_counts_on(void **state)
{
    (void)state;
    static uint8_t token[1 << 16];
    for (uint64_t at = 2 * STEP + 1; at < 3 * STEP; at += 2) {
        uint64_t rows = kit.row_count - at * ROWS;
        forget_checkpoints();
        struct engine engine = engine_start(padded);
        struct rp_client *client = trainer(0, NULL, 0);
        (void)take_up_to(client, 0, at);
        size_t bytes = rp_client_state(client, token, sizeof token);
        rp_client_detach(client);
        engine_end(&engine, SIGKILL);
        engine = engine_start(padded);
        client = trainer(0, token, bytes);
        (void)take_up_to(client, at, at + 2);
        engine_end(&engine, SIGKILL);
        engine = engine_start(padded);
        assert_int_equal(take_up_to(client, at + 2, UINT64_MAX),
                         at + rp_div_up(rows, STEP * ROWS) * STEP);
        rp_client_detach(client);
        assert_int_equal(engine_wait(&engine), 0);
    }
}

static void a_signal_within_a_step_saves_its_beginning(void **state)
{
    (void)state;
    forget_checkpoints();
    struct engine engine = engine_start(padded);
    struct rp_client *client = trainer(0, NULL, 0);
    (void)take_up_to(client, 0, STEP + 3);
    assert_int_equal(engine_end(&engine, SIGTERM), 0);
    rp_client_detach(client);
    engine = engine_start(padded);
    client = trainer(0, NULL, 0);
    (void)take_up_to(client, STEP, UINT64_MAX);
    rp_client_detach(client);
    assert_int_equal(engine_wait(&engine), 0);
}

/* A rank had everything from the engine before, and does not come again. */
static void an_engine_does_not_wait_for_ever_for_who_had_everything(void **state)
{
    (void)state;
    static const char *const two[] = {"prefetch_factor", "1024", "checkpoint_dir", "checkpoints",
                                      NULL};
    static uint8_t token[1 << 16];
    forget_checkpoints();
    struct engine engine = engine_start(two);
    struct rp_client *ahead = trainer(1, NULL, 0), *behind = trainer(0, NULL, 0);
    uint64_t batches = 0;
    while (take(ahead, (batches * RANKS + 1) * ROWS) == RP_NEXT_BATCH)
        batches++;
    take_batches(behind, 0, 0, 2);
    size_t bytes = rp_client_state(behind, token, sizeof token);
    rp_client_detach(ahead);
    rp_client_detach(behind);
    engine_end(&engine, SIGKILL);
    engine = engine_start(two);
    behind = trainer(0, token, bytes);
    take_batches(behind, 0, 2, batches);
    assert_int_equal(take(behind, batches * RANKS * ROWS), RP_NEXT_END);
    rp_client_detach(behind);
    stat_must_work(); /* it waits */
    rp_a64_store_relaxed(minutes_ahead, 9);
    rp_sleep_ns(300000000);
    stat_must_work();
    rp_a64_store_relaxed(minutes_ahead, 11);
    assert_int_equal(engine_wait(&engine), 0);
}

/* Ranks that are read one after the other, by hand. */
static void a_rank_that_comes_behind_the_end_gets_its_own(void **state)
{
    (void)state;
    rp_a64_store_relaxed(minutes_ahead, 0);
    static const char *const two[] = {NULL};
    struct engine engine = engine_start(two);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        struct rp_client *client = trainer(rank, NULL, 0);
        uint64_t batches = 0;
        while (take(client, (batches * RANKS + rank) * ROWS) == RP_NEXT_BATCH)
            batches++;
        assert_true(batches * RANKS * ROWS >= kit.row_count);
        rp_client_detach(client);
    }
    stat_must_work(); /* the first one may come again, as the second one has begun again */
    rp_sleep_ns(300000000);
    rp_a64_store_relaxed(minutes_ahead, 11);
    assert_int_equal(engine_wait(&engine), 0);
}

static int steps_enter(void **state)
{
    minutes_ahead = mmap(NULL, sizeof *minutes_ahead, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return minutes_ahead == MAP_FAILED ? -1 : engine_enter(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_trainer_that_lives_on_gets_as_many_batches, end_newest),
        cmocka_unit_test_teardown(a_state_gives_as_many_batches_whatever_was_saved, end_newest),
        cmocka_unit_test_teardown(a_state_begins_a_step_whatever_was_saved, end_newest),
        cmocka_unit_test_teardown(other_steps_are_refused_by_who_lives_on, end_newest),
        cmocka_unit_test_teardown(a_trainer_that_lives_on_counts_on, end_newest),
        cmocka_unit_test_teardown(a_signal_within_a_step_saves_its_beginning, end_newest),
        cmocka_unit_test_teardown(an_engine_does_not_wait_for_ever_for_who_had_everything,
                                  end_newest),
        cmocka_unit_test_teardown(a_rank_that_comes_behind_the_end_gets_its_own, end_newest),
    };
    return cmocka_run_group_tests(tests, steps_enter, engine_leave);
}
