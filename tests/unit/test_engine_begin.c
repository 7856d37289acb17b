/* SPDX-License-Identifier: Apache-2.0 */
/* The beginning and the end of a run (engine/plan/STREAM.md section 6), in any order of the
 * trainers' attaches and loads. A micro-batch has 2 rows here and a step 4 or 6 of them. */
#include "engine_kit.h"

#include "plan/token_records.h"

static uint8_t token[1 << 16];

/* Engines of one rank. Without `drop_last` the last step is padded. */
static const char *const steps_of_8[] = {"dp_world_size", "1", "prefetch_factor", "4", NULL};
static const char *const steps_of_12[] = {
    "dp_world_size", "1", "prefetch_factor", "4", "global_batch_size", "12", NULL};
static const char *const whole_steps_of_12[] = {
    "dp_world_size", "1", "prefetch_factor", "4", "global_batch_size", "12", "drop_last",
    "true",          NULL};

/* Take the micro-batches from `first` on, `most` at most. Returns the number of the next one. */
static uint64_t take_some(struct rp_client *client, uint64_t first, uint64_t most)
{
    uint64_t last = most == UINT64_MAX ? most : first + most;
    while (first < last && take(client, first * ROWS) == RP_NEXT_BATCH)
        first++;
    return first;
}

/* The token after `batches` micro-batches of a run from row 0 with steps of 8 rows, or after its
 * end. The engine is still there. */
static size_t token_behind(uint64_t batches, struct engine *engine)
{
    *engine = engine_start(steps_of_8);
    struct rp_client *client = trainer(0, NULL, 0);
    (void)take_some(client, 0, batches);
    size_t bytes = rp_client_state(client, token, sizeof token);
    assert_true(bytes > 0 && bytes <= sizeof token);
    rp_client_detach(client);
    return bytes;
}

static void expect_no_batch(uint32_t rank, size_t bytes)
{
    struct rp_batch batch = {.struct_size = sizeof batch};
    struct rp_error error = {0};
    struct rp_client *client = trainer(rank, token, bytes);
    assert_int_equal(rp_client_next(client, PATIENCE_NS, &batch, &error), RP_NEXT_END);
    uint8_t again[sizeof token];
    assert_int_equal(rp_client_state(client, again, sizeof again), bytes);
    assert_memory_equal(again, token, bytes); /* and the position stays the same */
    assert_int_equal(rp_client_next_row(client), kit.row_count);
    rp_client_detach(client);
}

/* A mean over a batch of padding is no number. */
static void a_finished_stream_is_finished_for_every_size_of_step(void **state)
{
    (void)state;
    static const char *const *const engines[] = {steps_of_8, steps_of_12, whole_steps_of_12};
    for (size_t i = 0; i < RP_ARRAY_COUNT(engines); i++) {
        struct engine engine;
        size_t bytes = token_behind(UINT64_MAX, &engine);
        engine_end(&engine, SIGKILL);
        engine = engine_start(engines[i]);
        expect_no_batch(0, bytes);
        assert_int_equal(engine_wait(&engine), 0);
    }
}

static void it_is_finished_for_the_engine_that_gave_the_token(void **state)
{
    (void)state;
    struct engine engine = engine_start(steps_of_8);
    struct rp_client *client = trainer(0, NULL, 0);
    uint64_t rows = kit.row_count, real = rp_div_up(rows, ROWS);
    assert_true(real % 4 != 0); /* micro-batches of only padding end the last step */
    (void)take_some(client, 0, real);
    size_t bytes = rp_client_state(client, token, sizeof token);
    rp_client_detach(client);
    expect_no_batch(0, bytes);
    assert_int_equal(engine_wait(&engine), 0);
}

/* Both ranks of a job continue from a token of its end, in any order, while the other is there. */
static void it_is_finished_for_all_ranks(void **state)
{
    (void)state;
    static const char *const sizes[] = {"8", "12", "40"};
    for (size_t i = 0; i < RP_ARRAY_COUNT(sizes); i++) {
        const char *const options[] = {"global_batch_size", sizes[i], NULL};
        struct engine engine;
        size_t bytes = token_behind(UINT64_MAX, &engine);
        engine_end(&engine, SIGKILL);
        engine = engine_start(options);
        struct rp_client *first = trainer(i % RANKS, token, bytes);
        expect_no_batch(1 - i % RANKS, bytes);
        rp_client_detach(first);
        assert_int_equal(engine_wait(&engine), 0);
    }
}

