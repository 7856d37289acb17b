/* SPDX-License-Identifier: Apache-2.0 */
/* The trainer's library against an engine that answers nonsense: every answer ends in an error or
 * in a batch, never in a crash or a hang, and no descriptor is left open. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/bits.h"
#include "base/clock.h"
#include "fake_engine.h"

#define ROUNDS 3000
#define MAX_QUEUED 1000
#define SHORT_PATIENCE_NS 1000000000ll /* for a trainer whose engines only stop */

/* The answer to the next connection. */
struct answer {
    uint8_t bytes[256];
    size_t length;
    const int *fds;
    unsigned fd_count;
};

/* An engine's socket and a ring with one batch. */
struct stage {
    struct rp_listener listener;
    struct rp_ring ring;
    int fds[2];
};

static void open_stage(struct stage *stage)
{
    struct rp_error error;
    struct rp_geometry geometry = fake_geometry(4, 0);
    char text[FAKE_CONTRACT_BYTES];
    struct rp_contract contract = fake_contract(7, 0, text);
    assert_int_equal(rp_listener_open(&stage->listener, fake_run_dir, "default", &error), 0);
    assert_int_equal(rp_ring_create(&stage->ring, &geometry, 1,
                                    (struct rp_ring_identity){rp_contract_hash(&contract), 1}, 0,
                                    &error),
                     0);
    assert_int_equal(rp_ring_attach_trainer(&stage->ring, 0, 0, &error), 0);
    fake_write_batch(&stage->ring, 0, 1);
    rp_ring_publish(&stage->ring, 1);
    stage->fds[0] = stage->ring.data.fd;
    stage->fds[1] = stage->ring.seats[0].control.fd;
}

static void close_stage(struct stage *stage)
{
    rp_ring_close(&stage->ring);
    rp_listener_close(&stage->listener);
}

struct performance {
    struct stage *stage;
    const struct answer *answer;
    struct rp_a32 *over; /* 1: no more of them; NULL where there is only one */
};

/* The next trainer that is still there: one that was hung up on may have tried again and left. */
static int next_trainer(struct stage *stage)
{
    struct pollfd entry = {stage->listener.fd, POLLIN, 0};
    poll(&entry, 1, PATIENCE_MS);
    int fd = rp_listener_accept(&stage->listener, NULL);
    while (fd >= 0 && rp_socket_hung_up(fd)) {
        close(fd);
        poll(&entry, 1, PATIENCE_MS);
        fd = rp_listener_accept(&stage->listener, NULL);
    }
    return fd;
}

/* Answer one trainer, then hang up. */
static void *perform(void *argument)
{
    const struct performance *p = argument;
    char request[4096];
    int fds[2];
    int fd = next_trainer(p->stage);
    if (fd < 0)
        return NULL;
    int64_t got = receive_into(fd, request, sizeof request, fds, PATIENCE_MS, NULL);
    if (got > 0 && p->answer->length)
        got = rp_socket_send(fd,
                             &(struct rp_message){.header = p->answer->bytes,
                                                  .header_bytes = p->answer->length,
                                                  .fds = p->answer->fds,
                                                  .fd_count = p->answer->fd_count},
                             NULL);
    close(fd);
    return NULL;
}

/* Returns the code of attach; a client that was made takes one batch if `take`. */
static int meet(struct stage *stage, const struct answer *answer, bool take, struct rp_error *error)
{
    struct performance performance = {stage, answer, NULL};
    struct rp_client_options options = {
        .struct_size = sizeof options, .run_dir = fake_run_dir, .connect_timeout_ns = PATIENCE_NS};
    struct rp_client *client;
    pthread_t thread;
    if (answer->length == 0) /* a trainer that is hung up on tries again, to no avail */
        options.connect_timeout_ns = SHORT_PATIENCE_NS / 5;
    pthread_create(&thread, NULL, perform, &performance);
    int code = rp_client_attach(&client, &options, error);
    pthread_join(thread, NULL);
    struct rp_batch batch = {.struct_size = sizeof batch};
    if (code == 0 && take) {
        assert_int_equal(rp_client_next(client, 0, &batch, error), RP_NEXT_BATCH);
        assert_true(fake_batch_holds(&batch, 0));
        assert_int_equal(rp_client_release(client, &batch), 0);
    }
    if (code == 0)
        rp_client_detach(client);
    return code;
}

