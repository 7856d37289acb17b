/* SPDX-License-Identifier: Apache-2.0 */
/* A whole engine that ends, fails, or gets senseless requests: each peer with a right to an answer
 * gets it, and the others continue. */
#include "engine_kit.h"

#include <sys/resource.h>

#include "checkpoint/checkpoint.h"
#include "server/engine.h"

static void engine_must_end(struct engine *engine, int status)
{
    siginfo_t info = {0};
    for (uint64_t ns = 0; info.si_pid == 0 && ns < PATIENCE_NS; ns += SECOND / 10) {
        rp_sleep_ns(SECOND / 10);
        assert_int_equal(waitid(P_PID, (id_t)engine->pid, &info, WEXITED | WNOHANG | WNOWAIT), 0);
    }
    assert_int_equal(info.si_pid, engine->pid);
    assert_int_equal(engine_wait(engine), status);
}

/* They continue from one state, near the end, one after the other: a rank that has been there is
 * done. */
static void ranks_of_one_return_need_not_meet(void **state)
{
    (void)state;
    static const char *const options[] = {"global_batch_size", "4", NULL};
    static uint8_t token[KIT_STATE_MAX];
    const uint64_t last = rp_div_up(kit.row_count, ROWS * RANKS), back = last - 2;
    struct engine engine = engine_start(options);
    struct rp_client *clients[RANKS] = {trainer(0, NULL, 0), trainer(1, NULL, 0)};
    take_by_turns(clients, 0, back);
    size_t bytes = rp_client_state(clients[0], token, sizeof token);
    engine_end(&engine, SIGKILL);
    engine = engine_start(options);
    for (uint32_t r = 0; r < RANKS; r++) {
        rp_client_detach(clients[r]);
        clients[r] = trainer(r, token, bytes);
        take_batches(clients[r], r, back, last);
        assert_int_equal(take(clients[r], 0), RP_NEXT_END);
        rp_client_detach(clients[r]);
    }
    engine_must_end(&engine, 0);
}

static void a_last_checkpoint_that_fails_is_told(void **state)
{
    (void)state;
    struct rp_error error;
    forget_checkpoints();
    struct engine engine = engine_start(with_checkpoints);
    forget_checkpoints();
    assert_true(rp_run_stop(run_dir, NULL, &error) < 0);
    assert_true(error.message[0] != '\0');
    assert_int_equal(engine_wait(&engine), 2);
}

/* Once the answer is there, the name is free. */
static void stopped_means_stopped(void **state)
{
    (void)state;
    struct rp_error error;
    for (int i = 0; i < 5; i++) {
        struct engine engine = engine_start(with_checkpoints);
        if (rp_run_stop(run_dir, NULL, &error) != 0)
            fail_msg("%s", error.message);
        struct engine next = engine_start(with_checkpoints);
        assert_int_equal(engine_wait(&engine), 0);
        assert_int_equal(engine_end(&next, SIGTERM), 0);
    }
}

/* A parent that dies and a manager that then says SIGTERM are not two signals. */
static void a_lifeline_and_a_signal_are_one_end(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        forget_checkpoints();
        struct engine engine = engine_start(with_checkpoints);
        close(engine.lifeline);
        engine.lifeline = dup(0);
        kill(engine.pid, SIGTERM);
        assert_int_equal(engine_wait(&engine), 0);
        assert_int_equal(system("ls checkpoints/*.rpc > /dev/null"), 0);
    }
}

/* A limit that the first rows keep: their trainer is there when it is broken. */
static uint64_t limit_of_rows(uint64_t rows)
{
    uint64_t largest = 0;
    for (uint64_t row = 0; row < rows; row++)
        for (uint32_t f = 0; f < kit.rows[row].expected.count; f++)
            for (uint64_t i = 0; i < kit.rows[row].expected.fragments[f].length; i++) {
                uint64_t token = kit_token(NULL, &kit.rows[row].expected.fragments[f], i);
                largest = token > largest ? token : largest;
            }
    return largest + 1;
}

