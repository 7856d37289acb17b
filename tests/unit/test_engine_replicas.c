/* SPDX-License-Identifier: Apache-2.0 */
/* A whole engine whose ranks have two trainers each, which need the same batches: they keep pace,
 * die, come back behind or ahead of each other, and write false words. */
#include "engine_kit.h"

#include <sys/mman.h>

#define REPLICAS 2u
#define SLOTS 2u /* slots of a ring: prefetch_factor */

static const char *const two_replicas[] = {"consumers_per_rank",
                                           "2",
                                           "dp_world_size",
                                           "1",
                                           "batch_size",
                                           "2",
                                           "global_batch_size",
                                           "8",
                                           NULL};

/* The only rank's batches [first, last), in rows of the stream. */
static void take_some(struct rp_client *client, uint64_t first, uint64_t last)
{
    for (uint64_t k = first; k < last; k++)
        assert_int_equal(take(client, k * ROWS), RP_NEXT_BATCH);
}

static void take_some_by_turns(struct rp_client *const *clients, uint32_t count, uint64_t first,
                               uint64_t last)
{
    for (uint64_t k = first; k < last; k++)
        for (uint32_t r = 0; r < count; r++)
            take_some(clients[r], k, k + 1);
}

static bool nothing_comes(struct rp_client *client)
{
    struct rp_batch batch = {.struct_size = sizeof batch};
    struct rp_error error;
    return rp_client_next(client, SECOND / 20, &batch, &error) == RP_NEXT_EMPTY;
}

static bool stat_says(const char *text)
{
    char *stat;
    struct rp_error error;
    assert_int_equal(rp_run_stat(run_dir, NULL, &stat, &error), 0);
    bool found = strstr(stat, text) != NULL;
    rp_text_free(stat);
    return found;
}

static void the_slowest_sets_the_pace(void **state)
{
    (void)state;
    struct engine engine = engine_start(two_replicas);
    struct rp_client *fast = replica_trainer(0, 0, NULL, 0);
    take_some(fast, 0, SLOTS); /* the other one has not come: its seat holds the ring */
    assert_true(nothing_comes(fast));
    assert_true(stat_says("\"replica\":1,\"attached\":false"));
    struct rp_client *slow = replica_trainer(0, 1, NULL, 0);
    for (uint64_t k = 0; k < 10; k++) {
        take_some(slow, k, k + 1);
        take_some(fast, k + SLOTS, k + SLOTS + 1);
        assert_true(nothing_comes(fast));
    }
    assert_true(stat_says("\"holds\":true"));
    rp_client_detach(fast);
    rp_client_detach(slow);
    assert_int_equal(engine_end(&engine, SIGTERM), 0);
}

static void the_end_comes_to_all(void **state)
{
    (void)state;
    struct engine engine = engine_start(two_replicas);
    struct rp_client *clients[REPLICAS] = {replica_trainer(0, 0, NULL, 0),
                                           replica_trainer(0, 1, NULL, 0)};
    uint64_t last = rp_div_up(kit.row_count, 8) * 8 / ROWS;
    take_some_by_turns(clients, REPLICAS, 0, last);
    for (uint32_t r = 0; r < REPLICAS; r++) {
        assert_int_equal(take(clients[r], 0), RP_NEXT_END);
        rp_client_detach(clients[r]);
    }
    assert_int_equal(engine_wait(&engine), 0);
}

static uint64_t hash_of(const struct rp_client *client, const struct rp_batch *batch)
{
    const struct rp_geometry *g = rp_client_geometry(client);
    return rp_hash64(batch->sections[RP_SECTION_INPUT_IDS],
                     g->sections[RP_SECTION_INPUT_IDS].bytes);
}

/* One comes back while the other reads: the ring is rebuilt. Neither the lease of the one that
 * stayed nor the lease of the one whose connection ended shows another byte, whatever is packed. */
