/* SPDX-License-Identifier: Apache-2.0 */
/* A whole engine whose trainers come back somewhere else: ahead of each other, in the padding
 * after the stream, far back, far ahead, and nowhere at all. */
#include "engine_kit.h"

/* ---- ranks that are apart -------------------------------------------------------------------- */

/* An engine and one trainer are killed. The other trainer, which is ahead, is the first to find the
 * new engine; the one that comes back from its state token must find its place as well. */
static void ranks_that_are_apart_go_on(void **state)
{
    (void)state;
    static const char *const options[] = {NULL};
    static uint8_t token[KIT_STATE_MAX];
    for (uint32_t ahead = 0; ahead < RANKS; ahead++) {
        struct engine engine = engine_start(options);
        struct rp_client *clients[RANKS] = {trainer(0, NULL, 0), trainer(1, NULL, 0)};
        uint32_t behind = 1 - ahead;
        take_by_turns(clients, 0, 5);
        size_t bytes = rp_client_state(clients[behind], token, sizeof token);
        take_batches(clients[ahead], ahead, 5, 6);
        engine_end(&engine, SIGKILL);
        rp_client_detach(clients[behind]);
        engine = engine_start(options);
        take_batches(clients[ahead], ahead, 6, 8);
        clients[behind] = trainer(behind, token, bytes);
        take_batches(clients[behind], behind, 5, 8);
        take_by_turns(clients, 8, 14);
        rp_client_detach(clients[0]);
        rp_client_detach(clients[1]);
        assert_int_equal(engine_end(&engine, SIGTERM), 0);
    }
}

/* In the last micro-batch the rows end; the state stays there, which is no row where a micro-batch
 * begins. A trainer that dies after it and has only its state comes back all the same, while the
 * other ranks are still there. */
static void a_state_at_the_end_is_a_place_among_others(void **state)
{
    (void)state;
    static const char *const options[] = {"global_batch_size", "40", NULL};
    static uint8_t token[KIT_STATE_MAX];
    const uint64_t step = ROWS * RANKS, last = rp_div_up(kit.row_count, step);
    assert_true(kit.row_count % step != 0);
    struct engine engine = engine_start(options);
    struct rp_client *clients[RANKS] = {trainer(0, NULL, 0), trainer(1, NULL, 0)};
    take_by_turns(clients, 0, last);
    size_t bytes = rp_client_state(clients[1], token, sizeof token);
    rp_client_detach(clients[1]);
    clients[1] = trainer(1, token, bytes);
    assert_int_equal(rp_client_next_row(clients[1]), kit.row_count); /* the state's */
    take_by_turns(clients, last, rp_div_up(kit.row_count, 40) * 40 / step);
    for (uint32_t r = 0; r < RANKS; r++) {
        assert_int_equal(take(clients[r], 0), RP_NEXT_END);
        rp_client_detach(clients[r]);
    }
    assert_int_equal(engine_wait(&engine), 0);
}

/* An engine dies when one rank has had everything and left, and the other is some batches behind.
 * The one that is left gets the rest from the successor, without a wait for the one that is gone
 * for ever; if that does come, its place is its own. */
static void a_rank_that_left_does_not_hold_up_the_others(void **state)
{
    (void)state;
    static const char *const options[] = {NULL};
    static uint8_t token[KIT_STATE_MAX];
    struct engine engine = engine_start(options);
    struct rp_client *client = trainer(1, NULL, 0);
    uint64_t last = kit.row_count / (ROWS * RANKS);
    take_batches(client, 1, 0, 2); /* as far as the ring of rank 0 lets it */
    size_t bytes = rp_client_state(client, token, sizeof token);
    engine_end(&engine, SIGKILL);
    rp_client_detach(client);
    engine = engine_start(options);
    client = trainer(1, token, bytes);
    take_batches(client, 1, 2, last);
    struct rp_client *late = trainer(0, NULL, 0);
    take_batches(late, 0, 0, 3);
    rp_client_detach(late);
    rp_client_detach(client);
    assert_int_equal(engine_end(&engine, SIGTERM), 0);
}

