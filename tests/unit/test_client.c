/* SPDX-License-Identifier: Apache-2.0 */
/* The trainer's library against a fake engine in another process: lending, returns, and the death
 * of either side. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "base/bits.h"
#include "base/clock.h"
#include "fake_engine.h"

#define SECOND 1000000000ll

static const struct fake_options engine_options = {
    .run_dir = fake_run_dir, .generation = 1, .slots = 4, .seed = 7};

static struct rp_client *attach(const struct rp_client_options *options)
{
    struct rp_error error;
    struct rp_client *client;
    if (rp_client_attach(&client, options, &error) != 0)
        fail_msg("attach: %s", error.message);
    return client;
}

static struct rp_batch take(struct rp_client *client, uint64_t row)
{
    struct rp_error error = {0};
    struct rp_batch batch = {.struct_size = sizeof batch};
    int code = rp_client_next(client, PATIENCE_NS, &batch, &error);
    if (code != RP_NEXT_BATCH)
        fail_msg("row %llu: next returned %d: %s", (unsigned long long)row, code, error.message);
    assert_true(fake_batch_holds(&batch, row));
    return batch;
}

static void assert_state(const struct rp_client *client, uint64_t row)
{
    char found[FAKE_STATE_BYTES], expected[FAKE_STATE_BYTES];
    size_t bytes = rp_client_state(client, found, sizeof found);
    assert_int_equal(bytes, fake_state(row, expected));
    assert_memory_equal(found, expected, bytes);
    assert_int_equal(rp_client_next_row(client), row);
}

static void takes_and_returns(void **state)
{
    (void)state;
    struct fake_options with_end = engine_options;
    with_end.batches = 100;
    pid_t engine = fake_start(with_end);
    struct rp_client_options options = fake_client_options();
    struct rp_client *client = attach(&options);
    struct rp_batch batch = {.struct_size = sizeof batch};
    assert_state(client, 0); /* came with the welcome */
    assert_int_equal(rp_client_state(client, NULL, 0), strlen("state before row 0"));
    for (uint64_t k = 0; k < 100; k++) {
        batch = take(client, k * FAKE_ROWS);
        assert_int_equal(batch.number, k);
        assert_null(rp_batch_section(&batch, RP_SECTION_LABELS));
        assert_true(rp_client_holds(client, &batch));
        assert_state(client, (k + 1) * FAKE_ROWS);
        assert_int_equal(rp_client_release(client, &batch), 0);
        assert_false(rp_client_holds(client, &batch));
    }
    assert_int_equal(rp_client_next(client, -1, &batch, NULL), RP_NEXT_END);
    assert_int_equal(rp_client_next(client, 0, &batch, NULL), RP_NEXT_END);
    assert_int_equal(rp_client_release(client, &batch), -RP_E_USAGE); /* twice */
    struct rp_client_counts counts = {.struct_size = sizeof counts};
    uint64_t identity[2] = {0};
    rp_client_identity(client, identity);
    struct rp_hash128 expected = rp_hash128("seed=7\n", 7);
    assert_memory_equal(identity, &expected, sizeof expected);
    char contract[FAKE_CONTRACT_BYTES] = "";
    assert_int_equal(rp_client_contract(client, contract, sizeof contract), 17);
    assert_string_equal(contract, "seed=7\n\npad_id=0\n");
    rp_client_counts(client, &counts);
    assert_int_equal(counts.batches, 100);
    assert_int_equal(counts.tokens, 100 * FAKE_ROWS * FAKE_SEQ_LEN);
    rp_client_detach(client);
    fake_kill(engine);
}

static void goes_on_from_a_state(void **state)
{
    (void)state;
    pid_t engine = fake_start(engine_options);
    struct rp_client_options options = fake_client_options();
    options.state = "state before row 42";
    options.state_bytes = strlen(options.state);
    struct rp_client *client = attach(&options);
    assert_state(client, 42);
    struct rp_batch batch = take(client, 42);
    rp_client_release(client, &batch);
    rp_client_detach(client);
    fake_kill(engine);
}

