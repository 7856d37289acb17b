/* SPDX-License-Identifier: Apache-2.0 */
/* Two threads that take batches of one client: the second call is refused while the first one runs,
 * and no batch is lost or given twice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>

#include "client/core.h"
#include "fake_engine.h"

enum { BATCHES = 2000, THREADS = 2 };

static pid_t engine;
static struct rp_client *client;
static bool has_failed; /* a second thread was let in: both may wait for ever for a lost batch */

static int enter(void **state)
{
    if (fake_enter(state) != 0)
        return -1;
    engine = fake_start((struct fake_options){
        .run_dir = fake_run_dir, .generation = 1, .slots = 8, .seed = 7, .batches = BATCHES});
    struct rp_client_options options = fake_client_options();
    return rp_client_attach(&client, &options, NULL);
}

static int leave(void **state)
{
    rp_client_detach(client);
    fake_kill(engine);
    return fake_leave(state);
}

/* The results of each call that takes a batch, made by another thread. */
struct calls {
    struct rp_batch *done;
    int next, take, step;
    struct rp_error error; /* the step's */
};

static void *call(void *argument)
{
    struct calls *calls = argument;
    struct rp_batch batch = {.struct_size = sizeof batch};
    calls->next = rp_client_next(client, 0, &batch, NULL);
    calls->take = rp_client_take(client, &batch, NULL);
    calls->step = rp_client_step(client, calls->done, &batch, &calls->error);
    return NULL;
}

static void call_in_a_thread(struct calls *calls)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, call, calls), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void a_second_thread_is_refused(void **state)
{
    (void)state;
    struct rp_batch first = {.struct_size = sizeof first};
    has_failed = true;
    assert_int_equal(rp_client_next(client, -1, &first, NULL), RP_NEXT_BATCH);
    struct calls calls = {.done = &first};
    assert_int_equal(rp_client_begin_call(client, NULL), 0); /* as a call that waits has */
    call_in_a_thread(&calls);
    assert_int_equal(calls.next, -RP_E_CONCURRENT);
    assert_int_equal(calls.take, -RP_E_CONCURRENT);
    assert_int_equal(calls.step, -RP_E_CONCURRENT);
    assert_int_equal(calls.error.code, -RP_E_CONCURRENT);
    assert_non_null(strstr(calls.error.message, "another thread is inside a call"));
    assert_non_null(strstr(calls.error.hint, "one thread at a time"));
    assert_true(rp_client_holds(client, &first)); /* the step released no batch */
    assert_int_equal(rp_client_next_row(client), first.next_row);
    assert_int_equal(rp_client_release(client, &first), 0);
    rp_client_end_call(client);
    struct rp_batch second = {.struct_size = sizeof second};
    assert_int_equal(rp_client_next(client, -1, &second, NULL), RP_NEXT_BATCH);
    assert_true(fake_batch_holds(&second, first.next_row));
    assert_int_equal(rp_client_release(client, &second), 0);
    has_failed = false;
}

static atomic_uint given[BATCHES], wrong;

static void *take_to_the_end(void *argument)
{
    (void)argument;
    struct rp_batch batch = {.struct_size = sizeof batch};
    int code;
    while ((code = rp_client_next(client, 1000000, &batch, NULL)) != RP_NEXT_END) {
        if (code == RP_NEXT_EMPTY || code == -RP_E_CONCURRENT)
            continue;
        if (code == -RP_E_USAGE) /* all slots after the other thread's lease are used */
            continue;
        if (code != RP_NEXT_BATCH || !fake_batch_holds(&batch, batch.first_row)) {
            wrong++;
            break;
        }
        given[batch.first_row / FAKE_ROWS]++;
        wrong += rp_client_release(client, &batch) != 0;
    }
    return NULL;
}

static void each_batch_is_given_to_one_thread(void **state)
{
    (void)state;
    assert_false(has_failed);
    uint64_t begin = rp_client_next_row(client) / FAKE_ROWS;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_to_the_end, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(wrong, 0);
    for (uint64_t k = begin; k < BATCHES; k++)
        assert_int_equal(given[k], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_second_thread_is_refused),
        cmocka_unit_test(each_batch_is_given_to_one_thread),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
