/* SPDX-License-Identifier: Apache-2.0 */
/* How many workers pack if no number is given: by CPUs and trainers, by a quota, by `cpus`. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/bits.h"
#include "base/cpus.h"
#include "config/packers.h"
#include "made_up_machine.h"

static void cpus_are_left_for_trainers(void **state)
{
    (void)state;
    static const uint32_t trainers[] = {1, 4, 8, 64};
    static const struct {
        uint32_t cpus, packers[RP_ARRAY_COUNT(trainers)];
    } expected[] = {
        {1, {1, 1, 1, 1}},  {2, {1, 1, 1, 1}},  {4, {2, 1, 1, 1}},
        {16, {8, 6, 4, 1}}, {64, {8, 8, 8, 1}}, {192, {8, 8, 8, 8}},
    };
    for (size_t i = 0; i < RP_ARRAY_COUNT(expected); i++)
        for (size_t t = 0; t < RP_ARRAY_COUNT(trainers); t++)
            assert_int_equal(rp_packers_choose(expected[i].cpus, trainers[t]),
                             expected[i].packers[t]);
    assert_int_equal(rp_packers_choose(0, 0), 1);
    assert_int_equal(rp_packers_choose(UINT32_MAX, UINT64_MAX), 1);
}

static void a_quota_counts_as_its_whole_cpus(void **state)
{
    (void)state;
    put("proc/self/cgroup", "0::/job\n");
    put("sys/fs/cgroup/job/cpu.max", "150000 100000\n");
    assert_int_equal(rp_packers_choose(rp_cpus_quota(machine), 1), 1);
    put("sys/fs/cgroup/job/cpu.max", "1650000 100000\n");
    assert_int_equal(rp_packers_choose(rp_cpus_quota(machine), 1), 8);
}

static struct rp_config config;

static int set(const char *key, const char *text, struct rp_error *error)
{
    return rp_config_set(&config, key, text, error);
}

static void shows(const char *expected)
{
    char text[16];
    rp_config_value_text(&config, "packers", text, sizeof text);
    assert_string_equal(text, expected);
}

static void a_number_that_is_given_stays(void **state)
{
    (void)state;
    struct rp_error error;
    rp_config_init(&config);
    shows("auto");
    assert_int_equal(set("packers", "64", &error), 0);
    rp_config_choose_packers(&config);
    shows("64");
    assert_int_equal(config.packer_cpus, 0);
    assert_int_equal(set("packers", "4294967295", &error), -RP_E_CONFIG);
    assert_non_null(strstr(error.message, "packers: expected 1 … 64"));
    assert_int_equal(set("packers", "some", &error), -RP_E_CONFIG);
    assert_non_null(strstr(error.message, "a whole number or `auto`"));
    rp_config_free(&config);
}

static void auto_counts_the_cpus_of_the_engine(void **state)
{
    (void)state;
    struct rp_error error;
    rp_config_init(&config);
    assert_int_equal(set("packers", "auto", &error), 0);
    rp_config_choose_packers(&config);
    assert_int_equal(config.packer_cpus, rp_cpus_allowed());
    assert_int_equal(config.packers, rp_packers_choose(config.packer_cpus, 1));
    assert_int_equal(set("packers", "auto", &error), 0);
    assert_int_equal(set("ranks", "4-7", &error), 0);
    assert_int_equal(set("consumers_per_rank", "2", &error), 0);
    rp_config_choose_packers(&config);
    assert_int_equal(config.packers, rp_packers_choose(config.packer_cpus, 8));
    assert_int_equal(set("packers", "auto", &error), 0);
    assert_int_equal(set("cpus", "0-10,20", &error), 0); /* they need not be there yet */
    rp_config_choose_packers(&config);
    uint32_t cpus = (uint32_t)rp_min_u64(12, rp_cpus_quota(""));
    assert_int_equal(config.packer_cpus, cpus);
    assert_int_equal(config.packers, rp_packers_choose(cpus, 0)); /* all of them are its own */
    rp_config_free(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cpus_are_left_for_trainers),
        cmocka_unit_test_setup_teardown(a_quota_counts_as_its_whole_cpus, new_machine,
                                        remove_machine),
        cmocka_unit_test(a_number_that_is_given_stays),
        cmocka_unit_test(auto_counts_the_cpus_of_the_engine),
    };
    return cmocka_run_group_tests_name("packers", tests, NULL, NULL);
}
