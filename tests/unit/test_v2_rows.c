/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of stream version 2: the worked examples of STREAM2.md, and what random streams do not
 * reach.
 */
#include "stream_kit.h"

#include "plan/order.h"

/* ---- section 4 ------------------------------------------------------------------------------- */

static void test_visits(void **state)
{
    (void)state;
    static const uint64_t visits[3][6] = {
        {3, 0, 4, 2, 1, 5}, {0, 4, 2, 5, 3, 1}, {1, 0, 3, 2, 4, 5}};
    uint64_t hash = rp_hash64("web", 3);
    assert_true(hash == UINT64_C(0x22fd8ad0bcfe2d1f));
    struct rp_order order;
    rp_order_init_items(&order, RP_SHUFFLE_DOCUMENT, 6, 0, 0);
    for (uint32_t pass = 0; pass < 3; pass++) {
        uint64_t items[RP_ORDER_READ_MAX];
        rp_order_enter_key(&order, pass, rp_pass_key_make(7, hash, 0, pass));
        assert_int_equal(rp_order_read(&order, 0, items), 6);
        assert_memory_equal(items, visits[pass], sizeof visits[pass]);
    }
}

static void test_passes(void **state)
{
    (void)state;
    static const uint64_t lengths[6] = {5, 5, 5, 5, 5, 5};
    static const uint8_t counts[6] = {0, 2, 1, 3, 0, 1};
    static const uint64_t taken[] = {3, 2, 1, 5, 3, 1, 3};
    struct stream stream;
    stream_begin(&stream, 5);
    stream.spec.fixed.shuffle = RP_SHUFFLE_DOCUMENT;
    struct rp_stream_source *source = stream_add(&stream, "web", lengths, 6);
    source->passes = 3;
    source->view.counts = stream_counts_of;
    stream.lengths[0].counts = counts;
    stream.stages[0].weights = (const uint32_t[]){1};
    stream_open(&stream);
    for (uint32_t i = 0; i < RP_ARRAY_COUNT(taken); i++)
        stream_expect(&stream, (struct stream_fragment[]){{0, taken[i], 0, 5}, {0}});
    stream_expect(&stream, (struct stream_fragment[]){{0}});
    stream_close(&stream);
}

/* ---- section 6.2 ----------------------------------------------------------------------------- */

static const uint64_t first[] = {10, 40, 10, 20}, second[] = {30, 10, 10}, third[] = {20, 20, 10};

static void test_choosing(void **state)
{
    (void)state;
    static const struct {
        uint32_t source;
        uint64_t document;
        uint32_t length;
        int64_t credits[3]; /* tokens, within one of them */
    } steps[] = {
        {0, 0, 10, {-5, 3, 2}},    {1, 0, 30, {10, -18, 8}}, {0, 1, 40, {-10, -6, 16}},
        {2, 0, 20, {0, 0, -1}},    {0, 2, 10, {-5, 2, 1}},   {1, 1, 10, {0, -4, 3}},
        {2, 1, 20, {14, -4, -11}}, {0, 3, 20, {8, -4, -5}},
    };
    struct stream stream;
    stream_begin(&stream, 40);
    stream.stages[0].packing = RP_PACKING_BEST_FIT;
    stream.stages[0].window = 1;
    stream.stages[0].max_docs_per_row = 1;
    stream_add(&stream, "0", first, 4);
    stream_add(&stream, "1", second, 3);
    stream_add(&stream, "2", third, 3);
    stream.stages[0].weights = (const uint32_t[]){5, 3, 2};
    stream.stages[1] = (struct rp_stage_spec){
        .from = 6, .sets = RP_SETS_WEIGHTS, .weights = (const uint32_t[]){5, 0, 2}};
    stream.spec.stage_count = 2;
    stream_open(&stream);
    for (uint32_t i = 0; i < RP_ARRAY_COUNT(steps); i++) {
        stream_expect(&stream, (struct stream_fragment[]){
                                   {steps[i].source, steps[i].document, 0, steps[i].length}, {0}});
        struct rp_snapshot snapshot = stream_snapshot(&stream);
        assert_int_equal(snapshot.longest, i == 0 ? 10 : i == 1 ? 30 : 40);
        if (i == 3) {
            assert_true(snapshot.sources[0].credit == 0);
            assert_true(snapshot.sources[1].credit == 20);
            assert_true(snapshot.sources[2].credit == -20);
        }
        for (uint32_t j = 0; j < 3; j++) {
            int64_t credit = snapshot.sources[j].credit, whole = credit >> 32;
            assert_true(whole == steps[i].credits[j] || whole == steps[i].credits[j] - 1 ||
                        whole == steps[i].credits[j] + 1);
        }
        rp_snapshot_free(&snapshot);
    }
    stream_close(&stream);
}