static void a_failure_reaches_the_trainers_whole(void **state)
{
    (void)state;
    char limit[32];
    const char *const options[] = {"vocab_size", limit, "dp_world_size", "1", NULL};
    assert_true(limit_of_rows(40) < limit_of_rows(kit.row_count));
    snprintf(limit, sizeof limit, "%llu", (unsigned long long)limit_of_rows(40));
    struct engine engine = engine_start(options);
    struct rp_client *client = trainer(0, NULL, 0);
    struct rp_error error = {0};
    struct rp_batch batch = {.struct_size = sizeof batch};
    int code;
    while ((code = rp_client_next(client, PATIENCE_NS, &batch, &error)) == RP_NEXT_BATCH)
        rp_client_release(client, &batch);
    assert_int_equal(code, -RP_E_VOCABULARY);
    assert_says(&error, "source tomes, document|compare the dtype");
    rp_client_detach(client);
    assert_int_equal(engine_wait(&engine), 2);
}

static struct engine start_with_processes(void)
{
    static const char *const options[] = {"packer_processes", "true", NULL};
    if (!processes_work())
        skip();
    return engine_start(options);
}

static void exchange(int fd, struct rp_request request)
{
    static uint8_t message[RP_MESSAGE_BYTES_MAX];
    struct rp_error error;
    int fds[2];
    assert_int_equal(
        rp_socket_send(fd, &(struct rp_message){.header = &request, .header_bytes = sizeof request},
                       &error),
        0);
    assert_true(receive_into(fd, message, sizeof message, fds, PATIENCE_MS, &error) > 0);
}

/* A ring that cannot be made: the consumer is refused, and the stream continues. */
static void a_ring_that_cannot_be_made_changes_nothing(void **state)
{
    (void)state;
    struct engine engine = start_with_processes();
    struct rp_client *client = trainer(0, NULL, 0);
    struct rp_request stat = attach_request(0, RP_NEXT_ROW_ANY);
    struct rp_error error;
    struct rp_batch batch = {.struct_size = sizeof batch};
    stat.kind = RP_REQUEST_STAT;
    take_batches(client, 0, 0, 2);
    int fd = rp_socket_connect_within(run_dir, "default", PATIENCE_NS, &error);
    exchange(fd, stat);
    rp_client_detach(client);
    exchange(fd, stat); /* now it has seen both */
    struct rlimit limit, none;
    assert_int_equal(prlimit(engine.pid, RLIMIT_NOFILE, NULL, &limit), 0);
    none = (struct rlimit){.rlim_cur = 1, .rlim_max = limit.rlim_max};
    assert_int_equal(prlimit(engine.pid, RLIMIT_NOFILE, &none, NULL), 0);
    exchange(fd, attach_request(0, RP_NEXT_ROW_ANY)); /* no descriptor for a new ring */
    assert_int_equal(prlimit(engine.pid, RLIMIT_NOFILE, &limit, NULL), 0);
    client = trainer(1, NULL, 0);
    take_batches(client, 1, 0, 2);
    struct rp_client *back = trainer(0, NULL, 0);
    take_batches(back, 0, 2, 4);
    take_batches(client, 1, 2, 4);
    rp_client_detach(back);
    rp_client_detach(client);
    close(fd);
    assert_int_equal(engine_end(&engine, SIGTERM), 0);
}

static pid_t ask_for_ever(void)
{
    pid_t pid = fork();
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct rp_error error;
    for (char *text;;)
        if (rp_run_checkpoint(run_dir, NULL, &text, &error) == 0)
            rp_text_free(text);
}

static uint64_t newest_checkpoint(void)
{
    struct rp_checkpoint *checkpoint;
    struct rp_error error;
    assert_int_equal(rp_checkpoint_newest(&checkpoint, "checkpoints", false, &error), 1);
    uint64_t sequence = rp_checkpoint_info(checkpoint)->sequence;
    rp_checkpoint_close(checkpoint);
    return sequence;
}

