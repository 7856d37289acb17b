/* SPDX-License-Identifier: Apache-2.0 */
/* Every stored width to every dtype, at every odd address, against the plainest loop; and the
 * largest token, wherever it stands. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "flow/widen.h"
#include "../fakes/io_fake.h"

#define COUNT_MAX 200u
#define GUARD 0xa5

static const enum rp_dtype dtypes[] = {RP_DTYPE_U16, RP_DTYPE_I32, RP_DTYPE_I64};
static const uint32_t widths[] = {1, 2, 4, 8};

/* Element i of a target, as the bits that are there. */
static uint64_t element(const void *target, enum rp_dtype dtype, size_t i)
{
    uint64_t bits = 0;
    memcpy(&bits, (const uint8_t *)target + i * rp_dtype_bytes(dtype), rp_dtype_bytes(dtype));
    return bits;
}

static uint64_t low_bytes(uint64_t v, size_t bytes)
{
    return bytes == 8 ? v : v & ((1ull << 8 * bytes) - 1);
}

static void check_widen(enum rp_dtype dtype, uint32_t width, size_t shift, size_t n, uint64_t seed)
{
    static uint8_t source[COUNT_MAX * 8 + 64];
    static _Alignas(64) uint8_t target[COUNT_MAX * 8 + 64];
    uint64_t tokens[COUNT_MAX], largest = 0;
    for (size_t i = 0; i < n; i++) {
        tokens[i] = low_bytes(io_fake_random(&seed), width);
        largest = tokens[i] > largest ? tokens[i] : largest;
        memcpy(source + shift + i * width, &tokens[i], width);
        assert_int_equal(rp_token_at(source + shift, width, i), tokens[i]);
    }
    memset(target, GUARD, sizeof target);
    assert_int_equal(rp_widen(target, dtype, source + shift, width, n), largest);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(element(target, dtype, i), low_bytes(tokens[i], rp_dtype_bytes(dtype)));
    for (size_t i = n * rp_dtype_bytes(dtype); i < sizeof target; i++)
        assert_int_equal(target[i], GUARD);
}

static void every_pair_at_every_address(void **state)
{
    (void)state;
    for (size_t d = 0; d < 3; d++)
        for (size_t w = 0; w < 4; w++)
            for (size_t shift = 0; shift < 9; shift++)
                for (size_t n = 0; n <= 70; n++)
                    check_widen(dtypes[d], widths[w], shift, n, 1000 * d + 100 * w + shift + n);
    check_widen(RP_DTYPE_I32, 2, 1, COUNT_MAX, 7);
}

/* The one that is too large is found at every place, also by the vector part of the loop. */
static void the_largest_is_found_anywhere(void **state)
{
    (void)state;
    for (size_t w = 0; w < 4; w++)
        for (size_t at = 0; at < COUNT_MAX; at++) {
            uint8_t source[COUNT_MAX * 8] = {0};
            int64_t target[COUNT_MAX];
            uint64_t largest = low_bytes(UINT64_MAX, widths[w]); /* unsigned: never negative */
            memcpy(source + at * widths[w], &largest, widths[w]);
            assert_int_equal(rp_widen(target, RP_DTYPE_I64, source, widths[w], COUNT_MAX), largest);
        }
}

static void filling_and_counting(void **state)
{
    (void)state;
    uint8_t target[COUNT_MAX * 8];
    for (size_t d = 0; d < 3; d++)
        for (size_t n = 0; n <= 40; n++) {
            size_t size = rp_dtype_bytes(dtypes[d]);
            memset(target, GUARD, sizeof target);
            rp_fill_value(target, dtypes[d], -100, n);
            for (size_t i = 0; i < n; i++)
                assert_int_equal(element(target, dtypes[d], i), low_bytes((uint64_t)-100, size));
            assert_int_equal(target[n * size], GUARD);
            if (dtypes[d] == RP_DTYPE_U16)
                continue;
            rp_count_up(target, dtypes[d], 5, n);
            for (size_t i = 0; i < n; i++)
                assert_int_equal(element(target, dtypes[d], i), 5 + i);
            assert_int_equal(target[n * size], GUARD);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_at_every_address),
        cmocka_unit_test(the_largest_is_found_anywhere),
        cmocka_unit_test(filling_and_counting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