static void returns_in_any_order(void **state)
{
    (void)state;
    struct rp_error error;
    pid_t engine = fake_start(engine_options);
    struct rp_client_options options = fake_client_options();
    struct rp_client *client = attach(&options);
    struct rp_batch held[4], one_more = {.struct_size = sizeof one_more};
    uint64_t row = 0;
    for (int i = 0; i < 4; i++, row += FAKE_ROWS)
        held[i] = take(client, row);
    assert_int_equal(rp_client_next(client, -1, &one_more, &error), -RP_E_USAGE);
    assert_non_null(strstr(error.message, "batch 0 is still on lease"));
    rp_client_release(client, &held[2]);
    rp_client_release(client, &held[1]);
    assert_int_equal(rp_client_next(client, 0, &one_more, &error),
                     -RP_E_USAGE); /* batch 0 is still held */
    assert_true(fake_batch_holds(&held[0], 0));
    rp_client_release(client, &held[0]);
    for (int i = 0; i < 3; i++, row += FAKE_ROWS)
        held[i] = take(client, row);
    assert_true(fake_batch_holds(&held[3], 3 * FAKE_ROWS));

    unsigned seed = (unsigned)time(NULL);
    print_message("seed %u\n", seed);
    for (int i = 0; i < 20000; i++) {
        unsigned victim = (unsigned)rand_r(&seed) % 4;
        if (rp_client_holds(client, &held[victim])) {
            assert_int_equal(rp_client_release(client, &held[victim]), 0);
            continue;
        }
        int code = rp_client_next(client, 2000000, &held[victim], &error);
        if (code != RP_NEXT_BATCH) { /* an older lease keeps the ring full */
            assert_true(code == RP_NEXT_EMPTY || code == -RP_E_USAGE);
            continue;
        }
        assert_true(fake_batch_holds(&held[victim], row));
        row += FAKE_ROWS;
    }
    assert_true(row > 1000);
    bool holds[4];
    for (int i = 0; i < 4; i++)
        holds[i] = rp_client_holds(client, &held[i]);
    rp_client_detach(client);
    for (int i = 0; i < 4; i++) /* the last of these frees the client */
        if (holds[i])
            assert_int_equal(rp_client_release(client, &held[i]), 0);
    fake_kill(engine);
}

static void follows_a_restarted_engine(void **state)
{
    (void)state;
    struct fake_options o = engine_options;
    pid_t engine = fake_start(o);
    struct rp_client_options options = fake_client_options();
    struct rp_client *client = attach(&options);
    uint64_t row = 0;
    for (int round = 0; round < 20; round++) {
        struct rp_batch old = take(client, row), batch;
        row += FAKE_ROWS;
        fake_kill(engine);
        o.generation++;
        o.slots = round % 2 ? 4 : 8;
        o.base_row = row / 3 / FAKE_ROWS * FAKE_ROWS;
        engine = fake_start(o);
        for (int i = 0; i < 11; i++, row += FAKE_ROWS) {
            batch = take(client, row);
            assert_state(client, row + FAKE_ROWS);
            rp_client_release(client, &batch);
        }
        assert_true(rp_client_holds(client, &old));
        assert_true(fake_batch_holds(&old, old.first_row));
        assert_int_equal(rp_client_release(client, &old), 0);
        assert_int_equal(rp_client_release(client, &old), -RP_E_USAGE);
    }
    struct rp_client_counts counts = {.struct_size = sizeof counts};
    rp_client_counts(client, &counts);
    assert_int_equal(counts.reattaches, 20);
    rp_client_detach(client);
    fake_kill(engine);
}

static void follows_after_a_stop(void **state)
{
    (void)state;
    struct fake_options o = engine_options;
    o.stop_at = 6;
    pid_t engine = fake_start(o);
    struct rp_client_options options = fake_client_options();
    struct rp_client *client = attach(&options);
    struct rp_batch batch = {.struct_size = sizeof batch};
    uint64_t row = 0;
    for (; row < 6 * FAKE_ROWS; row += FAKE_ROWS) {
        batch = take(client, row);
        rp_client_release(client, &batch);
    }
    uint64_t begin = rp_now_ns();
    assert_int_equal(rp_client_next(client, SECOND / 20, &batch, NULL), RP_NEXT_EMPTY);
    assert_true(rp_now_ns() - begin >= SECOND / 20);
    fake_kill(engine);
    o.stop_at = 0;
    o.base_row = 4;
    engine = fake_start(o);
    batch = take(client, row);
    rp_client_release(client, &batch);
    rp_client_detach(client);
    fake_kill(engine);
}