static void nobodys_lease_changes(void **state)
{
    (void)state;
    static uint8_t token[KIT_STATE_MAX];
    struct engine engine = engine_start(two_replicas);
    struct rp_client *stays = replica_trainer(0, 0, NULL, 0),
                     *comes = replica_trainer(0, 1, NULL, 0);
    struct rp_error error;
    struct rp_batch lease = {.struct_size = sizeof lease};
    take_some(comes, 0, 1);
    size_t bytes = rp_client_state(comes, token, sizeof token);
    assert_int_equal(rp_client_next(stays, PATIENCE_NS, &lease, &error), RP_NEXT_BATCH);
    uint64_t hash = hash_of(stays, &lease);
    rp_client_detach(comes);
    comes = replica_trainer(0, 1, token, bytes);
    for (uint64_t k = 1; k < 12; k++) {
        take_some(stays, k, k + 1); /* migrated after the batches of its old ring */
        take_some(comes, k, k + 1);
        assert_int_equal(hash_of(stays, &lease), hash);
    }
    struct rp_client_counts counts = {.struct_size = sizeof counts};
    rp_client_counts(stays, &counts);
    assert_int_equal(counts.reattaches, 1);
    rp_client_counts(comes, &counts);
    assert_int_equal(counts.reattaches, 0);
    assert_int_equal(rp_client_release(stays, &lease), 0);
    rp_client_detach(stays);
    rp_client_detach(comes);
    assert_int_equal(engine_end(&engine, SIGTERM), 0);
}

/* The engine dies while they are a batch apart; who is first at the next one, and whether with a
 * new process, makes no difference. */
static void replicas_that_are_apart_go_on(void **state)
{
    (void)state;
    static uint8_t token[KIT_STATE_MAX];
    for (uint32_t turn = 0; turn < 4; turn++) {
        uint32_t first = turn & 1, ahead = turn >> 1;
        struct engine engine = engine_start(two_replicas);
        struct rp_client *clients[REPLICAS] = {replica_trainer(0, 0, NULL, 0),
                                               replica_trainer(0, 1, NULL, 0)};
        take_some_by_turns(clients, REPLICAS, 0, 5);
        take_some(clients[ahead], 5, 6);
        size_t bytes = rp_client_state(clients[!first], token, sizeof token);
        engine_end(&engine, SIGKILL);
        rp_client_detach(clients[!first]);
        engine = engine_start(two_replicas);
        struct rp_batch batch = {.struct_size = sizeof batch};
        struct rp_error error;
        int code = rp_client_next(clients[first], SECOND / 2, &batch, &error);
        uint64_t at[REPLICAS] = {5, 5};
        at[ahead] = 6;
        if (code == RP_NEXT_BATCH) {
            assert_int_equal(batch.first_row, at[first]++ * ROWS);
            assert_int_equal(rp_client_release(clients[first], &batch), 0);
        }
        clients[!first] = replica_trainer(0, !first, token, bytes);
        for (uint64_t k = 5; k < 20; k++)
            for (uint32_t r = 0; r < REPLICAS; r++)
                if (at[r] <= k) {
                    take_some(clients[r], k, k + 1);
                    at[r] = k + 1;
                }
        rp_client_detach(clients[0]);
        rp_client_detach(clients[1]);
        assert_int_equal(engine_end(&engine, SIGTERM), 0);
    }
}

/* Only one goes back; the other, ahead, waits for it without a byte that differs. */
static void one_goes_back(void **state)
{
    (void)state;
    static uint8_t token[KIT_STATE_MAX];
    struct engine engine = engine_start(two_replicas);
    struct rp_client *stays = replica_trainer(0, 0, NULL, 0),
                     *back = replica_trainer(0, 1, NULL, 0);
    size_t bytes = rp_client_state(back, token, sizeof token);
    for (uint64_t k = 0; k < 9; k++) {
        take_some(stays, k, k + 1);
        take_some(back, k, k + 1);
    }
    rp_client_detach(back);
    back = replica_trainer(0, 1, token, bytes);
    take_some(back, 0, 3);
    take_some(back, 3, 9);
    for (uint64_t k = 9; k < 20; k++) {
        take_some(stays, k, k + 1);
        take_some(back, k, k + 1);
    }
    rp_client_detach(stays);
    rp_client_detach(back);
    assert_int_equal(engine_end(&engine, SIGTERM), 0);
}

