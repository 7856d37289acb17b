/* SPDX-License-Identifier: Apache-2.0 */
/* State tokens of version 2: a stream continues exactly from any row; damaged and forged bytes are
 * refused; listings. Other configs: test_v2_token_match.c. */
#include "v2_token_kit.h"

static uint8_t token[KIT_TOKEN_BYTES], again[KIT_TOKEN_BYTES];

static void expect_same_token(struct kit_run *run, const uint8_t *expected, size_t bytes,
                              const char *where, uint32_t variant)
{
    size_t found = kit_save(run, again);
    if (found != bytes || memcmp(again, expected, bytes) != 0)
        fail_msg("variant %" PRIu32 ", row %" PRIu64 ": %s: other bytes", variant,
                 rp_planner_row(run->plan), where);
}

static bool rows_equal(const struct rp_stream_row *a, const struct rp_stream_row *b)
{
    return a->row == b->row && a->planned == b->planned && a->count == b->count &&
           a->skipped == b->skipped && a->cost == b->cost &&
           (a->count == 0 ||
            memcmp(a->fragments, b->fragments, a->count * sizeof *a->fragments) == 0);
}

/* A stream that resumes gives the same row and the same next token. */
static void continue_one_row(const struct rp_stream_spec *spec, uint32_t variant,
                             const struct rp_stream_resume *with, const uint8_t *at,
                             size_t at_bytes, const struct rp_stream_row *row, const uint8_t *next,
                             size_t next_bytes)
{
    struct rp_stream_row resumed;
    struct kit_run run = kit_resume_with(spec, at, at_bytes, with);
    expect_same_token(&run, at, at_bytes, "written again", variant);
    if (kit_next(&run, &resumed) != (row != NULL) || (row && !rows_equal(row, &resumed)))
        fail_msg("variant %" PRIu32 ": another row %" PRIu64, variant, resumed.row);
    expect_same_token(&run, next, next_bytes, "the next one", variant);
    kit_close(&run);
}

static void a_stream_resumes_at_every_row(void **state)
{
    (void)state;
    static uint8_t next[KIT_TOKEN_BYTES];
    uint64_t inside = 0;
    for (uint32_t variant = 0; variant < KIT_VARIANTS; variant++) {
        struct kit_stream kit;
        kit_make(&kit, variant);
        struct kit_run run = kit_open(&kit.spec);
        char *contract = kit_contract(&run);
        const struct rp_stream_resume bare = {.grow = true};
        const struct rp_stream_resume with_contract = {.begun_records = contract, .grow = true};
        size_t bytes = kit_save(&run, token), next_bytes;
        bool more = true;
        for (unsigned n = 0; n < KIT_ROWS && more; n++) {
            struct rp_stream_row row;
            struct rp_stream_position position = rp_planner_position(run.plan);
            inside += position.next_row > position.window_first;
            more = kit_next(&run, &row);
            next_bytes = kit_save(&run, next);
            const struct rp_stream_row *found = more ? &row : NULL;
            continue_one_row(&kit.spec, variant, &bare, token, bytes, found, next, next_bytes);
            continue_one_row(&kit.spec, variant, &with_contract, token, bytes, found, next,
                             next_bytes);
            memcpy(token, next, next_bytes);
            bytes = next_bytes;
        }
        free(contract);
        kit_close(&run);
    }
    assert_true(inside > 500); /* rows in the middle of deal windows are among them */
}

/* A stream that resumes itself at every row is the same stream. */
static void a_chain_of_resumes_is_the_same_stream(void **state)
{
    (void)state;
    for (uint32_t variant = 0; variant < KIT_VARIANTS; variant += 5) {
        struct kit_stream kit;
        kit_make(&kit, variant);
        struct kit_run run = kit_open(&kit.spec), chain = kit_open(&kit.spec);
        struct rp_stream_row row, other;
        for (unsigned n = 0; n < KIT_ROWS; n++) {
            size_t bytes = kit_save(&chain, token);
            expect_same_token(&run, token, bytes, "of the chain", variant);
            kit_close(&chain);
            chain = kit_resume(&kit.spec, token, bytes);
            if (!kit_next(&run, &row))
                break;
            assert_true(kit_next(&chain, &other));
            assert_true(rows_equal(&row, &other));
        }
        kit_close(&chain);
        kit_close(&run);
    }
}

/* ---- damage ---------------------------------------------------------------------------------- */

