/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of version 2 through the calls of plan.h: rows with the places of sources in the config,
 * tokens, growth, stages of another seq_len. */
#include "plan/trace.h"
#include "v2_kit.h"

enum { ROWS_MAX = 1 << 14 };

/* ---- rows ------------------------------------------------------------------------------------ */

/* All rows of a plan as numbers that differ if anything of a row does. */
struct rows {
    uint64_t first, count;
    struct rp_hash128 of[ROWS_MAX];
};

static struct rp_hash128 hash_row(const struct rp_row *row)
{
    struct {
        uint64_t row, planned;
        uint32_t count, tokens, align, skipped;
        struct rp_hash128 fragments;
    } const all = {row->row,
                   row->planned,
                   row->count,
                   row->tokens,
                   row->align,
                   row->skipped,
                   rp_hash128(row->fragments, row->count * sizeof *row->fragments)};
    return rp_hash128(&all, sizeof all);
}

static void read_rows(struct rp_plan *plan, struct rows *rows)
{
    struct rp_row row;
    struct rp_error error = {0};
    int code;
    rows->first = rp_plan_row(plan);
    rows->count = 0;
    while ((code = rp_plan_next(plan, &row, &error)) == 1) {
        assert_true(rows->count < ROWS_MAX);
        rows->of[rows->count++] = hash_row(&row);
    }
    check(code, &error);
}

/* The rest of a plan's rows is the end of `whole`. */
static void check_rest(struct rp_plan *plan, const struct rows *whole, const char *what)
{
    static struct rows rest;
    read_rows(plan, &rest);
    if (rest.first + rest.count != whole->first + whole->count)
        fail_msg("%s: from row %d to %d, expected the end at %d", what, (int)rest.first,
                 (int)(rest.first + rest.count), (int)(whole->first + whole->count));
    for (uint64_t i = 0; i < rest.count; i++)
        if (!rp_hash128_equal(rest.of[i], whole->of[rest.first - whole->first + i]))
            fail_msg("%s: row %d is another one", what, (int)(rest.first + i));
}

