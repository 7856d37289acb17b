/* SPDX-License-Identifier: Apache-2.0 */
/* A whole engine, and which trainers it takes: those that expect its stream, and the successor of a
 * dead one whose socket a child still holds. */
#include "engine_kit.h"

static const char *const no_options[] = {NULL};

/* ---- the stream that a trainer expects ------------------------------------------------------- */

/* 0, or the error's code. A trainer that is taken leaves at once. */
static int attach_expecting(const char *expected, size_t bytes, struct rp_error *error)
{
    struct rp_client_options options = {.struct_size = sizeof options,
                                        .run_dir = run_dir,
                                        .rank = 1,
                                        .connect_timeout_ns = PATIENCE_NS,
                                        .expected = expected,
                                        .expected_bytes = bytes};
    struct rp_client *client = NULL;
    int code = rp_client_attach(&client, &options, error);
    if (code == 0)
        rp_client_detach(client);
    return code;
}

static void expect_refusal(const char *expected, int code, const char *message)
{
    struct rp_error error = {0};
    int found = attach_expecting(expected, strlen(expected), &error);
    if (found != code)
        fail_msg("expected code %d, found %d: %s", code, found, error.message);
    if (!strstr(error.message, message))
        fail_msg("expected `%s`, found `%s`", message, error.message);
}

static void a_trainer_gets_the_stream_that_it_expects(void **state)
{
    (void)state;
    static char contract[16384];
    struct rp_error error = {0};
    struct engine engine = engine_start(no_options);
    struct rp_client *first = trainer(0, NULL, 0);
    size_t bytes = rp_client_contract(first, contract, sizeof contract);
    assert_true(bytes > 0 && bytes < sizeof contract);
    contract[bytes] = 0;
    assert_int_equal(attach_expecting(contract, bytes, &error), 0); /* the whole contract */
    assert_int_equal(attach_expecting("seed=5\n\n", 8, &error), 0); /* one field of it */
    expect_refusal("seed=6\n\n", -RP_E_MISMATCH,
                   "seed differs: the trainer has 6, the engine has 5");
    char *seed = strstr(contract, "\nseed=5\n");
    assert_non_null(seed);
    seed[6] = '6';
    expect_refusal(contract, -RP_E_MISMATCH, "seed differs: the trainer has 6, the engine has 5");
    expect_refusal("no contract\n", -RP_E_PROTOCOL, "the trainer's contract");
    assert_int_equal(attach_expecting(NULL, 7, &error), -RP_E_USAGE);
    assert_int_equal(attach_expecting("", 0, &error), -RP_E_USAGE);
    rp_client_detach(first);
    assert_int_equal(engine_end(&engine, SIGTERM), 0);
}

/* ---- the successor of a dead trainer --------------------------------------------------------- */

/* A trainer attaches and dies; a child of it has the socket until `lifeline` ends. */
static void die_with_a_child(int lifeline)
{
    char byte;
    (void)attach_at_row(0, 0);
    if (fork() == 0) {
        while (read(lifeline, &byte, 1) < 0 && errno == EINTR)
            ;
    }
    _exit(0);
}

static void a_child_with_the_socket_does_not_keep_the_rank(void **state)
{
    (void)state;
    int lifeline[2], status;
    struct engine engine = engine_start(no_options);
    assert_int_equal(pipe2(lifeline, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(lifeline[1]);
        die_with_a_child(lifeline[0]);
    }
    close(lifeline[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    struct rp_client_options options = {
        .struct_size = sizeof options, .run_dir = run_dir, .connect_timeout_ns = 2 * SECOND};
    struct rp_client *next = NULL;
    struct rp_error error = {0};
    if (rp_client_attach(&next, &options, &error) != 0)
        fail_msg("%s", error.message);
    take_batches(next, 0, 0, 1);
    /* A live one keeps its rank. */
    struct rp_client *second = NULL;
    options.connect_timeout_ns = SECOND;
    assert_int_equal(rp_client_attach(&second, &options, &error), -RP_E_BUSY);
    assert_non_null(strstr(error.message, "rank 0 is taken by a live trainer"));
    take_batches(next, 0, 1, 2);
    rp_client_detach(next);
    close(lifeline[1]);
    assert_int_equal(engine_end(&engine, SIGTERM), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_trainer_gets_the_stream_that_it_expects, end_newest),
        cmocka_unit_test_teardown(a_child_with_the_socket_does_not_keep_the_rank, end_newest),
    };
    return cmocka_run_group_tests(tests, engine_enter, engine_leave);
}
