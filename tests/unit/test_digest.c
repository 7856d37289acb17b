/* SPDX-License-Identifier: Apache-2.0 */
/* The digests of a batch: of its tokens, and with its labels. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/bits.h"
#include "base/row_digest.h"
#include "ringpack/client.h"

static void digest_is_of_content(void **state)
{
    (void)state;
    enum { ROWS = 3, D = 2, LENGTH = 1500 };
    struct rp_row_info info[ROWS] = {
        {5, 2, LENGTH}, {6, 0, 0}, {7, 1, 7}}; /* the second is a tail row */
    int32_t lengths[ROWS][D] = {{1400, 100}, {0, 0}, {7, 0}};
    static int32_t i32[ROWS][LENGTH];
    static int64_t i64[ROWS][LENGTH];
    static uint16_t u16[ROWS][LENGTH];
    static uint32_t plain[2][1 + D + LENGTH];
    for (uint32_t r = 0; r < ROWS; r++)
        for (uint32_t t = 0; t < LENGTH; t++)
            i64[r][t] = i32[r][t] = u16[r][t] = (uint16_t)(r * 31 + t * 7);
    memcpy(plain[0], (uint32_t[]){2, 1400, 100}, 12);
    memcpy(plain[0] + 3, i32[0], sizeof i32[0]);
    memcpy(plain[1], (uint32_t[]){1, 7}, 8);
    memcpy(plain[1] + 2, i32[2], 7 * 4);
    struct rp_hash128 a = rp_hash128(plain[0], (3 + LENGTH) * 4), b = rp_hash128(plain[1], 9 * 4);
    struct rp_hash128 expected = rp_hash128_sum(rp_row_digest(5, a), rp_row_digest(7, b));

    const struct {
        const void *ids;
        enum rp_dtype dtype;
        uint64_t bytes;
    } kinds[] = {{i32, RP_DTYPE_I32, sizeof i32},
                 {i64, RP_DTYPE_I64, sizeof i64},
                 {u16, RP_DTYPE_U16, sizeof u16}};
    for (size_t i = 0; i < RP_ARRAY_COUNT(kinds); i++) {
        struct rp_geometry geometry = {.rows = ROWS, .seq_len = LENGTH, .max_docs_per_row = D};
        geometry.sections[RP_SECTION_INPUT_IDS].dtype = kinds[i].dtype;
        geometry.sections[RP_SECTION_INPUT_IDS].bytes = kinds[i].bytes;
        struct rp_batch batch = {.struct_size = sizeof batch, .rows = ROWS, .seq_len = LENGTH};
        batch.sections[RP_SECTION_ROWS] = info;
        batch.sections[RP_SECTION_DOC_LENS] = lengths;
        batch.sections[RP_SECTION_INPUT_IDS] = kinds[i].ids;
        uint64_t sum[2] = {0, 0};
        rp_batch_digest(&geometry, &batch, sum);
        assert_int_equal(sum[0], expected.low);
        assert_int_equal(sum[1], expected.high);
    }
}

/* One row of two fragments, in both modes, by labels, by a loss mask, and by both. */
static void labelled_digest_is_of_labels(void **state)
{
    (void)state;
    struct rp_row_info info = {9, 2, 7};
    int32_t lengths[2] = {4, 3}, ids[8] = {11, 12, 13, 14, 21, 22, 23, 0};
    int32_t aligned[8] = {-100, 12, -100, 14, -100, -100, 23, -100};
    int32_t shifted[8] = {12, -100, 14, -100, -100, 23, -100, -100};
    float mask[8] = {1, 0, 1, 0, 0, 1, 0, 0};
    uint32_t plain[] = {2, 4, 3, 11, 12, 13, 14, 21, 22, 23, 0, 12, 0, 14, 0, 0, 23};
    for (unsigned i = 10; i < 17; i++)
        plain[i] = plain[i] ? plain[i] : (uint32_t)-100;
    struct rp_hash128 expected = rp_row_digest(9, rp_hash128(plain, sizeof plain));
    for (unsigned kind = 0; kind < 6; kind++) { /* 5: the mask contradicts the labels */
        struct rp_geometry geometry = {.rows = 1, .seq_len = 8, .max_docs_per_row = 2};
        geometry.label_mode = kind % 2 ? RP_LABELS_ALIGNED : RP_LABELS_SHIFTED;
        for (unsigned s = RP_SECTION_INPUT_IDS; s <= RP_SECTION_LABELS; s++)
            geometry.sections[s] = (struct rp_section_layout){.dtype = RP_DTYPE_I32, .bytes = 32};
        geometry.sections[RP_SECTION_LOSS_MASK].bytes = 32;
        struct rp_batch batch = {.struct_size = sizeof batch, .rows = 1, .seq_len = 8};
        batch.sections[RP_SECTION_ROWS] = &info;
        batch.sections[RP_SECTION_DOC_LENS] = lengths;
        batch.sections[RP_SECTION_INPUT_IDS] = ids;
        batch.sections[RP_SECTION_LABELS] = kind == 2 ? NULL : kind % 2 ? aligned : shifted;
        batch.sections[RP_SECTION_LOSS_MASK] = kind < 2 ? NULL : mask;
        mask[3] = kind == 5;
        uint64_t sum[2] = {0, 0};
        assert_int_equal(rp_batch_labelled_digest(&geometry, &batch, sum, NULL), 0);
        assert_int_equal(sum[0] == expected.low && sum[1] == expected.high, kind < 5);
        batch.sections[RP_SECTION_LABELS] = batch.sections[RP_SECTION_LOSS_MASK] = NULL;
        assert_int_equal(rp_batch_labelled_digest(&geometry, &batch, sum, NULL), -RP_E_USAGE);
    }
}