/* A live replica migrates to the new ring at its next batch, which may take long: its position is
 * known meanwhile. */
static void who_is_led_over_is_in_checkpoints(void **state)
{
    (void)state;
    static const char *const options[] = {"checkpoint_dir",
                                          "checkpoints",
                                          "dp_world_size",
                                          "1",
                                          "global_batch_size",
                                          "8",
                                          "consumers_per_rank",
                                          "2",
                                          NULL};
    static uint8_t token[KIT_STATE_MAX];
    forget_checkpoints();
    struct engine engine = engine_start(options);
    struct rp_client *clients[REPLICAS] = {replica_trainer(0, 0, NULL, 0),
                                           replica_trainer(0, 1, NULL, 0)};
    take_some_by_turns(clients, REPLICAS, 0, 5);
    size_t bytes = rp_client_state(clients[0], token, sizeof token);
    rp_client_detach(clients[0]);
    clients[0] = replica_trainer(0, 0, token, bytes);
    save_now();
    engine_end(&engine, SIGKILL);
    for (uint32_t r = 0; r < REPLICAS; r++)
        rp_client_detach(clients[r]);
    engine = engine_start(options);
    clients[1] = replica_trainer(0, 1, NULL, 0);
    take_some(clients[1], 4, 6); /* the end of the last step that all have had */
    rp_client_detach(clients[1]);
    assert_int_equal(engine_end(&engine, SIGKILL), 1000 + SIGKILL);
}

/* The ring of a rank moves to a row far ahead, because one of its consumers says that it is there.
 * The positions of that rank's other replicas are unknown then: one without a state begins at the
 * start. */
static void a_ring_that_moves_tells_nothing_of_the_absent(void **state)
{
    (void)state;
    enum { FAR = 20 }; /* batches */
    static const char *const options[] = {"consumers_per_rank", "2", NULL};
    struct engine engine = engine_start(options);
    struct rp_client *elsewhere = replica_trainer(1, 0, NULL, 0);
    for (uint32_t r = 0; r < REPLICAS; r++) {
        struct rp_client *client = replica_trainer(0, r, NULL, 0);
        take_batches(client, 0, 0, SLOTS);
        rp_client_detach(client);
    }
    int ahead = attach_at_row(0, FAR * RANKS * ROWS); /* replica 0 */
    struct rp_client *other = replica_trainer(0, 1, NULL, 0);
    take_batches(other, 0, 0, SLOTS);
    rp_client_detach(other);
    rp_client_detach(elsewhere);
    close(ahead);
    assert_int_equal(engine_end(&engine, SIGTERM), 0);
}

/* A checkpoint counts the batches that all of them have had; the next life may have other replicas.
 */
static void the_number_may_change(void **state)
{
    (void)state;
    static const char *const lives[][11] = {
        {"checkpoint_dir", "checkpoints", "dp_world_size", "1", "global_batch_size", "8",
         "consumers_per_rank", "2", NULL},
        {"checkpoint_dir", "checkpoints", "dp_world_size", "1", "global_batch_size", "8",
         "consumers_per_rank", "3", NULL},
        {"checkpoint_dir", "checkpoints", "dp_world_size", "1", "global_batch_size", "8", NULL}};
    const uint32_t replicas[] = {2, 3, 1};
    forget_checkpoints();
    uint64_t at = 0;
    for (size_t life = 0; life < RP_ARRAY_COUNT(lives); life++) {
        struct engine engine = engine_start(lives[life]);
        struct rp_client *clients[3];
        for (uint32_t r = 0; r < replicas[life]; r++)
            clients[r] = replica_trainer(0, r, NULL, 0);
        take_some_by_turns(clients, replicas[life], at, at + 4);
        if (replicas[life] > 1) /* one is ahead: it is taken again */
            take_some(clients[1], at + 4, at + 5);
        for (uint32_t r = 0; r < replicas[life]; r++)
            rp_client_detach(clients[r]);
        assert_int_equal(engine_end(&engine, SIGTERM), 0);
        at += 4;
    }
}

/* ---- those who do not keep to the rules ------------------------------------------------------ */

