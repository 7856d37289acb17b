/* SPDX-License-Identifier: Apache-2.0 */
/* The pages of a private arena are made while it is used: its content stays, all of it is there in
 * the end, and a failure reaches the engine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "flow/prefault.h"
#include "patience.h"

#define HUGE_BYTES ((size_t)2 << 20)
#define DATA_BYTES (4 * HUGE_BYTES)

static int wake_fd;

static void open_arena(struct rp_arena *arena)
{
    struct rp_error error;
    const struct rp_arena_sizes sizes = {.ring_count = 2,
                                         .slot_count = 8,
                                         .data_bytes = DATA_BYTES,
                                         .state_count = 16,
                                         .state_bytes = 100};
    if (rp_arena_create(arena, true, &sizes, &error) != 0)
        fail_msg("%s", error.message);
    assert_int_equal(arena->segment.fd, -1);
    assert_int_equal((uintptr_t)arena->data % HUGE_BYTES, 0);
    assert_int_equal(rp_a32_load_acquire(&arena->prefaulted), 0);
}

static size_t resident_bytes(const struct rp_arena *arena)
{
    static unsigned char pages[DATA_BYTES / 4096];
    size_t resident = 0;
    assert_int_equal(mincore(arena->data, DATA_BYTES, pages), 0);
    for (size_t i = 0; i < sizeof pages; i++)
        resident += 4096u * (pages[i] & 1);
    return resident;
}

static bool engine_was_woken(int timeout_ms)
{
    struct pollfd wake = {.fd = wake_fd, .events = POLLIN};
    return poll(&wake, 1, timeout_ms) == 1;
}

static void filling_keeps_what_is_there(void **state)
{
    (void)state;
    struct rp_arena arena;
    struct rp_prefault filler;
    struct rp_error error;
    open_arena(&arena);
    assert_true(resident_bytes(&arena) < DATA_BYTES);
    memset(arena.data + HUGE_BYTES - 5, 7, 10);
    assert_int_equal(rp_prefault_start(&filler, &arena, wake_fd, &error), 0);
    memset(arena.data + 3 * HUGE_BYTES - 5, 8, 10); /* now or later: it may be there already */
    rp_prefault_join(&filler);
    assert_int_equal(rp_prefault_check(&filler, &error), 0);
    assert_int_equal(rp_a32_load_acquire(&arena.prefaulted), 1);
    assert_int_equal(resident_bytes(&arena), DATA_BYTES);
    uint64_t sum = 0;
    for (size_t i = 0; i < DATA_BYTES; i++)
        sum += arena.data[i];
    assert_int_equal(sum, 70 + 80);
    assert_false(engine_was_woken(0));
    rp_arena_close(&arena);
}

static void the_engine_hears_of_memory_that_is_missing(void **state)
{
    (void)state;
    struct rp_arena arena;
    struct rp_prefault filler;
    struct rp_error error = {0};
    open_arena(&arena);
    assert_int_equal(munmap(arena.data + 2 * HUGE_BYTES, HUGE_BYTES), 0);
    assert_int_equal(rp_prefault_start(&filler, &arena, wake_fd, &error), 0);
    assert_true(engine_was_woken(PATIENCE_MS));
    rp_prefault_join(&filler);
    rp_prefault_join(&filler); /* twice is fine */
    assert_int_equal(rp_prefault_check(&filler, &error), -RP_E_RESOURCE);
    assert_non_null(strstr(error.message, "ringpack-prefetch"));
    assert_non_null(strstr(error.message, "bytes wanted"));
    assert_int_equal(rp_a32_load_acquire(&arena.prefaulted), 0);
    rp_arena_close(&arena);
}

static int enter(void **state)
{
    (void)state;
    wake_fd = eventfd(0, EFD_CLOEXEC);
    return wake_fd < 0;
}

static int leave(void **state)
{
    (void)state;
    return close(wake_fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(filling_keeps_what_is_there),
        cmocka_unit_test(the_engine_hears_of_memory_that_is_missing),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
