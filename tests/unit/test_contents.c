/* SPDX-License-Identifier: Apache-2.0 */
/* Contents of a checkpoint: added rows are found, in whole and in part, and no others; runs out of
 * order, overlapping, of a strange width or outside of the bytes are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "flow/contents.h"
#include "../fakes/io_fake.h"

static void what_was_added_is_found(void **state)
{
    (void)state;
    struct run {
        uint64_t row;
        uint32_t offset, count, width;
    } runs[500];
    static uint8_t places[500][64 * 8]; /* the tokens of each run */
    struct rp_contents *contents = rp_contents_new(places, sizeof places);
    uint64_t seed = 3, row = 10;
    uint32_t at = 0;
    for (size_t i = 0; i < 500; i++) {
        if (io_fake_random(&seed) % 3 == 0) {
            row += 1 + io_fake_random(&seed) % 4;
            at = 0;
        }
        at += (uint32_t)(io_fake_random(&seed) % 3); /* sometimes a gap, sometimes none */
        runs[i] = (struct run){row, at, 1 + (uint32_t)(io_fake_random(&seed) % 60),
                               1u << io_fake_random(&seed) % 4};
        memset(places[i], (int)(i % 251), sizeof places[i]);
        assert_int_equal(rp_contents_add(contents, runs[i].row, runs[i].offset, runs[i].count,
                                         runs[i].width, places[i]),
                         0);
        at += runs[i].count;
    }
    uint64_t bytes;
    const uint8_t *data = rp_contents_bytes(contents, &bytes);
    assert_ptr_equal(data, places); /* and no copy of them */
    for (size_t i = 0; i < 500; i++) {
        const struct run *r = &runs[i];
        const struct rp_content_run *run = rp_contents_find(contents, r->row, r->offset, r->count);
        assert_true(run && run->row == r->row && run->offset == r->offset);
        assert_int_equal(run->count, r->count);
        for (uint32_t skip = 0; skip < r->count; skip += 1 + r->count / 3) {
            const struct rp_content_run *found = rp_contents_find(contents, r->row,
                                                                  r->offset + skip, 1);
            assert_ptr_equal(found, run);
            assert_ptr_equal(rp_contents_find(contents, r->row, r->offset + skip, r->count - skip),
                             found);
            assert_null(rp_contents_find(contents, r->row, r->offset + skip, r->count - skip + 1));
        }
        assert_int_equal(run->width, r->width);
        assert_true(run->byte_offset + (uint64_t)r->count * r->width <= bytes);
        assert_int_equal(data[run->byte_offset], i % 251);
        assert_int_equal(data[run->byte_offset + r->count * r->width - 1], i % 251);
    }
    assert_null(rp_contents_find(contents, 9, 0, 1));
    assert_null(rp_contents_find(contents, row + 1, 0, 1));
    assert_null(rp_contents_find(contents, row, UINT32_MAX, UINT32_MAX));
    rp_contents_free(contents);
}

static void what_a_damaged_file_might_say_is_refused(void **state)
{
    (void)state;
    const uint8_t around[80] = {0}, *tokens = around + 8;
    struct rp_contents *contents = rp_contents_new(tokens, 64);
    assert_int_equal(rp_contents_add(contents, 5, 10, 4, 2, tokens), 0);
    static const struct {
        uint64_t row;
        uint32_t offset, count, width;
    } bad[] = {
        {5, 14, 0, 2},                                        /* empty */
        {5, 14, 1, 0},                                        /* widths that no token has */
        {5, 14, 1, 3},         {5, 14, 1, 16}, {5, 13, 1, 2}, /* overlaps */
        {5, 10, 4, 2},                                        /* twice */
        {4, 0, 1, 2},                                         /* backwards */
        {6, UINT32_MAX, 1, 2},                                /* beyond the range of an offset */
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(rp_contents_add(contents, bad[i].row, bad[i].offset, bad[i].count,
                                         bad[i].width, tokens),
                         -RP_E_CORRUPT);
    const uint8_t *outside[] = {tokens - 2, tokens + 63, tokens + 64, NULL};
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++)
        assert_int_equal(rp_contents_add(contents, 6, 0, 1, 2, outside[i]), -RP_E_CORRUPT);
    assert_int_equal(rp_contents_find(contents, 5, 10, 4)->byte_offset, 0);
    assert_null(rp_contents_find(contents, 5, 14, 1));
    assert_null(rp_contents_find(contents, 6, UINT32_MAX, 1));
    assert_int_equal(rp_contents_add(contents, 5, 14, 1, 2, tokens + 62), 0); /* the last bytes */
    rp_contents_free(contents);
}

static void the_last_row_that_there_can_be_is_found(void **state)
{
    (void)state;
    const uint8_t tokens[8] = {0};
    struct rp_contents *contents = rp_contents_new(tokens, sizeof tokens);
    assert_int_equal(rp_contents_add(contents, UINT64_MAX, 0, 4, 2, tokens), 0);
    assert_true(rp_contents_find(contents, UINT64_MAX, 0, 4)->row == UINT64_MAX);
    rp_contents_free(contents);
}

static void none_at_all(void **state)
{
    (void)state;
    struct rp_contents *contents = rp_contents_new(NULL, 0);
    assert_null(rp_contents_find(contents, 0, 0, 1));
    rp_contents_free(contents);
    rp_contents_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_added_is_found),
        cmocka_unit_test(what_a_damaged_file_might_say_is_refused),
        cmocka_unit_test(the_last_row_that_there_can_be_is_found),
        cmocka_unit_test(none_at_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
