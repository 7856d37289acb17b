/* SPDX-License-Identifier: Apache-2.0 */
/* Every stored width to every dtype with every set of sections, at every odd address, against the
 * plainest loop; and the largest token, wherever it stands. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
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
        assert_int_equal(rp_widen_token_at(source + shift, width, i), tokens[i]);
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
            rp_widen_fill(target, dtypes[d], -100, n);
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

/* ---- fragments ------------------------------------------------------------------------------- */

enum { LABELS = 1, POSITIONS = 2, SEGMENTS = 4, MASK = 8, SHIFTED = 16, SETS = 32 };
#define LARGE 5000u
#define MARGIN 64u /* guarded bytes on either side of a section */

/* One section in memory of its own. */
struct section {
    uint8_t bytes[LARGE * 8 + 2 * MARGIN];
};
static struct section sections[5];

static void *take(unsigned number, bool wanted, size_t first)
{
    memset(sections[number].bytes, GUARD, sizeof sections[number].bytes);
    return wanted ? sections[number].bytes + MARGIN + first : NULL;
}

/* Only n entries of `size` bytes were written. */
static void check_guard(unsigned number, const void *section, size_t n, size_t size)
{
    const struct section *whole = &sections[number];
    size_t first = section ? (size_t)((const uint8_t *)section - whole->bytes) : 0;
    size_t end = section ? first + n * size : 0;
    for (size_t i = 0; i < rp_min_u64(end + MARGIN, sizeof whole->bytes); i++)
        if (i < first || i >= end)
            assert_int_equal(whole->bytes[i], GUARD);
}

static uint64_t expected_label(const uint64_t *tokens, size_t n, size_t i, bool shifted)
{
    if (i == (shifted ? n - 1 : 0))
        return (uint64_t)RP_LABEL_IGNORED;
    return tokens[shifted ? i + 1 : i];
}

static void check_sections(const struct rp_widen_target *to, enum rp_dtype ids,
                           const uint64_t *tokens, size_t n)
{
    enum rp_dtype wide = ids == RP_DTYPE_I64 ? RP_DTYPE_I64 : RP_DTYPE_I32;
    size_t size = rp_dtype_bytes(wide);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(element(to->ids, ids, i), low_bytes(tokens[i], rp_dtype_bytes(ids)));
        if (to->labels)
            assert_int_equal(element(to->labels, wide, i),
                             low_bytes(expected_label(tokens, n, i, to->labels_shifted), size));
        if (to->positions)
            assert_int_equal(element(to->positions, wide, i), i);
        if (to->segments)
            assert_int_equal(to->segments[i], 77);
        if (to->mask)
            assert_true(to->mask[i] == (i == n - 1 ? 0.0f : 1.0f));
    }
    check_guard(0, to->ids, n, rp_dtype_bytes(ids));
    check_guard(1, to->labels, n, size);
    check_guard(2, to->positions, n, size);
    check_guard(3, to->segments, n, sizeof(int32_t));
    check_guard(4, to->mask, n, sizeof(float));
}

/* `first`: how many elements the sections begin past a cache line. The source is as long as its
 * tokens, so that the sanitizer sees every byte that is read too much. */
static void check_fragment(enum rp_dtype ids, uint32_t width, unsigned set, size_t n, size_t first,
                           uint64_t seed)
{
    enum rp_dtype wide = ids == RP_DTYPE_I64 ? RP_DTYPE_I64 : RP_DTYPE_I32;
    static uint64_t tokens[LARGE];
    uint64_t largest = 0;
    size_t shift = seed % 3;
    uint8_t *source = malloc(shift + n * width);
    assert_non_null(source);
    for (size_t i = 0; i < n; i++) {
        tokens[i] = low_bytes(io_fake_random(&seed), width);
        largest = tokens[i] > largest ? tokens[i] : largest;
        memcpy(source + shift + i * width, &tokens[i], width);
    }
    const struct rp_widen_target to = {
        .ids = take(0, true, first * rp_dtype_bytes(ids)),
        .labels = take(1, set & LABELS, first * rp_dtype_bytes(wide)),
        .positions = take(2, set & POSITIONS, first * rp_dtype_bytes(wide)),
        .segments = take(3, set & SEGMENTS, first * sizeof(int32_t)),
        .mask = take(4, set & MASK, first * sizeof(float)),
        .segment = 77,
        .labels_shifted = set & SHIFTED,
    };
    assert_int_equal(rp_widen_fragment_baseline(&to, ids, source + shift, width, n, NULL), largest);
    check_sections(&to, ids, tokens, n);
    for (unsigned i = 0; i < 5; i++)
        take(i, false, 0);
    assert_int_equal(rp_widen_fragment(&to, ids, source + shift, width, n, source), largest);
    check_sections(&to, ids, tokens, n);
    free(source);
}

static void every_section_set_at_every_length(void **state)
{
    (void)state;
    for (size_t d = 0; d < 3; d++)
        for (size_t w = 0; w < 4; w++)
            for (unsigned set = 0; set < SETS; set++)
                for (size_t n = 1; n <= 140; n++)
                    check_fragment(dtypes[d], widths[w], set, n, n % 7, 1000 * d + 100 * w + n);
}

static void long_fragments_at_every_start(void **state)
{
    (void)state;
    for (size_t d = 0; d < 3; d++)
        for (size_t w = 0; w < 4; w++)
            for (size_t first = 0; first < 8; first++)
                check_fragment(dtypes[d], widths[w], first % 2 ? SETS - 1 : SETS - 1 - SHIFTED,
                               LARGE - 8 - 13 * first, first, 9000 + 100 * d + 10 * w + first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_at_every_address),
        cmocka_unit_test(the_largest_is_found_anywhere),
        cmocka_unit_test(filling_and_counting),
        cmocka_unit_test(every_section_set_at_every_length),
        cmocka_unit_test(long_fragments_at_every_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