static void says_what_is_wrong(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_client *client;
    struct rp_batch batch = {.struct_size = sizeof batch};
    struct rp_client_options options = fake_client_options();
    options.connect_timeout_ns = SECOND / 100;
    assert_int_equal(rp_client_attach(&client, &options, &error), -RP_E_GONE);
    assert_non_null(strstr(error.hint, "ringpack serve"));
    assert_null(client);

    struct fake_options o = engine_options;
    o.fail_at = 3;
    pid_t engine = fake_start(o);
    options = fake_client_options();
    options.world = 8;
    assert_int_equal(rp_client_attach(&client, &options, &error), -RP_E_MISMATCH);
    assert_string_equal(error.message, "dp_world_size: 1 here");
    assert_string_equal(error.hint, "use 1");

    options.world = 1;
    struct rp_client_options half = options; /* a file of a state that came out empty */
    half.state = "";
    assert_int_equal(rp_client_attach(&client, &half, &error), -RP_E_USAGE);
    half = options;
    half.state_bytes = 5;
    assert_int_equal(rp_client_attach(&client, &half, &error), -RP_E_USAGE);
    client = attach(&options);
    struct rp_client_options second = options;
    struct rp_client *other;
    second.connect_timeout_ns = SECOND;
    assert_int_equal(rp_client_attach(&other, &second, &error), -RP_E_BUSY);
    for (uint64_t row = 0; row < 3 * FAKE_ROWS; row += FAKE_ROWS) {
        batch = take(client, row);
        rp_client_release(client, &batch);
    }
    assert_int_equal(rp_client_next(client, -1, &batch, &error), -RP_E_CORRUPT);
    assert_string_equal(error.message, "the engine: the disk is on fire");
    assert_string_equal(error.hint, "pour water");
    char *text;
    assert_int_equal(rp_run_stat(fake_run_dir, NULL, &text, &error), 0);
    assert_string_equal(text, "{\"run\": \"default\"}");
    rp_text_free(text);
    rp_client_detach(client);
    fake_kill(engine);
}

/* The file that cannot be written is named, and not the absent engine: so there was no request to
 * it. */
static void a_digest_log_is_refused_before_the_engine_is_asked(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_client *client;
    struct rp_client_options options = fake_client_options();
    options.connect_timeout_ns = SECOND / 100;
    options.digest_log = "/no/such/folder/digests";
    options.digest_steps = 1;
    options.state = "state before row 42";
    options.state_bytes = strlen(options.state);
    assert_int_equal(rp_client_attach(&client, &options, &error), -ENOENT);
    assert_non_null(strstr(error.message, options.digest_log));
    char others[] = "/tmp/rp-others-XXXXXX";
    int fd = mkstemp(others);
    assert_int_equal(write(fd, "a: config\n", 10), 10);
    options.digest_log = others;
    assert_int_equal(rp_client_attach(&client, &options, &error), -RP_E_FORMAT);
    assert_int_equal(lseek(fd, 0, SEEK_END), 10);
    close(fd);
    unlink(others);
    options.replica = 1; /* which writes none */
    assert_int_not_equal(rp_client_attach(&client, &options, &error), -ENOENT);
}

static void gives_up_in_time(void **state)
{
    (void)state;
    struct rp_error error;
    pid_t engine = fake_start(engine_options);
    struct rp_client_options options = fake_client_options();
    options.restart_timeout_ns = SECOND / 4;
    struct rp_client *client = attach(&options);
    struct rp_batch batch = take(client, 0), other = {.struct_size = sizeof other};
    fake_kill(engine);
    int code = RP_NEXT_BATCH;
    while (code == RP_NEXT_BATCH) /* its published batches are still delivered */
        if ((code = rp_client_next(client, -1, &other, &error)) == RP_NEXT_BATCH)
            rp_client_release(client, &other);
    assert_int_equal(code, -RP_E_GONE);
    assert_non_null(strstr(error.message, "no successor came"));
    assert_true(fake_batch_holds(&batch, 0));

    for (int i = 0; i < 2; i++) { /* another stream, another delivery */
        struct fake_options stranger = engine_options;
        *(i ? &stranger.pad_id : &stranger.seed) += 1;
        engine = fake_start(stranger);
        do
            code = rp_client_next(client, SECOND, &other, &error);
        while (code == -RP_E_GONE || code == RP_NEXT_EMPTY); /* it is still starting */
        assert_int_equal(code, -RP_E_MISMATCH);
        assert_string_equal(error.message, i ? "pad_id differs: the trainer has 0, the engine has 1"
                                             : "seed differs: the trainer has 7, the engine has 8");
        fake_kill(engine);
    }
    rp_client_detach(client);
    assert_true(fake_batch_holds(&batch, 0));
    assert_int_equal(rp_client_release(client, &batch), 0);
}

/* A trainer that notes the row after every batch, as its checkpoint would, and may be killed at
 * any moment. */
static void train(volatile uint64_t *checkpoint)
{
    char token[FAKE_STATE_BYTES];
    struct rp_client_options options = fake_client_options();
    options.state = token;
    options.state_bytes = fake_state(*checkpoint, token);
    struct rp_client *client;
    struct rp_batch batch = {.struct_size = sizeof batch};
    if (rp_client_attach(&client, &options, NULL) != 0)
        _exit(1);
    while (rp_client_next(client, -1, &batch, NULL) == RP_NEXT_BATCH) {
        if (!fake_batch_holds(&batch, *checkpoint))
            _exit(2);
        *checkpoint = batch.next_row;
        rp_client_release(client, &batch);
    }
    _exit(3);
}

