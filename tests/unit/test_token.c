/* SPDX-License-Identifier: Apache-2.0 */
/* State tokens: a plan that takes one continues exactly; damaged bytes and tokens of other streams
 * are refused. */
#include "token_kit.h"

static bool rows_equal(const struct rp_row *a, const struct rp_row *b)
{
    return a->row == b->row && a->count == b->count &&
           memcmp(a->fragments, b->fragments, a->count * sizeof *a->fragments) == 0;
}

/* True if both plans give the same next `rows` rows and then stand in the same state. */
static bool go_on_alike(struct rp_plan *a, struct rp_plan *b, int rows)
{
    static uint8_t state_a[TOKEN_BYTES_MAX], state_b[TOKEN_BYTES_MAX];
    for (int i = 0; i < rows; i++) {
        struct rp_row row_a, row_b;
        bool more_a = plan_next(a, &row_a), more_b = plan_next(b, &row_b);
        if (more_a != more_b || (more_a && !rows_equal(&row_a, &row_b)))
            return false;
    }
    size_t bytes = save(a, state_a);
    return save(b, state_b) == bytes && memcmp(state_a, state_b, bytes) == 0;
}

static void a_plan_resumes_at_every_row(void **state)
{
    (void)state;
    uint64_t random = test_seed("a_plan_resumes_at_every_row");
    for (uint32_t variant = 0; variant < PLAN_VARIANTS; variant++) {
        struct rp_plan_config config = plan_variant(variant);
        struct corpus corpus;
        corpus_make(&corpus, 1 + variant % CORPUS_SOURCES_MAX, 40, config.seq_len, &random);
        struct rp_plan *plan = plan_open(&config, &corpus);
        struct rp_plan *chain = plan_open(&config, &corpus); /* resumes itself at every row */
        bool more = true;
        while (more) {
            static uint8_t token[TOKEN_BYTES_MAX], again[TOKEN_BYTES_MAX];
            size_t bytes = save(plan, token);
            assert_int_equal(save(chain, again), bytes);
            assert_memory_equal(token, again, bytes);
            load(chain, token, bytes);
            assert_int_equal(save(chain, again), bytes);
            assert_memory_equal(token, again, bytes);

            struct rp_plan *fresh = plan_open(&config, &corpus);
            load(fresh, token, bytes);
            if (!go_on_alike(fresh, chain, 3))
                fail_msg("%s: resumed at row %" PRIu64, plan_describe(&config), rp_plan_row(plan));
            rp_plan_close(fresh);

            load(chain, token, bytes); /* back to where the plan stands */
            struct rp_row row, resumed;
            more = plan_next(plan, &row);
            assert_int_equal(plan_next(chain, &resumed), more);
        }
        rp_plan_close(plan);
        rp_plan_close(chain);
    }
}

/* Control for the test above: a plan that lost one fragment does not continue alike. */
static void a_lost_fragment_is_noticed(void **state)
{
    (void)state;
    static uint8_t token[TOKEN_BYTES_MAX];
    struct rp_plan_config config = plan_variant(18);
    struct corpus corpus;
    uint64_t random = 3;
    corpus_make(&corpus, 1, 100, config.seq_len, &random);
    struct rp_plan *plan = plan_open(&config, &corpus), *other = plan_open(&config, &corpus);
    struct rp_row row;
    for (int i = 0; i < 10; i++)
        assert_true(plan_next(plan, &row));
    load(other, token, save(plan, token));
    struct rp_lane *lane = &other->lanes[0];
    rp_window_remove(&lane->window, rp_window_oldest(&lane->window));
    assert_false(go_on_alike(plan, other, 3));
    rp_plan_close(plan);
    rp_plan_close(other);
}

