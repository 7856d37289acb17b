/* SPDX-License-Identifier: Apache-2.0 */
/* Stamps on file systems whose clock advances in steps: a file changes shortly before it is opened
 * and again afterwards, at every pair of moments. Once the stamp has settled, each later change
 * makes it differ, and no change that was there before does. The clock, the waits and the file are
 * this test's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/stamp.h"

#define MS 1000000u
#define SECOND_NS UINT64_C(1000000000)
#define START_NS (1000000 * SECOND_NS)
#define FD 77
#define END_NS UINT64_MAX /* a writer that writes no more */

static struct world {
    uint64_t now_ns, kernel_step_ns; /* step of the clock that file systems read */
    uint64_t kept_ns;                /* the file system keeps multiples of this */
    uint64_t change_ns, next_ns;     /* the file's time, and the time of its next change */
    uint64_t slept_ns;
    unsigned version; /* version of its content */
    bool writes_on;   /* changes with each step of time */
} world;

static uint64_t file_time(uint64_t at_ns)
{
    at_ns -= at_ns % world.kernel_step_ns;
    return at_ns - at_ns % world.kept_ns;
}

static void pass(uint64_t ns)
{
    world.now_ns += ns;
    if (world.now_ns >= world.next_ns || world.writes_on) {
        world.change_ns = world.writes_on ? world.now_ns : world.next_ns;
        world.next_ns = END_NS;
        world.version++;
    }
}

static struct timespec timespec_of(uint64_t ns)
{
    return (struct timespec){(time_t)(ns / SECOND_NS), (long)(ns % SECOND_NS)};
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    if (clock != CLOCK_REALTIME_COARSE) /* cmocka's */
        return (int)syscall(SYS_clock_gettime, clock, time);
    pass(1000);
    *time = timespec_of(world.now_ns - world.now_ns % world.kernel_step_ns);
    return 0;
}

int nanosleep(const struct timespec *time, struct timespec *left)
{
    (void)left;
    uint64_t ns = (uint64_t)time->tv_sec * SECOND_NS + (uint64_t)time->tv_nsec;
    world.slept_ns += ns;
    pass(ns);
    return 0;
}

int fstat(int fd, struct stat *info)
{
    errno = EBADF;
    if (fd != FD)
        return -1;
    pass(1000);
    *info = (struct stat){.st_size = 100, .st_nlink = 1};
    info->st_ctim = info->st_mtim = timespec_of(file_time(world.change_ns));
    return 0;
}

static bool differs(const struct rp_stamp *stamp)
{
    struct rp_stamp found;
    uint64_t expected_value, found_value;
    assert_int_equal(rp_stamp_of(FD, &found), 0);
    return rp_stamp_difference(stamp, &found, &expected_value, &found_value) != NULL;
}

/* A file that changed `before_ns` ago is opened, and changes again `after_ns` later. */
static void open_between(uint64_t before_ns, uint64_t after_ns)
{
    struct rp_stamp stamp;
    uint64_t opened_ns = START_NS + 10 * SECOND_NS + 333 * MS + 777;
    world.now_ns = opened_ns;
    world.change_ns = opened_ns - before_ns;
    world.next_ns = opened_ns + after_ns;
    world.version = 0;
    world.slept_ns = 0;
    assert_int_equal(rp_stamp_settle(FD, &stamp), 0);
    unsigned read = world.version; /* the earliest moment of a read of it */
    pass(10 * SECOND_NS);
    if (differs(&stamp) != (world.version != read))
        fail_msg("steps of %lu us, kept by %lu us: changes %lu us before and %lu us after the open",
                 (unsigned long)world.kernel_step_ns / 1000, (unsigned long)world.kept_ns / 1000,
                 (unsigned long)before_ns / 1000, (unsigned long)after_ns / 1000);
}

static void each_later_change_makes_a_difference(void **state)
{
    (void)state;
    static const struct {
        uint64_t kernel_step_ns, kept_ns, wait_ns;
    } systems[] = {{1 * MS, 1, 1 * MS},
                   {4 * MS, 1, 4 * MS},
                   {10 * MS, 100, 10 * MS},
                   {4 * MS, SECOND_NS, 2 * SECOND_NS},
                   {10 * MS, 2 * SECOND_NS, 2 * SECOND_NS + 10 * MS}};
    for (size_t i = 0; i < RP_ARRAY_COUNT(systems); i++) {
        world = (struct world){.kernel_step_ns = systems[i].kernel_step_ns,
                               .kept_ns = systems[i].kept_ns};
        uint64_t pause_ns = rp_max_u64(world.kernel_step_ns, world.kept_ns) / 20;
        for (uint64_t before = 0; before < 50; before++)
            for (uint64_t after = 0; after < 60; after++) {
                open_between(before * pause_ns, 1 + after * pause_ns);
                assert_true(world.slept_ns <= 2 * (systems[i].wait_ns + MS)); /* for each change */
            }
    }
}

static void a_file_that_did_not_change_lately_is_not_waited_for(void **state)
{
    (void)state;
    struct rp_stamp stamp;
    static const uint64_t changes[] = {START_NS - 3 * SECOND_NS, START_NS - SECOND_NS - 1,
                                       START_NS - 20 * MS,       /* not long ago, a whole step */
                                       START_NS + 9 * SECOND_NS, /* by another clock */
                                       0};
    for (size_t i = 0; i < RP_ARRAY_COUNT(changes); i++) {
        world = (struct world){.now_ns = START_NS,
                               .kernel_step_ns = 4 * MS,
                               .kept_ns = 1,
                               .change_ns = changes[i],
                               .next_ns = END_NS};
        assert_int_equal(rp_stamp_settle(FD, &stamp), 0);
        assert_int_equal(world.slept_ns, 0);
    }
    assert_int_equal(rp_stamp_settle(FD + 1, &stamp), -EBADF);
}

static void a_file_that_changes_all_the_time_is_not_waited_for_long(void **state)
{
    (void)state;
    struct rp_stamp stamp;
    world = (struct world){
        .now_ns = START_NS, .kernel_step_ns = 4 * MS, .kept_ns = SECOND_NS, .writes_on = true};
    assert_int_equal(rp_stamp_settle(FD, &stamp), 0);
    assert_true(world.slept_ns <= 6 * SECOND_NS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_later_change_makes_a_difference),
        cmocka_unit_test(a_file_that_did_not_change_lately_is_not_waited_for),
        cmocka_unit_test(a_file_that_changes_all_the_time_is_not_waited_for_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