/* The same for a trainer that keeps a batch until it has the next one. */
static void a_rank_that_left_does_not_hold_up_who_keeps_a_batch(void **state)
{
    (void)state;
    static const char *const options[] = {NULL};
    struct engine engine = engine_start(options);
    struct rp_client *client = trainer(1, NULL, 0);
    struct rp_batch batches[2] = {{.struct_size = sizeof *batches},
                                  {.struct_size = sizeof *batches}};
    struct rp_error error = {0};
    for (uint64_t k = 0; k < 4; k++) {
        assert_int_equal(rp_client_next(client, PATIENCE_NS, &batches[k % 2], &error),
                         RP_NEXT_BATCH);
        assert_int_equal(batches[k % 2].first_row, (k * RANKS + 1) * ROWS);
        if (k > 0)
            assert_int_equal(rp_client_release(client, &batches[(k - 1) % 2]), 0);
    }
    rp_client_detach(client);
    assert_int_equal(engine_end(&engine, SIGKILL), 1000 + SIGKILL);
}

/* The last step of the stream is filled up with padding: also across a kill in the middle. */
static void padding_at_the_end_is_counted_on(void **state)
{
    (void)state;
    static const char *const options[] = {"dp_world_size",     "1",  "batch_size", "2",
                                          "global_batch_size", "40", NULL};
    struct engine engine = engine_start(options);
    struct rp_client *client = trainer(0, NULL, 0);
    uint64_t row = 0, rows = (kit.row_count + 39) / 40 * 40;
    assert_true(rows > kit.row_count + 8);
    while (row < kit.row_count + 4) {
        assert_int_equal(take(client, row), RP_NEXT_BATCH);
        row += ROWS;
    }
    engine_end(&engine, SIGKILL);
    engine = engine_start(options);
    for (; row < rows; row += ROWS)
        assert_int_equal(take(client, row), RP_NEXT_BATCH);
    assert_int_equal(take(client, row), RP_NEXT_END);
    assert_int_equal(rp_client_next_row(client), kit.row_count);
    rp_client_detach(client);
    assert_int_equal(engine_wait(&engine), 0); /* everybody has had everything */
}

/* ---- unknown positions -------------------------------------------------------------------- */

/* One rank goes far back and far ahead again, so that the state at the other one's position is no
 * longer kept: the last checkpoint must not wait for it for ever. */
static void a_lost_state_does_not_hold_up_the_end(void **state)
{
    (void)state;
    forget_checkpoints();
    struct engine engine = engine_start(with_checkpoints);
    struct rp_client *other = trainer(1, NULL, 0);
    close(attach_at_row(0, RP_NEXT_ROW_ANY));
    for (uint64_t batch = 2; batch <= 24; batch += 2) { /* both trainers at batch `batch` */
        close(attach_at_row(0, batch * RANKS * ROWS));
        take_batches(other, 1, batch - 2, batch);
    }
    close(attach_at_row(0, 0)); /* plans, and keeps, everything from row 0 on again */
    struct rp_client *back = trainer(0, NULL, 0);
    take_batches(back, 0, 0, 2);
    rp_client_detach(back);
    close(attach_at_row(0, 30 * RANKS * ROWS));
    assert_int_equal(engine_end(&engine, SIGTERM), 0);
    rp_client_detach(other);
    engine = engine_start(with_checkpoints); /* it stands where rank 1 was */
    other = trainer(1, NULL, 0);
    assert_int_equal(take(other, (24 * RANKS + 1) * ROWS), RP_NEXT_BATCH);
    rp_client_detach(other);
    assert_int_equal(engine_end(&engine, SIGKILL), 1000 + SIGKILL);
}

/* Three ranks die and continue from the state of the last of them; the others had had all rows. Two
 * come back and reach the end: the third is waited for, for its rows are to come again as well. */