/* Two fragments in places of 4, as planned row 6: digests have its number, and no padding. */
static void digests_of_version_2(void **state)
{
    (void)state;
    struct rp_row_info info = {9, 2, 8};
    struct rp_row_plan plan = {.planned = 6, .align = 4};
    int32_t lengths[2] = {5, 3}, ids[12] = {11, 12, 13, 14, 15, 7, 7, 7, 21, 22, 23, 7};
    int32_t labels[12] = {12, -100, 14, 15, 16, -100, -100, -100, -100, 23, -100, -100};
    float mask[12] = {1, 0, 1, 1, 1, 0, 0, 0, 0, 1, 0, 0};
    uint32_t plain[] = {2, 5, 3, 11, 12, 13, 14, 15, 21, 22, 23, 0, 12, 0, 14, 15, 16, 0, 0, 23, 0};
    for (unsigned i = 11; i < RP_ARRAY_COUNT(plain); i++)
        plain[i] = plain[i] ? plain[i] : (uint32_t)-100;
    struct rp_hash128 content = rp_row_digest(6, rp_hash128(plain, 11 * sizeof *plain)),
                      labelled = rp_row_digest(6, rp_hash128(plain, sizeof plain));
    struct rp_geometry geometry = {
        .rows = 1, .seq_len = 12, .max_docs_per_row = 2, .label_mode = RP_LABELS_ACROSS_CUTS};
    for (unsigned s = RP_SECTION_INPUT_IDS; s <= RP_SECTION_LOSS_MASK; s++)
        geometry.sections[s] = (struct rp_section_layout){.dtype = RP_DTYPE_I32, .bytes = 48};
    struct rp_batch batch = {.struct_size = sizeof batch, .rows = 1, .seq_len = 12};
    batch.sections[RP_SECTION_ROWS] = &info;
    batch.sections[RP_SECTION_ROW_PLANS] = &plan;
    batch.sections[RP_SECTION_DOC_LENS] = lengths;
    batch.sections[RP_SECTION_INPUT_IDS] = ids;
    for (unsigned kind = 0; kind < 3; kind++) { /* 1: only labels; 2: the mask contradicts them */
        uint64_t sum[2] = {0, 0}, labelled_sum[2] = {0, 0};
        batch.sections[RP_SECTION_LABELS] = labels;
        batch.sections[RP_SECTION_LOSS_MASK] = kind == 1 ? NULL : mask;
        mask[4] = kind != 2;
        rp_batch_digest(&geometry, &batch, sum);
        assert_true(sum[0] == content.low && sum[1] == content.high);
        assert_int_equal(rp_batch_labelled_digest(&geometry, &batch, labelled_sum, NULL), 0);
        assert_int_equal(labelled_sum[0] == labelled.low && labelled_sum[1] == labelled.high,
                         kind < 2);
    }
    struct rp_error error;
    uint64_t sum[2] = {0, 0};
    batch.sections[RP_SECTION_LABELS] = NULL; /* a mask does not say which token a cut's end has */
    assert_int_equal(rp_batch_labelled_digest(&geometry, &batch, sum, &error), -RP_E_USAGE);
    assert_non_null(strstr(error.message, "label_across_cuts"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(digest_is_of_content),
        cmocka_unit_test(labelled_digest_is_of_labels),
        cmocka_unit_test(digests_of_version_2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