static void expect_damage(const struct rp_stream_spec *spec, size_t bytes)
{
    struct rp_planner_token_info info;
    struct rp_error error = {0};
    const struct rp_stream_resume with = {.grow = true};
    const char *const words[3] = {"state token"};
    kit_refuse_with(spec, token, bytes, &with, -RP_E_CORRUPT, words);
    assert_int_equal(rp_planner_token_info(token, bytes, &info, &error), -RP_E_CORRUPT);
}

static void every_flipped_bit_and_truncation_is_refused(void **state)
{
    (void)state;
    struct kit_stream kit;
    kit_make(&kit, 20); /* best_fit in deal windows */
    size_t bytes = kit_token_at(&kit.spec, 11, token);
    for (size_t bit = 0; bit < bytes * 8; bit++) {
        token[bit / 8] ^= (uint8_t)(1u << bit % 8);
        expect_damage(&kit.spec, bytes);
        token[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (size_t shorter = 0; shorter < bytes; shorter++)
        expect_damage(&kit.spec, shorter);
    struct kit_run run = kit_resume(&kit.spec, token, bytes); /* control: untouched it is taken */
    kit_close(&run);
}

static void another_version_is_told_apart_from_damage(void **state)
{
    (void)state;
    struct kit_stream kit;
    const struct rp_stream_resume with = {.grow = true};
    const char *const words[3] = {"version"};
    kit_make(&kit, 0);
    size_t bytes = kit_token_at(&kit.spec, 5, token);
    for (uint32_t version = 0; version < 7; version++) {
        rp_store_u32(token + offsetof(struct rp_token2_header, version), version);
        kit_rehash(token, bytes);
        if (version != RP_TOKEN_VERSION_CALENDAR)
            kit_refuse_with(&kit.spec, token, bytes, &with, -RP_E_VERSION, words);
    }
}

/* ---- forgery --------------------------------------------------------------------------------- */

/* A token whose values are changed, with the right length and hash, is refused. */
typedef void forge_fn(struct rp_token2 *token);

static void row_after_window(struct rp_token2 *t)
{
    t->header.next_row = t->header.window_end;
}
static void endless_window(struct rp_token2 *t)
{
    t->header.window_end = UINT64_C(1) << 62;
}
static void position_at_end(struct rp_token2 *t)
{
    t->sources[0].state.position = t->sources[0].state.documents / t->header.group;
}
static void position_further(struct rp_token2 *t)
{
    t->sources[0].state.position++;
}
static void pass_of_none(struct rp_token2 *t)
{
    t->sources[0].state.pass = 1;
}
static void epoch_ahead(struct rp_token2 *t)
{
    t->sources[0].state.epoch++;
    t->sources[0].state.before = t->sources[0].state.documents;
}
static void credit_too_great(struct rp_token2 *t)
{
    t->sources[0].state.credit = INT64_C(1) << 62;
    t->sources[1].state.credit = -(INT64_C(1) << 62);
}
static void credits_not_0(struct rp_token2 *t)
{
    t->sources[0].state.credit++;
}
static void more_documents(struct rp_token2 *t)
{
    t->sources[0].state.documents = t->sources[0].documents_next += 4;
}
static void two_names(struct rp_token2 *t)
{
    memcpy(t->sources[1].name, t->sources[0].name, sizeof t->sources[0].name);
}
static void other_source(struct rp_token2 *t)
{
    t->snapshot.fifo[0].source = 9;
}
static void item_beyond(struct rp_token2 *t)
{
    t->snapshot.fifo[0].item = 1 << 20;
}
static void other_item(struct rp_token2 *t)
{
    t->snapshot.fifo[0].item ^= 1;
}
static void shorter_piece(struct rp_token2 *t)
{
    t->snapshot.fifo[0].length--;
    t->sources[t->snapshot.fifo[0].source].state.withheld++;
    t->header.counts.left_out++;
}
static void long_piece(struct rp_token2 *t)
{
    t->snapshot.fifo[0].length++;
}
static void piece_of_nothing(struct rp_token2 *t)
{
    t->snapshot.fifo[0].length = 0;
}
static void pass_ahead(struct rp_token2 *t)
{
    t->snapshot.fifo[0].pass = 3;
}
static void epoch_of_piece(struct rp_token2 *t)
{
    t->snapshot.fifo[0].epoch = 77;
}
static void wild_offset(struct rp_token2 *t)
{
    t->snapshot.fifo[0].offset = UINT32_MAX;
}
static void more_read(struct rp_token2 *t)
{
    t->header.counts.tokens_read++;
}
static void more_emitted(struct rp_token2 *t)
{
    t->header.counts.emitted++;
    t->header.counts.padding--;
}
static void more_padding(struct rp_token2 *t)
{
    t->header.counts.padding++;
}
static void more_withheld(struct rp_token2 *t)
{
    t->sources[0].state.withheld++;
}
static void more_taken(struct rp_token2 *t)
{
    t->sources[0].state.tokens++;
}
static void placed_without_rows(struct rp_token2 *t)
{
    t->header.counts.placed = 1;
}
static void wide_rows(struct rp_token2 *t)
{
    t->header.seq_len *= 2;
}
static void no_digest(struct rp_token2 *t)
{
    t->header.digest = (struct rp_hash128){0, 0};
}
static void strange_packing(struct rp_token2 *t)
{
    t->header.packing = 3;
}
static void stopped_twice(struct rp_token2 *t)
{
    t->header.stopped = 2;
}
static void zeros(struct rp_token2 *t)
{
    t->header.zero[1] = 1;
}
static void strange_deal(struct rp_token2 *t)
{
    t->header.deal.tier = 3;
}
static void pool_row_ahead(struct rp_token2 *t)
{
    t->header.pool_row = t->header.window_first + 1;
}
static void history_of_noise(struct rp_token2 *t)
{
    t->history[0] = 7;
}
static void history_without_end(struct rp_token2 *t)
{
    t->history[strlen(t->history) - 1] = 'x';
}

static void forged_values_are_refused(void **state)
{
    (void)state;
    static forge_fn *const forgeries[] = {row_after_window,    endless_window, position_at_end,
                                          position_further,    pass_of_none,   epoch_ahead,
                                          credit_too_great,    credits_not_0,  more_documents,
                                          two_names,           other_source,   item_beyond,
                                          other_item,          shorter_piece,  long_piece,
                                          piece_of_nothing,    pass_ahead,     epoch_of_piece,
                                          wild_offset,         more_read,      more_emitted,
                                          more_padding,        more_withheld,  more_taken,
                                          placed_without_rows, wide_rows,      no_digest,
                                          strange_packing,     stopped_twice,  zeros,
                                          strange_deal,        pool_row_ahead, history_of_noise,
                                          history_without_end};
    struct kit_stream kit;
    kit_make(&kit, 18); /* lookahead in deal windows */
    kit.spec.skip_count = 0;
    size_t bytes = kit_token_at(&kit.spec, 6, token);
    for (size_t i = 0; i < RP_ARRAY_COUNT(forgeries); i++) {
        struct rp_token2 decoded;
        struct rp_error error = {0};
        struct kit_run run;
        const struct rp_stream_resume with = {.grow = true};
        assert_int_equal(rp_token2_decode(&decoded, token, bytes, &error), 0);
        assert_true(decoded.snapshot.fifo_count > 0 && decoded.header.window_end > 6);
        forgeries[i](&decoded);
        size_t forged = rp_token2_encode(&decoded, again);
        rp_token2_free(&decoded);
        int code = kit_try_with(&run, &kit.spec, again, forged, &with, &error);
        if (code >= 0 || error.message[0] == 0)
            fail_msg("forgery %zu was taken", i);
    }
}

/* ---- listing --------------------------------------------------------------------------------- */

static void listings_have_the_facts(void **state)
{
    (void)state;
    struct kit_stream kit;
    struct rp_planner_token_info info;
    struct rp_planner_token_source source;
    struct rp_error error = {0};
    kit_make(&kit, 20);
    size_t bytes = kit_token_at(&kit.spec, 11, token);
    assert_int_equal(rp_planner_token_info(token, bytes, &info, &error), 0);
    assert_int_equal(info.position.next_row, 11);
    assert_int_equal(info.position.window_first, 9);
    assert_int_equal(info.position.window_end, 13);
    assert_int_equal(info.bytes, bytes);
    assert_int_equal(info.source_count, 3);
    assert_int_equal(info.stages_begun, 2);
    assert_int_equal(info.seed, kit.spec.fixed.seed);
    assert_int_equal(info.seq_len, 24);
    assert_int_equal(info.packing, RP_PACKING_BEST_FIT);
    assert_int_equal(info.deal.window, 4);
    assert_int_equal(info.counts.tokens_read, info.counts.emitted + info.counts.truncated +
                                                  info.counts.dropped + info.counts.left_out +
                                                  info.waiting);
    assert_int_equal(rp_planner_token_source(token, bytes, 2, &source, &error), 0);
    assert_string_equal(source.name, kit_names[2]);
    assert_int_equal(source.weight, 1); /* it joined at row 9, and has its first state */
    assert_int_equal(source.state.tokens, 0);
    assert_int_equal(source.state.documents, 50);
    assert_int_equal(source.limits.max_epochs, 2);
    assert_int_equal(rp_planner_token_source(token, bytes, 3, &source, &error), -RP_E_USAGE);
    struct rp_planner_token_source *all;
    uint32_t count;
    assert_int_equal(rp_planner_token_sources(token, bytes, &all, &count, &error), 0);
    assert_int_equal(count, 3);
    assert_memory_equal(&all[2].state, &source.state, sizeof source.state);
    assert_string_equal(all[0].name, kit_names[0]);
    free(all);
}

/* ---- 64 sources ------------------------------------------------------------------------------ */

static void make_64(struct kit_stream *kit)
{
    static char names[64][16];
    static struct rp_stream_source sources[64];
    static uint32_t weights[64];
    kit_make(kit, 0);
    for (uint32_t j = 0; j < 64; j++) {
        snprintf(names[j], sizeof names[j], "source-%08" PRIu32, j);
        sources[j] = kit->sources[0];
        sources[j].name = names[j];
        weights[j] = 1;
    }
    kit->spec.sources = sources;
    kit->spec.source_count = 64;
    kit->spec.stage_count = 1;
    kit->stages[0].weights = weights;
    kit->stages[0].window = kit->stages[0].spread = 64;
}

/* Section 12.3. The records are too long for the history, so they are made again. */
static void a_token_of_64_sources_fits_12_kib(void **state)
{
    (void)state;
    struct kit_stream kit;
    struct rp_error error = {0};
    struct rp_token2 decoded;
    make_64(&kit);
    size_t bytes = kit_token_at(&kit.spec, 20, token);
    assert_int_equal(rp_token2_decode(&decoded, token, bytes, &error), 0);
    assert_int_equal(decoded.header.history_bytes, 0);
    rp_token2_free(&decoded);
    struct kit_run run = kit_resume(&kit.spec, token, bytes);
    assert_int_equal(rp_planner_token_bytes_max(run.calendar), 12240);
    assert_true(rp_calendar_knows_records(run.calendar));
    expect_same_token(&run, token, bytes, "of 64 sources", 0);
    kit_close(&run);
}

/* After growth, its history has one record, the newest: the token has the values of the others. */
static void a_stream_continues_without_its_records(void **state)
{
    (void)state;
    struct kit_stream kit;
    struct rp_stream_row row;
    make_64(&kit);
    size_t bytes = kit_token_at(&kit.spec, 5, token);
    kit.contexts[0].documents = 50;
    ((struct rp_stream_source *)kit.spec.sources)[3].documents = 50;
    struct kit_run run = kit_resume(&kit.spec, token, bytes);
    while (rp_planner_row(run.plan) < 8)
        assert_true(kit_next(&run, &row));
    bytes = kit_save(&run, token);
    struct kit_run again_run = kit_resume(&kit.spec, token, bytes);
    assert_false(rp_calendar_knows_records(again_run.calendar));
    expect_same_token(&again_run, token, bytes, "without records", 0);
    for (unsigned n = 0; n < 30; n++) {
        struct rp_stream_row resumed;
        bool more = kit_next(&run, &row);
        assert_int_equal(kit_next(&again_run, &resumed), more);
        assert_true(!more || rows_equal(&row, &resumed));
        bytes = kit_save(&run, token);
        expect_same_token(&again_run, token, bytes, "later, without records", 0);
    }
    kit_close(&again_run);
    kit_close(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_resumes_at_every_row),
        cmocka_unit_test(a_chain_of_resumes_is_the_same_stream),
        cmocka_unit_test(every_flipped_bit_and_truncation_is_refused),
        cmocka_unit_test(another_version_is_told_apart_from_damage),
        cmocka_unit_test(forged_values_are_refused),
        cmocka_unit_test(listings_have_the_facts),
        cmocka_unit_test(a_token_of_64_sources_fits_12_kib),
        cmocka_unit_test(a_stream_continues_without_its_records),
    };
    return cmocka_run_group_tests_name("v2_token", tests, NULL, NULL);
}