static void who_had_everything_comes_again_when_another_goes_back(void **state)
{
    (void)state;
    enum { WORLD = 3 };
    static const char *const options[] = {"dp_world_size", "3", "global_batch_size", "6", NULL};
    static uint8_t token[KIT_STATE_MAX];
    const uint64_t last = rp_div_up(kit.row_count, ROWS * WORLD), back = last - 2;
    struct engine engine = engine_start(options);
    struct rp_client *clients[WORLD];
    size_t bytes = 0;
    for (uint32_t r = 0; r < WORLD; r++)
        clients[r] = trainer(r, NULL, 0);
    for (uint64_t k = 0; k < last; k++)
        for (uint32_t r = k < back ? 0 : 1; r < WORLD; r++) /* rank 0 stays behind */
            assert_int_equal(take(clients[r], (k * WORLD + r) * ROWS), RP_NEXT_BATCH);
    bytes = rp_client_state(clients[0], token, sizeof token);
    for (uint32_t r = 0; r < WORLD; r++)
        rp_client_detach(clients[r]);
    clients[0] = trainer(0, token, bytes);
    clients[1] = trainer(1, token, bytes);
    for (uint64_t k = back; k < last; k++)
        for (uint32_t r = 0; r < 2; r++)
            assert_int_equal(take(clients[r], (k * WORLD + r) * ROWS), RP_NEXT_BATCH);
    rp_client_detach(clients[0]);
    rp_client_detach(clients[1]);
    rp_sleep_ns(500000000); /* time enough to end */
    clients[2] = trainer(2, token, bytes);
    for (uint64_t k = back; k < last; k++)
        assert_int_equal(take(clients[2], (k * WORLD + 2) * ROWS), RP_NEXT_BATCH);
    rp_client_detach(clients[2]);
    assert_int_equal(engine_end(&engine, SIGTERM), 0);
}

static struct rp_client *come_back(struct rp_client *client, uint32_t rank, const void *token,
                                   size_t bytes)
{
    rp_client_detach(client);
    return trainer(rank, token, bytes);
}

/* It dies and comes back from its own state. */
static struct rp_client *replaced(struct rp_client *client, uint32_t rank)
{
    static uint8_t token[KIT_STATE_MAX];
    return come_back(client, rank, token, rp_client_state(client, token, sizeof token));
}

/* One rank dies near the end, and the other one comes, has the rest, and leaves: it has lived on
 * when the engine died, or comes from its own state, or from the first one's. Then both go back to
 * the state of the first: that the other one had everything was before. */
static void who_had_everything_before_a_return_comes_again(void **state)
{
    (void)state;
    enum { LIVES_ON, FROM_ITS_OWN, FROM_THE_SAME, WAYS };
    static const char *const options[] = {"global_batch_size", "4", NULL};
    static uint8_t token[KIT_STATE_MAX];
    const uint64_t last = rp_div_up(kit.row_count, ROWS * RANKS), back = last - 2;
    for (uint32_t way = 0; way < WAYS; way++) {
        struct engine engine = engine_start(options);
        struct rp_client *clients[RANKS] = {trainer(0, NULL, 0), trainer(1, NULL, 0)};
        take_by_turns(clients, 0, back);
        size_t bytes = rp_client_state(clients[0], token, sizeof token);
        uint64_t next = back + (way == FROM_ITS_OWN);
        take_batches(clients[1], 1, back, next);
        if (way == LIVES_ON) {
            engine_end(&engine, SIGKILL);
            engine = engine_start(options);
        }
        if (way != FROM_ITS_OWN)
            clients[0] = come_back(clients[0], 0, token, bytes);
        rp_client_detach(clients[0]);
        if (way == FROM_ITS_OWN)
            clients[1] = replaced(clients[1], 1);
        if (way == FROM_THE_SAME)
            clients[1] = come_back(clients[1], 1, token, bytes);
        take_batches(clients[1], 1, next, last);
        assert_int_equal(take(clients[1], 0), RP_NEXT_END);
        rp_client_detach(clients[1]);
        for (uint32_t r = 0; r < RANKS; r++) {
            clients[r] = trainer(r, token, bytes);
            take_batches(clients[r], r, back, last);
            rp_client_detach(clients[r]);
            rp_sleep_ns(SECOND / 2); /* time enough to end */
        }
        assert_int_equal(engine_end(&engine, SIGTERM), 0);
    }
}

