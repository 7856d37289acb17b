/* SPDX-License-Identifier: Apache-2.0 */
/* False state tokens with a right hash: no field of them is believed. */
#include "token_kit.h"

/* Overwrite 1 to 4 words, of any width, mostly with numbers that are near a border. */
static void mutate(uint8_t *token, size_t bytes, uint64_t *random)
{
    static const uint64_t borders[] = {
        0, 1, 2, 9, 10, 61, 62, 400, UINT32_MAX, UINT64_MAX, UINT64_C(1) << 63, UINT64_C(1) << 31};
    for (uint64_t changes = 1 + draw_below(random, 4); changes > 0; changes--) {
        size_t width = (size_t)1 << draw_below(random, 4);
        size_t at = draw_below(random, bytes - HASH_BYTES - width) & ~(width - 1);
        uint64_t value;
        memcpy(&value, token + at, 8);
        switch (draw_below(random, 4)) {
        case 0:
            value = borders[draw_below(random, RP_ARRAY_COUNT(borders))];
            break;
        case 1:
            value += draw_below(random, 5) - 2;
            break;
        case 2:
            value ^= UINT64_C(1) << draw_below(random, 8 * width);
            break;
        default: /* another record's */
            memcpy(&value, token + (draw_below(random, bytes - 8) & ~(size_t)7), 8);
        }
        memcpy(token + at, &value, width);
    }
}

/* A false token with a right hash must be refused, or be one that a plan can continue from. */
static void lying_tokens_do_no_harm(void **state)
{
    (void)state;
    uint64_t random = test_seed("lying_tokens_do_no_harm");
    uint64_t taken = 0, refused = 0;
    for (uint32_t variant = 0; variant < PLAN_VARIANTS; variant++) {
        static uint8_t token[TOKEN_BYTES_MAX], lie[TOKEN_BYTES_MAX];
        struct corpus corpus;
        size_t bytes;
        struct rp_plan *plan = open_in_midstream(variant, &corpus, token, &bytes);
        for (int i = 0; i < 400; i++) {
            memcpy(lie, token, bytes);
            mutate(lie, bytes, &random);
            if (i % 8 != 0)
                memcpy(lie, token, offsetof(struct rp_state_header, next_row));
            size_t length = i % 16 == 3 ? bytes - 8 * draw_below(&random, 5) : bytes;
            rp_store_u32(lie + offsetof(struct rp_state_header, bytes), (uint32_t)length);
            rehash(lie, length);
            struct rp_error error = {0};
            struct rp_state_info info;
            struct rp_row row;
            int listed = rp_state_info(lie, length, &info, &error);
            assert_true(listed == 0 || error.message[0]);
            if (rp_plan_load(plan, lie, length, i % 2, &error) < 0) {
                refused++;
                continue;
            }
            taken++;
            for (int r = 0; r < 20 && rp_plan_next(plan, &row, &error) > 0; r++)
                assert_true(row.tokens <= plan->config.seq_len);
            load(plan, token, bytes);
        }
        rp_plan_close(plan);
    }
    printf("lying_tokens_do_no_harm: %" PRIu64 " refused, %" PRIu64 " taken\n", refused, taken);
    assert_true(refused > 0);
}

/* ---- tokens that a single check must catch --------------------------------------------------- */

static size_t lane_offset(const struct corpus *corpus)
{
    return sizeof(struct rp_state_header) + corpus->source_count * sizeof(struct rp_state_source);
}

static void each_value_is_checked_against_the_corpus(void **state)
{
    (void)state;
    static uint8_t token[TOKEN_BYTES_MAX], lie[TOKEN_BYTES_MAX];
    struct corpus corpus;
    size_t bytes;
    struct rp_plan *plan = open_in_midstream(18, &corpus, token, &bytes); /* lookahead, one lane */
    size_t lane = lane_offset(&corpus), cursor = lane + sizeof(struct rp_state_lane);
    size_t piece = cursor + corpus.source_count * sizeof(struct rp_state_cursor);
    uint64_t one_fewer = rp_load_u64(token + lane + offsetof(struct rp_lane_counts, documents)) - 1;
    const struct {
        size_t at, bytes;
        uint64_t value;
        const char *word;
    } lies[] = {
        {lane + offsetof(struct rp_state_lane, fifo), 4, 10, "FIFO"},
        {lane + offsetof(struct rp_state_lane, pending), 4, 2, "pending"},
        {lane + offsetof(struct rp_state_lane, open_rows), 4, 1, "open rows"},
        {lane + offsetof(struct rp_lane_counts, documents), 8, 9999, "documents"},
        {lane + offsetof(struct rp_lane_counts, documents), 8, one_fewer, "documents"},
        {lane + offsetof(struct rp_lane_counts, tokens_read), 8, 9999, "tokens were read"},
        {lane + offsetof(struct rp_lane_counts, padding), 8, 1, "padding"},
        {lane + offsetof(struct rp_lane_counts, placed), 8, 1, "placed"},
        {cursor, 8, 3, "epoch 3 of 2"},
        {cursor + 8, 8, 50, "position 50 of 50"},
        {cursor + 16, 8, UINT64_MAX, "mixing"},
        {piece, 8, 50, "document 50"},
        {piece + 8, 8, 1, "expected a multiple of 61"},
        {piece + 32 + 8, 8, 1, "expected a multiple of 61"},
        {piece + 16, 8, 100000, "100000 tokens"},
        {piece + 24, 4, 3, "source 3"},
        {offsetof(struct rp_state_header, next_row), 8, 12, "row 12"},
    };
    for (size_t i = 0; i < RP_ARRAY_COUNT(lies); i++) {
        memcpy(lie, token, bytes);
        memcpy(lie + lies[i].at, &lies[i].value, lies[i].bytes);
        rehash(lie, bytes);
        struct rp_error error = {0};
        assert_int_equal(rp_plan_load(plan, lie, bytes, false, &error), -RP_E_CORRUPT);
        if (!strstr(error.message, lies[i].word))
            fail_msg("`%s` does not say `%s`", error.message, lies[i].word);
    }
    rp_plan_close(plan);
}

