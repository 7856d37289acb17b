/* SPDX-License-Identifier: Apache-2.0 */
/* The generator against its published answers; the permutation as a bijection, forth and back. */
#include "plan_corpus.h"

#include <Random123/philox.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "plan/permutation.h"

#define PASS_MULTIPLY_PLAINLY(a, b) (((a)&UINT32_MAX) * ((b)&UINT32_MAX))

#define PASS_NAME pass_one
#define PASS_TARGET
#define PASS_VECTOR_BYTES 8
#define PASS_GROUP 2
#define PASS_MULTIPLY PASS_MULTIPLY_PLAINLY
#include "plan/permutation_pass.inc"

#define PASS_NAME pass_two
#define PASS_TARGET
#define PASS_VECTOR_BYTES 16
#define PASS_GROUP 16
#ifdef __SSE2__
#define PASS_MULTIPLY(a, b) (vector) _mm_mul_epu32((__m128i)(a), (__m128i)(b))
#else
#define PASS_MULTIPLY PASS_MULTIPLY_PLAINLY
#endif
#include "plan/permutation_pass.inc"

#define PASS_NAME pass_four
#define PASS_TARGET
#define PASS_VECTOR_BYTES 32
#define PASS_GROUP 32
#define PASS_MULTIPLY PASS_MULTIPLY_PLAINLY
#include "plan/permutation_pass.inc"

/* Random123's kat_vectors. The 7-round answers of philox2x32 fix F's rounds. */
static void generator_gives_the_published_answers(void **state)
{
    (void)state;
    const uint32_t ones = 0xffffffff, pi[] = {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344};
    struct {
        uint32_t counter[4], key[2], answer[4];
    } four[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{ones, ones, ones, ones}, {ones, ones}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{pi[0], pi[1], pi[2], pi[3]},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < RP_ARRAY_COUNT(four); i++) {
        philox4x32_ctr_t counter;
        philox4x32_key_t key;
        memcpy(counter.v, four[i].counter, sizeof counter.v);
        memcpy(key.v, four[i].key, sizeof key.v);
        philox4x32_ctr_t word = philox4x32(counter, key);
        assert_memory_equal(word.v, four[i].answer, sizeof word.v);
    }
    struct {
        uint32_t counter[2], key, answer[2];
    } two[] = {
        {{0, 0}, 0, {0x257a3673, 0xcd26be2a}},
        {{ones, ones}, ones, {0xab302c4d, 0x3dc9d239}},
        {{pi[0], pi[1]}, pi[2], {0xbedbbe6b, 0xe4c770b3}},
    };
    for (size_t i = 0; i < RP_ARRAY_COUNT(two); i++) {
        philox2x32_ctr_t counter = {{two[i].counter[0], two[i].counter[1]}};
        philox2x32_key_t key = {{two[i].key}};
        philox2x32_ctr_t word = philox2x32_R(7, counter, key);
        assert_memory_equal(word.v, two[i].answer, sizeof word.v);
    }
}

/* True if `permutation` maps 0 … n-1 onto itself, one at a time, many at a time, and back. */
static bool is_bijection(const struct rp_permutation *permutation,
                         const struct rp_permutation *back)
{
    static uint8_t seen[2000];
    uint64_t n = permutation->n;
    memset(seen, 0, n);
    for (uint64_t first = 0; first < n; first += RP_PERMUTE_MANY_MAX) {
        uint64_t values[RP_PERMUTE_MANY_MAX];
        uint32_t count = (uint32_t)rp_min_u64(RP_PERMUTE_MANY_MAX, n - first);
        for (uint32_t i = 0; i < count; i++)
            values[i] = first + i;
        rp_permute_many(permutation, values, count);
        for (uint32_t i = 0; i < count; i++) {
            if (values[i] >= n || seen[values[i]]++ ||
                rp_permute_inverse(back, values[i]) != first + i)
                return false;
        }
        if (values[count - 1] != rp_permute(permutation, first + count - 1))
            return false;
    }
    return true;
}

static void every_small_n_is_permuted(void **state)
{
    (void)state;
    struct rp_epoch_key key = rp_epoch_key_make(42, 0, 0);
    for (uint64_t n = 1; n <= 2000; n++) {
        struct rp_permutation permutation = rp_permutation_make(n, key, 0, n);
        if (!is_bijection(&permutation, &permutation))
            fail_msg("n = %" PRIu64 " is not a bijection", n);
    }
    /* Control: the inverse of another key is not the inverse. */
    struct rp_permutation one = rp_permutation_make(1000, key, 0, 0);
    struct rp_permutation other = rp_permutation_make(1000, key, 0, 1);
    assert_false(is_bijection(&one, &other));
}

