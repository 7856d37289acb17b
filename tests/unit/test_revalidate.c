/* SPDX-License-Identifier: Apache-2.0 */
/* The time that an engine waits for a disk that may hang: a request does not prolong an earlier
 * one, and a disk that has answered in the meantime is no longer silent. The flow and the clock are
 * the test's (tests/CMakeLists.txt). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/revalidate.h"

#define SECOND UINT64_C(1000000000)

static struct {
    uint64_t ns;
    unsigned requests;
    int result;
} disk;

int __wrap_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
    (void)clock;
    *out = (struct timespec){(time_t)(disk.ns / SECOND), (long)(disk.ns % SECOND)};
    return 0;
}

void __wrap_rp_flow_request_revalidation(struct rp_flow *flow);
void __wrap_rp_flow_request_revalidation(struct rp_flow *flow)
{
    (void)flow;
    disk.requests++;
}

int __wrap_rp_flow_revalidation_result(const struct rp_flow *flow, struct rp_error *error);
int __wrap_rp_flow_revalidation_result(const struct rp_flow *flow, struct rp_error *error)
{
    (void)flow;
    (void)error;
    return disk.result;
}

static enum rp_validity validity_at(struct rp_engine *engine, uint64_t ns)
{
    disk.ns = ns;
    assert_int_equal(rp_engine_poll_revalidation(engine), 0);
    return engine->saving.validity;
}

static void a_stop_does_not_prolong_the_wait_of_a_save(void **state)
{
    (void)state;
    struct rp_engine engine = {.config = NULL};
    disk.requests = 0;
    disk.result = 0;
    disk.ns = SECOND;
    rp_engine_request_revalidation(&engine);
    assert_int_equal(validity_at(&engine, 3 * SECOND), RP_VALIDITY_REQUESTED);
    rp_engine_request_revalidation(&engine);
    assert_int_equal(disk.requests, 2);
    assert_int_equal(validity_at(&engine, 4 * SECOND - 1), RP_VALIDITY_REQUESTED);
    assert_int_equal(validity_at(&engine, 4 * SECOND), RP_VALIDITY_LATE);
}

static void a_later_request_has_its_own_time(void **state)
{
    (void)state;
    struct rp_engine engine = {.config = NULL};
    disk.result = 1;
    disk.ns = SECOND;
    rp_engine_request_revalidation(&engine);
    assert_int_equal(validity_at(&engine, SECOND), RP_VALIDITY_UNCHANGED);
    disk.result = 0;
    disk.ns = 3 * SECOND;
    rp_engine_request_revalidation(&engine);
    assert_int_equal(validity_at(&engine, 6 * SECOND - 1), RP_VALIDITY_REQUESTED);
}

static void a_disk_is_silent_until_it_answers(void **state)
{
    (void)state;
    struct rp_engine engine = {.config = NULL};
    disk.result = 0;
    disk.ns = SECOND;
    rp_engine_request_revalidation(&engine);
    assert_false(rp_engine_disk_is_silent(&engine));
    assert_int_equal(validity_at(&engine, 9 * SECOND), RP_VALIDITY_LATE);
    assert_true(rp_engine_disk_is_silent(&engine));
    disk.result = 1;
    assert_false(rp_engine_disk_is_silent(&engine));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stop_does_not_prolong_the_wait_of_a_save),
        cmocka_unit_test(a_later_request_has_its_own_time),
        cmocka_unit_test(a_disk_is_silent_until_it_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
