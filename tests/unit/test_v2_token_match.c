/* SPDX-License-Identifier: Apache-2.0 */
/* State tokens of version 2 and other configs: each difference is refused by its name with both
 * values, and each permitted one has its effect (STREAM2.md sections 9.3, 9.5, 12.4). */
#include "v2_token_kit.h"

static uint8_t token[KIT_TOKEN_BYTES], again[KIT_TOKEN_BYTES];

enum { VARIANT = 18 }; /* lookahead, no shuffle, deal windows of 4 rows */

/* A token of row 11, in the window of rows 9 to 12. */
static size_t make_inside(struct kit_stream *kit)
{
    kit_make(kit, VARIANT);
    return kit_token_at(&kit->spec, 11, token);
}

static void fixed_parameters_never_change(void **state)
{
    (void)state;
    struct kit_stream kit;
    size_t bytes = make_inside(&kit);
    const struct rp_stream_fixed original = kit.spec.fixed;
#define EXPECT(member, value, ...)                                                                 \
    do {                                                                                           \
        kit.spec.fixed = original;                                                                 \
        kit.spec.fixed.member = value;                                                             \
        KIT_REFUSE(&kit.spec, token, bytes, __VA_ARGS__);                                          \
    } while (0)
    EXPECT(seed, 4, "seed", "25", "4");
    EXPECT(shuffle, RP_SHUFFLE_DOCUMENT, "shuffle", "none", "document");
    EXPECT(group, 2, "group", "1", "2");
    EXPECT(long_doc, RP_LONG_DOC_DROP, "long_doc", "split", "drop");
    EXPECT(bos_id, RP_NO_TOKEN_ID, "bos_id", "1", "none");
    EXPECT(eos_id, 9, "eos_id", "none", "9");
    EXPECT(label_across_cuts, true, "label_across_cuts", "no", "yes");
    EXPECT(tokenizer.low, 9, "tokenizer", "0005", "0009");
#undef EXPECT
    kit.spec.fixed = original;
    kit.spec.fixed.tokenizer = (struct rp_hash128){0, 0}; /* not known: it is not compared */
    struct kit_run run = kit_resume(&kit.spec, token, bytes);
    kit_close(&run);

    kit_make(&kit, VARIANT + 12); /* blocks */
    bytes = kit_token_at(&kit.spec, 11, token);
    kit.spec.fixed.block_documents = 8;
    KIT_REFUSE(&kit.spec, token, bytes, "block_documents", "4", "8");
    kit.spec.fixed.block_documents = 4;
    kit.spec.fixed.window_blocks = 3;
    KIT_REFUSE(&kit.spec, token, bytes, "window_blocks", "2", "3");
}

static void sources_never_change(void **state)
{
    (void)state;
    struct kit_stream kit;
    size_t bytes = make_inside(&kit);
    kit.sources[0].too_long = RP_TOO_LONG_ERROR;
    KIT_REFUSE(&kit.spec, token, bytes, "too_long of web", "not atomic", "error");
    kit.sources[0].too_long = RP_TOO_LONG_CUT;
    kit.sources[0].drop_untrained = RP_DROP_FRAGMENTS;
    KIT_REFUSE(&kit.spec, token, bytes, "drop_untrained of web", "none", "fragment");
    kit.sources[0].drop_untrained = RP_KEEP_UNTRAINED;
    kit.contexts[1].salt = 77;
    KIT_REFUSE(&kit.spec, token, bytes, "sampled fingerprint of code", "000000000000");
    kit.contexts[1].salt = 2;
    kit.sources[1].documents = kit.contexts[1].documents = 39;
    KIT_REFUSE(&kit.spec, token, bytes, "number of documents of code", "40", "39");
}

