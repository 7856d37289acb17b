/* SPDX-License-Identifier: Apache-2.0 */
/* Without AVX-512, or without AVX2 either, tokens are scanned and documents are shuffled as with
 * them. */
#include "plan_corpus.h"

#include "base/bits.h"
#include "base/simd.h"
#include "corpus/document_scan.h"
#include "plan/permutation.h"

#define TOKENS 1000u

static unsigned hide(unsigned instructions)
{
    unsigned had = rp_simd_found;
    rp_simd_found &= ~instructions;
    return had;
}

static void show_again(unsigned had)
{
    rp_simd_found = had;
}

struct result {
    uint64_t starts[TOKENS + 2], token_max;
    size_t count;
};

static struct result scan(enum rp_token_type type, const void *tokens, size_t count)
{
    struct rp_document_scan scan;
    struct result result = {.count = 0};
    rp_document_scan_begin(&scan, type, 5, false);
    result.count = rp_document_scan_add(&scan, tokens, count, result.starts);
    result.count += rp_document_scan_finish(&scan, result.starts + result.count);
    result.token_max = scan.token_max;
    return result;
}

static void tokens_are_scanned_alike(void **state)
{
    (void)state;
    static _Alignas(8) uint8_t tokens[8 * TOKENS];
    static const enum rp_token_type types[] = {RP_TOKEN_U8, RP_TOKEN_U16, RP_TOKEN_U32,
                                               RP_TOKEN_I64};
    uint64_t draws = test_seed("processors");
    for (size_t t = 0; t < RP_ARRAY_COUNT(types); t++)
        for (size_t count = 0; count < TOKENS; count += 1 + count / 7) {
            uint32_t width = rp_token_width(types[t]);
            uint64_t largest = 0, documents = 0;
            for (size_t i = 0; i < count; i++) {
                uint64_t value = draw_below(&draws, 40);
                memcpy(tokens + i * width, &value, width);
                largest = value > largest ? value : largest;
                documents += value == 5 || i + 1 == count;
            }
            struct result with = scan(types[t], tokens, count);
            unsigned had = hide(RP_SIMD_AVX2);
            struct result without = scan(types[t], tokens, count);
            show_again(had);
            if (count > 0) {
                assert_int_equal(without.token_max, largest);
                assert_int_equal(without.starts[without.count - 1], count);
                assert_in_range(without.count, documents, documents + 1);
            }
            assert_int_equal(with.count, without.count);
            assert_int_equal(with.token_max, without.token_max);
            assert_memory_equal(with.starts, without.starts, with.count * sizeof *with.starts);
        }
}

static void documents_are_shuffled_alike(void **state)
{
    (void)state;
    static const unsigned hidden[] = {0, RP_SIMD_AVX512VL, RP_SIMD_AVX512VL | RP_SIMD_AVX2};
    for (uint64_t n = 1; n < 3000; n += 1 + n / 3) {
        struct rp_epoch_key key = rp_epoch_key_make(n * 77, 3, 1);
        struct rp_permutation permutation = rp_permutation_make(n, key, 0, n);
        for (uint64_t first = 0; first < n; first += RP_PERMUTE_MANY_MAX)
            for (size_t h = 0; h < RP_ARRAY_COUNT(hidden); h++) {
                uint64_t values[RP_PERMUTE_MANY_MAX];
                uint32_t count = (uint32_t)rp_min_u64(n - first, RP_PERMUTE_MANY_MAX);
                for (uint32_t i = 0; i < count; i++)
                    values[i] = first + i;
                unsigned had = hide(hidden[h]);
                rp_permute_many(&permutation, values, count);
                show_again(had);
                for (uint32_t i = 0; i < count; i++)
                    assert_int_equal(values[i], rp_permute(&permutation, first + i));
            }
    }
}

/* The kernel lists the features that both it and the processor have. */
static bool kernel_lists(const char *flag)
{
    static char line[1 << 16];
    char word[32];
    bool found = false;
    FILE *file = fopen("/proc/cpuinfo", "r");
    assert_non_null(file);
    snprintf(word, sizeof word, " %s ", flag);
    while (!found && fgets(line, sizeof line, file))
        if (!strncmp(line, "flags", 5)) {
            line[strcspn(line, "\n")] = ' ';
            found = strstr(line, word);
        }
    fclose(file);
    return found;
}

static void what_is_found_is_what_the_kernel_lists(void **state)
{
    (void)state;
    assert_int_equal(rp_simd_has(RP_SIMD_AVX2), kernel_lists("avx2"));
    assert_int_equal(rp_simd_has(RP_SIMD_AVX512VL), kernel_lists("avx512vl"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_found_is_what_the_kernel_lists),
        cmocka_unit_test(tokens_are_scanned_alike),
        cmocka_unit_test(documents_are_shuffled_alike),
    };
    return cmocka_run_group_tests_name("processors", tests, NULL, NULL);
}
