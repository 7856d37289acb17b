/* SPDX-License-Identifier: Apache-2.0 */
/* rp_client_close from any thread and in any state, and rp_client_state_after: the basis of
 * Python's signal handlers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>

#include "fake_engine.h"

static const struct fake_options engine_options = {
    .run_dir = fake_run_dir, .generation = 1, .slots = 64, .seed = 7, .stop_at = 50};

static struct rp_client *attach(void)
{
    struct rp_client_options options = fake_client_options();
    struct rp_client *client;
    assert_int_equal(rp_client_attach(&client, &options, NULL), 0);
    return client;
}

static struct rp_batch take(struct rp_client *client)
{
    struct rp_batch batch = {.struct_size = sizeof batch};
    int code;
    while ((code = rp_client_take(client, &batch, NULL)) == RP_NEXT_EMPTY)
        usleep(100);
    assert_int_equal(code, RP_NEXT_BATCH);
    return batch;
}

static void assert_state_after(const struct rp_client *client, const struct rp_batch *batch)
{
    char found[FAKE_STATE_BYTES], expected[FAKE_STATE_BYTES];
    size_t bytes = rp_client_state_after(client, batch, found, sizeof found);
    assert_int_equal(bytes, fake_state(batch->next_row, expected));
    assert_memory_equal(found, expected, bytes);
}

static void a_closed_client_gives_no_batch_and_answers(void **state)
{
    (void)state;
    pid_t engine = fake_start(engine_options);
    struct rp_client *client = attach();
    struct rp_batch first = take(client), second = take(client);
    assert_int_equal(rp_client_release(client, &first), 0);
    rp_client_close(client);
    rp_client_close(client);
    struct rp_batch batch = {.struct_size = sizeof batch};
    struct rp_error error;
    assert_int_equal(rp_client_take(client, &batch, &error), -RP_E_USAGE);
    assert_non_null(strstr(error.message, "closed"));
    assert_int_equal(rp_client_next(client, -1, &batch, NULL), -RP_E_USAGE);
    assert_int_equal(rp_client_next_row(client), second.next_row);
    assert_state_after(client, &first);
    assert_true(fake_batch_holds(&second, second.first_row)); /* a lease stays readable */
    assert_int_equal(rp_client_step(client, &second, &batch, NULL), -RP_E_USAGE);
    assert_int_equal(rp_client_release(client, &second), -RP_E_USAGE); /* step has */
    assert_int_equal(rp_client_step(client, &second, &batch, NULL), -RP_E_USAGE);
    assert_state_after(client, &second);
    rp_client_detach(client);
    fake_kill(engine);
}

static void *wait_for_ever(void *argument)
{
    struct rp_client *client = argument;
    struct rp_batch batch = {.struct_size = sizeof batch};
    int code;
    while ((code = rp_client_next(client, -1, &batch, NULL)) == RP_NEXT_BATCH)
        assert_int_equal(rp_client_release(client, &batch), 0);
    assert_true(code == RP_NEXT_EMPTY || code == -RP_E_USAGE);
    return NULL;
}

static void a_wait_ends_with_the_client(void **state)
{
    (void)state;
    pid_t engine = fake_start(engine_options);
    for (int round = 0; round < 3; round++) {
        struct rp_client *client = attach();
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, wait_for_ever, client), 0);
        usleep(1000u * (unsigned)round);
        char token[FAKE_STATE_BYTES];
        for (int i = 0; i < 100; i++)
            assert_true(rp_client_state(client, token, sizeof token) > 0);
        rp_client_close(client);
        assert_int_equal(pthread_join(thread, NULL), 0);
        rp_client_detach(client);
    }
    fake_kill(engine);
}

static void the_last_states_are_kept(void **state)
{
    (void)state;
    pid_t engine = fake_start(engine_options);
    struct rp_client *client = attach();
    struct rp_batch taken[40];
    for (int k = 0; k < 40; k++) {
        taken[k] = take(client);
        assert_int_equal(rp_client_release(client, &taken[k]), 0);
    }
    for (int k = 8; k < 40; k++)
        assert_state_after(client, &taken[k]);
    assert_int_equal(rp_client_state_after(client, &taken[7], NULL, 0), 0);
    rp_client_detach(client);
    fake_kill(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_closed_client_gives_no_batch_and_answers),
        cmocka_unit_test(a_wait_ends_with_the_client),
        cmocka_unit_test(the_last_states_are_kept),
    };
    return cmocka_run_group_tests(tests, fake_enter, fake_leave);
}