static void an_epoch_behind_the_only_one_is_refused(void **state)
{
    (void)state;
    static uint8_t token[TOKEN_BYTES_MAX];
    struct corpus corpus;
    struct rp_row row;
    struct rp_error error = {0};
    uint64_t random = 6;
    corpus_make(&corpus, 1, 50, 61, &random);
    struct rp_plan_config config = plan_variant(0);
    config.num_epochs = 1;
    struct rp_plan *plan = plan_open(&config, &corpus);
    assert_true(plan_next(plan, &row));
    size_t bytes = save(plan, token);
    load(plan, token, bytes); /* control */
    uint64_t epoch = 2;
    memcpy(token + lane_offset(&corpus) + sizeof(struct rp_state_lane), &epoch, sizeof epoch);
    rehash(token, bytes);
    assert_int_equal(rp_plan_load(plan, token, bytes, false, &error), -RP_E_CORRUPT);
    assert_non_null(strstr(error.message, "source 0 is in epoch 2 of 1"));
    rp_plan_close(plan);
}

/* At the end of the stream only the number of filled rows gives the position. */
static void a_row_behind_the_end_is_refused(void **state)
{
    (void)state;
    for (uint32_t variant = 0; variant < PLAN_VARIANTS; variant++) {
        static uint8_t token[TOKEN_BYTES_MAX];
        struct corpus corpus;
        struct rp_row row;
        struct rp_error error = {0};
        uint64_t random = variant + 1;
        struct rp_plan_config config = plan_variant(variant);
        corpus_make(&corpus, 2, 50, config.seq_len, &random);
        struct rp_plan *plan = plan_open(&config, &corpus);
        while (plan_next(plan, &row))
            continue;
        size_t bytes = save(plan, token);
        uint64_t end = rp_plan_row(plan), behind = end + 1 + variant % 3;
        load(plan, token, bytes); /* control */
        memcpy(token + offsetof(struct rp_state_header, next_row), &behind, sizeof behind);
        rehash(token, bytes);
        assert_int_equal(rp_plan_load(plan, token, bytes, false, &error), -RP_E_CORRUPT);
        assert_int_equal(rp_plan_row(plan), end);
        rp_plan_close(plan);
    }
}

/* best_fit's limit of open rows bounds the next token, so a token may not bring more. */
static void open_rows_with_too_many_documents_are_refused(void **state)
{
    (void)state;
    static uint8_t token[TOKEN_BYTES_MAX], lie[TOKEN_BYTES_MAX];
    struct corpus corpus;
    struct rp_row row;
    struct rp_error error = {0};
    uint64_t random = 4;
    corpus_make(&corpus, 1, 50, 61, &random);
    for (uint64_t d = 0; d < 50; d++)
        corpus.lengths[0][d] = d % 10 == 9 ? 61 : 1; /* a row of its own, after short ones */
    struct rp_plan_config config = plan_variant(0);
    config.packing = RP_PACKING_BEST_FIT;
    config.max_docs_per_row = 61;
    config.window = 1;
    config.num_epochs = 0;
    struct rp_plan *plan = plan_open(&config, &corpus);
    size_t at = lane_offset(&corpus) + sizeof(struct rp_state_lane) +
                sizeof(struct rp_state_cursor);
    for (int i = 0; i < 300; i++)
        assert_true(plan_next(plan, &row));
    struct rp_state_open_row open = {0};
    while (open.fragments < 9) {
        assert_true(plan_next(plan, &row));
        (void)save(plan, token);
        memcpy(&open, token + at, sizeof open);
    }
    size_t bytes = save(plan, token);
    load(plan, token, bytes); /* control */
    uint64_t placed = plan->lanes[0].counts.placed;
    const struct {
        uint64_t opened_at;
        const char *word;
    } lies[] = {{placed - RP_AGE_MAX_WINDOWS, NULL},
                {placed - RP_AGE_MAX_WINDOWS - 1, "open row 0 was opened at"},
                {placed - open.fragments, NULL},
                {placed - open.fragments + 1, "more than documents were placed"}};
    for (size_t i = 0; i < RP_ARRAY_COUNT(lies); i++) {
        memcpy(lie, token, bytes);
        memcpy(lie + at, &lies[i].opened_at, sizeof lies[i].opened_at);
        rehash(lie, bytes);
        int code = rp_plan_load(plan, lie, bytes, false, &error);
        assert_int_equal(code, lies[i].word ? -RP_E_CORRUPT : 0);
        assert_true(!lies[i].word || strstr(error.message, lies[i].word));
    }
    rp_plan_close(plan);
}

