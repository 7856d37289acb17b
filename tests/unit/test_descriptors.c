/* SPDX-License-Identifier: Apache-2.0 */
/* Files that share descriptors: never more are open than may be, the one that is closed is the one
 * that was used least recently, and it is not closed before its last ticket is retired. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <sys/resource.h>

#include "flow/descriptors.h"
#include "plan_corpus.h"

#define FILES 100u
#define OTHERS 20u
#define OPEN_MAX 24u
#define STEPS 200000u

static void limit_files(rlim_t files)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = files;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* The plainest model: when each file was used last, and whether it is open. */
static struct {
    bool is_open;
    uint64_t used_at, last_ticket; /* step; 1 + ticket, 0 = none */
} files[FILES];

static uint32_t oldest_open(void)
{
    uint32_t oldest = FILES;
    for (uint32_t i = 0; i < FILES; i++)
        if (files[i].is_open && (oldest == FILES || files[i].used_at < files[oldest].used_at))
            oldest = i;
    return oldest;
}

/* Opens a file as flow/files.c does; false if it has to wait. */
static bool open_file(struct rp_descriptors *d, uint32_t file, uint64_t retired)
{
    uint32_t other;
    uint64_t ticket;
    if (files[file].is_open)
        return true;
    if (rp_descriptors_are_used_up(d, &other, &ticket)) {
        assert_int_equal(other, oldest_open());
        assert_int_equal(ticket, files[other].last_ticket);
        if (ticket > retired)
            return false;
        rp_descriptors_remove(d, other);
        files[other].is_open = false;
    }
    rp_descriptors_add(d, file);
    files[file].is_open = true;
    files[file].last_ticket = 0;
    return true;
}

static void files_take_turns(void **unused)
{
    (void)unused;
    struct rp_descriptors d;
    struct rp_error error;
    uint64_t state = test_seed("descriptors"), ticket = 0, retired = 0, waits = 0;
    limit_files(OTHERS + OPEN_MAX);
    assert_int_equal(rp_descriptors_open(&d, FILES, OTHERS, &error), 0);
    limit_files(1024);
    assert_int_equal(d.open_max, OPEN_MAX);
    for (uint64_t step = 1; step <= STEPS; step++) {
        uint32_t file = (uint32_t)draw_below(&state, FILES);
        ticket += draw_below(&state, 3) == 0;
        retired += retired < ticket && draw_below(&state, 3) == 0;
        if (draw_below(&state, 10000) == 0) { /* a new start of the flow */
            rp_descriptors_restart(&d);
            ticket = retired = 0;
            for (uint32_t i = 0; i < FILES; i++)
                files[i].last_ticket = 0;
        }
        if (!open_file(&d, file, retired)) {
            waits++;
            continue;
        }
        bool is_first = files[file].last_ticket != ticket + 1;
        rp_descriptors_use(&d, file, ticket);
        files[file].last_ticket = ticket + 1;
        if (is_first) /* in one ticket, the order does not matter */
            files[file].used_at = step;
        assert_true(d.open_count <= OPEN_MAX);
    }
    assert_true(waits > 0 && waits < STEPS / 2);
    rp_descriptors_close(&d);
}

static void all_stay_open_where_they_fit(void **unused)
{
    (void)unused;
    struct rp_descriptors d;
    struct rp_error error;
    uint32_t file;
    uint64_t ticket;
    limit_files(OTHERS + FILES);
    assert_int_equal(rp_descriptors_open(&d, FILES, OTHERS, &error), 0);
    limit_files(1024);
    assert_null(d.list);
    for (uint32_t i = 0; i < FILES; i++) {
        assert_false(rp_descriptors_are_used_up(&d, &file, &ticket));
        rp_descriptors_add(&d, i);
        rp_descriptors_use(&d, i, i);
    }
    rp_descriptors_close(&d);
}

static void too_few_are_refused_by_number(void **unused)
{
    (void)unused;
    struct rp_descriptors d;
    struct rp_error error;
    limit_files(OTHERS + RP_DESCRIPTORS_MIN - 1);
    assert_int_equal(rp_descriptors_open(&d, FILES, OTHERS, &error), -RP_E_RESOURCE);
    limit_files(1024);
    assert_non_null(strstr(error.message, "open files: expected a limit of at least 36, found 35"));
    assert_non_null(strstr(error.hint, "ulimit -n 36"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_take_turns),
        cmocka_unit_test(all_stay_open_where_they_fit),
        cmocka_unit_test(too_few_are_refused_by_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
