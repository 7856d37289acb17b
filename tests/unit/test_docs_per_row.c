/* SPDX-License-Identifier: Apache-2.0 */
/* The default of max_docs_per_row by examples (tests/python/test_short_documents.py compares it
 * with the oracle), and the estimate of a limit's cost, against plans. */
#include "plan/docs_per_row.h"
#include "plan_corpus.h"

static uint64_t equal_length(const void *lengths, uint64_t document)
{
    (void)document;
    return *(const uint64_t *)lengths;
}

/* Documents 0 … 63 have 7 tokens, the last 64 have 3, and the others 4; document 64 is damaged.
 */
static uint64_t ends_length(const void *lengths, uint64_t document)
{
    uint64_t n = *(const uint64_t *)lengths;
    assert_true(document < n);
    if (document == 64)
        return RP_LENGTH_BAD;
    return document < 64 ? 7 : document >= n - 64 ? 3 : 4;
}

static struct rp_docs_per_row find(const struct rp_plan_config *config,
                                   const struct rp_plan_source *sources, uint32_t count)
{
    struct rp_docs_per_row found;
    struct rp_error error;
    assert_int_equal(rp_docs_per_row(&found, config, sources, count, &error), 0);
    return found;
}

static struct rp_docs_per_row find_equal(const struct rp_plan_config *config, uint64_t tokens)
{
    struct rp_plan_source source = {
        .documents = UINT64_C(1) << 62, .weight = 1, .lengths = &tokens, .length = equal_length};
    return find(config, &source, 1);
}

static void test_examples(void **unused)
{
    (void)unused;
    static const struct {
        uint32_t seq_len, expected;
        uint64_t tokens;
    } examples[] = {{4096, 821, 5},  {4096, 206, 20},    {4096, 128, 33},
                    {4096, 4096, 1}, {4096, 128, 0},     {16, 16, 1000},
                    {1, 1, 1},       {100, 32, 1 << 30}, {1 << 24, 1 << 24, 1}};
    for (size_t i = 0; i < RP_ARRAY_COUNT(examples); i++) {
        struct rp_plan_config config = {.seq_len = examples[i].seq_len};
        struct rp_docs_per_row found = find_equal(&config, examples[i].tokens);
        assert_int_equal(found.standard, examples[i].expected);
        assert_true(found.cost == 0);
    }
}

static void test_open_rows_bound_best_fit(void **unused)
{
    (void)unused;
    struct rp_plan_config config = {
        .seq_len = 4096, .packing = RP_PACKING_BEST_FIT, .window = 1024, .lanes = 1};
    struct rp_docs_per_row found = find_equal(&config, 5);
    assert_int_equal(found.standard, 170); /* 2^22 / (24 * 1024) */
    assert_int_equal(found.wanted, 821);
    assert_true(found.cost > 0.75 && found.cost < 0.85);
}

static void test_the_ends_of_a_large_source_are_looked_at(void **unused)
{
    (void)unused;
    for (uint64_t n = 4097; n < UINT64_C(1) << 62; n *= 3) {
        struct rp_plan_source source = {
            .documents = n, .weight = 1, .lengths = &n, .length = ends_length};
        struct rp_plan_config config = {.seq_len = 12};
        assert_int_equal(find(&config, &source, 1).wanted, 5); /* 12 / 3, and one more */
    }
}

/* The share of padding in full rows that a limit causes, as `concat` meets it. */
static double cost_in_a_plan(const struct rp_plan_config *config, const struct corpus *corpus)
{
    struct rp_plan *plan;
    struct rp_error error;
    struct rp_row row;
    assert_int_equal(rp_plan_open(&plan, config, corpus->sources, corpus->source_count, &error), 0);
    for (int i = 0; i < 500; i++)
        assert_int_equal(rp_plan_next(plan, &row, &error), 1);
    struct rp_plan_counts counts;
    rp_plan_counts(plan, &counts);
    rp_plan_close(plan);
    return (double)counts.padding / (500.0 * config->seq_len);
}

static void test_the_estimate_is_near_what_plans_do(void **unused)
{
    (void)unused;
    static struct corpus corpus;
    uint64_t state = test_seed("docs_per_row");
    for (uint32_t limit = 1; limit <= 64; limit++) {
        corpus_make(&corpus, 1, 400, 64, &state);
        struct rp_plan_config config = plan_variant(0);
        config.seq_len = 64;
        config.num_epochs = 0;
        config.packing = RP_PACKING_CONCAT;
        config.shuffle = RP_SHUFFLE_DOCUMENT;
        config.long_doc = (enum rp_long_doc)(limit % 3);
        config.max_docs_per_row = limit;
        double expected = cost_in_a_plan(&config, &corpus);
        double found = find(&config, corpus.sources, 1).cost;
        assert_true(found > expected - 0.08 && found < expected + 0.08);
    }
}

static uint64_t listed_length(const void *lengths, uint64_t document)
{
    return ((const uint64_t *)lengths)[document];
}

static int compare(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

/* The default of docs_per_row.c, done word by word: in ascending order. */
static uint32_t wanted_by_sorting(const uint64_t *lengths, uint64_t count, uint32_t seq_len)
{
    uint64_t sorted[512], total = 0, before = 0;
    for (uint64_t i = 0; i < count; i++)
        total += sorted[i] = rp_min_u64(lengths[i], seq_len);
    qsort(sorted, count, sizeof *sorted, compare);
    for (uint64_t i = 0; i < count; i++)
        if ((before += sorted[i]) * 100 > total)
            return (uint32_t)rp_min_u64(rp_div_up(seq_len, sorted[i]) + 1, seq_len);
    return 1;
}

static void test_the_shortest_are_those_of_sorting(void **unused)
{
    (void)unused;
    static uint64_t lengths[512];
    uint64_t state = test_seed("shortest");
    for (int round = 0; round < 3000; round++) {
        uint32_t seq_len = (uint32_t)(1 + draw_below(&state, 5000));
        uint64_t count = 1 + draw_below(&state, 512);
        uint64_t most = 1 + draw_below(&state, 2 * seq_len);
        for (uint64_t i = 0; i < count; i++) {
            uint64_t drawn = draw(&state);
            lengths[i] = 1 + (drawn & 1 ? drawn >> 1 : drawn >> 1 & 63) % most;
        }
        struct rp_plan_source source = {
            .documents = count, .weight = 1, .lengths = lengths, .length = listed_length};
        struct rp_plan_config config = {.seq_len = seq_len};
        assert_int_equal(find(&config, &source, 1).wanted,
                         wanted_by_sorting(lengths, count, seq_len));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_examples),
        cmocka_unit_test(test_open_rows_bound_best_fit),
        cmocka_unit_test(test_the_ends_of_a_large_source_are_looked_at),
        cmocka_unit_test(test_the_shortest_are_those_of_sorting),
        cmocka_unit_test(test_the_estimate_is_near_what_plans_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