/* At a stop, it finishes the save under way, and saves once more. */
static void who_asks_for_checkpoints_does_not_hold_up_the_end(void **state)
{
    (void)state;
    pid_t askers[40];
    forget_checkpoints();
    struct engine engine = engine_start(with_checkpoints);
    for (size_t i = 0; i < RP_ARRAY_COUNT(askers); i++)
        askers[i] = ask_for_ever();
    rp_sleep_ns(SECOND / 2);
    kill(engine.pid, SIGSTOP);
    rp_sleep_ns(SECOND / 10);
    uint64_t before = newest_checkpoint();
    kill(engine.pid, SIGTERM);
    kill(engine.pid, SIGCONT);
    engine_must_end(&engine, 0);
    /* the last one may be there already */
    assert_in_range(newest_checkpoint(), before, before + 3);
    for (size_t i = 0; i < RP_ARRAY_COUNT(askers); i++) {
        kill(askers[i], SIGKILL);
        waitpid(askers[i], NULL, 0);
    }
}

/* The step of a checkpoint has begun before the row that all were moved to, so its state is not at
 * hand, and no rank would come to the end of another one. */
static void a_checkpoint_is_had_while_nobody_is_there(void **state)
{
    (void)state;
    const uint64_t batch = ROWS * RANKS;
    forget_checkpoints();
    struct engine engine = engine_start(with_checkpoints);
    struct rp_client *clients[RANKS] = {trainer(0, NULL, 0), trainer(1, NULL, 0)};
    take_by_turns(clients, 0, 6);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        rp_client_detach(clients[rank]);
    assert_int_equal(engine_end(&engine, SIGTERM), 0);
    engine = engine_start(with_checkpoints); /* from batch 6 on */
    close(attach_at_row(0, 0));
    for (uint32_t rank = 0; rank < RANKS; rank++)
        close(attach_at_row(rank, 3 * batch)); /* steps have two of them */
    save_now();
    assert_int_equal(engine_end(&engine, SIGKILL), 1000 + SIGKILL);
    engine = engine_start(with_checkpoints);
    clients[0] = trainer(0, NULL, 0);
    take_batches(clients[0], 0, 2, 3);
    rp_client_detach(clients[0]);
    assert_int_equal(engine_end(&engine, SIGKILL), 1000 + SIGKILL);
}

/* 0: it has none now. */
static pid_t first_child(pid_t pid)
{
    char path[64];
    int child;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", pid, pid);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    bool has_one = fscanf(file, "%d", &child) == 1;
    fclose(file);
    return has_one ? child : 0;
}

/* Its death stays visible: it is reported once, and the engine waits for late ranks as long as
 * ever. */
static void a_packer_that_crashes_ends_the_engine(void **state)
{
    (void)state;
    struct engine engine = start_with_processes();
    struct rp_client *client = trainer(0, NULL, 0);
    take_batches(client, 0, 0, 1);
    rp_client_detach(client);
    pid_t packer = first_child(engine.pid);
    assert_true(packer > 0);
    kill(packer, SIGABRT);
    engine_must_end(&engine, 2);
}

/* The ring is full and the trainer takes no batch, so a packer is idle when it dies. */
static void a_packer_that_waits_is_replaced_each_time(void **state)
{
    (void)state;
    struct engine engine = start_with_processes();
    struct rp_client *client = trainer(0, NULL, 0);
    take_batches(client, 0, 0, 1);
    pid_t killed = 0;
    for (int deaths = 0; deaths < 30;) {
        rp_sleep_ns(20000000); /* for whatever there is to pack */
        pid_t packer = first_child(engine.pid);
        if (packer == 0 || packer == killed)
            continue;
        assert_int_equal(kill(packer, SIGKILL), 0);
        killed = packer;
        deaths++;
    }
    take_batches(client, 0, 1, 20);
    rp_client_detach(client);
    assert_int_equal(engine_end(&engine, SIGTERM), 0);
}

/* A socket under another name, say by a link, leads no trainer into another run's stream. */
static void a_request_for_another_run_is_refused(void **state)
{
    (void)state;
    static const char *const options[] = {NULL};
    struct engine engine = engine_start(options);
    static uint8_t message[RP_MESSAGE_BYTES_MAX];
    struct rp_request request = attach_request(0, RP_NEXT_ROW_ANY);
    struct rp_error error;
    int fds[2], fd = rp_socket_connect_within(run_dir, "default", PATIENCE_NS, &error);
    strcpy(request.run, "defaults");
    assert_int_equal(
        rp_socket_send(fd, &(struct rp_message){.header = &request, .header_bytes = sizeof request},
                       &error),
        0);
    assert_true(receive_into(fd, message, sizeof message, fds, PATIENCE_MS, &error) > 0);
    const struct rp_reply *reply = (const struct rp_reply *)(const void *)message;
    assert_int_equal(reply->kind, RP_REPLY_REFUSED);
    assert_int_equal(reply->code, -RP_E_MISMATCH);
    close(fd);
    assert_int_equal(engine_end(&engine, SIGTERM), 0);
}