/* lookahead holds a long document as the pending piece, with room for its rest in the FIFO. A token
 * that has it elsewhere would make the window keep a piece that never fits, or overflow. */
static void a_long_piece_is_only_taken_as_pending(void **state)
{
    (void)state;
    static uint8_t token[TOKEN_BYTES_MAX], lie[TOKEN_BYTES_MAX];
    struct corpus corpus;
    uint64_t random = 5;
    corpus_make(&corpus, 1, 50, 61, &random);
    for (uint64_t d = 0; d < 50; d++) /* in order: three that fit, then one of four rows */
        corpus.lengths[0][d] = d % 4 < 3 ? 40 : 4 * 61;
    struct rp_plan_config config = plan_variant(0); /* lookahead, pad, split, none, one lane */
    config.max_docs_per_row = 61;
    struct rp_plan *plan = plan_open(&config, &corpus);
    struct rp_row row;
    assert_true(plan_next(plan, &row)); /* the long document's, met after three others */
    size_t bytes = save(plan, token);

    size_t lane = lane_offset(&corpus);
    size_t pieces = lane + sizeof(struct rp_state_lane) + sizeof(struct rp_state_cursor);
    size_t fifo_at = lane + offsetof(struct rp_state_lane, fifo);
    size_t pending_at = lane + offsetof(struct rp_state_lane, pending);
    size_t long_at = pieces + 3 * sizeof(struct rp_state_piece);
    struct rp_state_piece piece;
    memcpy(&piece, token + long_at, sizeof piece);
    assert_int_equal(rp_load_u32(token + fifo_at), 3);
    assert_int_equal(rp_load_u32(token + pending_at), 1);
    assert_int_equal(piece.length, 3 * 61);
    load(plan, token, bytes); /* control */

    struct rp_error error = {0};
    memcpy(lie, token, bytes); /* the same pieces, all in the FIFO */
    rp_store_u32(lie + fifo_at, 4);
    rp_store_u32(lie + pending_at, 0);
    rehash(lie, bytes);
    assert_int_equal(rp_plan_load(plan, lie, bytes, false, &error), -RP_E_CORRUPT);
    assert_non_null(strstr(error.message, "FIFO piece 3 has 183 tokens; expected 1 to 61"));

    memcpy(lie, token, bytes); /* a pending piece that belongs into the FIFO */
    piece.offset = 3 * 61;
    piece.length = 61;
    memcpy(lie + long_at, &piece, sizeof piece);
    rehash(lie, bytes);
    assert_int_equal(rp_plan_load(plan, lie, bytes, false, &error), -RP_E_CORRUPT);
    assert_non_null(strstr(error.message, "pending piece 0 has 61 tokens; expected 62 to"));

    piece.offset = 17; /* a cut where lookahead makes none */
    piece.length = 4 * 61 - 17;
    memcpy(lie + long_at, &piece, sizeof piece);
    rehash(lie, bytes);
    assert_int_equal(rp_plan_load(plan, lie, bytes, false, &error), -RP_E_CORRUPT);
    assert_non_null(strstr(error.message, "expected a multiple of 61"));
    rp_plan_close(plan);

    config.window = 3; /* a FIFO without room for the rest of the pending piece */
    plan = plan_open(&config, &corpus);
    memcpy(lie, token, bytes);
    rp_store_u32(lie + offsetof(struct rp_state_header, window), 3);
    rehash(lie, bytes);
    assert_int_equal(rp_plan_load(plan, lie, bytes, false, &error), -RP_E_CORRUPT);
    assert_non_null(strstr(error.message, "in the place of one of the FIFO"));
    rp_plan_close(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lying_tokens_do_no_harm),
        cmocka_unit_test(each_value_is_checked_against_the_corpus),
        cmocka_unit_test(an_epoch_behind_the_only_one_is_refused),
        cmocka_unit_test(a_row_behind_the_end_is_refused),
        cmocka_unit_test(open_rows_with_too_many_documents_are_refused),
        cmocka_unit_test(a_long_piece_is_only_taken_as_pending),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
