/* SPDX-License-Identifier: Apache-2.0 */
/* Available memory: the least that the machine and each enclosing cgroup have left. */
#include "made_up_machine.h"

#include <inttypes.h>

#include "base/available.h"

#define V1 "sys/fs/cgroup/memory"
#define V2 "sys/fs/cgroup"

static void assert_available(uint64_t bytes, const char *by)
{
    struct rp_available found = rp_memory_available_below(machine);
    if (found.bytes != bytes || !strstr(found.limit, by))
        fail_msg("expected %" PRIu64 " bytes by %s, found %" PRIu64 " by %s", bytes, by,
                 found.bytes, found.limit);
}

static void nothing_is_known(void **state)
{
    (void)state;
    assert_available(UINT64_MAX, "no known limit");
    put("proc/meminfo", "MemTotal: 900 kB\nMemAvailable: 700 kB\n");
    assert_available(700 << 10, "MemAvailable");
}

/* Version 2; the page cache counts as free. */
static void the_least_limit_of_a_cgroup_counts(void **state)
{
    (void)state;
    put("proc/meminfo", "MemAvailable: 1000000 kB\n");
    put("proc/self/cgroup", "0::/jobs/ours\n");
    put(V2 "/jobs/ours/memory.current", "5000\n");
    put(V2 "/jobs/ours/memory.stat", "anon 1000\ninactive_file 1500\nactive_file 500\n");
    put(V2 "/jobs/ours/memory.max", "max\n");
    put(V2 "/jobs/ours/memory.high", "max\n");
    assert_available(1000000ull << 10, "MemAvailable");
    put(V2 "/jobs/ours/memory.max", "90000\n");
    assert_available(87000, "memory.max");
    put(V2 "/jobs/ours/memory.high", "50000\n");
    assert_available(47000, "memory.high");
    put(V2 "/jobs/memory.current", "20000\n");
    put(V2 "/jobs/memory.high", "30000\n"); /* the parent's holds as well */
    assert_available(10000, "jobs/memory.high");
    put(V2 "/jobs/memory.current", "40000\n");
    assert_available(0, "jobs/memory.high");
}

static void so_it_is_in_version_1(void **state)
{
    (void)state;
    put("proc/meminfo", "MemAvailable: 1000000 kB\n");
    put("proc/self/cgroup", "4:memory:/jobs/ours\n");
    put(V1 "/jobs/ours/memory.usage_in_bytes", "5000\n");
    put(V1 "/jobs/ours/memory.stat", "total_inactive_file 1000\n");
    put(V1 "/jobs/ours/memory.limit_in_bytes", "44000\n");
    put(V1 "/jobs/ours/memory.high", "10\n"); /* no file of this version */
    assert_available(40000, "memory.limit_in_bytes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_is_known, new_machine, remove_machine),
        cmocka_unit_test_setup_teardown(the_least_limit_of_a_cgroup_counts, new_machine,
                                        remove_machine),
        cmocka_unit_test_setup_teardown(so_it_is_in_version_1, new_machine, remove_machine),
    };
    return cmocka_run_group_tests_name("available", tests, NULL, NULL);
}
