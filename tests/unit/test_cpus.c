/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of CPUs: which are none, and that threads run where they say, and nowhere when one of them
 * is not there. How many CPUs a quota is worth. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/cpus.h"
#include "made_up_machine.h"

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

/* ---- quotas, in files of a made-up machine --------------------------------------------------- */

#define V1 "sys/fs/cgroup/cpu"
#define V2 "sys/fs/cgroup"

static void test_a_machine_without_cgroups_has_no_quota(void **state)
{
    (void)state;
    assert_int_equal(rp_cpus_quota(machine), UINT32_MAX);
    put("proc/self/cgroup", "nonsense\n0:\n\n1:memory:/a\n");
    assert_int_equal(rp_cpus_quota(machine), UINT32_MAX);
}

static void test_quotas_of_version_2(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint32_t cpus;
    } cases[] = {{"max 100000\n", UINT32_MAX},
                 {"400000 100000\n", 4},
                 {"150000 100000\n", 1},
                 {"20000 100000\n", 1},
                 {"250000 50000\n", 5},
                 {"400000 0\n", UINT32_MAX},
                 {"", UINT32_MAX},
                 {"400000\n", UINT32_MAX}};
    put("proc/self/cgroup", "0::/jobs/ours\n");
    for (size_t i = 0; i < RP_ARRAY_COUNT(cases); i++) {
        put(V2 "/jobs/ours/cpu.max", cases[i].text);
        assert_int_equal(rp_cpus_quota(machine), cases[i].cpus);
    }
    put(V2 "/jobs/ours/cpu.max", "800000 100000\n");
    put(V2 "/jobs/cpu.max", "300000 100000\n"); /* the parent's holds as well */
    assert_int_equal(rp_cpus_quota(machine), 3);
    put(V2 "/jobs/ours/cpu.max", "200000 100000\n");
    assert_int_equal(rp_cpus_quota(machine), 2);
}

static void test_quotas_of_version_1(void **state)
{
    (void)state;
    put("proc/self/cgroup", "5:cpuset:/no\n4:cpu,cpuacct:/jobs/ours\n3:memory:/no\n0::/\n");
    put(V1 "/jobs/ours/cpu.cfs_period_us", "100000\n");
    put(V1 "/jobs/ours/cpu.cfs_quota_us", "-1\n");
    assert_int_equal(rp_cpus_quota(machine), UINT32_MAX);
    put(V1 "/jobs/ours/cpu.cfs_quota_us", "250000\n");
    assert_int_equal(rp_cpus_quota(machine), 2);
    put(V1 "/no/cpu.cfs_period_us", "100000\n");
    put(V1 "/no/cpu.cfs_quota_us", "100000\n"); /* another controller's cgroup */
    assert_int_equal(rp_cpus_quota(machine), 2);
}

/* A container sees the host's path, which is not there, and its own cgroup at the mount's root. */
static void test_the_quota_of_a_container(void **state)
{
    (void)state;
    put("proc/self/cgroup", "0::/system.slice/docker-77.scope\n");
    put(V2 "/cpu.max", "200000 100000\n");
    assert_int_equal(rp_cpus_quota(machine), 2);
}

static void test_cpus_are_the_least_of_mask_and_quota(void **state)
{
    (void)state;
    cpu_set_t set = mask();
    uint32_t in_mask = (uint32_t)CPU_COUNT(&set), quota = rp_cpus_quota("");
    assert_int_equal(rp_cpus_allowed(), quota < in_mask ? quota : in_mask);
}

int main(void)
{
#define MACHINE(test) cmocka_unit_test_setup_teardown(test, new_machine, remove_machine)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_threads_run_there),
        cmocka_unit_test(test_a_cpu_that_is_not_there_is_named),
        MACHINE(test_a_machine_without_cgroups_has_no_quota),
        MACHINE(test_quotas_of_version_2),
        MACHINE(test_quotas_of_version_1),
        MACHINE(test_the_quota_of_a_container),
        cmocka_unit_test(test_cpus_are_the_least_of_mask_and_quota),
    };
    return cmocka_run_group_tests_name("cpus", tests, NULL, NULL);
}