/* The position of a rank that has not attached since another one moved the stream is unknown. */
static void a_guess_is_no_checkpoint(void **state)
{
    (void)state;
    forget_checkpoints();
    struct engine engine = engine_start(with_checkpoints);
    close(attach_at_row(0, 10 * RANKS * ROWS));
    assert_int_equal(engine_end(&engine, SIGTERM), 0);
    engine = engine_start(with_checkpoints);
    struct rp_client *client = trainer(1, NULL, 0);
    take_batches(client, 1, 0, 1); /* not batch 10 */
    rp_client_detach(client);
    assert_int_equal(engine_end(&engine, SIGKILL), 1000 + SIGKILL);
}

/* All trainers die and continue from the state of the slower one. Rows that the faster one had are
 * in no checkpoint, however far the other one comes before it is back; also if the faster one has
 * died and come back by itself after the death of the slower one. */
static void what_is_to_come_again_is_in_no_checkpoint(void **state)
{
    (void)state;
    static uint8_t token[KIT_STATE_MAX];
    for (uint32_t deaths = 0; deaths < 2; deaths++) {
        forget_checkpoints();
        struct engine engine = engine_start(with_checkpoints);
        struct rp_client *clients[RANKS] = {trainer(0, NULL, 0), trainer(1, NULL, 0)};
        take_by_turns(clients, 0, 2);
        size_t bytes = rp_client_state(clients[0], token, sizeof token);
        take_batches(clients[1], 1, 2, 4);
        rp_client_detach(clients[0]);
        if (deaths > 0)
            clients[1] = replaced(clients[1], 1);
        rp_client_detach(clients[1]);
        clients[0] = trainer(0, token, bytes);
        take_batches(clients[0], 0, 2, 5);
        rp_client_detach(clients[0]);
        assert_int_equal(engine_end(&engine, SIGTERM), 0);
        engine = engine_start(with_checkpoints);
        clients[1] = trainer(1, NULL, 0);
        take_batches(clients[1], 1, 0, 1); /* not batch 4 */
        rp_client_detach(clients[1]);
        assert_int_equal(engine_end(&engine, SIGKILL), 1000 + SIGKILL);
    }
}

/* One rank comes from the state of the other and has the rest. Then the other comes from it: late,
 * or because both go back, which is unknown. The engine ends, but no checkpoint says that it is at
 * the end. */
static void who_may_come_again_is_in_no_checkpoint(void **state)
{
    (void)state;
    static uint8_t token[KIT_STATE_MAX];
    const uint64_t last = rp_div_up(rp_div_up(kit.row_count, 8) * 8, ROWS * RANKS), back = last - 2;
    forget_checkpoints();
    struct engine engine = engine_start(with_checkpoints);
    struct rp_client *clients[RANKS] = {trainer(0, NULL, 0), trainer(1, NULL, 0)};
    take_by_turns(clients, 0, back);
    size_t bytes = rp_client_state(clients[0], token, sizeof token);
    for (uint32_t r = 0; r < RANKS; r++)
        rp_client_detach(clients[r]);
    for (uint32_t r = RANKS; r-- > 0;) {
        clients[r] = trainer(r, token, bytes);
        take_batches(clients[r], r, back, last);
        assert_int_equal(take(clients[r], 0), RP_NEXT_END);
        rp_client_detach(clients[r]);
    }
    assert_int_equal(engine_wait(&engine), 0);
    engine = engine_start(with_checkpoints);
    clients[1] = trainer(1, NULL, 0);
    take_batches(clients[1], 1, 0, 1); /* not the end */
    rp_client_detach(clients[1]);
    assert_int_equal(engine_end(&engine, SIGKILL), 1000 + SIGKILL);
}

