/* SPDX-License-Identifier: Apache-2.0 */
/* Documents that a state token has used: a row has or had their first token, or they were passed
 * over (STREAM2.md section 12.7). Tokens of version 2, and of version 1 with one lane. */
#include "v2_token_kit.h"

#include "plan/order.h"
#include "plan/v2/unseen.h"

static uint8_t token[KIT_TOKEN_BYTES];

/* The definition of STREAM2.md section 12.7, document by document. */
static bool is_used(const struct rp_token2 *t, uint32_t j, const struct kit_source *source,
                    const uint64_t *order, uint64_t document)
{
    const struct rp_source_state *state = &t->sources[j].state;
    const struct rp_snapshot *s = &t->snapshot;
    uint64_t group = t->header.group, item = document / group, at = 0;
    if (document >= state->documents)
        return false;
    while (order[at] != item)
        at++;
    for (uint32_t i = 0; i < s->fifo_count + s->pool_count + s->open_piece_count; i++) {
        const struct rp_item_piece *piece =
            i < s->fifo_count ? &s->fifo[i]
            : i < s->fifo_count + s->pool_count
                ? &s->pool[i - s->fifo_count].piece
                : &s->open_pieces[i - s->fifo_count - s->pool_count];
        bool is_whole = group > 1 || piece->length == kit_length(source, document) + 1; /* BOS */
        if (piece->source == j && piece->item == item && piece->offset == 0 && is_whole)
            return false;
    }
    return at < state->position || state->pass > 0 ||
           (state->epoch > 0 && document < state->before);
}

/* Items of pass 0 of the token's epoch, by position. */
static void list_order(const struct rp_token2 *t, uint32_t j, uint64_t *order)
{
    const struct rp_token2_header *header = &t->header;
    const struct rp_source_state *state = &t->sources[j].state;
    uint64_t items = state->documents / header->group;
    struct rp_order items_order;
    rp_order_init_items(&items_order, (enum rp_shuffle)header->shuffle, items,
                        header->block_documents / header->group, header->window_blocks);
    const char *name = t->sources[j].name;
    rp_order_enter_key(
        &items_order, state->epoch,
        rp_pass_key_make(header->seed, rp_hash64(name, strlen(name)), state->epoch, 0));
    for (uint64_t at = 0; at < items;)
        at += rp_order_read(&items_order, at, order + at);
}

static void check_source(const struct rp_token2 *t, size_t bytes, struct kit_stream *kit,
                         uint32_t j, unsigned *used_out)
{
    uint64_t order[128] = {0}, documents[64];
    bool used[64];
    struct rp_unseen *unseen;
    struct rp_error error = {0};
    const struct rp_unseen_source source = {t->sources[j].name, 0, &kit->sources[j].view,
                                            kit->sources[j].documents};
    int code = rp_unseen_open(&unseen, token, bytes, &source, &error);
    if (t->header.next_row != t->header.window_first) { /* its cursors are of window_first */
        assert_int_equal(code, -RP_E_MISMATCH);
        return;
    }
    if (code != 0)
        fail_msg("%s", error.message);
    list_order(t, j, order);
    uint32_t count = (uint32_t)kit->sources[j].documents;
    for (uint64_t d = 0; d < count; d++)
        documents[d] = d;
    rp_planner_token_used(unseen, documents, count, used);
    for (uint64_t d = 0; d < count; d++) {
        if (used[d] != is_used(t, j, &kit->contexts[j], order, d))
            fail_msg("source %" PRIu32 ", document %" PRIu64 ": %d", j, d, used[d]);
        *used_out += used[d];
    }
    rp_unseen_close(unseen);
}

static void used_documents_match_the_definition(void **state)
{
    (void)state;
    unsigned used = 0;
    for (uint32_t variant = 0; variant < KIT_VARIANTS; variant++) {
        struct kit_stream kit;
        kit_make(&kit, variant);
        for (uint64_t row = 0; row < 36; row += 5) {
            struct rp_token2 decoded;
            struct rp_error error = {0};
            size_t bytes = kit_token_at(&kit.spec, row, token);
            assert_int_equal(rp_token2_decode(&decoded, token, bytes, &error), 0);
            for (uint32_t j = 0; j < decoded.header.source_count; j++)
                check_source(&decoded, bytes, &kit, j, &used);
            rp_token2_free(&decoded);
        }
    }
    assert_true(used > 1000);
}

