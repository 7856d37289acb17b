/* SPDX-License-Identifier: Apache-2.0 */
/* A plan's lookups of lengths: many at once give the same rows as one by one, also from the middle
 * on, and no length is looked up again and again. */
#include "plan_corpus.h"

/* A source that counts its lookups. */
struct counter {
    const uint64_t *lengths;
    uint64_t one_by_one, together;
};

static struct counter counters[CORPUS_SOURCES_MAX];

static uint64_t count_length(const void *context, uint64_t document)
{
    struct counter *counter = &counters[(const struct counter *)context - counters];
    counter->one_by_one++;
    return counter->lengths[document];
}

static void count_length_many(const void *context, const uint64_t *documents, uint32_t count,
                              uint64_t *tokens)
{
    struct counter *counter = &counters[(const struct counter *)context - counters];
    assert_true(count >= 1);
    counter->together += count;
    for (uint32_t i = 0; i < count; i++)
        tokens[i] = counter->lengths[documents[i]];
}

static struct rp_plan *open_counting(const struct rp_plan_config *config,
                                     const struct corpus *corpus)
{
    struct corpus copy = *corpus;
    for (uint32_t s = 0; s < corpus->source_count; s++) {
        counters[s] = (struct counter){.lengths = corpus->lengths[s]};
        copy.sources[s].lengths = &counters[s];
        copy.sources[s].length = count_length;
        copy.sources[s].length_many = count_length_many;
    }
    return plan_open(config, &copy);
}

static bool rows_equal(const struct rp_row *a, const struct rp_row *b)
{
    return a->row == b->row && a->count == b->count && a->tokens == b->tokens &&
           !memcmp(a->fragments, b->fragments, a->count * sizeof *a->fragments);
}

/* From time to time the counting plan continues from its own token: its earlier lookups are void.
 */
static uint64_t compare(struct rp_plan *plain, struct rp_plan *counting, uint64_t reload_every)
{
    static uint8_t token[1 << 20];
    struct rp_row expected, found;
    uint64_t rows = 0;
    for (; plan_next(plain, &expected); rows++) {
        assert_true(plan_next(counting, &found));
        assert_true(rows_equal(&expected, &found));
        if (rows % reload_every == 0) {
            struct rp_error error;
            assert_true(rp_plan_state_bytes_max(counting) <= sizeof token);
            size_t bytes = rp_plan_save(counting, token);
            assert_int_equal(rp_plan_load(counting, token, bytes, false, &error), 0);
        }
    }
    assert_false(plan_next(counting, &found));
    return rows;
}

static void many_at_once_are_the_same(void **state)
{
    (void)state;
    static struct corpus corpus;
    uint64_t random = 77, rows = 0, one_by_one = 0, together = 0;
    for (uint32_t variant = 0; variant < PLAN_VARIANTS; variant++) {
        struct rp_plan_config config = plan_variant(variant);
        corpus_make(&corpus, 1 + variant % 3, 300, config.seq_len, &random);
        struct rp_plan *plain = plan_open(&config, &corpus);
        struct rp_plan *counting = open_counting(&config, &corpus);
        rows += compare(plain, counting, variant % 2 ? 17 : UINT64_MAX);
        for (uint32_t s = 0; s < corpus.source_count; s++) {
            one_by_one += counters[s].one_by_one;
            together += counters[s].together;
        }
        rp_plan_close(plain);
        rp_plan_close(counting);
    }
    /* checks of a token, and the search for an end, look up one after the other */
    print_message("%" PRIu64 " rows, lengths: %" PRIu64 " together, %" PRIu64 " one by one\n", rows,
                  together, one_by_one);
    assert_true(rows > 10000 && one_by_one < together / 5);
}

/* Before a row that begins with a document the existence of another row is checked. The empty
 * documents of a source whose turn does not come are read for that, but not each time. */
static void what_is_empty_to_the_end_is_looked_at_once(void **state)
{
    (void)state;
    static struct corpus corpus;
    uint64_t random = 8;
    corpus_make(&corpus, 2, CORPUS_DOCUMENTS_MAX, 61, &random);
    for (uint64_t d = 0; d < corpus.sources[0].documents; d++)
        corpus.lengths[0][d] = d < 1 ? 61 : 0;
    for (uint64_t d = 0; d < corpus.sources[1].documents; d++)
        corpus.lengths[1][d] = 61;
    corpus.sources[1].weight = 1000;
    struct rp_plan_config config = {.seq_len = 61,
                                    .packing = RP_PACKING_CONCAT,
                                    .max_docs_per_row = 61,
                                    .lanes = 1,
                                    .num_epochs = 1};
    struct rp_plan *plan = open_counting(&config, &corpus);
    struct rp_row row;
    uint64_t rows = 0;
    while (plan_next(plan, &row))
        rows++;
    assert_int_equal(rows, 1 + corpus.sources[1].documents);
    assert_true(counters[0].one_by_one <= 3 * corpus.sources[0].documents);
    rp_plan_close(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_at_once_are_the_same),
        cmocka_unit_test(what_is_empty_to_the_end_is_looked_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
