/* SPDX-License-Identifier: Apache-2.0 */
/* An epoch over all lanes is every document once, whatever the shuffle and the shape of the blocks;
 * any position can be computed without the ones before it. */
#include "plan_corpus.h"

#include "plan/order.h"

enum { DOCUMENTS_MAX = 500 };

/* The documents of one lane in one epoch, read from front to back; returns how many. */
static uint64_t read_lane(struct rp_order *order, uint64_t epoch, uint64_t *documents)
{
    rp_order_enter(order, epoch);
    uint64_t position = 0;
    while (position < order->documents)
        position += rp_order_read(order, position, documents + position);
    assert_int_equal(position, order->documents);
    return position;
}

/* True if the first `lanes_read` lanes hold every document exactly once, and the inverse of the
 * order leads back to the lane and the position of each. */
static bool is_epoch_covered(const struct rp_plan_config *config, uint64_t n, uint32_t source,
                             uint64_t epoch, uint32_t lanes_read)
{
    uint8_t seen[DOCUMENTS_MAX] = {0};
    uint64_t total = 0;
    for (uint32_t lane = 0; lane < lanes_read; lane++) {
        uint64_t documents[DOCUMENTS_MAX + RP_ORDER_READ_MAX];
        struct rp_order order;
        rp_order_init(&order, config, n, source, lane);
        uint64_t count = read_lane(&order, epoch, documents);
        assert_true(count >= rp_order_documents_min(&order));
        assert_true(count <= order.lane_units * order.unit_documents);
        for (uint64_t i = 0; i < count; i++)
            if (documents[i] >= n || seen[documents[i]]++)
                return false;
        for (uint64_t i = 0; i < count; i++)
            if (rp_order_lane_of(&order, documents[i]) != lane ||
                rp_order_position_of(&order, documents[i]) != i)
                return false;
        total += count;
    }
    return total == n;
}

static void an_epoch_is_every_document_once(void **state)
{
    (void)state;
    const uint64_t sizes[] = {1, 2, 3, 31, 32, 33, 63, 100, 127, 255, 499};
    const uint32_t blocks[] = {1, 2, 3, 7, 16, 64}, windows[] = {1, 2, 3, 5, 1000},
                   lanes[] = {1, 2, 3, 5};
    for (uint32_t i = 0; i < 11 * 6 * 5 * 4 * 3; i++) {
        struct rp_plan_config config = {
            .seed = i,
            .shuffle = (enum rp_shuffle)(i % 3),
            .lanes = lanes[i / 3 % 4],
            .block_documents = blocks[i / 12 % 6],
            .window_blocks = windows[i / 72 % 5],
        };
        uint64_t n = sizes[i / 360];
        if (rp_order_units(&config, n) < config.lanes)
            continue;
        for (uint64_t epoch = 0; epoch < 3; epoch++)
            if (!is_epoch_covered(&config, n, i % 4, epoch, config.lanes))
                fail_msg("n %" PRIu64 " shuffle %s B %u V %u lanes %u epoch %" PRIu64, n,
                         rp_shuffle_name(config.shuffle), config.block_documents,
                         config.window_blocks, config.lanes, epoch);
        if (config.lanes > 1) /* control: a lane that is missing is noticed */
            assert_false(is_epoch_covered(&config, n, i % 4, 0, config.lanes - 1));
    }
}

static void any_position_can_be_asked_for(void **state)
{
    (void)state;
    uint64_t random = test_seed("any_position_can_be_asked_for");
    for (uint32_t i = 0; i < 60; i++) {
        struct rp_plan_config config = {
            .seed = draw(&random),
            .shuffle = (enum rp_shuffle)(i % 3),
            .lanes = 1 + i % 4,
            .block_documents = 1 + (uint32_t)draw_below(&random, 20),
            .window_blocks = 1 + (uint32_t)draw_below(&random, 6),
        };
        uint64_t documents[2][DOCUMENTS_MAX + RP_ORDER_READ_MAX],
            n = 200 + draw_below(&random, 300);
        struct rp_order order;
        rp_order_init(&order, &config, n, 1, i % config.lanes);
        for (uint64_t epoch = 0; epoch < 2; epoch++)
            read_lane(&order, epoch, documents[epoch]);
        for (int jump = 0; jump < 50; jump++) {
            uint64_t epoch = draw_below(&random, 2), there[RP_ORDER_READ_MAX];
            rp_order_enter(&order, epoch);
            uint64_t position = draw_below(&random, order.documents);
            uint32_t count = rp_order_read(&order, position, there);
            assert_true(count >= 1 && position + count <= order.documents);
            assert_memory_equal(there, documents[epoch] + position, count * sizeof *there);
        }
    }
}

static void a_window_stays_together(void **state)
{
    (void)state;
    struct rp_plan_config config = {.seed = 5,
                                    .shuffle = RP_SHUFFLE_BLOCK,
                                    .lanes = 1,
                                    .block_documents = 8,
                                    .window_blocks = 4};
    uint64_t documents[DOCUMENTS_MAX + RP_ORDER_READ_MAX], other[DOCUMENTS_MAX + RP_ORDER_READ_MAX];
    struct rp_order order;
    rp_order_init(&order, &config, 320, 0, 0);
    read_lane(&order, 0, documents);
    for (uint64_t window = 0; window < 10; window++) {
        uint64_t blocks[40] = {0}, distinct = 0;
        for (uint64_t i = 0; i < 32; i++)
            distinct += blocks[documents[window * 32 + i] / 8]++ == 0;
        assert_int_equal(distinct, 4);
    }
    read_lane(&order, 1, other);
    assert_memory_not_equal(documents, other, 320 * sizeof *documents);
    config.shuffle = RP_SHUFFLE_NONE;
    rp_order_init(&order, &config, 320, 0, 0);
    read_lane(&order, 7, documents);
    for (uint64_t i = 0; i < 320; i++)
        assert_int_equal(documents[i], i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_epoch_is_every_document_once),
        cmocka_unit_test(any_position_can_be_asked_for),
        cmocka_unit_test(a_window_stays_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