static void stages_that_are_begun_never_change(void **state)
{
    (void)state;
    static const uint32_t other[KIT_SOURCES] = {5, 1, 1};
    struct kit_stream kit;
    size_t bytes = make_inside(&kit);
    kit.stages[0].spread = 4;
    KIT_REFUSE(&kit.spec, token, bytes, "spread of the stage from row 0", "3", "4");
    kit.stages[0].spread = 3;
    kit.stages[0].row_gap = RP_ROW_GAP_SPLIT; /* its field is `fill` */
    KIT_REFUSE(&kit.spec, token, bytes, "row_gap of the stage from row 0", "pad", "split");
    kit.stages[0].row_gap = RP_ROW_GAP_PAD;
    const uint32_t *weights = kit.stages[1].weights;
    kit.stages[1].weights = other;
    KIT_REFUSE(&kit.spec, token, bytes, "weight[0000] of the stage from row 9", "1", "5");
    kit.stages[1].weights = weights;
    kit.stages[1].from = 8;
    KIT_REFUSE(&kit.spec, token, bytes, "row 9");
    kit.stages[1].from = 9;
    kit.stages[1].without_count = 0;
    KIT_REFUSE(&kit.spec, token, bytes, "without[0000]", "none");
    kit.stages[1].without_count = 1;
    kit.spec.stages = &kit.stages[1]; /* one fewer */
    struct rp_stage_spec first = kit.stages[0];
    kit.stages[1] = first;
    kit.spec.stage_count = 2;
    KIT_REFUSE(&kit.spec, token, bytes, "number of stages before row 11", "2", "1");
}

static void skips_below_the_token_never_change(void **state)
{
    (void)state;
    struct kit_stream kit;
    size_t bytes = make_inside(&kit);
    kit.skips[0].end = 6;
    KIT_REFUSE(&kit.spec, token, bytes, "skips");
    kit.skips[0].end = 5;
    kit.skips[1] = (struct rp_row_range){11, 15}; /* from the token's row on they may */
    struct kit_run run = kit_resume(&kit.spec, token, bytes);
    struct rp_stream_row row;
    assert_true(kit_next(&run, &row));
    assert_true(row.skipped);
    kit_close(&run);
}

/* Stages that are not begun are edited, but not inside the window. */
static void later_stages_change_from_the_end_of_the_window_on(void **state)
{
    (void)state;
    struct kit_stream kit;
    size_t bytes = make_inside(&kit);
    kit.stages[2].from = 12;
    KIT_REFUSE(&kit.spec, token, bytes, "row 12", "row 13");
    kit.stages[2].from = 15;
    struct kit_run run = kit_resume(&kit.spec, token, bytes);
    assert_true(rp_calendar_is_boundary(run.calendar, 15));
    kit_close(&run);
}

/* A window that a stage cut short: the stage must stay where it is. */
static void the_end_of_a_short_window_stays(void **state)
{
    (void)state;
    struct kit_stream kit;
    kit_make(&kit, VARIANT);
    kit.stages[2].from = 16; /* the window from row 13 on has three rows */
    size_t bytes = kit_token_at(&kit.spec, 14, token);
    kit.stages[2].from = 17;
    KIT_REFUSE(&kit.spec, token, bytes, "16");
    kit.stages[2].from = 16;
    struct kit_run run = kit_resume(&kit.spec, token, bytes);
    kit_close(&run);
}

/* ---- limits ---------------------------------------------------------------------------------- */

static void limits_change_until_they_are_reached(void **state)
{
    (void)state;
    struct kit_stream kit;
    struct rp_planner_token_source source;
    struct rp_error error;
    size_t bytes = make_inside(&kit), found;
    kit.sources[0].limits.max_tokens = 1000000;
    struct kit_run run = kit_resume(&kit.spec, token, bytes);
    found = kit_save(&run, again); /* inside the window, the token's limits are in force */
    assert_int_equal(found, bytes);
    assert_memory_equal(again, token, bytes);
    struct rp_stream_row row;
    while (rp_planner_row(run.plan) < 14)
        assert_true(kit_next(&run, &row));
    found = kit_save(&run, again);
    assert_int_equal(rp_planner_token_source(again, found, 0, &source, &error), 0);
    assert_int_equal(source.limits.max_tokens, 1000000);
    kit_close(&run);
    kit.sources[0].limits.max_tokens = 3; /* it has read more */
    KIT_REFUSE(&kit.spec, token, bytes, "limits of source web", "3 tokens");
}

/* ---- growth and weights ---------------------------------------------------------------------- */