static void wrong_replicas_are_refused(void **state)
{
    (void)state;
    struct engine engine = engine_start(two_replicas);
    struct rp_client *client = replica_trainer(0, 1, NULL, 0), *none;
    char taken[80];
    snprintf(taken, sizeof taken, "rank 0, replica 1 is taken by a live trainer, process %ld",
             (long)getpid());
    const struct {
        uint32_t replica, replicas;
        int code;
        const char *text;
    } cases[] = {
        {2, 0, -RP_E_USAGE, "replica 2 of rank 0: this engine serves 2"},
        {0, 3, -RP_E_MISMATCH, "consumers_per_rank: the engine has 2, the trainer expects 3"},
        {1, 2, -RP_E_BUSY, taken}};
    for (size_t i = 0; i < RP_ARRAY_COUNT(cases); i++) {
        struct rp_client_options options = {.struct_size = sizeof options,
                                            .run_dir = run_dir,
                                            .replica = cases[i].replica,
                                            .replicas = cases[i].replicas,
                                            .connect_timeout_ns = SECOND};
        struct rp_error error;
        assert_int_equal(rp_client_attach(&none, &options, &error), cases[i].code);
        assert_non_null(strstr(error.message, cases[i].text));
    }
    rp_client_detach(client);
    assert_int_equal(engine_end(&engine, SIGTERM), 0);
}

/* Junk in one control page: that trainer gets an error, its neighbour all there is room for, and
 * everything once the next one has taken the seat. */
static void a_liar_hurts_nobody_else(void **state)
{
    (void)state;
    struct engine engine = engine_start(two_replicas);
    struct rp_request request = attach_request(0, RP_NEXT_ROW_ANY);
    struct rp_error error;
    static uint8_t message[RP_MESSAGE_BYTES_MAX];
    int fds[2], fd = rp_socket_connect_within(run_dir, "default", PATIENCE_NS, &error);
    request.replica = 1;
    assert_int_equal(
        rp_socket_send(fd, &(struct rp_message){.header = &request, .header_bytes = sizeof request},
                       &error),
        0);
    assert_true(receive_into(fd, message, sizeof message, fds, PATIENCE_MS, &error) > 0);
    struct rp_client *client = replica_trainer(0, 0, NULL, 0);
    struct rp_ring_control *page = mmap(NULL, RP_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
                                        fds[1], 0);
    rp_a64_store_release(&page->release, 1ull << 40);
    take_some(client, 0, SLOTS);
    assert_true(nothing_comes(client));
    assert_true(stat_says("\"quarantined\":true,\"holds\":true"));
    rp_a64_store_release(&page->release, 1); /* it is not listened to any more */
    assert_true(nothing_comes(client));
    munmap(page, RP_PAGE_BYTES);
    close(fds[0]);
    close(fds[1]);
    close(fd);
    struct rp_client *next = replica_trainer(0, 1, NULL, 0);
    for (uint64_t k = 0; k < 8; k++) {
        take_some(next, k, k + 1);
        take_some(client, k + SLOTS, k + SLOTS + 1);
    }
    rp_client_detach(next);
    rp_client_detach(client);
    assert_int_equal(engine_end(&engine, SIGTERM), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(the_slowest_sets_the_pace, end_newest),
        cmocka_unit_test_teardown(the_end_comes_to_all, end_newest),
        cmocka_unit_test_teardown(nobodys_lease_changes, end_newest),
        cmocka_unit_test_teardown(replicas_that_are_apart_go_on, end_newest),
        cmocka_unit_test_teardown(one_goes_back, end_newest),
        cmocka_unit_test_teardown(who_is_led_over_is_in_checkpoints, end_newest),
        cmocka_unit_test_teardown(a_ring_that_moves_tells_nothing_of_the_absent, end_newest),
        cmocka_unit_test_teardown(the_number_may_change, end_newest),
        cmocka_unit_test_teardown(wrong_replicas_are_refused, end_newest),
        cmocka_unit_test_teardown(a_liar_hurts_nobody_else, end_newest),
    };
    return cmocka_run_group_tests(tests, engine_enter, engine_leave);
}