static void rows_are_those_of_the_stream_by_places_of_the_config(void **state)
{
    (void)state;
    for (int dealt = 0; dealt < 2; dealt++) {
        struct stream stream;
        make(&stream, RP_SHUFFLE_DOCUMENT, 100);
        if (dealt)
            deal(&stream);
        struct rp_calendar *calendar;
        struct rp_planner *raw;
        struct rp_error error = {0};
        const struct rp_calendar_position begin = {0};
        check(rp_calendar_open(&calendar, &stream.spec, &begin, &error), &error);
        check(rp_planner_open(&raw, calendar, &error), &error);
        struct rp_plan *plan = open_stream(&stream);
        struct rp_stream_row expected;
        struct rp_row row;
        uint64_t rows = 0, skipped = 0, moved = 0;
        while (rp_plan_next(plan, &row, &error) == 1) {
            assert_int_equal(rp_planner_next(raw, &expected, &error), 1);
            assert_int_equal(row.row, rows++);
            assert_int_equal(row.planned, expected.planned);
            assert_int_equal(row.count, expected.count);
            assert_int_equal(row.tokens, expected.tokens);
            assert_int_equal(row.align, 1);
            assert_int_equal(row.skipped, row.row >= 50 && row.row < 53);
            for (uint32_t i = 0; i < row.count; i++) {
                assert_int_equal(row.fragments[i].source, 1 - expected.fragments[i].source);
                assert_int_equal(row.fragments[i].document, expected.fragments[i].document);
                assert_true(row.row >= CHANGE_ROW || row.fragments[i].source == 1);
            }
            skipped += row.skipped;
            moved += row.planned != row.row;
        }
        assert_true(rows > 2 * CHANGE_ROW);
        assert_int_equal(rp_planner_next(raw, &expected, &error), 0);
        assert_int_equal(skipped, 3);
        assert_int_equal(moved > 0, dealt);
        assert_false(rp_plan_is_stage_end(plan));
        assert_true(rp_plan_skips(plan, 50, 3) && rp_plan_skips(plan, 51, 1));
        assert_false(rp_plan_skips(plan, 49, 2) || rp_plan_skips(plan, 52, 2));
        assert_true(rp_plan_row_form(plan).has_row_plans);
        struct rp_plan_counts counts;
        rp_plan_counts(plan, &counts);
        assert_int_equal(counts.tokens_read,
                         counts.truncated + counts.dropped + counts.left_out + counts.emitted);
        assert_int_equal(counts.buffered, 0);
        assert_true(counts.cuts > 0);
        rp_plan_close(plan);
        rp_planner_close(raw);
        rp_calendar_close(calendar);
    }
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static void every_row_continues_from_its_token(void **state)
{
    (void)state;
    static struct rows whole;
    static uint8_t token[TOKEN_BYTES], again[TOKEN_BYTES];
    for (int dealt = 0; dealt < 2; dealt++) {
        struct stream stream;
        struct rp_row row;
        struct rp_error error = {0};
        make(&stream, RP_SHUFFLE_BLOCK, 60);
        if (dealt)
            deal(&stream);
        struct rp_plan *plan = open_stream(&stream), *other = open_stream(&stream);
        read_rows(plan, &whole);
        rp_plan_close(plan);
        plan = open_stream(&stream);
        for (uint64_t at = 0; at < whole.count; at++) {
            struct rp_state_info info;
            size_t bytes = save(plan, token);
            check(rp_state_info(token, bytes, &info, &error), &error);
            assert_int_equal(info.stream_version, 2);
            assert_int_equal(info.next_row, at);
            assert_true(rp_hash128_equal(info.digest, rp_plan_digest(plan)));
            struct rp_state_head head = rp_state_head(token);
            assert_int_equal(head.stream_version, 2);
            assert_int_equal(head.bytes, bytes);
            assert_int_equal(head.next_row, at);
            assert_true(head.has_digest);
            if (at % 7 == 0 || at == CHANGE_ROW || at == 1) {
                check(rp_plan_load(other, token, bytes, false, &error), &error);
                assert_int_equal(rp_plan_row(other), at);
                assert_int_equal(save(other, again), bytes);
                assert_memory_equal(again, token, bytes);
                check_rest(other, &whole, "loaded");
            }
            assert_int_equal(rp_plan_next(plan, &row, &error), 1);
        }
        assert_int_equal(rp_plan_seek(plan, whole.count + 1, &error), -RP_E_USAGE);
        rp_plan_close(plan);
        rp_plan_close(other);
    }
}

static void the_other_version_is_refused_by_name(void **state)
{
    (void)state;
    static uint8_t token[TOKEN_BYTES], old_token[TOKEN_BYTES];
    struct stream stream;
    static struct corpus corpus;
    uint64_t seed = 3;
    struct rp_error error = {0};
    struct rp_plan *old;
    const struct rp_plan_config config = {.seed = 1,
                                          .num_epochs = 1,
                                          .seq_len = SEQ_LEN,
                                          .packing = RP_PACKING_CONCAT,
                                          .max_docs_per_row = SEQ_LEN,
                                          .lanes = 1};
    corpus_make(&corpus, 1, 40, SEQ_LEN, &seed);
    make(&stream, RP_SHUFFLE_NONE, 50);
    struct rp_plan *plan = open_stream(&stream);
    check(rp_plan_open(&old, &config, corpus.sources, 1, &error), &error);
    assert_int_equal(rp_plan_version(old), 1);
    size_t bytes = save(plan, token), old_bytes = save(old, old_token);
    assert_int_equal(rp_plan_load(old, token, bytes, true, &error), -RP_E_MISMATCH);
    assert_non_null(strstr(error.message, "stream_version: 2 in the state token, 1"));
    const struct rp_plan_start start = {.grow = true};
    assert_int_equal(rp_plan_start(plan, old_token, old_bytes, &start, &error), -RP_E_MISMATCH);
    assert_non_null(strstr(error.message, "stream_version: 1 in the state token, 2"));
    assert_non_null(strstr(error.hint, "unseen_of"));
    old_token[old_bytes - 1] ^= 1;
    assert_int_equal(rp_plan_load(plan, old_token, old_bytes, false, &error), -RP_E_CORRUPT);
    rp_plan_close(plan);
    rp_plan_close(old);
}

/* ---- growth ---------------------------------------------------------------------------------- */

static void a_run_that_grew_goes_to_all_of_its_rows(void **state)
{
    (void)state;
    static struct rows whole;
    static uint8_t begin[TOKEN_BYTES], token[TOKEN_BYTES], later[TOKEN_BYTES];
    struct stream small, large;
    struct rp_error error = {0};
    struct rp_row row;
    struct rp_record_writer writer;
    make(&small, RP_SHUFFLE_DOCUMENT, 40);
    make(&large, RP_SHUFFLE_DOCUMENT, 60);
    /* row 0 and row 30 of the small corpus; row 30 sees the large one */
    struct rp_plan *plan = open_stream(&small);
    size_t begin_bytes = save(plan, begin);
    check(rp_plan_seek(plan, 30, &error), &error);
    size_t bytes = save(plan, token);
    struct rp_record contract = contract_of(plan, &writer);
    struct rp_plan *grown = open_stream(&large), *probe = open_stream(&large);
    const struct rp_plan_start start = {.contract = &contract, .grow = true};
    check(rp_plan_start(grown, token, bytes, &start, &error), &error);
    assert_int_equal(rp_plan_row(grown), 30);
    free(writer.text);
    /* before row 30, the rows are of the small corpus */
    check(rp_plan_follow(probe, grown, &error), &error);
    check(rp_plan_load(probe, begin, begin_bytes, false, &error), &error);
    read_rows(probe, &whole);
    check_rest(grown, &whole, "grown");
    rp_plan_close(plan);
    plan = open_stream(&small);
    for (uint64_t at = 0; at < 30; at++) {
        assert_int_equal(rp_plan_next(plan, &row, &error), 1);
        assert_true(rp_hash128_equal(hash_row(&row), whole.of[at]));
    }
    bool is_new = false;
    while (rp_plan_next(plan, &row, &error) == 1)
        is_new |= row.row >= whole.count || !rp_hash128_equal(hash_row(&row), whole.of[row.row]);
    assert_true(is_new);
    /* tokens on both sides of row 30, in any order */
    for (uint64_t at = 0; at < whole.count; at += 23) {
        check(rp_plan_load(probe, begin, begin_bytes, false, &error), &error);
        check(rp_plan_seek(probe, at, &error), &error);
        size_t later_bytes = save(probe, later);
        check(rp_plan_load(probe, later, later_bytes, false, &error), &error);
        check_rest(probe, &whole, "probe");
    }
    rp_plan_close(plan);
    rp_plan_close(grown);
    rp_plan_close(probe);
}

/* A limit that is reached and then raised, twice, at the end and while documents wait: the run goes
 * to all of its rows, each under the limits that it was planned with. */
static void raised_limits_hold_from_their_row(void **state)
{
    (void)state;
    static struct rows whole;
    static uint8_t begin[TOKEN_BYTES], token[TOKEN_BYTES];
    struct stream stream;
    struct rp_error error = {0};
    struct rp_row row;
    make(&stream, RP_SHUFFLE_DOCUMENT, 60);
    struct rp_plan *plan = open_stream(&stream);
    size_t begin_bytes = save(plan, begin), bytes = begin_bytes;
    whole.first = whole.count = 0;
    for (uint32_t epochs = 1; epochs <= 3; epochs++) {
        uint64_t began = whole.count;
        struct rp_record_writer writer;
        for (uint32_t s = 0; s < SOURCES; s++)
            stream.sources[s].limits = (struct rp_limits){.max_epochs = epochs};
        struct rp_record contract = contract_of(plan, &writer);
        struct rp_plan *raised = open_stream(&stream);
        const struct rp_plan_start start = {.contract = &contract};
        memcpy(token, begin, epochs == 1 ? begin_bytes : 0);
        check(rp_plan_start(raised, token, bytes, &start, &error), &error);
        assert_int_equal(rp_plan_row(raised), began);
        rp_plan_close(plan);
        plan = raised;
        free(writer.text);
        while (rp_plan_next(plan, &row, &error) == 1)
            whole.of[whole.count++] = hash_row(&row);
        assert_true(whole.count > began + 20);
        whole.count -= epochs == 1; /* documents wait for the last row */
        check(rp_plan_load(plan, begin, begin_bytes, false, &error), &error);
        check(rp_plan_seek(plan, whole.count, &error), &error);
        bytes = save(plan, token);
    }
    for (uint64_t at = 0; at < whole.count; at += 7) {
        check(rp_plan_load(plan, begin, begin_bytes, false, &error), &error);
        check(rp_plan_seek(plan, at, &error), &error);
        bytes = save(plan, token);
        check(rp_plan_load(plan, token, bytes, false, &error), &error);
        check_rest(plan, &whole, "loaded");
    }
    check(rp_plan_rewind(plan, &error), &error);
    check_rest(plan, &whole, "rewound");
    rp_plan_close(plan);
}

static void accepted_weights_hold_at_their_row(void **state)
{
    (void)state;
    static struct rows whole;
    static uint8_t token[TOKEN_BYTES], later[TOKEN_BYTES];
    struct stream stream;
    struct rp_error error = {0};
    struct rp_record_writer writer;
    const uint32_t weights[SOURCES] = {9, 1};
    make(&stream, RP_SHUFFLE_DOCUMENT, 60);
    struct rp_plan *plan = open_stream(&stream), *probe = open_stream(&stream);
    check(rp_plan_seek(plan, CHANGE_ROW + 5, &error), &error);
    size_t bytes = save(plan, token);
    struct rp_record contract = contract_of(plan, &writer);
    const struct rp_plan_start start = {.contract = &contract, .weights = weights};
    check(rp_plan_start(plan, token, bytes, &start, &error), &error);
    check(rp_plan_follow(probe, plan, &error), &error);
    free(writer.text);
    read_rows(plan, &whole);
    check(rp_plan_load(probe, token, bytes, false, &error), &error);
    check_rest(probe, &whole, "the same row");
    check(rp_plan_load(probe, token, bytes, false, &error), &error);
    check(rp_plan_seek(probe, CHANGE_ROW + 20, &error), &error);
    size_t later_bytes = save(probe, later);
    check(rp_plan_load(plan, later, later_bytes, false, &error), &error);
    check_rest(plan, &whole, "a later row");
    assert_false(rp_plan_is_reweighted(plan));
    rp_plan_close(plan);
    rp_plan_close(probe);
}

static int append(struct rp_plan *plan, uint64_t row, const uint32_t *weights,
                  struct rp_error *error)
{
    const struct rp_plan_record record = {.row = row, .weights = weights};
    return rp_plan_append_record(plan, &record, error);
}

static void appended_weights_hold_from_their_row(void **state)
{
    (void)state;
    enum { ROW = CHANGE_ROW + 20, AT = CHANGE_ROW + 5 };
    static struct rows whole;
    static uint8_t begin[TOKEN_BYTES], token[TOKEN_BYTES], later[TOKEN_BYTES];
    struct stream stream;
    struct rp_error error = {0};
    struct rp_record_writer writer;
    const uint32_t weights[SOURCES] = {9, 1}, other[SOURCES] = {1, 9};
    const struct rp_stage_spec record = {.from = ROW, .sets = RP_SETS_WEIGHTS, .weights = weights};
    make(&stream, RP_SHUFFLE_DOCUMENT, 60);
    struct rp_plan *plan = open_stream(&stream), *probe = open_stream(&stream);
    stream.spec.records = &record;
    stream.spec.record_count = 1;
    struct rp_plan *expected = open_stream(&stream);
    read_rows(expected, &whole);
    size_t begin_bytes = save(plan, begin);
    check(rp_plan_seek(plan, AT, &error), &error);
    size_t bytes = save(plan, token);
    assert_int_equal(append(plan, AT - 1, weights, &error), -RP_E_USAGE);
    assert_int_equal(append(plan, ROW, weights, &error), 0);
    assert_int_equal(append(plan, ROW, weights, &error), 1);
    assert_int_equal(append(plan, ROW, other, &error), -RP_E_CONFIG);
    assert_int_equal(rp_plan_row(plan), AT);
    struct rp_record contract = contract_of(plan, &writer);
    check_rest(plan, &whole, "appended");
    assert_int_equal(append(plan, ROW, weights, &error), 1); /* begun */
    check(rp_plan_follow(probe, plan, &error), &error);
    check(rp_plan_load(probe, begin, begin_bytes, false, &error), &error);
    check_rest(probe, &whole, "followed");
    check(rp_plan_load(probe, token, bytes, false, &error), &error);
    check(rp_plan_seek(probe, ROW + 7, &error), &error);
    size_t later_bytes = save(probe, later);
    rp_plan_close(plan);
    rp_plan_close(probe);
    stream.spec.record_count = 0;
    const struct rp_plan_start start = {.contract = &contract, .grow = true};
    const uint8_t *tokens[] = {begin, token, later};
    const size_t sizes[] = {begin_bytes, bytes, later_bytes};
    for (int i = 0; i < 3; i++) { /* a start has the record, ahead or begun */
        plan = open_stream(&stream);
        check(rp_plan_start(plan, tokens[i], sizes[i], &start, &error), &error);
        check_rest(plan, &whole, "started");
        rp_plan_close(plan);
    }
    free(writer.text);
    rp_plan_close(expected);
}

static void weights_are_not_appended_in_a_window_that_is_begun(void **state)
{
    (void)state;
    struct stream stream;
    struct rp_error error = {0};
    const uint32_t weights[SOURCES] = {9, 1};
    static uint8_t token[TOKEN_BYTES];
    struct rp_state_info info;
    make(&stream, RP_SHUFFLE_DOCUMENT, 60);
    deal(&stream);
    struct rp_plan *plan = open_stream(&stream);
    uint64_t row = CHANGE_ROW + 1;
    do { /* to a row inside a window */
        check(rp_plan_seek(plan, row++, &error), &error);
        size_t bytes = save(plan, token);
        check(rp_state_info(token, bytes, &info, &error), &error);
    } while (info.window_end == info.next_row);
    assert_int_equal(append(plan, info.window_end - 1, weights, &error), -RP_E_USAGE);
    assert_int_equal(append(plan, info.window_end, weights, &error), 0);
    rp_plan_close(plan);
}

static void forget(void *owned)
{
    ++*(int *)owned;
}

static void a_plan_frees_its_spec_last(void **state)
{
    (void)state;
    int freed = 0;
    struct stream stream;
    make(&stream, RP_SHUFFLE_NONE, 20);
    struct rp_plan *plan = open_stream(&stream);
    rp_plan_own(plan, &freed, forget);
    assert_int_equal(freed, 0);
    rp_plan_close(plan);
    assert_int_equal(freed, 1);
}

/* ---- stages of another seq_len --------------------------------------------------------------- */

static void a_run_ends_where_seq_len_changes(void **state)
{
    (void)state;
    static struct rows whole;
    static uint8_t token[TOKEN_BYTES];
    struct stream stream;
    struct rp_error error = {0};
    struct rp_row row;
    make(&stream, RP_SHUFFLE_DOCUMENT, 60);
    stream.stages[2] = (struct rp_stage_spec){.from = 70,
                                              .sets = RP_SETS_SEQ_LEN | RP_SETS_MAX_DOCS,
                                              .seq_len = 2 * SEQ_LEN,
                                              .max_docs_per_row = 2 * SEQ_LEN};
    stream.spec.stage_count = 3;
    struct rp_plan *plan = open_stream(&stream), *next = open_stream(&stream);
    rp_plan_cross_stages(plan);
    assert_int_equal(rp_plan_max_docs_per_row(plan), 2 * SEQ_LEN);
    assert_int_equal(rp_plan_max_docs_per_row(next), SEQ_LEN);
    read_rows(plan, &whole);
    assert_true(whole.count > 75);
    check(rp_plan_seek(next, 70, &error), &error);
    assert_int_equal(rp_plan_next(next, &row, &error), 0);
    assert_true(rp_plan_is_stage_end(next));
    assert_int_equal(rp_plan_seek(next, 71, &error), -RP_E_USAGE);
    assert_non_null(strstr(error.message, "another seq_len begin at row 70"));
    size_t bytes = save(next, token);
    check(rp_plan_load(next, token, bytes, false, &error), &error);
    assert_int_equal(rp_plan_next(next, &row, &error), 0); /* the same run */
    const struct rp_plan_start start = {.grow = true};
    check(rp_plan_start(next, token, bytes, &start, &error), &error);
    assert_int_equal(rp_plan_seq_len(next), 2 * SEQ_LEN);
    check_rest(next, &whole, "the next run");
    assert_false(rp_plan_is_stage_end(next));
    rp_plan_close(plan);
    rp_plan_close(next);
}

/* Not the error of a lack of memory. */
static void the_state_of_a_failed_plan_has_its_error(void **state)
{
    (void)state;
    static uint8_t token[TOKEN_BYTES];
    struct stream stream;
    struct rp_error error = {0}, again = {0};
    struct rp_row row;
    size_t bytes;
    make(&stream, RP_SHUFFLE_DOCUMENT, 100);
    stream.sources[1].limits = (struct rp_limits){.max_tokens = 500,
                                                  .on_exhausted = RP_EXHAUSTED_ERROR};
    struct rp_plan *plan = open_stream(&stream);
    int code;
    while ((code = rp_plan_next(plan, &row, &error)) == 1)
        ;
    assert_int_equal(code, -RP_E_EMPTY);
    assert_int_equal(rp_plan_try_save(plan, token, &bytes, &again), -RP_E_EMPTY);
    assert_string_equal(again.message, error.message);
    rp_plan_close(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_those_of_the_stream_by_places_of_the_config),
        cmocka_unit_test(every_row_continues_from_its_token),
        cmocka_unit_test(the_other_version_is_refused_by_name),
        cmocka_unit_test(a_run_that_grew_goes_to_all_of_its_rows),
        cmocka_unit_test(raised_limits_hold_from_their_row),
        cmocka_unit_test(accepted_weights_hold_at_their_row),
        cmocka_unit_test(appended_weights_hold_from_their_row),
        cmocka_unit_test(weights_are_not_appended_in_a_window_that_is_begun),
        cmocka_unit_test(a_plan_frees_its_spec_last),
        cmocka_unit_test(a_run_ends_where_seq_len_changes),
        cmocka_unit_test(the_state_of_a_failed_plan_has_its_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
