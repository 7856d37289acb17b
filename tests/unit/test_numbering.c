/* SPDX-License-Identifier: Apache-2.0 */
/* The numbering of batches against a count, step by step, over random stages and anchors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "base/numbering.h"

#define STAGES_MAX 5
#define ROUNDS 3000
#define ROWS 400u

static uint64_t draw(uint64_t *seed, uint64_t below)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (*seed >> 33) % below;
}

static uint32_t draw_stages(uint64_t *seed, struct rp_batch_stage stages[STAGES_MAX])
{
    uint32_t count = 1 + (uint32_t)draw(seed, STAGES_MAX);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t batch_rows = 1 + draw(seed, 4);
        stages[i].batch_rows = batch_rows;
        stages[i].step_rows = batch_rows * (1 + draw(seed, 4));
        stages[i].from = i == 0
                             ? 0
                             : stages[i - 1].from + stages[i - 1].step_rows * (1 + draw(seed, 6));
    }
    return count;
}

static const struct rp_batch_stage *stage_at(const struct rp_numbering *n, uint64_t row)
{
    uint32_t i = n->count - 1;
    while (n->stages[i].from > row)
        i--;
    return &n->stages[i];
}

/* A step begins at `row`, with the batch and the step of these numbers: go on from there. */
static void count_on(const struct rp_numbering *n, uint64_t row, uint64_t batch, uint64_t step)
{
    for (; row < ROWS; step++) {
        const struct rp_batch_stage *stage = stage_at(n, row);
        assert_true(rp_numbering_begins_step(n, row));
        assert_int_equal(rp_numbering_batch_of_step(n, step), batch);
        uint64_t batches = stage->step_rows / stage->batch_rows;
        for (uint64_t i = 0; i < batches; i++, batch++, row += stage->batch_rows) {
            assert_true(rp_numbering_has(n, row));
            assert_int_equal(rp_numbering_row(n, batch), row);
            assert_int_equal(rp_numbering_batch(n, row + stage->batch_rows - 1), batch);
            assert_int_equal(rp_numbering_micro_batch(n, batch), i);
            assert_int_equal(rp_numbering_step(n, batch), step);
            assert_int_equal(rp_numbering_of_row(n, row)->step_rows, stage->step_rows);
            for (uint64_t other = row + 1; other < row + stage->batch_rows; other++)
                assert_false(rp_numbering_has(n, other));
        }
    }
}

static void batches_are_those_of_a_count(void **state)
{
    (void)state;
    uint64_t seed = 7;
    struct rp_error error;
    for (int round = 0; round < ROUNDS; round++) {
        struct rp_batch_stage stages[STAGES_MAX];
        struct rp_numbering n;
        uint32_t count = draw_stages(&seed, stages);
        uint64_t anchor = draw(&seed, 3) ? draw(&seed, ROWS / 2) : 0;
        assert_int_equal(rp_numbering_open(&n, stages, count, &error), 0);
        rp_numbering_begin(&n, anchor);
        assert_true(rp_numbering_base(&n) < stages[0].step_rows);
        uint64_t batch = rp_numbering_batch(&n, anchor), step = rp_numbering_step(&n, batch);
        count_on(&n, anchor, batch, step);
        /* rows before it: each batch begins where the one before it ends */
        for (uint64_t k = 0, row = rp_numbering_base(&n); k <= batch; k++) {
            assert_int_equal(rp_numbering_row(&n, k), row);
            row += rp_numbering_of_batch(&n, k)->batch_rows;
        }
        if (anchor == 0)
            count_on(&n, 0, 0, 0);
        rp_numbering_close(&n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(batches_are_those_of_a_count)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