/* A dead trainer is absent, however much is still to be heard from it. */
static void who_died_ringing_is_absent(void **state)
{
    (void)state;
    static uint8_t token[KIT_STATE_MAX], message[RP_MESSAGE_BYTES_MAX];
    struct rp_request request = attach_request(0, RP_NEXT_ROW_ANY);
    struct rp_error error;
    char *path;
    forget_checkpoints();
    struct engine engine = engine_start(with_checkpoints);
    struct rp_client *client = trainer(0, NULL, 0);
    take_batches(client, 0, 0, 1);
    request.state_bytes = (uint32_t)rp_client_state(client, token, sizeof token);
    rp_client_detach(client);
    int rings = attach_at_row(1, RP_NEXT_ROW_ANY), fds[2];
    kill(engine.pid, SIGSTOP);
    while (send(rings, "r", 1, MSG_DONTWAIT) == 1) {
    }
    close(rings);
    int back = rp_socket_connect_within(run_dir, "default", PATIENCE_NS, &error);
    assert_int_equal(rp_socket_send(back,
                                    &(struct rp_message){.header = &request,
                                                         .header_bytes = sizeof request,
                                                         .body = token,
                                                         .body_bytes = request.state_bytes},
                                    &error),
                     0);
    kill(engine.pid, SIGCONT);
    assert_true(receive_into(back, message, sizeof message, fds, PATIENCE_MS, &error) > 0);
    assert_int_equal(rp_run_checkpoint(run_dir, NULL, &path, &error), -RP_E_BUSY);
    assert_says(&error, "rank 1 has not attached|stay valid");
    close(fds[0]);
    close(fds[1]);
    close(back);
    assert_int_equal(engine_end(&engine, SIGTERM), 0);
}

/* A trainer without a state has read no row, wherever another rank has moved its ring. */
static void a_rank_without_a_state_begins_at_the_start(void **state)
{
    (void)state;
    static const char *const options[] = {NULL};
    struct engine engine = engine_start(options);
    int ahead = attach_at_row(0, 10 * RANKS * ROWS);
    struct rp_client *client = trainer(1, NULL, 0);
    take_batches(client, 1, 0, 12); /* not from batch 10 on */
    rp_client_detach(client);
    close(ahead);
    assert_int_equal(engine_end(&engine, SIGTERM), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(ranks_that_are_apart_go_on, end_newest),
        cmocka_unit_test_teardown(a_rank_that_left_does_not_hold_up_the_others, end_newest),
        cmocka_unit_test_teardown(a_rank_that_left_does_not_hold_up_who_keeps_a_batch, end_newest),
        cmocka_unit_test_teardown(a_state_at_the_end_is_a_place_among_others, end_newest),
        cmocka_unit_test_teardown(padding_at_the_end_is_counted_on, end_newest),
        cmocka_unit_test_teardown(a_lost_state_does_not_hold_up_the_end, end_newest),
        cmocka_unit_test_teardown(who_had_everything_comes_again_when_another_goes_back,
                                  end_newest),
        cmocka_unit_test_teardown(who_had_everything_before_a_return_comes_again, end_newest),
        cmocka_unit_test_teardown(a_guess_is_no_checkpoint, end_newest),
        cmocka_unit_test_teardown(what_is_to_come_again_is_in_no_checkpoint, end_newest),
        cmocka_unit_test_teardown(who_may_come_again_is_in_no_checkpoint, end_newest),
        cmocka_unit_test_teardown(who_died_ringing_is_absent, end_newest),
        cmocka_unit_test_teardown(a_rank_without_a_state_begins_at_the_start, end_newest),
    };
    return cmocka_run_group_tests(tests, engine_enter, engine_leave);
}