static void killed_trainers_go_on(void **state)
{
    (void)state;
    volatile uint64_t *checkpoint = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
                                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t engine = fake_start(engine_options);
    unsigned seed = (unsigned)time(NULL);
    print_message("seed %u\n", seed);
    for (int i = 0; i < 100; i++) {
        uint64_t before = *checkpoint;
        fflush(NULL);
        pid_t trainer = fork();
        if (trainer == 0)
            train(checkpoint);
        while (i % 2 && *checkpoint < before + 30) /* the others die wherever they are */
            sched_yield();
        rp_sleep_ns(1000000u + (uint64_t)rand_r(&seed) % 8000000u);
        kill(trainer, SIGKILL);
        int status;
        waitpid(trainer, &status, 0);
        assert_true(WIFSIGNALED(status)); /* it never ended by itself */
    }
    print_message("%llu rows over 100 kills\n", (unsigned long long)*checkpoint);
    assert_true(*checkpoint > 1000);
    fake_kill(engine);
}

static void forked_children_are_refused(void **state)
{
    (void)state;
    pid_t engine = fake_start(engine_options);
    int answer[2], hold[2];
    assert_int_equal(pipe(answer), 0);
    assert_int_equal(pipe(hold), 0);
    fflush(NULL);
    pid_t trainer = fork();
    if (trainer == 0) {
        struct rp_client_options options = fake_client_options();
        struct rp_client *client = attach(&options);
        struct rp_batch batch = take(client, 0);
        pid_t child = fork();
        if (child == 0) {
            struct rp_error error;
            bool refused = rp_client_next(client, 0, &batch, &error) == -RP_E_USAGE &&
                           rp_client_release(client, &batch) == -RP_E_USAGE &&
                           !rp_client_holds(client, &batch);
            rp_client_detach(client);
            char byte = refused ? 'y' : 'n';
            ssize_t done = write(answer[1], &byte, 1);
            /* and outlives its parent, as data loader workers do, until the test is over */
            close(hold[1]);
            done = read(hold[0], &byte, 1);
            _exit(done == 0 ? 0 : 1);
        }
        _exit(0);
    }
    char byte = 0;
    int status;
    assert_int_equal(read(answer[0], &byte, 1), 1);
    assert_int_equal(byte, 'y');
    waitpid(trainer, &status, 0);
    assert_int_equal(status, 0);
    struct rp_client_options options = fake_client_options();
    struct rp_client *client = attach(&options); /* the grandchild does not hold the rank */
    struct rp_batch batch = take(client, 0);
    assert_int_equal(rp_client_release(client, &batch), 0);
    rp_client_detach(client);
    fake_kill(engine);
    for (int i = 0; i < 2; i++) {
        close(answer[i]);
        close(hold[i]);
    }
}

struct returner {
    struct rp_client *client;
    struct rp_batch batches[4];
    struct rp_a64 given;
};

static void *return_batches(void *argument)
{
    struct returner *r = argument;
    for (uint64_t i = 0; i < 5000; i++) {
        while (rp_a64_load_acquire(&r->given) == i)
            sched_yield();
        assert_int_equal(rp_client_release(r->client, &r->batches[i % 4]), 0);
    }
    return NULL;
}

/* The ring is filled, so the trainer reads the oldest lease while it is being returned: which
 * ThreadSanitizer must not mind. */
static void another_thread_may_return(void **state)
{
    (void)state;
    pid_t engine = fake_start(engine_options);
    struct rp_client_options options = fake_client_options();
    struct returner r = {.client = attach(&options)};
    pthread_t thread;
    pthread_create(&thread, NULL, return_batches, &r);
    for (uint64_t i = 0; i < 5000; i++) {
        struct rp_batch batch = {.struct_size = sizeof batch};
        int code;
        while ((code = rp_client_next(r.client, PATIENCE_NS, &batch, NULL)) != RP_NEXT_BATCH)
            assert_int_equal(code, -RP_E_USAGE); /* full */
        assert_true(fake_batch_holds(&batch, i * FAKE_ROWS));
        r.batches[i % 4] = batch;
        rp_a64_store_release(&r.given, i + 1);
    }
    pthread_join(thread, NULL);
    rp_client_detach(r.client);
    fake_kill(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_and_returns),
        cmocka_unit_test(goes_on_from_a_state),
        cmocka_unit_test(returns_in_any_order),
        cmocka_unit_test(follows_a_restarted_engine),
        cmocka_unit_test(follows_after_a_stop),
        cmocka_unit_test(says_what_is_wrong),
        cmocka_unit_test(a_digest_log_is_refused_before_the_engine_is_asked),
        cmocka_unit_test(gives_up_in_time),
        cmocka_unit_test(killed_trainers_go_on),
        cmocka_unit_test(forked_children_are_refused),
        cmocka_unit_test(another_thread_may_return),
    };
    return cmocka_run_group_tests(tests, fake_enter, fake_leave);
}