static void other_documents_are_refused(void **state)
{
    (void)state;
    struct kit_stream kit;
    struct rp_unseen *unseen;
    struct rp_error error = {0};
    kit_make(&kit, 6);
    size_t bytes = kit_token_at(&kit.spec, 8, token);
    struct rp_unseen_source source = {"nobody", 0, &kit.sources[0].view, 30};
    assert_int_equal(rp_unseen_open(&unseen, token, bytes, &source, &error), -RP_E_MISMATCH);
    assert_non_null(strstr(error.message, "nobody"));
    source.name = kit_names[0];
    source.documents = 29;
    assert_int_equal(rp_unseen_open(&unseen, token, bytes, &source, &error), -RP_E_MISMATCH);
    source.documents = 30;
    kit.contexts[0].salt = 9;
    assert_int_equal(rp_unseen_open(&unseen, token, bytes, &source, &error), -RP_E_MISMATCH);
    assert_non_null(strstr(error.message, "fingerprint"));
    token[40] ^= 1;
    assert_int_equal(rp_unseen_open(&unseen, token, bytes, &source, &error), -RP_E_CORRUPT);
}

/* ---- version 1 ------------------------------------------------------------------------------- */

static void first_lengths(const void *context, const uint64_t *documents, uint32_t count,
                          uint64_t *tokens)
{
    for (uint32_t i = 0; i < count; i++)
        tokens[i] = corpus_length(context, documents[i]);
}

/* Without groups, split or insertions, a document is used once a row has its first token, if it is
 * not too long for a row. */
static void documents_of_version_1(void **state)
{
    (void)state;
    uint64_t random = 11;
    for (uint32_t variant = 0; variant < PLAN_VARIANTS; variant++) {
        struct rp_plan_config config = plan_variant(variant);
        struct corpus corpus;
        struct rp_error error = {0};
        struct rp_unseen *unseen;
        bool begun[CORPUS_DOCUMENTS_MAX] = {false}, used[CORPUS_DOCUMENTS_MAX];
        uint64_t documents[CORPUS_DOCUMENTS_MAX];
        corpus_make(&corpus, 2, 60, config.seq_len, &random);
        struct rp_plan *plan = plan_open(&config, &corpus);
        struct rp_row row;
        for (unsigned n = 0; n < 9 && plan_next(plan, &row); n++)
            for (uint32_t i = 0; i < row.count; i++)
                if (row.fragments[i].source == 1)
                    begun[row.fragments[i].document] = true;
        size_t bytes = rp_plan_save(plan, token);
        rp_plan_close(plan);
        const struct rp_source_view view = {.context = corpus.lengths[1], .lengths = first_lengths};
        const struct rp_unseen_source source = {NULL, 1, &view, corpus.sources[1].documents};
        int code = rp_unseen_open(&unseen, token, bytes, &source, &error);
        assert_int_equal(code, config.lanes > 1 ? -RP_E_VERSION : 0);
        if (code < 0)
            continue;
        for (uint64_t d = 0; d < source.documents; d++)
            documents[d] = d;
        rp_planner_token_used(unseen, documents, (uint32_t)source.documents, used);
        for (uint64_t d = 0; d < source.documents; d++) {
            uint64_t length = corpus.lengths[1][d];
            bool may_vanish = length == 0 || length > config.seq_len;
            if (begun[d] ? !used[d] : used[d] && !may_vanish)
                fail_msg("%s: document %" PRIu64 " of %" PRIu64 " tokens", plan_describe(&config),
                         d, length);
        }
        rp_unseen_close(unseen);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(used_documents_match_the_definition),
        cmocka_unit_test(other_documents_are_refused),
        cmocka_unit_test(documents_of_version_1),
    };
    return cmocka_run_group_tests_name("v2_unseen", tests, NULL, NULL);
}