static void garbage_is_refused(void **state)
{
    (void)state;
    static const char *const options[] = {NULL};
    struct engine engine = engine_start(options);
    struct rp_client *client = trainer(0, NULL, 0);
    struct rp_error error;
    uint64_t seed = 5;
    for (int i = 0; i < 400; i++) {
        struct rp_request request = attach_request(1, RP_NEXT_ROW_ANY);
        uint8_t *bytes = (uint8_t *)&request;
        for (uint64_t flips = io_fake_random(&seed) % 4; flips; flips--)
            bytes[8 + io_fake_random(&seed) % (sizeof request - 8)] = (uint8_t)io_fake_random(
                &seed);
        if (request.next_row != RP_NEXT_ROW_ANY) /* that is the test before this one */
            request.next_row %= 1000;
        int fd = rp_socket_connect_within(run_dir, "default", PATIENCE_NS, &error);
        assert_true(fd >= 0);
        ssize_t sent = send(fd, bytes, sizeof request - (i % 5 == 0) * (size_t)(i % 90), 0);
        assert_true(sent >= 0);
        close(fd);
    }
    stat_must_work();
    take_batches(client, 0, 0, 1);
    rp_client_detach(client);
    assert_int_equal(engine_end(&engine, SIGTERM), 0);
}

static void take_and_leave(uint32_t rank)
{
    struct rp_client *client = trainer(rank, NULL, 0);
    take_batches(client, rank, 0, 2);
    rp_client_detach(client);
}

static void a_thousand_connections(void **state)
{
    (void)state;
    static const char *const options[] = {NULL};
    static int fds[1100];
    struct rlimit limit;
    struct rp_error error;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_max < 2 * RP_ARRAY_COUNT(fds))
        skip();
    limit.rlim_cur = limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    struct engine engine = engine_start(options);
    for (size_t i = 0; i < RP_ARRAY_COUNT(fds); i++) {
        fds[i] = rp_socket_connect_within(run_dir, "default", PATIENCE_NS, &error);
        if (fds[i] < 0)
            fail_msg("connection %zu: %s", i, error.message);
        if (i == RP_OTHER_PEERS_MAX - 1)
            take_and_leave(0); /* there is a connection for each seat */
    }
    for (size_t i = 0; i < RP_ARRAY_COUNT(fds); i++)
        close(fds[i]);
    stat_must_work();
    take_and_leave(1);
    assert_int_equal(engine_end(&engine, SIGTERM), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(ranks_of_one_return_need_not_meet, end_newest),
        cmocka_unit_test_teardown(a_last_checkpoint_that_fails_is_told, end_newest),
        cmocka_unit_test_teardown(stopped_means_stopped, end_newest),
        cmocka_unit_test_teardown(a_lifeline_and_a_signal_are_one_end, end_newest),
        cmocka_unit_test_teardown(a_failure_reaches_the_trainers_whole, end_newest),
        cmocka_unit_test_teardown(a_ring_that_cannot_be_made_changes_nothing, end_newest),
        cmocka_unit_test_teardown(who_asks_for_checkpoints_does_not_hold_up_the_end, end_newest),
        cmocka_unit_test_teardown(a_checkpoint_is_had_while_nobody_is_there, end_newest),
        cmocka_unit_test_teardown(a_packer_that_crashes_ends_the_engine, end_newest),
        cmocka_unit_test_teardown(a_packer_that_waits_is_replaced_each_time, end_newest),
        cmocka_unit_test_teardown(a_request_for_another_run_is_refused, end_newest),
        cmocka_unit_test_teardown(garbage_is_refused, end_newest),
        cmocka_unit_test_teardown(a_thousand_connections, end_newest),
    };
    return cmocka_run_group_tests(tests, engine_enter, engine_leave);
}
