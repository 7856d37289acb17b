/* SPDX-License-Identifier: Apache-2.0 */
/* Children of `verify` and `demo` that end unexpectedly. The engine of a job is any program here:
 * its use of the arguments does not matter. */
#include "job/job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"

static struct rp_child start(struct rp_job *job, const char *program)
{
    struct rp_error error = {0};
    struct rp_child engine;
    const struct rp_words words = {.count = 0};
    assert_int_equal(rp_job_open(job, program, false, &error), 0);
    assert_int_equal(rp_job_serve(job, &engine, &words, &error), 0);
    return engine;
}

static void wait_for_end(struct rp_child *engine)
{
    while (rp_child_runs(engine))
        rp_sleep_ns(1000000);
}

/* verify sent a request to an engine that had ended, and that it had seen end: no process was left
 * to answer, and it waited for all of its patience. */
static void an_engine_that_has_ended_is_not_waited_for(void **state)
{
    (void)state;
    struct rp_job job;
    struct rp_error error = {0};
    struct rp_child engine = start(&job, "/bin/false");
    wait_for_end(&engine);
    assert_int_equal(rp_job_wait_ready(&job, &engine, &error), -RP_E_GONE);
    assert_non_null(strstr(error.message, "the engine ended by itself (status 1)"));
    rp_job_close(&job);
}

static void an_engine_that_ends_before_it_is_ready_is_told(void **state)
{
    (void)state;
    struct rp_job job;
    struct rp_error error = {0};
    struct rp_child engine = start(&job, "/bin/false");
    assert_int_equal(rp_job_wait_ready(&job, &engine, &error), -RP_E_GONE);
    assert_int_equal(engine.pid, 0);
    assert_non_null(strstr(error.message, "the engine ended by itself (status 1)"));
    assert_non_null(strstr(error.hint, "TMPDIR")); /* full, it would keep no word of theirs */
    rp_job_close(&job);
}

static void how_a_child_ended_is_known(void **state)
{
    (void)state;
    struct rp_job job;
    struct rp_child engine = start(&job, "/bin/true");
    wait_for_end(&engine);
    assert_true(rp_child_ended_well(&engine));
    assert_false(rp_child_was_killed(&engine));
    rp_job_close(&job);
    engine = start(&job, "/bin/false");
    wait_for_end(&engine);
    assert_false(rp_child_ended_well(&engine));
    assert_false(rp_child_was_killed(&engine));
    rp_job_close(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_engine_that_has_ended_is_not_waited_for),
        cmocka_unit_test(an_engine_that_ends_before_it_is_ready_is_told),
        cmocka_unit_test(how_a_child_ended_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