/* Another rank that comes with an earlier token gets the rows after that. */
static void a_token_of_the_end_does_not_end_other_ranks(void **state)
{
    (void)state;
    static const char *const two_ranks[] = {NULL};
    struct engine engine;
    static uint8_t earlier[sizeof token];
    size_t earlier_bytes = token_behind(8, &engine);
    memcpy(earlier, token, earlier_bytes);
    engine_end(&engine, SIGKILL);
    size_t bytes = token_behind(UINT64_MAX, &engine);
    engine_end(&engine, SIGKILL);
    engine = engine_start(two_ranks);
    struct rp_client *done = trainer(0, token, bytes);
    assert_int_equal(take(done, 0), RP_NEXT_END);
    struct rp_client *behind = trainer(1, earlier, earlier_bytes);
    uint64_t row = 16, end = rp_align_up(kit.row_count, 8);
    for (; take(behind, row + ROWS) == RP_NEXT_BATCH; row += ROWS * RANKS)
        continue;
    assert_int_equal(row, end);
    rp_client_detach(done);
    rp_client_detach(behind);
    assert_int_equal(engine_wait(&engine), 0);
}

/* The token of a release without plan digests in place of `token`, which has one and no tokenizer.
 */
static size_t without_digest(size_t bytes)
{
    uint32_t shorter = (uint32_t)(bytes - 2 * sizeof(struct rp_hash128));
    size_t hashed = shorter - sizeof(struct rp_hash128);
    rp_store_u32(token + offsetof(struct rp_state_header, version), RP_TOKEN_VERSION_PLAIN);
    rp_store_u32(token + offsetof(struct rp_state_header, bytes), shorter);
    struct rp_hash128 hash = rp_hash128(token, hashed);
    memcpy(token + hashed, &hash, sizeof hash);
    return shorter;
}

/* A rank catches up from a token without a digest. The engine knows the digest of every row, so the
 * token of the rank has it after the next batch. */
static void a_token_without_a_digest_does_not_lose_the_engines(void **state)
{
    (void)state;
    static const char *const endless[] = {"num_epochs", "0", NULL};
    const uint64_t behind = 10; /* batches; a ring has 2 */
    struct rp_state_info info;
    struct engine engine = engine_start(endless);
    struct rp_client *clients[RANKS] = {trainer(0, NULL, 0), trainer(1, NULL, 0)};
    take_by_turns(clients, 0, 1);
    size_t bytes = without_digest(rp_client_state(clients[0], token, sizeof token));
    take_by_turns(clients, 1, behind);
    rp_client_detach(clients[0]);
    clients[0] = trainer(0, token, bytes);
    assert_int_equal(take(clients[0], ROWS * RANKS), RP_NEXT_BATCH);
    bytes = rp_client_state(clients[0], token, sizeof token);
    assert_int_equal(rp_state_info(token, bytes, &info, NULL), 0);
    assert_int_equal(info.next_row, 2 * ROWS * RANKS);
    assert_true(rp_hash128_is_known(info.digest));
    rp_client_detach(clients[0]);
    rp_client_detach(clients[1]);
    assert_int_equal(engine_end(&engine, SIGTERM), 0);
}

/* With steps of 12 rows the token at row 16 begins a step; `looks`: a trainer attaches before it is
 * brought, and takes no batch. */
static uint64_t micro_batches_from_row_16(bool looks)
{
    struct engine engine;
    size_t bytes = token_behind(8, &engine);
    engine_end(&engine, SIGKILL);
    engine = engine_start(steps_of_12);
    if (looks)
        rp_client_detach(trainer(0, NULL, 0));
    struct rp_client *client = trainer(0, token, bytes);
    uint64_t end = take_some(client, 8, UINT64_MAX);
    rp_client_detach(client);
    assert_int_equal(engine_wait(&engine), 0);
    return end;
}

static void steps_begin_at_the_token_before_and_after_an_attach(void **state)
{
    (void)state;
    uint64_t expected = 8 + rp_div_up(kit.row_count - 16, 12) * 6;
    assert_int_not_equal(expected, rp_div_up(kit.row_count, 12) * 6); /* from row 0 on */
    assert_int_equal(micro_batches_from_row_16(false), expected);
    assert_int_equal(micro_batches_from_row_16(true), expected);
}

/* Once a batch was taken, a token within a step does not move where steps begin. */
static void steps_stay_where_a_batch_was_taken(void **state)
{
    (void)state;
    struct engine engine;
    size_t bytes = token_behind(6, &engine); /* row 12: within the second step of 8 */
    struct rp_client *client = trainer(0, token, bytes);
    assert_int_equal(take_some(client, 6, UINT64_MAX), rp_div_up(kit.row_count, 8) * 4);
    rp_client_detach(client);
    assert_int_equal(engine_wait(&engine), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_finished_stream_is_finished_for_every_size_of_step, end_newest),
        cmocka_unit_test_teardown(it_is_finished_for_the_engine_that_gave_the_token, end_newest),
        cmocka_unit_test_teardown(it_is_finished_for_all_ranks, end_newest),
        cmocka_unit_test_teardown(a_token_of_the_end_does_not_end_other_ranks, end_newest),
        cmocka_unit_test_teardown(a_token_without_a_digest_does_not_lose_the_engines, end_newest),
        cmocka_unit_test_teardown(steps_begin_at_the_token_before_and_after_an_attach, end_newest),
        cmocka_unit_test_teardown(steps_stay_where_a_batch_was_taken, end_newest),
    };
    return cmocka_run_group_tests(tests, engine_enter, engine_leave);
}
