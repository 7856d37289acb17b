/* SPDX-License-Identifier: Apache-2.0 */
/* The plan uses the blocks that it has announced: every document that a lane takes is in a block
 * between the first one of its window and a window past its position. */
#include "plan_corpus.h"

#include "plan/blocks.h"
#include "plan/plan_state.h"

static const uint64_t one = 1; /* the weight of the only source */

static bool is_in_reach(const struct rp_plan *plan, uint32_t lane, uint64_t first, uint64_t last,
                        uint64_t document)
{
    struct rp_plan_block block;
    for (uint64_t at = first; at < last && rp_plan_block_at(plan, lane, 0, at, &block); at++)
        if (document - block.first_document < block.documents)
            return true;
    return false;
}

static void documents_come_from_the_blocks_that_were_told(void **state)
{
    (void)state;
    for (int plain = 0; plain < 2; plain++)
        for (uint32_t lanes = 1; lanes <= 3; lanes++) {
            struct rp_plan *plan = plan_open_blocks(plain ? RP_SHUFFLE_NONE : RP_SHUFFLE_BLOCK,
                                                    lanes, 3, &one, 1);
            struct rp_plan_blocks blocks = rp_plan_blocks(plan);
            struct rp_row row;
            struct rp_error error;
            uint64_t documents = 0;
            assert_int_equal(blocks.lanes, lanes);
            assert_true(blocks.documents > 0);
            for (;;) {
                uint32_t lane = (uint32_t)(rp_plan_row(plan) % lanes);
                uint64_t first = rp_plan_block_window(plan, lane, 0);
                uint64_t last = rp_plan_block_position(plan, lane, 0) + 2 * blocks.window;
                /* the piece that the last row left over is of a block before */
                first -= first > 0;
                int code = rp_plan_next(plan, &row, &error);
                assert_true(code >= 0);
                if (code == 0)
                    break;
                for (uint32_t i = 1; i < row.count; i++, documents++)
                    if (!is_in_reach(plan, lane, first, last, row.fragments[i].document))
                        fail_msg("row %d, lane %d of %d: document %d is in none of the blocks",
                                 (int)row.row, (int)lane, (int)lanes,
                                 (int)row.fragments[i].document);
            }
            assert_true(documents > BLOCKS_DOCUMENTS);
            rp_plan_close(plan);
        }
}

static void blocks_end_with_the_last_epoch(void **state)
{
    (void)state;
    struct rp_plan_block block;
    struct rp_plan *plan = plan_open_blocks(RP_SHUFFLE_BLOCK, 1, 2, &one, 1);
    uint64_t documents = 0, blocks = 0;
    for (; rp_plan_block_at(plan, 0, 0, blocks, &block); blocks++) {
        documents += block.documents;
        assert_int_equal(block.epoch, blocks / 100);
        assert_int_equal(block.later_epochs, blocks < 100);
    }
    assert_int_equal(blocks, 2 * 100);
    assert_int_equal(documents, 2 * BLOCKS_DOCUMENTS);
    rp_plan_close(plan);
    plan = plan_open_blocks(RP_SHUFFLE_BLOCK, 1, 0, &one, 1);
    assert_true(rp_plan_block_at(plan, 0, 0, 1234567, &block));
    assert_true(block.later_epochs == UINT64_MAX);
    rp_plan_close(plan);
}

static void a_document_shuffle_has_no_blocks(void **state)
{
    (void)state;
    struct rp_plan *plan = plan_open_blocks(RP_SHUFFLE_DOCUMENT, 1, 1, &one, 1);
    assert_int_equal(rp_plan_blocks(plan).documents, 0);
    rp_plan_close(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_come_from_the_blocks_that_were_told),
        cmocka_unit_test(blocks_end_with_the_last_epoch),
        cmocka_unit_test(a_document_shuffle_has_no_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
