/* SPDX-License-Identifier: Apache-2.0 */
/* The forecast of a block equals a walk over the plan's blocks, and it is compared between sources
 * by the stream's length meanwhile. */
#include "plan_corpus.h"

#include "plan/forecast.h"

enum { EPOCHS = 3 };

/* The blocks until the next one of this number, found one by one; UINT64_MAX: it is needed no more.
 */
static uint64_t walk(const struct rp_plan *plan, uint32_t lanes, const uint64_t *from,
                     uint32_t absent_lane, uint64_t number)
{
    uint64_t nearest = UINT64_MAX;
    for (uint32_t lane = 0; lane < lanes; lane++) {
        struct rp_plan_block block;
        for (uint64_t at = from[lane]; rp_plan_block_at(plan, lane, 0, at, &block); at++)
            if (block.number == number && lane != absent_lane) {
                nearest = at - from[lane] < nearest ? at - from[lane] : nearest;
                break;
            }
    }
    return nearest;
}

static void a_forecast_is_what_a_walk_finds(void **state)
{
    (void)state;
    const uint64_t weights[] = {1}, blocks = 100, tokens = 7 * blocks;
    for (int plain = 0; plain < 2; plain++)
        for (uint32_t lanes = 1; lanes <= 3; lanes++) {
            struct rp_plan *plan = plan_open_blocks(plain ? RP_SHUFFLE_NONE : RP_SHUFFLE_BLOCK,
                                                    lanes, EPOCHS, weights, 1);
            struct rp_forecast *forecast;
            struct rp_error error;
            assert_int_equal(rp_forecast_open(&forecast, plan, &tokens, &error), 0);
            uint64_t documents = rp_forecast_documents(forecast);
            uint64_t count = (BLOCKS_DOCUMENTS + documents - 1) / documents;
            assert_int_equal(documents, rp_plan_blocks(plan).documents);
            for (uint64_t step = 0; step < 9; step++) {
                uint64_t from[3];
                uint32_t absent = !plain && lanes == 3 && step > 4 ? 1 : UINT32_MAX;
                for (uint32_t lane = 0; lane < lanes; lane++) {
                    from[lane] = step * (plain ? 1 : 13) + (plain ? 0 : lane);
                    rp_forecast_set(forecast, lane, 0, from[lane]);
                    rp_forecast_set_local(forecast, lane, lane != absent);
                }
                for (uint64_t at = 0; at <= EPOCHS * count; at++) {
                    struct rp_plan_block block = {0}, walked = {0};
                    bool is_found = rp_forecast_block_at(forecast, lanes - 1, 0, at, &block);
                    assert_int_equal(is_found, rp_plan_block_at(plan, lanes - 1, 0, at, &walked));
                    assert_memory_equal(&block, &walked, sizeof block);
                }
                for (uint64_t number = 0; number < count; number++) {
                    uint64_t found = rp_forecast_distance(forecast, 0, number);
                    uint64_t away = walk(plan, lanes, from, absent, number);
                    uint64_t each = plain ? tokens / count : 7 * lanes;
                    if (away == UINT64_MAX)
                        assert_true(found == RP_FORECAST_NEVER);
                    else if (found / each != away && !plain)
                        fail_msg("%d lanes, step %d, block %d: %d tokens, expected %d blocks",
                                 (int)lanes, (int)step, (int)number, (int)found, (int)away);
                    else
                        assert_true(found != RP_FORECAST_NEVER && (away == 0) == (found == 0));
                }
            }
            rp_forecast_close(forecast);
            rp_plan_close(plan);
        }
}

static void a_source_of_less_weight_gets_to_its_blocks_later(void **state)
{
    (void)state;
    const uint64_t weights[] = {9, 1}, tokens[] = {1000, 1000};
    struct rp_plan *plan = plan_open_blocks(RP_SHUFFLE_BLOCK, 1, EPOCHS, weights, 2);
    struct rp_forecast *forecast;
    struct rp_error error;
    struct rp_plan_block block;
    assert_int_equal(rp_forecast_open(&forecast, plan, tokens, &error), 0);
    for (uint32_t s = 0; s < 2; s++)
        for (uint64_t at = 0; at < 100; at++) {
            assert_true(rp_plan_block_at(plan, 0, s, at, &block));
            uint64_t distance = rp_forecast_distance(forecast, s, block.number);
            double expected = (double)at * 10 * 10 / (double)weights[s];
            assert_true((double)distance > expected - 2 && (double)distance < expected + 2);
        }
    assert_int_equal(rp_forecast_epoch(forecast, 0), 0);
    rp_forecast_set(forecast, 0, 0, 250);
    assert_int_equal(rp_forecast_epoch(forecast, 0), 2);
    assert_true(rp_forecast_epoch_tokens(forecast, 1) > 9990);
    rp_forecast_close(forecast);
    rp_plan_close(plan);
}

static void singly_shuffled_documents_are_all_alike(void **state)
{
    (void)state;
    const uint64_t weights[] = {1}, tokens = 1000;
    struct rp_plan *plan = plan_open_blocks(RP_SHUFFLE_DOCUMENT, 1, EPOCHS, weights, 1);
    struct rp_forecast *forecast;
    struct rp_error error;
    assert_int_equal(rp_forecast_open(&forecast, plan, &tokens, &error), 0);
    for (uint64_t number = 0; number < 4; number++)
        assert_int_equal(rp_forecast_distance(forecast, 0, number),
                         rp_forecast_epoch_tokens(forecast, 0));
    rp_forecast_close(forecast);
    rp_plan_close(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_forecast_is_what_a_walk_finds),
        cmocka_unit_test(a_source_of_less_weight_gets_to_its_blocks_later),
        cmocka_unit_test(singly_shuffled_documents_are_all_alike),
    };
    return cmocka_run_group_tests_name("forecast", tests, NULL, NULL);
}