static void appended_documents_become_a_record(void **state)
{
    (void)state;
    struct kit_stream kit;
    size_t bytes = make_inside(&kit);
    const struct rp_stream_resume still = {.grow = false};
    kit.sources[0].documents = kit.contexts[0].documents = 50;
    struct kit_run run = kit_resume_with(&kit.spec, token, bytes, &still);
    assert_int_equal(rp_calendar_at(run.calendar, 13)->documents[0], 30);
    kit_close(&run);
    run = kit_resume(&kit.spec, token, bytes);
    assert_true(rp_calendar_is_boundary(run.calendar, 13));
    assert_int_equal(rp_calendar_at(run.calendar, 12)->documents[0], 30);
    assert_int_equal(rp_calendar_at(run.calendar, 13)->documents[0], 50);
    size_t found = kit_save(&run, again);
    assert_int_equal(found, bytes);
    assert_memory_equal(again, token, bytes);

    /* The record is begun, and later tokens continue, with the contract and without it. */
    struct rp_stream_row row;
    while (rp_planner_row(run.plan) < 15)
        assert_true(kit_next(&run, &row));
    found = kit_save(&run, again);
    char *contract = kit_contract(&run);
    kit_close(&run);
    const struct rp_stream_resume with = {.begun_records = contract, .grow = true};
    run = kit_resume_with(&kit.spec, again, found, &with);
    assert_false(rp_calendar_is_boundary(run.calendar, 15));
    kit_close(&run);
    run = kit_resume(&kit.spec, again, found);
    assert_int_equal(kit_save(&run, token), found);
    assert_memory_equal(again, token, found);
    kit_close(&run);
    free(contract);
}

static void nothing_is_recorded_at_row_0(void **state)
{
    (void)state;
    static const uint32_t weights[KIT_SOURCES] = {1, 1, 0};
    struct kit_stream kit;
    const struct rp_stream_resume with = {.weights = weights};
    const char *const words[3] = {"row 0", "weights"};
    kit_make(&kit, VARIANT);
    size_t bytes = kit_token_at(&kit.spec, 0, token);
    kit_refuse_with(&kit.spec, token, bytes, &with, -RP_E_MISMATCH, words);
    kit.sources[0].documents = kit.contexts[0].documents = 50;
    KIT_REFUSE(&kit.spec, token, bytes, "row 0", "documents");
}

static void other_weights_become_a_record(void **state)
{
    (void)state;
    static const uint32_t weights[KIT_SOURCES] = {2, 0, 0}, same[KIT_SOURCES] = {2, 4, 2};
    struct kit_stream kit;
    size_t bytes = make_inside(&kit);
    const struct rp_stream_resume with = {.weights = weights}, as_before = {.weights = same};
    struct kit_run run = kit_resume_with(&kit.spec, token, bytes, &as_before);
    assert_false(rp_calendar_is_boundary(run.calendar, 13));
    kit_close(&run);
    run = kit_resume_with(&kit.spec, token, bytes, &with);
    assert_int_equal(rp_calendar_at(run.calendar, 12)->weights[0], 1);
    assert_int_equal(rp_calendar_at(run.calendar, 12)->weights[1], 2);
    assert_int_equal(rp_calendar_at(run.calendar, 13)->weights[0], 1);
    assert_int_equal(rp_calendar_at(run.calendar, 13)->weights[1], 0);
    kit_close(&run);
    kit.stages[2].from = 13;
    kit.stages[2].sets |= RP_SETS_WEIGHTS;
    kit.stages[2].weights = same;
    kit.stages[1].ramp = 0; /* begun, so this is refused, too: but the weights come first */
    const char *const words[3] = {"stage"};
    kit_refuse_with(&kit.spec, token, bytes, &with, -RP_E_MISMATCH, words);
}

/* ---- removed sources ------------------------------------------------------------------------- */

/* `code` waits from row 6 on, and all of its pieces are gone by row 30. */
static size_t make_waiting(struct kit_stream *kit, uint64_t row)
{
    static const uint32_t weights[KIT_SOURCES] = {1, 0, 0};
    kit_make(kit, VARIANT);
    kit->stages[1] = (struct rp_stage_spec){.from = 6, .sets = RP_SETS_WEIGHTS, .weights = weights};
    kit->spec.stage_count = 2;
    kit->sources[0].limits.max_epochs = 0;
    return kit_token_at(&kit->spec, row, token);
}

