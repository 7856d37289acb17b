/* SPDX-License-Identifier: Apache-2.0 */
/* test_block_reads.c — how much memory a flow takes where a config does not say. */
#include "flow/block_reads.h"
#include "flow_kit.h"

/* 3000 documents of about 100 tokens of 2 bytes. */
static const struct kit_source pages[] = {{"pages", 8, 2, 3000}};
#define WINDOW_BYTES (4 * (100 * 100 * 2 + RP_BLOCK_BYTES)) /* 4 blocks of 100 documents */

static struct rp_plan_config plan_of(enum rp_shuffle shuffle, uint32_t lanes)
{
    struct rp_plan_config config = small_plan();
    config.shuffle = shuffle;
    config.block_documents = 100;
    config.window_blocks = 4;
    config.lanes = lanes;
    return config;
}

struct sums {
    uint64_t block_reads, flow;
};

static struct sums bytes_of(enum rp_shuffle shuffle, uint32_t lanes, uint32_t world,
                            uint64_t bytes_max)
{
    struct rp_plan_config config = plan_of(shuffle, lanes);
    struct kit kit;
    kit_open(&kit, pages, 1, &config);
    struct rp_flow_options options = small_flow(&rp_io_method_pread);
    options.corpus = kit.corpus;
    options.dp_world_size = world;
    options.rank_count = options.batch_size = 1;
    options.prefetch_bytes = 0; /* not given */
    struct rp_plan *plan = kit_plan(&kit);
    struct sums sums = {.block_reads = rp_block_reads_data_bytes(plan, &options, 0, bytes_max),
                        .flow = rp_flow_prefetch_bytes(&options, plan, 0)};
    options.prefetch_bytes = 4096;
    assert_int_equal(rp_flow_prefetch_bytes(&options, plan, 0), 4096);
    rp_plan_close(plan);
    kit_close(&kit);
    return sums;
}

static void four_windows_of_every_lane_of_this_node(void **state)
{
    (void)state;
    for (uint32_t lanes = 1; lanes <= 4; lanes++) {
        uint64_t bytes = bytes_of(RP_SHUFFLE_BLOCK, lanes, 1, UINT64_MAX).block_reads;
        uint64_t expected = 4ull * WINDOW_BYTES * lanes;
        assert_in_range(bytes, expected - expected / 20, expected + expected / 20);
    }
    assert_int_equal(bytes_of(RP_SHUFFLE_BLOCK, 4, 4, UINT64_MAX).block_reads,
                     bytes_of(RP_SHUFFLE_BLOCK, 1, 1, UINT64_MAX).block_reads);
}

static void fewer_where_there_is_a_limit_and_none_below_two(void **state)
{
    (void)state;
    uint64_t window = bytes_of(RP_SHUFFLE_BLOCK, 1, 1, UINT64_MAX).block_reads / 4;
    assert_int_equal(bytes_of(RP_SHUFFLE_BLOCK, 1, 1, 3 * window).block_reads, 3 * window);
    assert_int_equal(bytes_of(RP_SHUFFLE_BLOCK, 1, 1, 2 * window).block_reads, 0);
}

static void nothing_for_documents_in_any_order(void **state)
{
    (void)state;
    struct sums sums = bytes_of(RP_SHUFFLE_DOCUMENT, 1, 1, UINT64_MAX);
    assert_int_equal(sums.block_reads, 0);
    assert_int_equal(sums.flow, RP_PREFETCH_BYTES_STANDARD);
    /* less than the standard is never taken */
    assert_int_equal(bytes_of(RP_SHUFFLE_BLOCK, 1, 1, 0).flow, RP_PREFETCH_BYTES_STANDARD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(four_windows_of_every_lane_of_this_node),
        cmocka_unit_test(fewer_where_there_is_a_limit_and_none_below_two),
        cmocka_unit_test(nothing_for_documents_in_any_order),
    };
    return cmocka_run_group_tests(tests, kit_enter, scratch_leave);
}