/* ---- sections 7 and 9.2 ---------------------------------------------------------------------- */

static const uint64_t books[] = {50, 4, 20, 6, 30, 5, 3, 8};

struct store {
    uint64_t item;
    uint32_t offset, length, turn, rows;
};

/* Lists end with a length of 0. */
static void expect_stores(const struct stream *stream, const struct store *fifo,
                          const struct store *pool)
{
    struct rp_snapshot snapshot = stream_snapshot(stream);
    uint32_t i = 0;
    for (; fifo[i].length > 0; i++) {
        assert_true(i < snapshot.fifo_count);
        assert_int_equal(snapshot.fifo[i].item, fifo[i].item);
        assert_int_equal(snapshot.fifo[i].offset, fifo[i].offset);
        assert_int_equal(snapshot.fifo[i].length, fifo[i].length);
    }
    assert_int_equal(snapshot.fifo_count, i);
    for (i = 0; pool[i].length > 0; i++) {
        assert_true(i < snapshot.pool_count);
        assert_int_equal(snapshot.pool[i].piece.item, pool[i].item);
        assert_int_equal(snapshot.pool[i].piece.offset, pool[i].offset);
        assert_int_equal(snapshot.pool[i].piece.length, pool[i].length);
        assert_int_equal(snapshot.pool[i].turn, pool[i].turn);
        assert_int_equal(snapshot.pool[i].rows, pool[i].rows);
    }
    assert_int_equal(snapshot.pool_count, i);
    rp_snapshot_free(&snapshot);
}

static const struct {
    struct stream_fragment row[3];
    struct store fifo[3], pool[3];
} spread[] = {
    {{{0, 0, 0, 8}}, {{1, 0, 4, 0, 0}}, {{0, 8, 42, 613566756, 7}, {2, 0, 20, 0, 3}}},
    {{{0, 2, 0, 8}}, {{1, 0, 4, 0, 0}}, {{0, 8, 42, 613566756, 7}, {2, 8, 12, 1431655765, 3}}},
    {{{0, 0, 8, 8}}, {{1, 0, 4, 0, 0}}, {{0, 16, 34, 613566756, 7}, {2, 8, 12, 818089009, 3}}},
    {{{0, 0, 16, 8}}, {{1, 0, 4, 0, 0}}, {{0, 24, 26, 613566756, 7}, {2, 8, 12, 204522253, 3}}},
    {{{0, 2, 8, 8}}, {{1, 0, 4, 0, 0}, {2, 16, 4, 0, 0}}, {{0, 24, 26, 409044503, 7}}},
    {{{0, 1, 0, 4}, {0, 2, 16, 4}}, {{3, 0, 6, 0, 0}}, {{0, 24, 26, 409044503, 7}}},
    {{{0, 4, 0, 8}}, {{3, 0, 6, 0, 0}}, {{0, 24, 26, 409044503, 7}, {4, 8, 22, 1073741824, 4}}},
};

static void open_books(struct stream *stream)
{
    static const uint32_t weights[] = {1};
    stream_begin(stream, 8);
    stream_add(stream, "books", books, RP_ARRAY_COUNT(books));
    stream->stages[0].weights = weights;
}

