/* SPDX-License-Identifier: Apache-2.0 */
/* The data of the prefetch ring: whatever is taken, extended and used, no byte belongs to two
 * regions that tickets still need, and retired regions are given back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "../fakes/io_fake.h"
#include "flow/data_ring.h"

enum { BYTES = 1 << 14, REGIONS = 16, LIVE_MAX = 256 };

static void open_space(struct rp_data_ring *space)
{
    struct rp_error error;
    if (rp_data_ring_open(space, BYTES, REGIONS, &error) != 0)
        fail_msg("%s", error.message);
}

static void what_is_taken_comes_in_order(void **state)
{
    (void)state;
    struct rp_data_ring space;
    open_space(&space);
    assert_int_equal(rp_data_ring_take(&space, 100, 64, 0, false, 0), 0);
    assert_int_equal(rp_data_ring_take(&space, 100, 64, 0, true, 0), 128);
    assert_true(rp_data_ring_extend(&space, 10, 0));
    assert_int_equal(rp_data_ring_take(&space, 4096, 4096, 1, false, 0), 4096);
    assert_int_equal(rp_data_ring_youngest(&space), 1);
    rp_data_ring_close(&space);
}

static void a_region_is_kept_until_its_last_user_is_retired(void **state)
{
    (void)state;
    struct rp_data_ring space;
    open_space(&space);
    for (uint64_t t = 0; t < 4; t++)
        assert_true(rp_data_ring_take(&space, BYTES / 4, 64, t, false, 0) != RP_DATA_RING_FULL);
    assert_true(rp_data_ring_take(&space, 64, 64, 4, false, 0) ==
                RP_DATA_RING_FULL); /* none is retired */
    assert_int_equal(rp_data_ring_oldest_ticket(&space), 0);
    rp_data_ring_use(&space, 0, 3);
    assert_true(rp_data_ring_take(&space, 64, 64, 4, false, 3) ==
                RP_DATA_RING_FULL); /* 0, 1, 2 are */
    assert_int_equal(rp_data_ring_oldest_ticket(&space), 3);
    assert_true(rp_data_ring_has(&space, 0));
    assert_int_equal(rp_data_ring_take(&space, 64, 64, 4, false, 4), 0);
    assert_false(rp_data_ring_has(&space, 0));
    rp_data_ring_close(&space);
}

static void memory_handed_out_is_contiguous(void **state)
{
    (void)state;
    struct rp_data_ring space;
    open_space(&space);
    assert_true(rp_data_ring_take(&space, BYTES - 100, 1, 0, false, 0) != RP_DATA_RING_FULL);
    assert_false(rp_data_ring_extend(&space, 101, 0)); /* past the end of the lap */
    assert_true(rp_data_ring_extend(&space, 100, 0));
    assert_int_equal(rp_data_ring_take(&space, BYTES, 64, 1, false, 1), 0); /* all of it at once */
    assert_true(rp_data_ring_take(&space, 60, 1, 2, false, 2) != RP_DATA_RING_FULL);
    assert_int_equal(rp_data_ring_take(&space, BYTES - 10, 1, 3, false, 3),
                     0); /* skips to a new lap */
    rp_data_ring_close(&space);
}

/* A model: every byte knows the last ticket that needs it. */
static void no_byte_is_given_twice(void **state)
{
    (void)state;
    static uint64_t needed[BYTES]; /* 1 + last ticket */
    struct part {
        uint64_t region, offset, bytes;
    } parts[LIVE_MAX];
    for (uint64_t seed = 1; seed <= 30; seed++) {
        struct rp_data_ring space;
        uint64_t random = seed, retired = 0, refused = 0, count = 0;
        open_space(&space);
        memset(needed, 0, sizeof needed);
        for (uint64_t ticket = 0; ticket < 3000;) {
            uint64_t bytes = 1 + io_fake_random(&random) % 2000;
            bool grow = count > 0 &&
                        parts[(count - 1) % LIVE_MAX].region == rp_data_ring_youngest(&space) &&
                        io_fake_random(&random) % 3 == 0;
            uint64_t alignment = 1ull << io_fake_random(&random) % 8;
            bool has_room = rp_data_ring_has_room(&space, bytes, alignment, retired);
            uint64_t offset = rp_data_ring_take(&space, bytes, alignment, ticket, grow, retired);
            bool is_taken = offset != RP_DATA_RING_FULL;
            assert_int_equal(is_taken, has_room);
            if (!is_taken) {
                retired = rp_data_ring_oldest_ticket(&space) + 1;
                assert_true(retired <= ticket + 1);
                ticket = retired > ticket ? retired : ticket;
                refused++;
                continue;
            }
            for (uint64_t i = offset; i < offset + bytes; i++) {
                if (needed[i] > retired)
                    fail_msg("seed %d, ticket %d: byte %d is needed by %d", (int)seed, (int)ticket,
                             (int)i, (int)needed[i] - 1);
                needed[i] = ticket + 1;
            }
            parts[count++ % LIVE_MAX] = (struct part){rp_data_ring_youngest(&space), offset, bytes};
            const struct part *old =
                &parts[io_fake_random(&random) % (count < LIVE_MAX ? count : LIVE_MAX)];
            if (rp_data_ring_has(&space, old->region) && io_fake_random(&random) % 4 == 0) {
                rp_data_ring_use(&space, old->region, ticket);
                for (uint64_t p = 0; p < count && p < LIVE_MAX; p++) /* the whole region */
                    for (uint64_t i = 0; parts[p].region == old->region && i < parts[p].bytes; i++)
                        needed[parts[p].offset + i] = ticket + 1;
            }
            ticket += io_fake_random(&random) % 2;
        }
        assert_true(refused > 100);
        rp_data_ring_close(&space);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_taken_comes_in_order),
        cmocka_unit_test(a_region_is_kept_until_its_last_user_is_retired),
        cmocka_unit_test(memory_handed_out_is_contiguous),
        cmocka_unit_test(no_byte_is_given_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
