/* SPDX-License-Identifier: Apache-2.0 */
/* rp_client_take, the next that never waits, and the state before the last batch: the basis of the
 * Python package. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fake_engine.h"

static const struct fake_options engine_options = {
    .run_dir = fake_run_dir, .generation = 1, .slots = 4, .seed = 7, .stop_at = 6};

static struct rp_client *attach(void)
{
    struct rp_client_options options = fake_client_options();
    struct rp_client *client;
    assert_int_equal(rp_client_attach(&client, &options, NULL), 0);
    return client;
}

static void assert_states(const struct rp_client *client, uint64_t row)
{
    char found[FAKE_STATE_BYTES], expected[FAKE_STATE_BYTES];
    size_t bytes = rp_client_state(client, found, sizeof found);
    assert_int_equal(bytes, fake_state(row, expected));
    assert_memory_equal(found, expected, bytes);
    bytes = rp_client_state_before(client, found, sizeof found);
    assert_int_equal(bytes, fake_state(row - FAKE_ROWS, expected));
    assert_memory_equal(found, expected, bytes);
}

/* Takes the row; the engine may take its time. */
static void take(struct rp_client *client, uint64_t row)
{
    struct rp_batch batch = {.struct_size = sizeof batch};
    int code;
    while ((code = rp_client_take(client, &batch, NULL)) == RP_NEXT_EMPTY)
        usleep(100);
    assert_int_equal(code, RP_NEXT_BATCH);
    assert_true(fake_batch_holds(&batch, row));
    assert_states(client, row + FAKE_ROWS);
    assert_int_equal(rp_client_release(client, &batch), 0);
}

/* An engine whose stream ends after FINITE batches. */
#define FINITE 50
static pid_t start_finite(void)
{
    struct fake_options with_end = engine_options;
    with_end.stop_at = 0;
    with_end.batches = FINITE;
    return fake_start(with_end);
}

static void takes_what_is_ready_and_never_waits(void **state)
{
    (void)state;
    pid_t engine = start_finite();
    struct rp_client *client = attach();
    for (uint64_t row = 0; row < FINITE * FAKE_ROWS; row += FAKE_ROWS)
        take(client, row);
    struct rp_batch batch = {.struct_size = sizeof batch};
    struct rp_client_counts counts = {.struct_size = sizeof counts};
    int code;
    while ((code = rp_client_take(client, &batch, NULL)) == RP_NEXT_EMPTY)
        usleep(100);
    assert_int_equal(code, RP_NEXT_END);
    rp_client_counts(client, &counts);
    assert_int_equal(counts.batches, FINITE);
    assert_int_equal(counts.waits, 0);
    rp_client_detach(client);
    fake_kill(engine);
}

/* Only next follows a stopped engine: take says "nothing yet", next attaches. */
static void leaves_the_successor_to_next(void **state)
{
    (void)state;
    pid_t engine = fake_start(engine_options);
    struct rp_client *client = attach();
    uint64_t row = 0;
    for (; row < 6 * FAKE_ROWS; row += FAKE_ROWS)
        take(client, row);
    fake_kill(engine);
    struct fake_options successor = engine_options;
    successor.generation++;
    successor.stop_at = 0;
    engine = fake_start(successor);
    struct rp_batch batch = {.struct_size = sizeof batch};
    struct rp_client_counts counts = {.struct_size = sizeof counts};
    for (int i = 0; i < 20; i++) {
        assert_int_equal(rp_client_take(client, &batch, NULL), RP_NEXT_EMPTY);
        usleep(1000);
    }
    assert_states(client, row);
    assert_int_equal(rp_client_next(client, -1, &batch, NULL), RP_NEXT_BATCH);
    assert_true(fake_batch_holds(&batch, row));
    assert_states(client, row + FAKE_ROWS);
    rp_client_counts(client, &counts);
    assert_int_equal(counts.reattaches, 1);
    rp_client_release(client, &batch);
    take(client, row + FAKE_ROWS);
    rp_client_detach(client);
    fake_kill(engine);
}

/* The lease before is over with each step, in one struct or in two, and also without a next batch.
 */
static void a_step_releases_one_batch_and_takes_the_next(void **state)
{
    (void)state;
    pid_t engine = start_finite();
    struct rp_client *client = attach();
    struct rp_batch batches[2] = {{.struct_size = sizeof *batches},
                                  {.struct_size = sizeof *batches}};
    assert_int_equal(rp_client_next(client, -1, &batches[0], NULL), RP_NEXT_BATCH);
    unsigned at = 0;
    for (uint64_t row = FAKE_ROWS; row < FINITE * FAKE_ROWS; row += FAKE_ROWS) {
        unsigned to = row % (3 * FAKE_ROWS) ? !at : at;
        struct rp_batch done = batches[at];
        int code = rp_client_step(client, &batches[at], &batches[to], NULL);
        assert_false(rp_client_holds(client, &done));
        if (code == RP_NEXT_EMPTY)
            code = rp_client_next(client, -1, &batches[to], NULL);
        assert_int_equal(code, RP_NEXT_BATCH);
        assert_true(rp_client_holds(client, &batches[to]));
        assert_true(fake_batch_holds(&batches[to], row));
        assert_states(client, row + FAKE_ROWS);
        assert_int_equal(rp_client_step(client, &done, &done, NULL), -RP_E_USAGE);
        struct rp_batch unknown = {.struct_size = 1};
        assert_int_equal(rp_client_step(client, &batches[to], &unknown, NULL), -RP_E_USAGE);
        assert_true(rp_client_holds(client, &batches[to]));
        at = to;
    }
    int code = rp_client_step(client, &batches[at], &batches[!at], NULL);
    if (code == RP_NEXT_EMPTY)
        code = rp_client_next(client, -1, &batches[!at], NULL);
    assert_int_equal(code, RP_NEXT_END);
    assert_false(rp_client_holds(client, &batches[at]));
    rp_client_detach(client);
    fake_kill(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_what_is_ready_and_never_waits),
        cmocka_unit_test(leaves_the_successor_to_next),
        cmocka_unit_test(a_step_releases_one_batch_and_takes_the_next),
    };
    return cmocka_run_group_tests(tests, fake_enter, fake_leave);
}
