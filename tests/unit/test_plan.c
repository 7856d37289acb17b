/* SPDX-License-Identifier: Apache-2.0 */
/* The promises of the plan over every kind of configuration: each token exactly once an epoch,
 * every token accounted for at every row, full rows, an end that stays an end, and errors that name
 * the fault. */
#include "plan_corpus.h"

#include <math.h>

/* How often each token of each document was emitted. */
struct coverage {
    uint32_t *times[CORPUS_SOURCES_MAX][CORPUS_DOCUMENTS_MAX];
};

static void coverage_open(struct coverage *coverage, const struct corpus *corpus)
{
    for (uint32_t s = 0; s < corpus->source_count; s++)
        for (uint64_t d = 0; d < corpus->sources[s].documents; d++)
            coverage->times[s][d] = calloc(corpus->lengths[s][d] + 1, sizeof(uint32_t));
}

static void coverage_close(struct coverage *coverage, const struct corpus *corpus)
{
    for (uint32_t s = 0; s < corpus->source_count; s++)
        for (uint64_t d = 0; d < corpus->sources[s].documents; d++)
            free(coverage->times[s][d]);
}

static void coverage_add(struct coverage *coverage, const struct rp_row *row)
{
    for (uint32_t i = 0; i < row->count; i++) {
        const struct rp_fragment *fragment = &row->fragments[i];
        for (uint64_t t = fragment->offset; t < fragment->offset + fragment->length; t++)
            coverage->times[fragment->source][fragment->document][t]++;
    }
}

static uint64_t kept_of(const struct rp_plan_config *config, uint64_t length)
{
    if (length <= config->seq_len || config->long_doc == RP_LONG_DOC_SPLIT)
        return length;
    return config->long_doc == RP_LONG_DOC_TRUNCATE ? config->seq_len : 0;
}

/* Tokens whose count is wrong: each that long_doc keeps must have come `epochs` times, others
 * never. */
static uint64_t coverage_errors(const struct coverage *coverage, const struct corpus *corpus,
                                const struct rp_plan_config *config)
{
    uint64_t errors = 0;
    for (uint32_t s = 0; s < corpus->source_count; s++)
        for (uint64_t d = 0; d < corpus->sources[s].documents; d++) {
            uint64_t length = corpus->lengths[s][d];
            for (uint64_t t = 0; t < length; t++)
                errors += coverage->times[s][d][t] !=
                          (t < kept_of(config, length) ? config->num_epochs : 0);
        }
    return errors;
}

/* The shape of one row, and the identity of the counts after it. */
static void check_row(const struct rp_plan_config *config, const struct rp_plan *plan,
                      const struct rp_row *row, uint64_t number)
{
    uint64_t tokens = 0;
    for (uint32_t i = 0; i < row->count; i++) {
        assert_true(row->fragments[i].length >= 1);
        tokens += row->fragments[i].length;
    }
    assert_int_equal(row->row, number);
    assert_int_equal(rp_plan_row(plan), number + 1);
    assert_int_equal(row->tokens, tokens);
    assert_true(tokens <= config->seq_len && row->count <= config->max_docs_per_row);

    struct rp_plan_counts counts;
    rp_plan_counts(plan, &counts);
    assert_int_equal(counts.tokens_read,
                     counts.emitted + counts.buffered + counts.truncated + counts.dropped);
}

static void every_token_comes_once_an_epoch(void **state)
{
    (void)state;
    uint64_t random = test_seed("every_token_comes_once_an_epoch");
    for (uint32_t variant = 0; variant < PLAN_VARIANTS; variant++) {
        struct rp_plan_config config = plan_variant(variant);
        struct corpus corpus;
        struct coverage coverage;
        corpus_make(&corpus, 1 + variant % CORPUS_SOURCES_MAX, 60 + variant % 50, config.seq_len,
                    &random);
        coverage_open(&coverage, &corpus);
        struct rp_plan *plan = plan_open(&config, &corpus);
        struct rp_row row = {0}, last = {0};
        uint64_t rows = 0, capacity = 0, emitted = 0;
        while (plan_next(plan, &row)) {
            check_row(&config, plan, &row, rows++);
            coverage_add(&coverage, &row);
            capacity += row.count ? config.seq_len : 0;
            emitted += row.tokens;
            last = row;
        }
        assert_true(last.count > 0); /* the last row has a fragment */
        if (coverage_errors(&coverage, &corpus, &config) > 0)
            fail_msg("%s: tokens lost or repeated", plan_describe(&config));

        struct rp_plan_counts counts;
        rp_plan_counts(plan, &counts);
        assert_int_equal(counts.buffered, 0);
        assert_int_equal(counts.emitted, emitted);
        assert_int_equal(counts.emitted + counts.padding, capacity);

        row.count = 1; /* control: a fragment that comes twice is noticed */
        row.fragments = &(struct rp_fragment){.document = 0, .source = 0, .length = 1};
        if (corpus.lengths[0][0] > 0) {
            coverage_add(&coverage, &row);
            assert_int_equal(coverage_errors(&coverage, &corpus, &config), 1);
        }
        rp_plan_close(plan);
        coverage_close(&coverage, &corpus);
    }
}