static void large_n_is_permuted(void **state)
{
    (void)state;
    uint64_t random = test_seed("large_n_is_permuted");
    for (uint32_t bits = 11; bits <= 63; bits++) {
        for (int64_t near = -1; near <= 1; near++) {
            uint64_t n = (UINT64_C(1) << bits) + (uint64_t)near;
            if (n >= UINT64_C(1) << 63)
                continue;
            struct rp_epoch_key key = rp_epoch_key_make(draw(&random), bits, draw(&random));
            struct rp_permutation permutation = rp_permutation_make(n, key, 1, draw(&random));
            uint64_t values[5], images[5];
            for (uint32_t i = 0; i < 5; i++)
                images[i] = values[i] = i == 0 ? 0 : i == 1 ? n - 1 : draw_below(&random, n);
            rp_permute_many(&permutation, images, 5);
            for (uint32_t i = 0; i < 5; i++) {
                assert_true(images[i] < n);
                assert_int_equal(images[i], rp_permute(&permutation, values[i]));
                assert_int_equal(values[i], rp_permute_inverse(&permutation, images[i]));
            }
        }
    }
}

/* A pass for processors without vectors, or with other ones, against rp_permute. Over a power of
 * two one pass is all. */
typedef void pass_function(const struct rp_permutation *permutation, uint64_t *values,
                           uint32_t count);

/* A permutation of 100 values. */
static uint64_t pass_errors(pass_function *pass, const struct rp_permutation *by,
                            const struct rp_permutation *permutation, uint64_t *random)
{
    _Alignas(64) uint64_t images[RP_PERMUTE_MANY_MAX];
    uint64_t values[RP_PERMUTE_MANY_MAX], errors = 0;
    for (uint32_t i = 0; i < RP_PERMUTE_MANY_MAX; i++)
        images[i] = values[i] = draw_below(random, permutation->n);
    uint32_t count = 1 + (uint32_t)draw_below(random, RP_PERMUTE_MANY_MAX);
    pass(by, images, count);
    for (uint32_t i = 0; i < count; i++)
        errors += images[i] != rp_permute(permutation, values[i]);
    return 100 * errors / count;
}

static void every_width_of_vectors_gives_the_same(void **state)
{
    (void)state;
    uint64_t random = test_seed("every_width_of_vectors_gives_the_same");
    for (uint32_t bits = 2; bits < 63; bits++) {
        struct rp_epoch_key key = rp_epoch_key_make(draw(&random), bits, draw(&random));
        struct rp_permutation right = rp_permutation_make(UINT64_C(1) << bits, key, 0, 0);
        assert_int_equal(pass_errors(pass_one, &right, &right, &random), 0);
        assert_int_equal(pass_errors(pass_two, &right, &right, &random), 0);
        assert_int_equal(pass_errors(pass_four, &right, &right, &random), 0);
        struct rp_permutation wrong = right; /* control */
        wrong.key[RP_PERMUTATION_ROUNDS - 1]++;
        if (bits > 20)
            assert_true(pass_errors(pass_two, &wrong, &right, &random) > 50);
    }
}

/* Seed, source, epoch, stage and index each change the permutation. */
static void every_input_is_in_the_key(void **state)
{
    (void)state;
    struct rp_permutation all[] = {
        rp_permutation_make(UINT64_C(1) << 40, rp_epoch_key_make(1, 0, 0), 0, 0),
        rp_permutation_make(UINT64_C(1) << 40, rp_epoch_key_make(1 + (UINT64_C(1) << 32), 0, 0), 0,
                            0),
        rp_permutation_make(UINT64_C(1) << 40, rp_epoch_key_make(1, 1, 0), 0, 0),
        rp_permutation_make(UINT64_C(1) << 40, rp_epoch_key_make(1, 0, 1), 0, 0),
        rp_permutation_make(UINT64_C(1) << 40, rp_epoch_key_make(1, 0, UINT64_C(1) << 32), 0, 0),
        rp_permutation_make(UINT64_C(1) << 40, rp_epoch_key_make(1, 0, 0), 1, 0),
        rp_permutation_make(UINT64_C(1) << 40, rp_epoch_key_make(1, 0, 0), 0, 1),
        rp_permutation_make(UINT64_C(1) << 40, rp_epoch_key_make(1, 0, 0), 0, UINT64_C(1) << 32),
    };
    for (size_t i = 0; i < RP_ARRAY_COUNT(all); i++)
        for (size_t j = 0; j < i; j++)
            assert_true(rp_permute(&all[i], 7) != rp_permute(&all[j], 7));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(generator_gives_the_published_answers),
        cmocka_unit_test(every_small_n_is_permuted),
        cmocka_unit_test(large_n_is_permuted),
        cmocka_unit_test(every_width_of_vectors_gives_the_same),
        cmocka_unit_test(every_input_is_in_the_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
