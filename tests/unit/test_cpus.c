/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of CPUs: which are none, and that threads run where they say, and nowhere when one of them
 * is not there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "base/bits.h"
#include "base/cpus.h"

static void test_lists(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t first, second; /* words */
    } good[] = {
        {"0", 1, 0},      {"63", UINT64_C(1) << 63, 0},          {"0-3", 15, 0},
        {"0,2,64", 5, 1}, {"62-65,1", UINT64_C(3) << 62 | 2, 3}, {"1,1-1,0-1", 3, 0},
    };
    static const char *const bad[] = {"",       "a",   "0-",  "-1",    "3-2",
                                      "0,",     ",0",  "0 1", "0-1-2", "4096",
                                      "0-4096", "0x1", "1.5", " 0",    "99999999999999999999999"};
    struct rp_cpus cpus;
    for (size_t i = 0; i < RP_ARRAY_COUNT(good); i++) {
        assert_true(rp_cpus_parse(&cpus, good[i].text));
        assert_true(cpus.words[0] == good[i].first && cpus.words[1] == good[i].second);
    }
    for (size_t i = 0; i < RP_ARRAY_COUNT(bad); i++)
        if (rp_cpus_parse(&cpus, bad[i]))
            fail_msg("`%s` is taken for a list of CPUs", bad[i]);
    assert_true(rp_cpus_parse(&cpus, "4095"));
}

static cpu_set_t mask(void)
{
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    return set;
}

static void *look(void *argument)
{
    *(cpu_set_t *)argument = mask();
    return NULL;
}

static void test_threads_run_there(void **state)
{
    (void)state;
    struct rp_error error;
    cpu_set_t before = mask(), seen;
    size_t cpu = 0;
    while (!CPU_ISSET(cpu, &before))
        cpu++;
    struct rp_cpus one = {0};
    one.words[cpu / 64] = UINT64_C(1) << cpu % 64;
    assert_int_equal(rp_cpus_pin(&one, &error), 0);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, look, &seen), 0);
    pthread_join(thread, NULL);
    assert_int_equal(CPU_COUNT(&seen), 1);
    assert_true(CPU_ISSET(cpu, &seen));
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

static void test_a_cpu_that_is_not_there_is_named(void **state)
{
    (void)state;
    struct rp_error error;
    struct rp_cpus cpus;
    cpu_set_t before = mask(), after;
    assert_true(rp_cpus_parse(&cpus, "0-4095"));
    assert_int_equal(rp_cpus_pin(&cpus, &error), -RP_E_CONFIG);
    assert_true(rp_cpus_parse(&cpus, "0,4095"));
    assert_int_equal(rp_cpus_pin(&cpus, &error), -RP_E_CONFIG);
    assert_non_null(strstr(error.message, "CPU 4095"));
    after = mask();
    assert_true(CPU_EQUAL(&before, &after));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_threads_run_there),
        cmocka_unit_test(test_a_cpu_that_is_not_there_is_named),
    };
    return cmocka_run_group_tests_name("cpus", tests, NULL, NULL);
}