static struct answer welcome(const struct stage *stage)
{
    struct rp_reply reply = {.magic = RP_MESSAGE_MAGIC,
                             .abi_version = RP_ABI_VERSION,
                             .kind = RP_REPLY_WELCOME,
                             .generation = 1};
    char body[5 + FAKE_CONTRACT_BYTES] = "state";
    struct rp_contract contract = fake_contract(7, 0, body + 5);
    reply.contract_bytes = (uint32_t)rp_contract_bytes(&contract);
    reply.text_bytes = 5 + reply.contract_bytes;
    struct answer answer = {
        .length = sizeof reply + reply.text_bytes, .fds = stage->fds, .fd_count = 2};
    memcpy(answer.bytes, &reply, sizeof reply);
    memcpy(answer.bytes + sizeof reply, body, reply.text_bytes);
    return answer;
}

static unsigned open_descriptors(void)
{
    unsigned count = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

static void a_good_answer_is_taken(void **state)
{
    (void)state;
    struct stage stage;
    struct rp_error error;
    open_stage(&stage);
    struct answer answer = welcome(&stage);
    assert_int_equal(meet(&stage, &answer, true, &error), 0);
    close_stage(&stage);
}

static void bad_answers_are_named(void **state)
{
    (void)state;
    struct stage stage;
    struct rp_error error;
    open_stage(&stage);
    unsigned before = open_descriptors();
    struct answer answer = welcome(&stage);
    struct rp_reply *reply = (struct rp_reply *)(void *)answer.bytes;

    answer.length = 0; /* hangs up */
    assert_int_equal(meet(&stage, &answer, false, &error), -RP_E_GONE);
    answer.length = 7;
    assert_int_equal(meet(&stage, &answer, false, &error), -RP_E_PROTOCOL);
    answer.length = sizeof *reply + 4; /* a byte less than it says */
    assert_int_equal(meet(&stage, &answer, false, &error), -RP_E_PROTOCOL);
    answer = welcome(&stage);
    reply->contract_bytes = reply->text_bytes + 1;
    assert_int_equal(meet(&stage, &answer, false, &error), -RP_E_PROTOCOL);
    answer = welcome(&stage);
    reply->contract_bytes--; /* "eed=7": a contract, and not the ring's */
    assert_int_equal(meet(&stage, &answer, false, &error), -RP_E_PROTOCOL);
    assert_non_null(strstr(error.message, "different hashes"));
    answer = welcome(&stage);
    reply->contract_bytes = 0;
    assert_int_equal(meet(&stage, &answer, false, &error), -RP_E_PROTOCOL);
    answer = welcome(&stage);
    answer.fd_count = 0;
    assert_true(meet(&stage, &answer, false, &error) < 0);
    answer.fd_count = 1;
    assert_true(meet(&stage, &answer, false, &error) < 0);
    answer = welcome(&stage);
    reply->abi_version++;
    assert_int_equal(meet(&stage, &answer, false, &error), -RP_E_VERSION);
    answer = welcome(&stage);
    reply->kind = RP_REPLY_TEXT;
    assert_int_equal(meet(&stage, &answer, false, &error), -RP_E_PROTOCOL);
    answer = welcome(&stage);
    reply->kind = RP_REPLY_REFUSED;
    reply->code = 12; /* no refusal has such a code */
    assert_int_equal(meet(&stage, &answer, false, &error), -RP_E_PROTOCOL);
    answer.length = sizeof *reply; /* a refusal without a word */
    reply->text_bytes = reply->contract_bytes = 0;
    reply->code = -RP_E_MISMATCH;
    assert_int_equal(meet(&stage, &answer, false, &error), -RP_E_MISMATCH);
    assert_non_null(strstr(error.message, "without a reason"));
    int swapped[2] = {stage.fds[1], stage.fds[0]};
    answer = welcome(&stage);
    answer.fds = swapped;
    assert_true(meet(&stage, &answer, false, &error) < 0);
    assert_int_equal(open_descriptors(), before);
    close_stage(&stage);
}

static void flipped_bits_do_no_harm(void **state)
{
    (void)state;
    struct stage stage;
    struct rp_error error;
    open_stage(&stage);
    unsigned before = open_descriptors(), seed = (unsigned)time(NULL);
    print_message("seed %u\n", seed);
    for (int round = 0; round < ROUNDS; round++) {
        struct answer answer = welcome(&stage);
        for (int flips = 1 + rand_r(&seed) % 3; flips > 0; flips--)
            answer.bytes[(size_t)rand_r(&seed) % answer.length] ^= (uint8_t)(1u
                                                                             << rand_r(&seed) % 8);
        if (rand_r(&seed) % 8 == 0)
            answer.length = (size_t)rand_r(&seed) % sizeof answer.bytes;
        int code = meet(&stage, &answer, false, &error);
        assert_true(code <= 0);
    }
    assert_int_equal(open_descriptors(), before);
    close_stage(&stage);
}

/* A good answer, but of the next batch, which never comes. */
static struct answer welcome_to_nothing(const struct stage *stage)
{
    struct answer answer = welcome(stage);
    ((struct rp_reply *)(void *)answer.bytes)->first_batch = 1;
    ((struct rp_reply *)(void *)answer.bytes)->first_row = FAKE_ROWS;
    return answer;
}

/* Answers three trainers, one after the other, and is gone. */
static void *perform_thrice(void *argument)
{
    const struct performance *p = argument;
    for (unsigned i = 0; i < 3; i++)
        perform(argument);
    rp_listener_close(&p->stage->listener);
    return NULL;
}

static void a_wait_ends_in_time_although_every_successor_stops(void **state)
{
    (void)state;
    struct stage stage;
    struct rp_error error;
    open_stage(&stage);
    rp_ring_set_status(&stage.ring, RP_RING_STOPPED, 0, NULL);
    struct answer answer = welcome_to_nothing(&stage);
    struct performance performance = {&stage, &answer, NULL};
    struct rp_client_options options = {.struct_size = sizeof options,
                                        .run_dir = fake_run_dir,
                                        .restart_timeout_ns = SHORT_PATIENCE_NS};
    struct rp_client *client;
    struct rp_batch batch = {.struct_size = sizeof batch};
    char *text;
    pthread_t thread;
    pthread_create(&thread, NULL, perform_thrice, &performance);
    assert_int_equal(rp_client_attach(&client, &options, &error), 0);
    assert_int_equal(rp_client_next(client, 0, &batch, &error), RP_NEXT_EMPTY);
    rp_client_detach(client);
    /* It met one successor, so the third answer is left: a welcome, which is no answer to this. */
    assert_int_equal(rp_run_stat(fake_run_dir, NULL, &text, &error), -RP_E_PROTOCOL);
    pthread_join(thread, NULL);
    rp_ring_close(&stage.ring);
}

static void *perform_until_over(void *argument)
{
    const struct performance *p = argument;
    while (!rp_a32_load_acquire(p->over))
        perform(argument);
    rp_listener_close(&p->stage->listener);
    return NULL;
}

/* Also for a trainer that would wait for ever: no returning engine continues. */
static void successors_that_only_stop_are_given_up(void **state)
{
    (void)state;
    struct stage stage;
    struct rp_error error;
    struct rp_a32 over = {0};
    open_stage(&stage);
    rp_ring_set_status(&stage.ring, RP_RING_STOPPED, 0, NULL);
    struct answer answer = welcome_to_nothing(&stage);
    struct performance performance = {&stage, &answer, &over};
    struct rp_client_options options = {.struct_size = sizeof options,
                                        .run_dir = fake_run_dir,
                                        .restart_timeout_ns = SHORT_PATIENCE_NS};
    struct rp_client *client;
    struct rp_batch batch = {.struct_size = sizeof batch};
    char *text;
    pthread_t thread;
    pthread_create(&thread, NULL, perform_until_over, &performance);
    assert_int_equal(rp_client_attach(&client, &options, &error), 0);
    assert_int_equal(rp_client_next(client, -1, &batch, &error), -RP_E_GONE);
    assert_non_null(strstr(error.message, "successor"));
    rp_client_detach(client);
    rp_a32_store_release(&over, 1);
    assert_true(rp_run_stat(fake_run_dir, NULL, &text, &error) < 0); /* the last one */
    pthread_join(thread, NULL);
    rp_ring_close(&stage.ring);
}

static void a_successor_that_does_not_reply_is_given_up(void **state)
{
    (void)state;
    struct stage stage;
    struct rp_error error;
    open_stage(&stage);
    struct answer answer = welcome_to_nothing(&stage);
    struct performance performance = {&stage, &answer, NULL};
    struct rp_client_options options = {.struct_size = sizeof options,
                                        .run_dir = fake_run_dir,
                                        .restart_timeout_ns = SHORT_PATIENCE_NS};
    struct rp_client *client;
    struct rp_batch batch = {.struct_size = sizeof batch};
    pthread_t thread;
    pthread_create(&thread, NULL, perform, &performance);
    assert_int_equal(rp_client_attach(&client, &options, &error), 0);
    pthread_join(thread, NULL); /* it has hung up; from now on the socket has no server */
    assert_int_equal(rp_client_next(client, -1, &batch, &error), -RP_E_GONE);
    assert_non_null(strstr(error.message, "did not reply within 1 s"));
    rp_client_detach(client);
    close_stage(&stage);
}

/* The kernel takes connections and requests for a silent engine: one that is stopped, that hangs,
 * or that plans for hours. */
static void an_engine_that_never_answers_is_given_up(void **state)
{
    (void)state;
    struct stage stage;
    struct rp_error error;
    open_stage(&stage);
    unsigned before = open_descriptors();
    struct rp_client_options options = {.struct_size = sizeof options,
                                        .run_dir = fake_run_dir,
                                        .connect_timeout_ns = SHORT_PATIENCE_NS / 5,
                                        .restart_timeout_ns = UINT64_MAX};
    struct rp_client *client;
    for (unsigned tries = 0; tries < 3; tries++) {
        uint64_t begin = rp_now_ns();
        assert_int_equal(rp_client_attach(&client, &options, &error), -RP_E_TIMEOUT);
        assert_true(rp_now_ns() - begin >= options.connect_timeout_ns);
        assert_null(client);
        assert_non_null(strstr(error.message, "did not place this trainer within 0.2 s"));
        assert_non_null(strstr(error.hint, "connect timeout"));
    }
    assert_int_equal(open_descriptors(), before);
    close_stage(&stage);
}

/* No connection is taken any more: the queue of the socket is full. */
static void an_engine_that_accepts_nobody_is_given_up(void **state)
{
    (void)state;
    struct stage stage;
    struct rp_error error;
    int queued[MAX_QUEUED], count = 0;
    open_stage(&stage);
    while (count < MAX_QUEUED &&
           (queued[count] = rp_socket_connect_within(fake_run_dir, "default", 1, &error)) >= 0)
        count++;
    assert_in_range(count, 1, MAX_QUEUED - 1);
    struct rp_client_options options = {.struct_size = sizeof options,
                                        .run_dir = fake_run_dir,
                                        .connect_timeout_ns = SHORT_PATIENCE_NS / 5,
                                        .restart_timeout_ns = UINT64_MAX};
    struct rp_client *client;
    assert_int_equal(rp_client_attach(&client, &options, &error), -RP_E_GONE);
    while (count > 0)
        close(queued[--count]);
    close_stage(&stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_answer_is_taken),
        cmocka_unit_test(bad_answers_are_named),
        cmocka_unit_test(flipped_bits_do_no_harm),
        cmocka_unit_test(a_wait_ends_in_time_although_every_successor_stops),
        cmocka_unit_test(successors_that_only_stop_are_given_up),
        cmocka_unit_test(a_successor_that_does_not_reply_is_given_up),
        cmocka_unit_test(an_engine_that_never_answers_is_given_up),
        cmocka_unit_test(an_engine_that_accepts_nobody_is_given_up),
    };
    return cmocka_run_group_tests(tests, fake_enter, fake_leave);
}
