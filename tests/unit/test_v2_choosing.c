/* SPDX-License-Identifier: Apache-2.0 */
/* The choice by keys against the formulas of STREAM2.md section 6.2, with up to 100 sources. */
#include "plan_corpus.h"

#include "base/simd.h"
#include "plan/v2/choosing.h"

__extension__ typedef __int128 wide;

enum { SOURCES_MAX = 100 };

struct model {
    uint32_t count, longest;
    uint64_t share[SOURCES_MAX];
    int64_t credit[SOURCES_MAX];
};

static wide floor_of(wide a, wide b)
{
    return a / b - (a % b < 0);
}

static uint32_t choose(const struct model *model)
{
    wide sum = 0, best = 0;
    uint32_t chosen = UINT32_MAX;
    for (uint32_t j = 0; j < model->count; j++)
        sum += model->credit[j];
    wide mean = floor_of(sum, model->count);
    for (uint32_t j = 0; j < model->count; j++) {
        if (model->credit[j] < mean)
            continue;
        wide due = floor_of(model->credit[j] - mean - ((wide)model->longest << 32),
                            (wide)model->share[j]);
        if (chosen == UINT32_MAX || due > best) {
            best = due;
            chosen = j;
        }
    }
    return chosen;
}

static void charge(struct model *model, uint32_t chosen, uint32_t tokens)
{
    for (uint32_t j = 0; j < model->count; j++)
        model->credit[j] += (int64_t)(tokens * model->share[j]);
    model->credit[chosen] -= (int64_t)tokens << 32;
    model->longest = tokens > model->longest ? tokens : model->longest;
}

/* Shares that sum to 2^32, some of them equal. */
static void draw_shares(struct model *model, uint64_t *random)
{
    uint64_t left = UINT64_C(1) << 32;
    for (uint32_t j = 0; j + 1 < model->count; j++) {
        uint64_t most = left / (model->count - j);
        model->share[j] = draw_below(random, 2) ? most : 1 + draw_below(random, most);
        left -= model->share[j];
    }
    model->share[model->count - 1] = left;
}

static void begin(struct rp_choosing *choosing, const struct model *model)
{
    rp_choosing_clear(choosing);
    for (uint32_t j = 0; j < model->count; j++)
        rp_choosing_add(choosing,
                        &(struct rp_choosing_source){2 * j, model->share[j], model->credit[j]});
    assert_true(rp_choosing_begin(choosing));
}

static void run(uint32_t count, uint64_t tokens_max, uint64_t *random)
{
    static struct model model;
    struct rp_choosing choosing;
    model = (struct model){.count = count};
    assert_int_equal(rp_choosing_open(&choosing, SOURCES_MAX, NULL), 0);
    for (int shares = 0; shares < 4; shares++) { /* credits stay when shares change */
        draw_shares(&model, random);
        begin(&choosing, &model);
        for (int i = 0; i < 2000; i++) {
            uint32_t chosen = choose(&model);
            assert_int_equal(rp_choosing_first(&choosing), 2 * chosen);
            uint32_t tokens = (uint32_t)(1 +
                                         draw_below(random, 1 + tokens_max / (uint32_t)(1 + i)));
            charge(&model, chosen, tokens);
            bool is_stale = rp_choosing_charge(&choosing, tokens);
            for (uint32_t j = 0; j < count; j++)
                assert_true(rp_choosing_credit(&choosing, j) == model.credit[j]);
            if (is_stale)
                begin(&choosing, &model);
        }
        assert_int_equal(choosing.longest, model.longest);
    }
    rp_choosing_close(&choosing);
}

static void as_the_formulas(void)
{
    uint64_t random = test_seed("test_as_the_formulas");
    static const uint32_t counts[] = {1, 2, 3, 8, 15, 16, 17, 32, 33, SOURCES_MAX};
    for (size_t i = 0; i < RP_ARRAY_COUNT(counts); i++) {
        run(counts[i], 50, &random);
        run(counts[i], (UINT64_C(1) << 27) - 2, &random);
    }
}

static void test_as_the_formulas(void **state)
{
    (void)state;
    unsigned had = rp_simd_found;
    as_the_formulas();
    rp_simd_found = 0;
    as_the_formulas();
    rp_simd_found = had;
}

/* Equal sources are chosen in turn, the lowest number first. */
static void test_ties(void **state)
{
    (void)state;
    struct model model = {.count = 64};
    struct rp_choosing choosing;
    for (uint32_t j = 0; j < model.count; j++)
        model.share[j] = UINT64_C(1) << 26;
    assert_int_equal(rp_choosing_open(&choosing, 64, NULL), 0);
    begin(&choosing, &model);
    for (uint32_t i = 0; i < 256; i++) {
        assert_int_equal(rp_choosing_first(&choosing), 2 * (i % 64));
        assert_false(rp_choosing_charge(&choosing, 5));
    }
    rp_choosing_close(&choosing);
}

static void test_credits_out_of_bounds(void **state)
{
    (void)state;
    struct rp_choosing choosing;
    assert_int_equal(rp_choosing_open(&choosing, 2, NULL), 0);
    rp_choosing_add(&choosing,
                    &(struct rp_choosing_source){3, UINT64_C(1) << 31, INT64_C(1) << 62});
    rp_choosing_add(&choosing, &(struct rp_choosing_source){4, UINT64_C(1) << 31, 0});
    assert_false(rp_choosing_begin(&choosing));
    assert_int_equal(rp_choosing_first(&choosing), 3);
    rp_choosing_close(&choosing);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_the_formulas),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_credits_out_of_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