static void the_end_stays_the_end(void **state)
{
    (void)state;
    uint64_t random = test_seed("the_end_stays_the_end");
    for (uint32_t variant = 0; variant < PLAN_VARIANTS; variant++) {
        struct rp_plan_config config = plan_variant(variant);
        struct corpus corpus;
        corpus_make(&corpus, 2, 40, config.seq_len, &random);
        struct rp_plan *plan = plan_open(&config, &corpus);
        struct rp_row row;
        while (plan_next(plan, &row))
            ;
        uint64_t rows = rp_plan_row(plan);
        uint8_t *first = malloc(rp_plan_state_bytes_max(plan));
        uint8_t *again = malloc(rp_plan_state_bytes_max(plan));
        size_t bytes = rp_plan_save(plan, first);
        for (int i = 0; i < 5; i++)
            assert_false(plan_next(plan, &row));
        assert_int_equal(rp_plan_save(plan, again), bytes);
        assert_memory_equal(first, again, bytes);

        /* A plan that never planned more than `rows` is in the same state. */
        struct rp_plan *seeker = plan_open(&config, &corpus);
        struct rp_error error = {0};
        assert_int_equal(rp_plan_seek(seeker, rows, &error), 0);
        assert_int_equal(rp_plan_save(seeker, again), bytes);
        assert_memory_equal(first, again, bytes);
        assert_int_equal(rp_plan_seek(seeker, rows + 1, &error), -RP_E_USAGE);
        assert_int_equal(rp_plan_seek(seeker, rows - 1, &error), -RP_E_USAGE);
        rp_plan_close(seeker);
        rp_plan_close(plan);
        free(first);
        free(again);
    }
}

/* Lognormal by the sum of twelve uniform numbers: near enough, and no libm in the draw. */
static void make_lognormal(uint64_t *lengths, uint64_t count, double median, double sigma,
                           uint64_t *random)
{
    for (uint64_t i = 0; i < count; i++) {
        double normal = -6;
        for (int k = 0; k < 12; k++)
            normal += (double)draw_below(random, 1u << 20) / (1u << 20);
        lengths[i] = (uint64_t)fmax(1, median * exp(sigma * normal));
    }
}

static double efficiency(const struct rp_plan_config *config, const struct rp_plan_source *source)
{
    struct rp_error error = {0};
    struct rp_plan *plan;
    assert_int_equal(rp_plan_open(&plan, config, source, 1, &error), 0);
    struct rp_row row;
    while (plan_next(plan, &row))
        ;
    struct rp_plan_counts counts;
    rp_plan_counts(plan, &counts);
    rp_plan_close(plan);
    return 100.0 * (double)counts.emitted / (double)(counts.emitted + counts.padding);
}

static void lookahead_fills_rows(void **state)
{
    (void)state;
    uint64_t random = test_seed("lookahead_fills_rows"), count = 100000;
    uint64_t *lengths = malloc(count * sizeof *lengths);
    make_lognormal(lengths, count, 400, 1.2, &random);
    struct rp_plan_source source = {count, 1, lengths, corpus_length, NULL, NULL};
    struct rp_plan_config config = {.num_epochs = 1,
                                    .seq_len = 2048,
                                    .shuffle = RP_SHUFFLE_DOCUMENT,
                                    .packing = RP_PACKING_LOOKAHEAD,
                                    .window = 64,
                                    .max_docs_per_row = 64,
                                    .lanes = 1};
    assert_true(efficiency(&config, &source) >= 99.9);
    config.seq_len = 8192;
    assert_true(efficiency(&config, &source) >= 99.95);
    config.seq_len = 2048;
    config.packing = RP_PACKING_BEST_FIT;
    assert_true(efficiency(&config, &source) >= 99.6);
    config.window = 1; /* control: the measure falls when packing is bad */
    config.packing = RP_PACKING_LOOKAHEAD;
    assert_true(efficiency(&config, &source) < 95);
    free(lengths);
}