/* The token must be refused and leave the plan as it was. */
static void refuse(struct rp_plan *plan, const uint8_t *token, size_t bytes, int code)
{
    static uint8_t before[TOKEN_BYTES_MAX], after[TOKEN_BYTES_MAX];
    struct rp_error error = {0};
    struct rp_state_info info;
    size_t state_bytes = save(plan, before);
    int found = rp_plan_load(plan, token, bytes, false, &error);
    if (found == 0 || (code != 0 && found != code))
        fail_msg("expected %d, found %d: %s", code, found, error.message);
    assert_true(error.message[0] != 0 && error.hint[0] != 0);
    assert_int_equal(save(plan, after), state_bytes);
    assert_memory_equal(before, after, state_bytes);
    if (code == -RP_E_CORRUPT)
        assert_int_equal(rp_state_info(token, bytes, &info, &error), code);
}

static void every_flipped_bit_and_truncation_is_refused(void **state)
{
    (void)state;
    for (uint32_t variant = 18; variant < PLAN_VARIANTS; variant += 37) {
        static uint8_t token[TOKEN_BYTES_MAX + 1];
        struct corpus corpus;
        size_t bytes;
        struct rp_plan *plan = open_in_midstream(variant, &corpus, token, &bytes);
        for (size_t bit = 0; bit < bytes * 8; bit++) {
            token[bit / 8] ^= (uint8_t)(1u << bit % 8);
            refuse(plan, token, bytes, -RP_E_CORRUPT);
            token[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        for (size_t shorter = 0; shorter < bytes; shorter++) {
            uint8_t *exact = malloc(shorter +
                                    1); /* so that the sanitizer sees a read past the end */
            memcpy(exact, token, shorter);
            refuse(plan, exact, shorter, -RP_E_CORRUPT);
            free(exact);
        }
        refuse(plan, token, bytes + 1, -RP_E_CORRUPT);
        load(plan, token, bytes); /* control: the untouched token is taken */
        rp_plan_close(plan);
    }
}

static void a_foreign_version_is_told_apart_from_damage(void **state)
{
    (void)state;
    static uint8_t token[TOKEN_BYTES_MAX];
    struct corpus corpus;
    struct rp_error error = {0};
    struct rp_state_info info;
    size_t bytes;
    struct rp_plan *plan = open_in_midstream(4, &corpus, token, &bytes);
    rp_store_u32(token + offsetof(struct rp_state_header, version), 5);
    rehash(token, bytes);
    refuse(plan, token, bytes, -RP_E_VERSION);
    assert_int_equal(rp_state_info(token, bytes, &info, &error), -RP_E_VERSION);
    rp_plan_close(plan);
}

/* ---- mismatches --------------------------------------------------------------------------------
 */

/* Load the token of one configuration into a plan of another; the message must have all three
 * words. */
static void expect_mismatch(const uint8_t *token, size_t bytes, const struct rp_plan_config *config,
                            const struct corpus *corpus, const char *field, const char *in_token,
                            const char *in_plan)
{
    struct rp_plan *plan = plan_open(config, corpus);
    struct rp_error error = {0};
    assert_int_equal(rp_plan_load(plan, token, bytes, false, &error), -RP_E_MISMATCH);
    if (!strstr(error.message, field) || !strstr(error.message, in_token) ||
        !strstr(error.message, in_plan) || error.hint[0] == 0)
        fail_msg("`%s`, expected %s %s %s", error.message, field, in_token, in_plan);
    rp_plan_close(plan);
}

static void a_mismatch_names_field_and_values(void **state)
{
    (void)state;
    static uint8_t token[TOKEN_BYTES_MAX];
    struct corpus corpus;
    size_t bytes;
    rp_plan_close(open_in_midstream(36, &corpus, token, &bytes)); /* lookahead, block, 1 source */
    struct rp_plan_config original = plan_variant(36);
    original.corpus_full = (struct rp_hash128){3, 4};
    original.tokenizer = (struct rp_hash128){5, 6};
#define EXPECT(field, value, name, in_token, in_plan)                                              \
    do {                                                                                           \
        struct rp_plan_config changed = original;                                                  \
        changed.field = value;                                                                     \
        expect_mismatch(token, bytes, &changed, &corpus, name, in_token, in_plan);                 \
    } while (0)
    EXPECT(seed, 5, "seed", "11400714819323198521", "5");
    EXPECT(seq_len, 62, "seq_len", "61", "62");
    EXPECT(shuffle, RP_SHUFFLE_DOCUMENT, "shuffle", "block", "document");
    EXPECT(packing, RP_PACKING_BEST_FIT, "packing", "lookahead", "best_fit");
    EXPECT(row_gap, RP_ROW_GAP_SPLIT, "row_gap", "pad", "split");
    EXPECT(long_doc, RP_LONG_DOC_DROP, "long_doc", "split", "drop");
    EXPECT(window, 10, "packing_buffer", "9", "10");
    EXPECT(max_docs_per_row, 7, "max_docs_per_row", "61", "7");
    EXPECT(block_documents, 8, "block_documents", "7", "8");
    EXPECT(window_blocks, 4, "window_blocks", "3", "4");
    EXPECT(lanes, 2, "plan_partitions", "1", "2");
    EXPECT(num_epochs, 3, "num_epochs", "2", "3");
    EXPECT(corpus_sampled.low, 9, "sampled fingerprint", "00020000000000000001",
           "00020000000000000009");
    EXPECT(corpus_full.low, 9, "full fingerprint", "00040000000000000003", "00040000000000000009");
    EXPECT(tokenizer.low, 9, "tokenizer", "00060000000000000005", "00060000000000000009");
#undef EXPECT
    corpus.sources[0].weight = 12;
    expect_mismatch(token, bytes, &original, &corpus, "weight of source 0", "1", "12");
    corpus.sources[0].weight = 1;
    corpus.sources[0].documents = 49;
    expect_mismatch(token, bytes, &original, &corpus, "documents of source 0", "50", "49");
    corpus.sources[0].documents = 50;
    corpus.sources[1] = corpus.sources[0];
    corpus.source_count = 2;
    expect_mismatch(token, bytes, &original, &corpus, "number of sources", "1", "2");

    corpus.source_count = 1; /* a full fingerprint that one side does not know is not compared */
    original.corpus_full = (struct rp_hash128){0, 0};
    original.tokenizer = (struct rp_hash128){0, 0}; /* nor is a tokenizer */
    struct rp_plan *plan = plan_open(&original, &corpus);
    static uint8_t again[TOKEN_BYTES_MAX];
    load(plan, token, bytes);
    assert_int_equal(save(plan, again), bytes);
    static const uint8_t zeros[HASH_BYTES];
    assert_memory_equal(again + bytes - 3 * HASH_BYTES, zeros, HASH_BYTES);
    rp_plan_close(plan);
}

/* ---- the plan digest ------------------------------------------------------------------------ */

/* An older release's version in this place: 2, or 1 without a known tokenizer. */
static size_t as_older(uint8_t *token, size_t bytes, bool has_tokenizer)
{
    size_t shorter = bytes - (has_tokenizer ? 1u : 2u) * HASH_BYTES;
    rp_store_u32(token + offsetof(struct rp_state_header, version), has_tokenizer ? 2 : 1);
    rp_store_u32(token + offsetof(struct rp_state_header, bytes), (uint32_t)shorter);
    rehash(token, shorter);
    return shorter;
}

/* A token of an older release is taken, and a plan from it writes that release's tokens: the digest
 * stays unknown, and is known again with the next token that has it. */
static void a_token_without_a_digest_never_gets_one(void **state)
{
    (void)state;
    static uint8_t token[TOKEN_BYTES_MAX], older[TOKEN_BYTES_MAX], next[TOKEN_BYTES_MAX];
    for (uint32_t variant = 0; variant < PLAN_VARIANTS; variant += 5) {
        for (int has_tokenizer = 0; has_tokenizer < 2; has_tokenizer++) {
            struct corpus corpus;
            struct rp_state_info info;
            struct rp_error error = {0};
            struct rp_row row;
            size_t bytes;
            struct rp_plan *plan = open_in_midstream(variant, &corpus, token, &bytes);
            if (!has_tokenizer)
                plan->config.tokenizer = (struct rp_hash128){0, 0};
            memcpy(older, token, bytes);
            size_t shorter = as_older(older, bytes, has_tokenizer);
            load(plan, older, shorter);
            assert_int_equal(rp_state_info(older, shorter, &info, &error), 0);
            assert_false(rp_hash128_is_known(info.digest) ||
                         rp_hash128_is_known(rp_plan_digest(plan)));
            assert_int_equal(save(plan, next), shorter);
            assert_memory_equal(next, older, shorter);
            assert_true(plan_next(plan, &row));
            assert_false(rp_hash128_is_known(rp_plan_digest(plan)));

            assert_int_equal(rp_state_info(token, bytes, &info, &error), 0);
            load(plan, token, bytes);
            assert_true(rp_hash128_equal(rp_plan_digest(plan), info.digest));
            rp_plan_close(plan);
        }
    }
}

static void a_token_without_what_its_version_says_is_refused(void **state)
{
    (void)state;
    static uint8_t token[TOKEN_BYTES_MAX];
    struct corpus corpus;
    size_t bytes;
    struct rp_plan *plan = open_in_midstream(36, &corpus, token, &bytes);
    memset(token + bytes - 2 * HASH_BYTES, 0, HASH_BYTES);
    rehash(token, bytes);
    refuse(plan, token, bytes, -RP_E_CORRUPT);
    rp_plan_close(plan);
    plan = open_in_midstream(36, &corpus, token, &bytes);
    memset(token + bytes - 3 * HASH_BYTES, 0, HASH_BYTES); /* no tokenizer */
    bytes = as_older(token, bytes, true);
    refuse(plan, token, bytes, -RP_E_CORRUPT);
    rp_plan_close(plan);
}

static struct rp_hash128 identity_of(const struct rp_plan *plan)
{
    struct rp_record_writer writer = {0};
    rp_plan_contract(plan, &writer);
    struct rp_record record = {writer.text, writer.bytes};
    struct rp_hash128 identity = rp_record_hash(&record);
    free(writer.text);
    return identity;
}

/* New weights begin at the row of the token: no row is lost or repeated, and shares count from
 * there. */
static void weights_can_change_at_a_row(void **state)
{
    (void)state;
    static uint8_t token[TOKEN_BYTES_MAX], changed[TOKEN_BYTES_MAX];
    struct corpus corpus;
    struct rp_error error = {0};
    size_t bytes;
    struct rp_plan *plan = open_in_midstream(1, &corpus, token, &bytes); /* concat, two sources */
    struct rp_plan_config config = plan_variant(1);
    struct rp_hash128 identity = identity_of(plan);
    assert_int_equal(rp_plan_load(plan, token, bytes, true, &error),
                     0); /* equal weights: no change */
    assert_int_equal(save(plan, changed), bytes);
    assert_memory_equal(token, changed, bytes);

    struct corpus reweighted = corpus;
    for (uint32_t s = 0; s < corpus.source_count; s++)
        reweighted.sources[s].lengths = reweighted.lengths[s];
    reweighted.sources[0].weight = 1000000;
    config.corpus_full = (struct rp_hash128){3, 4};
    struct rp_plan *other = plan_open(&config, &reweighted);
    assert_false(rp_hash128_equal(identity, identity_of(other)));
    assert_int_equal(rp_plan_load(other, token, bytes, false, &error), -RP_E_MISMATCH);
    assert_int_equal(rp_plan_load(other, token, bytes, true, &error), 0);
    assert_int_equal(rp_plan_row(other), 13);
    assert_int_equal(other->lanes[0].piece_source.mixing.mixed[0], 0);
    assert_int_equal(other->lanes[0].piece_source.cursors[1].position,
                     plan->lanes[0].piece_source.cursors[1].position);
    size_t changed_bytes = save(other, changed);
    load(other, changed, changed_bytes);
    struct rp_row row;
    while (plan_next(other, &row))
        ;
    struct rp_plan_counts counts;
    rp_plan_counts(other, &counts);
    assert_int_equal(counts.documents,
                     2 * (corpus.sources[0].documents + corpus.sources[1].documents));
    rp_plan_close(plan);
    rp_plan_close(other);
}

/* Short documents by the dozen, and now and then a row that leaves the open one as it is: best_fit
 * holds as many fragments as it can, all in one row. */
static void the_bound_of_a_token_is_met_and_kept(void **state)
{
    (void)state;
    static uint8_t token[TOKEN_BYTES_MAX];
    for (uint32_t window = 1; window <= 3; window++) {
        struct corpus corpus;
        struct rp_row row;
        uint64_t random = window;
        corpus_make(&corpus, 1, 50, 1000, &random);
        for (uint64_t d = 0; d < 50; d++)
            corpus.lengths[0][d] = d % 25 == 24 ? 1000 : 1;
        struct rp_plan_config config = plan_variant(0);
        config.packing = RP_PACKING_BEST_FIT;
        config.seq_len = config.max_docs_per_row = 1000;
        config.window = window;
        config.num_epochs = 0;
        struct rp_plan *plan = plan_open(&config, &corpus);
        size_t most = 0;
        for (int i = 0; i < 2000; i++) {
            assert_true(plan_next(plan, &row));
            most = rp_max_u64(most, save(plan, token)); /* which checks the bound */
        }
        size_t spare = (RP_AGE_MAX_WINDOWS * window / 24 + 3) * sizeof(struct rp_fragment) +
                       (window - 1) * sizeof(struct rp_state_open_row) +
                       sizeof(struct rp_state_piece);
        assert_true(most + spare >= rp_plan_state_bytes_max(plan));
        rp_plan_close(plan);
    }
}

static void listing_reads_what_the_plan_wrote(void **state)
{
    (void)state;
    for (uint32_t variant = 0; variant < PLAN_VARIANTS; variant++) {
        static uint8_t token[TOKEN_BYTES_MAX];
        struct corpus corpus;
        struct rp_error error = {0};
        struct rp_state_info info;
        struct rp_plan_counts counts;
        size_t bytes;
        struct rp_plan *plan = open_in_midstream(variant, &corpus, token, &bytes);
        assert_int_equal(rp_state_info(token, bytes, &info, &error), 0);
        rp_plan_counts(plan, &counts);
        counts.cuts = counts.capped = 0;
        assert_memory_equal(&info.counts, &counts, sizeof counts);
        assert_int_equal(info.next_row, 13);
        assert_true(rp_hash128_equal(info.digest, rp_plan_digest(plan)));
        assert_int_equal(info.bytes, bytes);
        assert_int_equal(info.source_count, corpus.source_count);
        assert_int_equal(info.config.seed, plan->config.seed);
        assert_int_equal(info.config.packing, plan->config.packing);
        assert_int_equal(info.config.lanes, plan->config.lanes);
        assert_int_equal(info.config.window, plan->config.window);
        assert_true(rp_hash128_equal(info.config.corpus_full, plan->config.corpus_full));
        rp_plan_close(plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_resumes_at_every_row),
        cmocka_unit_test(a_lost_fragment_is_noticed),
        cmocka_unit_test(every_flipped_bit_and_truncation_is_refused),
        cmocka_unit_test(a_foreign_version_is_told_apart_from_damage),
        cmocka_unit_test(a_mismatch_names_field_and_values),
        cmocka_unit_test(a_token_without_a_digest_never_gets_one),
        cmocka_unit_test(a_token_without_what_its_version_says_is_refused),
        cmocka_unit_test(weights_can_change_at_a_row),
        cmocka_unit_test(the_bound_of_a_token_is_met_and_kept),
        cmocka_unit_test(listing_reads_what_the_plan_wrote),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