static void test_spread(void **state)
{
    (void)state;
    struct stream stream;
    open_books(&stream);
    stream_open(&stream);
    for (uint32_t row = 0; row < RP_ARRAY_COUNT(spread); row++) {
        stream_expect(&stream, spread[row].row);
        expect_stores(&stream, spread[row].fifo, spread[row].pool);
    }
    stream_close(&stream);
}

static void open_boundary(struct stream *stream)
{
    open_books(stream);
    stream->stages[1] = (struct rp_stage_spec){.from = 3,
                                               .sets = RP_SETS_SEQ_LEN | RP_SETS_MAX_DOCS,
                                               .seq_len = 16,
                                               .max_docs_per_row = 16};
    stream->spec.stage_count = 2;
    stream_open(stream);
}

static void test_boundary(void **state)
{
    (void)state;
    struct stream stream;
    open_boundary(&stream);
    for (uint32_t row = 0; row < 3; row++)
        stream_expect(&stream, spread[row].row);
    expect_stores(&stream, spread[2].fifo, spread[2].pool); /* the actions belong to row 3 */
    stream_expect(&stream, (struct stream_fragment[]){{0, 1, 0, 4}, {0, 2, 8, 12}, {0}});
    expect_stores(&stream, (struct store[]){{3, 0, 6, 0, 0}, {0}},
                  (struct store[]){{0, 16, 34, 0, 3}, {0}});
    stream_expect(&stream, (struct stream_fragment[]){{0, 0, 16, 16}, {0}});
    stream_expect(&stream, (struct stream_fragment[]){{0, 4, 0, 16}, {0}});
    stream_expect(&stream,
                  (struct stream_fragment[]){{0, 3, 0, 6}, {0, 5, 0, 5}, {0, 6, 0, 3}, {0}});
    stream_close(&stream);
}

/* ---- the end, errors, restore ---------------------------------------------------------------- */

static bool is_equal(const struct rp_snapshot *a, const struct rp_snapshot *b)
{
    return a->row == b->row && rp_hash128_equal(a->digest, b->digest) && a->stopped == b->stopped &&
           a->longest == b->longest && memcmp(&a->counts, &b->counts, sizeof a->counts) == 0 &&
           a->sources[0].position == b->sources[0].position &&
           a->sources[0].epoch == b->sources[0].epoch;
}

/* The documents behind the last row are visited at each attempt, and change nothing. */
static void test_end_changes_no_state(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {4, 4, 0, 0, 0};
    struct stream stream;
    stream_begin(&stream, 4);
    stream.stages[0].window = 1;
    stream_add(&stream, "web", lengths, RP_ARRAY_COUNT(lengths));
    stream.sources[0].limits.on_exhausted = RP_EXHAUSTED_STOP;
    stream.stages[0].weights = (const uint32_t[]){1};
    stream_open(&stream);
    stream_expect(&stream, (struct stream_fragment[]){{0, 0, 0, 4}, {0}});
    stream_expect(&stream, (struct stream_fragment[]){{0, 1, 0, 4}, {0}});
    struct rp_snapshot before = stream_snapshot(&stream);
    assert_int_equal(before.sources[0].position, 2);
    assert_int_equal(before.counts.empty, 0);
    for (int i = 0; i < 2; i++) {
        stream_expect(&stream, (struct stream_fragment[]){{0}});
        struct rp_snapshot after = stream_snapshot(&stream);
        assert_true(is_equal(&before, &after));
        rp_snapshot_free(&after);
    }
    rp_snapshot_free(&before);
    stream_close(&stream);
}