/* Half of the documents are longer than a row. They must not crowd out of the FIFO the pieces that
 * can close a gap: with the long ones in it, this was 97.5 %. */
static void long_documents_leave_the_window_to_the_short(void **state)
{
    (void)state;
    uint64_t random = test_seed("long_documents_leave_the_window_to_the_short"), count = 50000;
    uint64_t *lengths = malloc(count * sizeof *lengths);
    make_lognormal(lengths, count, 2000, 1.3, &random);
    struct rp_plan_source source = {count, 1, lengths, corpus_length, NULL, NULL};
    struct rp_plan_config config = {.num_epochs = 1,
                                    .seq_len = 2048,
                                    .shuffle = RP_SHUFFLE_DOCUMENT,
                                    .packing = RP_PACKING_LOOKAHEAD,
                                    .window = 64,
                                    .max_docs_per_row = 64,
                                    .lanes = 1};
    double found = efficiency(&config, &source);
    printf("median 2000, sigma 1.3, seq_len 2048, window 64: %.3f %%\n", found);
    assert_true(found >= 99.4);
    config.window = 4; /* control: a window that sees little closes less */
    assert_true(efficiency(&config, &source) < 99);
    free(lengths);
}

/* Sources get their weights' share of tokens, at any prefix and exactly to within a document. */
static void sources_get_their_shares(void **state)
{
    (void)state;
    static uint64_t lengths[100];
    for (int i = 0; i < 100; i++)
        lengths[i] = 1 + (uint64_t)i % 10;
    struct rp_plan_source sources[5];
    uint64_t weights[] = {1, 7, 3, 4000000000u, 2000000000u}, total = 6000000011u;
    for (int s = 0; s < 5; s++)
        sources[s] = (struct rp_plan_source){100, weights[s], lengths, corpus_length, NULL, NULL};
    struct rp_plan_config config = {.seq_len = 50,
                                    .shuffle = RP_SHUFFLE_DOCUMENT,
                                    .packing = RP_PACKING_CONCAT,
                                    .max_docs_per_row = 50,
                                    .lanes = 1};
    struct rp_plan *plan;
    struct rp_error error = {0};
    assert_int_equal(rp_plan_open(&plan, &config, sources, 5, &error), 0);
    uint64_t tokens[5] = {0}, all = 0;
    for (int r = 0; r < 3000; r++) {
        struct rp_row row;
        assert_true(plan_next(plan, &row));
        for (uint32_t i = 0; i < row.count; i++)
            tokens[row.fragments[i].source] += row.fragments[i].length;
        all += row.tokens;
        for (int s = 0; s < 5; s++) {
            double share = (double)all * (double)weights[s] / (double)total;
            assert_true(fabs((double)tokens[s] - share) <= 50);
        }
    }
    rp_plan_close(plan);
}

/* ---- errors ------------------------------------------------------------------------------------
 */