static void a_removed_source_keeps_its_state(void **state)
{
    (void)state;
    struct kit_stream kit;
    struct rp_planner_token_source before, after;
    struct rp_error error;
    size_t bytes = make_waiting(&kit, 40);
    assert_int_equal(rp_planner_token_source(token, bytes, 1, &before, &error), 0);
    assert_true(before.state.tokens > 0);
    kit.sources[1].is_absent = true;
    struct kit_run run = kit_resume(&kit.spec, token, bytes);
    assert_int_equal(kit_save(&run, again), bytes);
    assert_memory_equal(again, token, bytes);
    struct rp_stream_row row;
    while (rp_planner_row(run.plan) < 50)
        assert_true(kit_next(&run, &row));
    bytes = kit_save(&run, again);
    kit_close(&run);
    assert_int_equal(rp_planner_token_source(again, bytes, 1, &after, &error), 0);
    assert_memory_equal(&before, &after, sizeof before);

    run = kit_resume(&kit.spec, again, bytes); /* still without it, then with it again */
    assert_int_equal(kit_save(&run, token), bytes);
    kit_close(&run);
    kit.sources[1].is_absent = false;
    run = kit_resume(&kit.spec, again, bytes);
    assert_int_equal(kit_save(&run, token), bytes);
    assert_memory_equal(again, token, bytes);
    kit_close(&run);
    kit.contexts[1].salt = 77;
    KIT_REFUSE(&kit.spec, again, bytes, "sampled fingerprint of code");
}

static void a_source_leaves_only_once_it_waits(void **state)
{
    (void)state;
    struct kit_stream kit;
    size_t bytes = make_inside(&kit);
    kit.sources[1].is_absent = true;
    KIT_REFUSE(&kit.spec, token, bytes, "code", "weight 2");
    bytes = make_waiting(&kit, 8);
    struct rp_token2 decoded;
    struct rp_error error;
    bool waits = false;
    assert_int_equal(rp_token2_decode(&decoded, token, bytes, &error), 0);
    for (uint32_t i = 0; i < decoded.snapshot.fifo_count; i++)
        waits |= decoded.snapshot.fifo[i].source == 1;
    rp_token2_free(&decoded);
    kit.sources[1].is_absent = true;
    if (waits)
        KIT_REFUSE(&kit.spec, token, bytes, "code", "wait for rows");
}

/* ---- records --------------------------------------------------------------------------------- */

static void records_of_another_checkpoint_are_refused_or_replaced(void **state)
{
    (void)state;
    struct kit_stream kit;
    size_t bytes = make_inside(&kit);
    const struct rp_stream_resume with = {
        .begun_records = "record[0000].documents[0000]=30\nrecord[0000].documents[0001]=40\n"
                         "record[0000].from=0\nrecord[0000].max_docs_per_row=23\n",
        .grow = true};
    struct kit_run run;
    struct rp_error error = {0};
    int code = kit_try_with(&run, &kit.spec, token, bytes, &with, &error);
    if (code == 0) { /* the token's values are in force in their place */
        assert_int_equal(kit_save(&run, again), bytes);
        assert_memory_equal(again + offsetof(struct rp_token2_header, records),
                            token + offsetof(struct rp_token2_header, records), 16);
        kit_close(&run);
    } else {
        assert_int_equal(code, -RP_E_MISMATCH);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fixed_parameters_never_change),
        cmocka_unit_test(sources_never_change),
        cmocka_unit_test(stages_that_are_begun_never_change),
        cmocka_unit_test(skips_below_the_token_never_change),
        cmocka_unit_test(later_stages_change_from_the_end_of_the_window_on),
        cmocka_unit_test(the_end_of_a_short_window_stays),
        cmocka_unit_test(limits_change_until_they_are_reached),
        cmocka_unit_test(appended_documents_become_a_record),
        cmocka_unit_test(nothing_is_recorded_at_row_0),
        cmocka_unit_test(other_weights_become_a_record),
        cmocka_unit_test(a_removed_source_keeps_its_state),
        cmocka_unit_test(a_source_leaves_only_once_it_waits),
        cmocka_unit_test(records_of_another_checkpoint_are_refused_or_replaced),
    };
    return cmocka_run_group_tests_name("v2_token_match", tests, NULL, NULL);
}