static void test_epoch_without_piece(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {0, 0, 0};
    struct stream stream;
    stream_begin(&stream, 4);
    stream_add(&stream, "web", lengths, 3)->limits.max_epochs = 0;
    stream.stages[0].weights = (const uint32_t[]){1};
    stream_open(&stream);
    struct rp_stream_row row;
    struct rp_error error = {0};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(rp_planner_next(stream.plan, &row, &error), -RP_E_EMPTY);
        assert_non_null(strstr(error.message, "source web: a whole epoch"));
    }
    stream_close(&stream);
}

/* The row of the damaged document fails, and none before it. */
static void test_damage_is_met_when_visited(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {4, 4, RP_LENGTH_BAD, 4};
    struct stream stream;
    stream_begin(&stream, 4);
    stream.stages[0].window = 1;
    stream_add(&stream, "web", lengths, RP_ARRAY_COUNT(lengths));
    stream.stages[0].weights = (const uint32_t[]){1};
    stream_open(&stream);
    stream_expect(&stream, (struct stream_fragment[]){{0, 0, 0, 4}, {0}});
    stream_expect(&stream, (struct stream_fragment[]){{0, 1, 0, 4}, {0}});
    struct rp_stream_row row;
    struct rp_error error = {0};
    assert_int_equal(rp_planner_next(stream.plan, &row, &error), -RP_E_CORRUPT);
    assert_non_null(strstr(error.message, "document 2 is damaged"));
    stream_close(&stream);
}

static void test_too_many_pieces_for_a_search(void **state)
{
    (void)state;
    struct stream stream;
    stream_begin(&stream, 4096);
    stream_add(&stream, "books", books, RP_ARRAY_COUNT(books));
    stream.stages[0].weights = (const uint32_t[]){1};
    stream.stages[0].packing = RP_PACKING_BEST_FIT;
    stream.stages[0].window = 4096;
    stream.stages[1] = (struct rp_stage_spec){
        .from = 3, .sets = RP_SETS_PACKING | RP_SETS_WINDOW, .window = 8};
    stream.spec.stage_count = 2;
    struct rp_error error = {0};
    assert_int_equal(stream_try_open(&stream, &error), -RP_E_CONFIG);
    assert_non_null(strstr(error.message, "the stage from row 3: packing lookahead"));
    stream_close(&stream);
}

/* From a snapshot before each row, also before a boundary, the stream continues unchanged. */
static void test_restore(void **state)
{
    (void)state;
    struct stream whole, again;
    open_boundary(&whole);
    for (uint64_t from = 0; from < 6; from++) {
        struct rp_stream_position position = rp_planner_position(whole.plan);
        struct rp_snapshot snapshot = stream_snapshot(&whole);
        open_boundary(&again);
        struct rp_error error = {0};
        assert_int_equal(rp_planner_restore(again.plan, &snapshot, &position, NULL, 0, &error), 0);
        rp_snapshot_free(&snapshot);
        struct rp_stream_row row, other;
        while (rp_planner_next(again.plan, &row, &error) > 0)
            assert_int_equal(row.row, row.planned);
        struct rp_snapshot end = stream_snapshot(&again);
        struct stream unbroken;
        open_boundary(&unbroken);
        while (rp_planner_next(unbroken.plan, &other, &error) > 0)
            continue;
        struct rp_snapshot expected = stream_snapshot(&unbroken);
        assert_true(is_equal(&expected, &end));
        rp_snapshot_free(&expected);
        rp_snapshot_free(&end);
        stream_close(&unbroken);
        stream_close(&again);
        assert_int_equal(rp_planner_next(whole.plan, &row, &error), 1);
    }
    stream_close(&whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_visits),
        cmocka_unit_test(test_passes),
        cmocka_unit_test(test_choosing),
        cmocka_unit_test(test_spread),
        cmocka_unit_test(test_boundary),
        cmocka_unit_test(test_end_changes_no_state),
        cmocka_unit_test(test_epoch_without_piece),
        cmocka_unit_test(test_damage_is_met_when_visited),
        cmocka_unit_test(test_too_many_pieces_for_a_search),
        cmocka_unit_test(test_restore),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