static void bad_parameters_are_refused_by_name(void **state)
{
    (void)state;
    uint64_t random = 1;
    struct corpus corpus;
    corpus_make(&corpus, 2, 40, 61, &random);
    struct {
        const char *word; /* that the message must have */
        size_t offset, bytes;
        uint64_t value;
    } mistakes[] = {
#define MISTAKE(field, value)                                                                      \
    {#field, offsetof(struct rp_plan_config, field), sizeof(((struct rp_plan_config *)0)->field),  \
     value}
        MISTAKE(seq_len, 0),
        MISTAKE(seq_len, RP_SEQ_LEN_MAX + 1),
        MISTAKE(shuffle, 3),
        MISTAKE(block_documents, 0),
        MISTAKE(window_blocks, 0),
        MISTAKE(packing, 3),
        MISTAKE(window, 0),
        MISTAKE(window, RP_WINDOW_MAX + 1),
        MISTAKE(row_gap, 2),
        MISTAKE(long_doc, 3),
        MISTAKE(max_docs_per_row, 0),
        MISTAKE(max_docs_per_row, 62),
        MISTAKE(lanes, 0),
        MISTAKE(lanes, RP_LANES_MAX + 1),
        MISTAKE(lanes, 34),
        MISTAKE(num_epochs, RP_EPOCHS_MAX + UINT64_C(1)),
#undef MISTAKE
    };
    for (size_t i = 0; i < RP_ARRAY_COUNT(mistakes); i++) {
        struct rp_plan_config config = plan_variant(36);
        config.max_docs_per_row = 61;
        if (mistakes[i].value == 34)
            config.shuffle = RP_SHUFFLE_NONE;
        memcpy((char *)&config + mistakes[i].offset, &mistakes[i].value, mistakes[i].bytes);
        struct rp_plan *plan;
        struct rp_error error = {0};
        assert_int_equal(rp_plan_open(&plan, &config, corpus.sources, 2, &error), -RP_E_CONFIG);
        assert_null(plan);
        if (!strstr(error.message, mistakes[i].word))
            fail_msg("`%s` does not name %s", error.message, mistakes[i].word);
    }
    struct rp_plan *plan;
    struct rp_error error = {0};
    struct rp_plan_config config = plan_variant(0);
    assert_int_equal(rp_plan_open(&plan, &config, corpus.sources, 0, &error), -RP_E_CONFIG);
    corpus.sources[1].weight = 0;
    assert_int_equal(rp_plan_open(&plan, &config, corpus.sources, 2, &error), -RP_E_CONFIG);
    assert_non_null(strstr(error.message, "source 1"));
    corpus.sources[1].weight = UINT64_C(1) << 32;
    assert_int_equal(rp_plan_open(&plan, &config, corpus.sources, 2, &error), -RP_E_CONFIG);
    corpus.sources[1].weight = 1;
    corpus.sources[1].documents = 0;
    assert_int_equal(rp_plan_open(&plan, &config, corpus.sources, 2, &error), -RP_E_CONFIG);
    config = (struct rp_plan_config){.seq_len = RP_SEQ_LEN_MAX,
                                     .packing = RP_PACKING_BEST_FIT,
                                     .window = RP_WINDOW_MAX,
                                     .max_docs_per_row = RP_SEQ_LEN_MAX,
                                     .lanes = RP_LANES_MAX};
    corpus.sources[0].documents = corpus.sources[1].documents = RP_LANES_MAX;
    assert_int_equal(rp_plan_open(&plan, &config, corpus.sources, 2, &error), -RP_E_CONFIG);
    assert_non_null(strstr(error.message, "state token"));
}

/* A damaged index entry is reported when its document is due, by name, and for good. */
static void a_bad_index_entry_stops_the_plan(void **state)
{
    (void)state;
    for (uint32_t variant = 0; variant < PLAN_VARIANTS; variant++) {
        struct rp_plan_config config = plan_variant(variant);
        struct corpus corpus;
        uint64_t random = 7;
        corpus_make(&corpus, 2, 60, config.seq_len, &random);
        corpus.lengths[1][17] = RP_LENGTH_BAD;
        struct rp_plan *plan = plan_open(&config, &corpus);
        struct rp_error error = {0}, again = {0};
        struct rp_row row;
        int planned;
        while ((planned = rp_plan_next(plan, &row, &error)) > 0)
            ;
        assert_int_equal(planned, -RP_E_CORRUPT);
        assert_non_null(strstr(error.message, "source 1"));
        assert_non_null(strstr(error.message, "document 17"));
        assert_int_equal(rp_plan_next(plan, &row, &again), -RP_E_CORRUPT);
        assert_string_equal(error.message, again.message);
        rp_plan_close(plan);
    }
}

static void an_endless_corpus_without_tokens_is_an_error(void **state)
{
    (void)state;
    for (uint32_t variant = 0; variant < PLAN_VARIANTS; variant++) {
        struct rp_plan_config config = plan_variant(variant);
        struct corpus corpus;
        uint64_t random = 7;
        config.num_epochs = 0;
        corpus_make(&corpus, 2, 60, config.seq_len, &random);
        memset(corpus.lengths[1], 0, sizeof corpus.lengths[1]);
        if (config.long_doc == RP_LONG_DOC_DROP)
            corpus.lengths[1][3] = 100000;
        struct rp_plan *plan = plan_open(&config, &corpus);
        struct rp_error error = {0};
        struct rp_row row;
        int planned = 1;
        for (int i = 0; i < 100 && planned > 0; i++)
            planned = rp_plan_next(plan, &row, &error);
        assert_int_equal(planned, -RP_E_EMPTY);
        assert_non_null(strstr(error.message, "source 1"));
        rp_plan_close(plan);

        /* Control: one document with a token, and the stream continues. */
        corpus.lengths[1][3] = 1;
        config.lanes = 1;
        plan = plan_open(&config, &corpus);
        for (int i = 0; i < 100; i++)
            assert_true(plan_next(plan, &row));
        rp_plan_close(plan);
    }
}

