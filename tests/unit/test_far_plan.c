/* SPDX-License-Identifier: Apache-2.0 */
/* The planner of far rows (server/far_plan.h) with slices that fail: their owner plans the rest
 * itself, from the last state that was reached. The plan is the test's: its state is its row. */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "patience.h"
#include "server/far_plan.h"

#define BEGIN 10u
#define SLICES 5u
#define FAR (BEGIN + SLICES * RP_NEAR_ROWS)

/* Each fails at this row; 0: never. */
static struct {
    uint64_t row, load_fails_at, seek_fails_at, save_fails_at;
} plan;

int __wrap_rp_plan_load(struct rp_plan *p, const void *token, size_t bytes, bool accept_weights,
                        struct rp_error *error);
int __wrap_rp_plan_load(struct rp_plan *p, const void *token, size_t bytes, bool accept_weights,
                        struct rp_error *error)
{
    (void)p, (void)accept_weights, (void)error;
    assert_int_equal(bytes, sizeof plan.row);
    memcpy(&plan.row, token, bytes);
    return plan.row == plan.load_fails_at ? -1 : 0;
}

int __wrap_rp_plan_seek(struct rp_plan *p, uint64_t row, struct rp_error *error);
int __wrap_rp_plan_seek(struct rp_plan *p, uint64_t row, struct rp_error *error)
{
    (void)p, (void)error;
    assert_true(row > plan.row && row - plan.row <= RP_NEAR_ROWS);
    if (row == plan.seek_fails_at)
        return -1;
    plan.row = row;
    return 0;
}

size_t __wrap_rp_plan_save(const struct rp_plan *p, void *token);
size_t __wrap_rp_plan_save(const struct rp_plan *p, void *token)
{
    (void)p;
    if (plan.row == plan.save_fails_at)
        return 0;
    memcpy(token, &plan.row, sizeof plan.row);
    return sizeof plan.row;
}

int __wrap_rp_plan_try_save(const struct rp_plan *p, void *token, size_t *bytes,
                            struct rp_error *error);
int __wrap_rp_plan_try_save(const struct rp_plan *p, void *token, size_t *bytes,
                            struct rp_error *error)
{
    (void)error;
    *bytes = __wrap_rp_plan_save(p, token);
    return 0;
}

uint64_t __wrap_rp_plan_row(const struct rp_plan *p);
uint64_t __wrap_rp_plan_row(const struct rp_plan *p)
{
    (void)p;
    return plan.row;
}

size_t __wrap_rp_plan_state_bytes_max(const struct rp_plan *p);
size_t __wrap_rp_plan_state_bytes_max(const struct rp_plan *p)
{
    (void)p;
    return sizeof plan.row;
}

static struct rp_far_planner planner;
static struct rp_far_row far;

/* Want FAR from BEGIN, and plan as far as the thread does. */
static void plan_far(void)
{
    struct rp_error error;
    planner = (struct rp_far_planner){.done_fd = eventfd(0, EFD_CLOEXEC)};
    far = (struct rp_far_row){0};
    plan.row = BEGIN;
    assert_int_equal(rp_far_row_want(&far, FAR, NULL, &error), 0);
    assert_int_equal(rp_far_planner_serve(&planner, &far, &error), 0);
    struct pollfd done = {.fd = planner.done_fd, .events = POLLIN};
    assert_int_equal(poll(&done, 1, PATIENCE_MS), 1);
    rp_far_planner_continue(&planner);
}

/* The owner is told to plan the rest, and has the state of row `at`. */
static void owner_continues_at(uint64_t at)
{
    uint64_t state;
    assert_true(far.progress == RP_FAR_NEAR && !planner.is_busy);
    assert_int_equal(far.at, at);
    assert_int_equal(far.bytes, sizeof state);
    memcpy(&state, far.state, sizeof state);
    assert_int_equal(state, at);
    rp_far_row_forget(&planner, &far);
    close(planner.done_fd);
    memset(&plan, 0, sizeof plan);
}

static void slices_reach_the_near_rows(void **state)
{
    (void)state;
    plan_far();
    owner_continues_at(FAR - RP_NEAR_ROWS);
}

static void a_slice_that_cannot_be_planned_is_the_owners(void **state)
{
    (void)state;
    plan.seek_fails_at = BEGIN + 3 * RP_NEAR_ROWS;
    plan_far();
    owner_continues_at(BEGIN + 2 * RP_NEAR_ROWS);
}

static void a_slice_whose_state_is_not_saved_is_the_owners(void **state)
{
    (void)state;
    plan.save_fails_at = BEGIN + 3 * RP_NEAR_ROWS;
    plan_far();
    owner_continues_at(BEGIN + 2 * RP_NEAR_ROWS);
}

static void a_state_that_cannot_be_loaded_is_the_owners(void **state)
{
    (void)state;
    plan.load_fails_at = BEGIN;
    plan_far();
    owner_continues_at(BEGIN);
}

/* How a far row is asked for, expires and is forgotten, by the table in far_plan.h. */
static void a_row_is_wanted_until_its_owner_has_it_or_forgets_it(void **state)
{
    (void)state;
    struct rp_error error;
    plan_far();
    assert_int_equal(rp_far_row_want(&far, FAR + 1, NULL, &error), 0);
    assert_int_equal(far.progress, RP_FAR_OPEN);
    assert_false(rp_far_row_is_due(&far));
    assert_ptr_equal(rp_far_row_sooner(NULL, &far), &far);
    assert_int_equal(rp_far_planner_serve(&planner, &far, &error), 0);
    rp_far_row_expire(&planner, &far);
    rp_far_planner_continue(&planner); /* the slice is for a row without an owner */
    assert_int_equal(far.progress, RP_FAR_EXPIRED);
    assert_true(rp_far_row_is_due(&far) && !far.state);
    assert_null(rp_far_row_sooner(NULL, &far));
    assert_int_equal(rp_far_row_want(&far, FAR + RP_NEAR_ROWS, NULL, &error), 0);
    assert_int_equal(far.progress, RP_FAR_OPEN);
    rp_far_row_forget(&planner, &far);
    assert_int_equal(far.progress, RP_FAR_UNWANTED);
    assert_false(rp_far_row_is_due(&far) || rp_far_row_sooner(&far, NULL));
    close(planner.done_fd);
    memset(&plan, 0, sizeof plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_reach_the_near_rows),
        cmocka_unit_test(a_slice_that_cannot_be_planned_is_the_owners),
        cmocka_unit_test(a_slice_whose_state_is_not_saved_is_the_owners),
        cmocka_unit_test(a_state_that_cannot_be_loaded_is_the_owners),
        cmocka_unit_test(a_row_is_wanted_until_its_owner_has_it_or_forgets_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
