/* SPDX-License-Identifier: Apache-2.0 */
/* Rows that are skipped (engine/plan/STREAM2.md, section 10.3) between an engine and its trainers:
 * a step of which all rows are skipped is not delivered, whichever process ends meanwhile, and
 * however many leases a trainer holds. A step has 8 rows here. The wrapped rp_plan_next skips rows.
 */
#include "engine_kit.h"

#define STEP 8u
#define SKIP_FIRST                                                                                 \
    13u /* the last rows of step 1, and steps 2 to 5, and the first rows of step 6                 \
         */
#define SKIP_END 51u
#define STEPS_FIRST 16u
#define STEPS_END 48u

int __real_rp_plan_next(struct rp_plan *plan, struct rp_row *row, struct rp_error *error);
int __wrap_rp_plan_next(struct rp_plan *plan, struct rp_row *row, struct rp_error *error);
bool __wrap_rp_plan_skips(const struct rp_plan *plan, uint64_t first, uint64_t count);
struct rp_row_form __wrap_rp_plan_row_form(const struct rp_plan *plan);

int __wrap_rp_plan_next(struct rp_plan *plan, struct rp_row *row, struct rp_error *error)
{
    int code = __real_rp_plan_next(plan, row, error);
    if (code == 1 && row->row >= SKIP_FIRST && row->row < SKIP_END) {
        row->skipped = true;
        row->count = row->tokens = 0;
    }
    return code;
}

bool __wrap_rp_plan_skips(const struct rp_plan *plan, uint64_t first, uint64_t count)
{
    (void)plan;
    return first >= SKIP_FIRST && first + count <= SKIP_END;
}

struct rp_row_form __wrap_rp_plan_row_form(const struct rp_plan *plan)
{
    (void)plan;
    return (struct rp_row_form){.has_row_plans = true};
}

static const char *const one_rank[] = {
    "dp_world_size", "1", "checkpoint_dir", "checkpoints", "drop_last", "true", NULL};

/* Take the batches from `row` on that are delivered, up to `end`. */
static void take_rows(struct rp_client *client, uint64_t row, uint64_t end)
{
    for (; row < end; row += ROWS)
        if (row < STEPS_FIRST || row >= STEPS_END)
            assert_int_equal(take(client, row), RP_NEXT_BATCH);
}

static void skipped_steps_are_not_delivered(void **state)
{
    (void)state;
    forget_checkpoints();
    struct engine engine = engine_start(one_rank);
    struct rp_client *client = trainer(0, NULL, 0);
    struct rp_client_counts counts = {.struct_size = sizeof counts};
    uint64_t rows = kit.row_count / STEP * STEP;
    take_rows(client, 0, rows);
    assert_int_equal(take(client, rows), RP_NEXT_END);
    rp_client_counts(client, &counts);
    assert_int_equal(counts.batches, (rows - (STEPS_END - STEPS_FIRST)) / ROWS);
    assert_int_equal(counts.rows, rows - (STEPS_END - STEPS_FIRST));
    assert_int_equal(counts.gaps, 0);
    assert_int_equal(counts.reattaches, 0);
    rp_client_detach(client);
    assert_int_equal(engine_wait(&engine), 0);
}

/* Engine and trainer are killed, with the newest state before the skipped steps, and behind them.
 */
static void a_run_continues_over_skipped_steps(void **state)
{
    (void)state;
    static const uint64_t ends[] = {STEPS_FIRST, STEPS_END + STEP};
    for (int i = 0; i < 2; i++) {
        uint8_t token[KIT_STATE_MAX];
        forget_checkpoints();
        struct engine engine = engine_start(one_rank);
        struct rp_client *client = trainer(0, NULL, 0);
        take_rows(client, 0, ends[i]);
        save_now();
        size_t bytes = rp_client_state(client, token, sizeof token);
        engine_end(&engine, SIGKILL);
        engine = engine_start(one_rank);
        take_rows(client, ends[i], ends[i] + 3 * STEP); /* it lives on */
        rp_client_detach(client);
        client = trainer(0, token, bytes);
        take_rows(client, ends[i], ends[i] + 9 * STEP);
        rp_client_detach(client);
        engine_end(&engine, SIGKILL);
    }
}

/* The ring has two slots, and the trainer keeps one of them. The lease stays as it is. */
static void a_lease_does_not_stop_a_skip(void **state)
{
    (void)state;
    forget_checkpoints();
    struct engine engine = engine_start(one_rank);
    struct rp_client *client = trainer(0, NULL, 0);
    struct rp_batch held = {.struct_size = sizeof held};
    struct rp_client_counts counts = {.struct_size = sizeof counts};
    struct rp_error error = {0};
    take_rows(client, 0, STEPS_FIRST - ROWS);
    assert_int_equal(rp_client_next(client, PATIENCE_NS, &held, &error), RP_NEXT_BATCH);
    const struct rp_row_info *rows = held.sections[RP_SECTION_ROWS];
    struct rp_row_info before[ROWS];
    memcpy(before, rows, sizeof before);
    assert_int_equal(before[0].row, STEPS_FIRST - ROWS);
    take_rows(client, STEPS_FIRST, STEPS_END + 4 * STEP);
    assert_memory_equal(rows, before, sizeof before);
    rp_client_counts(client, &counts);
    assert_true(counts.reattaches > 0);
    assert_int_equal(rp_client_release(client, &held), 0);
    take_rows(client, STEPS_END + 4 * STEP, STEPS_END + 6 * STEP);
    rp_client_detach(client);
    engine_end(&engine, SIGKILL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(skipped_steps_are_not_delivered, end_newest),
        cmocka_unit_test_teardown(a_run_continues_over_skipped_steps, end_newest),
        cmocka_unit_test_teardown(a_lease_does_not_stop_a_skip, end_newest),
    };
    return cmocka_run_group_tests(tests, engine_enter, engine_leave);
}