/* Epochs beyond counting over a source without tokens: refused after one pass, wherever the source
 * is among others. A single pass just ends. */
static void a_corpus_without_tokens_is_not_read_again_and_again(void **state)
{
    (void)state;
    static uint64_t empty[50], full[50];
    for (int i = 0; i < 50; i++)
        full[i] = 5;
    for (uint32_t variant = 0; variant < PLAN_VARIANTS; variant++) {
        const struct rp_plan_source sources[] = {{50, 1, full, corpus_length, NULL, NULL},
                                                 {50, 1, empty, corpus_length, NULL, NULL}};
        struct rp_plan_config config = plan_variant(variant);
        for (uint32_t first = 0; first < 2; first++) { /* with the full one, and without */
            struct rp_plan *plan;
            struct rp_error error = {0};
            struct rp_row row;
            int planned = 1;
            config.num_epochs = RP_EPOCHS_MAX;
            assert_int_equal(rp_plan_open(&plan, &config, &sources[first], 2 - first, &error), 0);
            for (int i = 0; i < 10 && planned > 0; i++)
                planned = rp_plan_next(plan, &row, &error);
            assert_int_equal(planned, -RP_E_EMPTY);
            assert_non_null(strstr(error.message, first ? "source 0" : "source 1"));
            bool names_lane = config.shuffle == RP_SHUFFLE_NONE && config.lanes > 1;
            assert_non_null(strstr(error.message, names_lane ? "none of the 17 documents of lane 0"
                                                             : "none of its 50 documents"));
            rp_plan_close(plan);

            config.num_epochs = 1;
            assert_int_equal(rp_plan_open(&plan, &config, &sources[first], 2 - first, &error), 0);
            uint64_t tokens = 0;
            while (plan_next(plan, &row))
                tokens += row.tokens;
            assert_int_equal(tokens, first ? 0 : 250);
            rp_plan_close(plan);
        }
    }
}

/* One document in a corner of a source is enough for as many epochs as anybody wants; but a lane
 * that never gets it is refused when documents keep their places. */
static void one_token_is_enough_for_a_lane_that_gets_it(void **state)
{
    (void)state;
    uint64_t lengths[50] = {[49] = 5}; /* without a shuffle: of lane 1 of 3 */
    struct rp_plan_source source = {50, 1, lengths, corpus_length, NULL, NULL};
    for (uint32_t variant = 0; variant < PLAN_VARIANTS; variant++) {
        struct rp_plan_config config = plan_variant(variant);
        struct rp_plan *plan;
        struct rp_error error = {0};
        struct rp_row row;
        bool starves = config.shuffle == RP_SHUFFLE_NONE && config.lanes > 1;
        int planned = 1;
        config.num_epochs = RP_EPOCHS_MAX;
        assert_int_equal(rp_plan_open(&plan, &config, &source, 1, &error), 0);
        for (int i = 0; i < 20 && planned > 0; i++)
            planned = rp_plan_next(plan, &row, &error);
        assert_int_equal(planned, starves ? -RP_E_EMPTY : 1);
        assert_true(!starves || strstr(error.message, "documents of lane 0 gives a token"));
        rp_plan_close(plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_token_comes_once_an_epoch),
        cmocka_unit_test(the_end_stays_the_end),
        cmocka_unit_test(lookahead_fills_rows),
        cmocka_unit_test(long_documents_leave_the_window_to_the_short),
        cmocka_unit_test(sources_get_their_shares),
        cmocka_unit_test(bad_parameters_are_refused_by_name),
        cmocka_unit_test(a_bad_index_entry_stops_the_plan),
        cmocka_unit_test(an_endless_corpus_without_tokens_is_an_error),
        cmocka_unit_test(a_corpus_without_tokens_is_not_read_again_and_again),
        cmocka_unit_test(one_token_is_enough_for_a_lane_that_gets_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
