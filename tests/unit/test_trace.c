/* SPDX-License-Identifier: Apache-2.0 */
/* From a document to its place, and from a fragment to its epoch: against the later plan. */
#include "plan_corpus.h"

#include "plan/trace.h"

enum { SOURCES = 2, DOCUMENTS = 120, SEQ_LEN = 32 };

static struct rp_plan *open_plan(const struct corpus *corpus, uint64_t round)
{
    struct rp_plan_config config = {
        .seed = round,
        .num_epochs = 3,
        .seq_len = SEQ_LEN,
        .shuffle = (enum rp_shuffle)(round % 3),
        .block_documents = 7,
        .window_blocks = 3,
        .packing = (enum rp_packing)(round / 3 % 3),
        .window = 4,
        .row_gap = (enum rp_row_gap)(round / 9 % 2),
        .long_doc = (enum rp_long_doc)(round / 18 % 3),
        .max_docs_per_row = 8,
        .lanes = 1 + (uint32_t)(round / 2 % 3),
    };
    struct rp_plan *plan;
    assert_int_equal(rp_plan_open(&plan, &config, corpus->sources, SOURCES, NULL), 0);
    return plan;
}

/* A document is in no row before it is drawn; each epoch emits its first token once, in a row that
 * is planned when it was drawn; once it is drawn and not held, no part of it follows. */
static void check_document(const struct corpus *corpus, uint64_t round, uint32_t source,
                           uint64_t document, uint64_t epoch)
{
    struct rp_plan *plan = open_plan(corpus, round);
    struct rp_draw draw = rp_plan_draw(plan, source, document, epoch);
    struct rp_row row;
    uint64_t begins = 0;
    bool is_over = false;
    while (rp_plan_next(plan, &row, NULL) == 1) {
        for (uint32_t i = 0; i < row.count; i++) {
            const struct rp_fragment *fragment = &row.fragments[i];
            if (fragment->source != source || fragment->document != document ||
                rp_plan_epoch(plan, &row, i) != epoch)
                continue;
            assert_true(rp_plan_has_drawn(plan, &draw));
            assert_int_equal(row.row % (1 + round / 2 % 3), draw.lane);
            assert_false(is_over);
            begins += fragment->offset == 0;
        }
        is_over = rp_plan_has_drawn(plan, &draw) && !rp_plan_holds(plan, &draw);
    }
    assert_true(rp_plan_has_drawn(plan, &draw));
    uint64_t length = corpus->lengths[source][document];
    bool is_delivered = length > 0 && (length <= SEQ_LEN || round / 18 % 3 != RP_LONG_DOC_DROP);
    assert_int_equal(begins, is_delivered);
    rp_plan_close(plan);
}

static void documents_are_found_in_their_epoch(void **state)
{
    (void)state;
    uint64_t seed = test_seed("trace");
    for (uint64_t round = 0; round < 54; round++) {
        struct corpus corpus;
        corpus_make(&corpus, SOURCES, DOCUMENTS, SEQ_LEN, &seed);
        for (uint32_t i = 0; i < 12; i++)
            check_document(&corpus, round, i % SOURCES,
                           draw_below(&seed, corpus.sources[i % SOURCES].documents),
                           draw_below(&seed, 3));
    }
}

static void a_change_of_weights_is_noticed(void **state)
{
    (void)state;
    uint64_t seed = test_seed("weights");
    struct corpus corpus;
    struct rp_row row;
    corpus_make(&corpus, SOURCES, DOCUMENTS, SEQ_LEN, &seed);
    struct rp_plan *plan = open_plan(&corpus, 0);
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(rp_plan_next(plan, &row, NULL), 1);
    assert_false(rp_plan_is_reweighted(plan));
    uint8_t *token = malloc(rp_plan_state_bytes_max(plan));
    size_t bytes = rp_plan_save(plan, token);
    rp_plan_close(plan);
    corpus.sources[0].weight += 7;
    plan = open_plan(&corpus, 0);
    assert_false(rp_plan_is_reweighted(plan));
    assert_int_equal(rp_plan_load(plan, token, bytes, true, NULL), 0);
    for (uint32_t i = 0; i < 5; i++) {
        assert_true(rp_plan_is_reweighted(plan));
        assert_int_equal(rp_plan_next(plan, &row, NULL), 1);
    }
    free(token);
    rp_plan_close(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_are_found_in_their_epoch),
        cmocka_unit_test(a_change_of_weights_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
