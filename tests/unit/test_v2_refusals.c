/* SPDX-License-Identifier: Apache-2.0 */
/* Every refusal of rp_calendar_open for a new stream: an error of the config that names stage, row,
 * source and field, and the values. Refusals of a calendar that continues: test_v2_begun.c. */
#include "calendar_kit.h"

typedef struct calendar_stream Stream;

static const struct rp_row_range adjacent[] = {{1, 3}, {3, 5}}, backwards[] = {{10, 13}, {9, 10}};
static const uint64_t twice[] = {1, 1};

static void break_group(Stream *s)
{
    s->spec.fixed.group = 65;
}
static void break_shuffle(Stream *s)
{
    s->spec.fixed.shuffle = (enum rp_shuffle)3;
}
static void break_long_doc(Stream *s)
{
    s->spec.fixed.long_doc = (enum rp_long_doc)3;
}
static void break_block(Stream *s)
{
    s->spec.fixed.block_documents = 0;
}
static void break_block_of_groups(Stream *s)
{
    s->spec.fixed.group = 2;
    s->spec.fixed.block_documents = 3;
}
static void break_window_blocks(Stream *s)
{
    s->spec.fixed.window_blocks = 0;
}
static void break_no_sources(Stream *s)
{
    s->spec.source_count = 0;
}
static void break_empty_name(Stream *s)
{
    s->sources[2].name = "";
}
static void break_long_name(Stream *s)
{
    s->sources[2].name = "0123456789012345678901234567890123456789012345678901234567890123";
}
static void break_equal_names(Stream *s)
{
    s->sources[2].name = "web";
}
static void break_range_end(Stream *s)
{
    s->sources[1].range_first = s->sources[1].range_end = 7;
}
static void break_range_of_groups(Stream *s)
{
    s->spec.fixed.group = 2;
    s->sources[1].range_first = 3;
}
static void break_range_documents(Stream *s)
{
    s->sources[1].range_end = 5;
}
static void break_too_long(Stream *s)
{
    s->sources[1].too_long = (enum rp_too_long)4;
}
static void break_truncated_group(Stream *s)
{
    s->spec.fixed.group = 2;
    s->sources[1].too_long = RP_TOO_LONG_TRUNCATE;
}
static void break_skips(Stream *s)
{
    s->spec.skips = backwards;
}
static void break_adjacent_skips(Stream *s)
{
    s->spec.skips = adjacent;
}
static void break_no_stages(Stream *s)
{
    s->spec.stage_count = 0;
}
static void break_many_stages(Stream *s)
{
    s->spec.stage_count = RP_STAGES_MAX + 1;
}
static void break_first_row(Stream *s)
{
    s->stages[0].from = 1;
}
static void break_equal_rows(Stream *s)
{
    s->stages[2].from = 100;
}
static void break_first_lacks(Stream *s)
{
    s->stages[0].sets &= ~(uint32_t)RP_SETS_SEQ_LEN;
}
static void break_first_window(Stream *s)
{
    s->stages[0].sets &= ~(uint32_t)RP_SETS_WINDOW;
}
static void break_no_weight(Stream *s)
{
    s->weights[1][0] = s->weights[1][1] = s->weights[1][2] = 0;
}
static void break_no_weight_of_record(Stream *s)
{
    memset(s->weights[3], 0, sizeof s->weights[3]);
}
static void break_first_ramp(Stream *s)
{
    s->stages[0].ramp = 1;
}
static void break_long_ramp(Stream *s)
{
    s->stages[1].ramp = UINT64_C(1) << 53;
}
static void break_stage_in_ramp(Stream *s)
{
    s->spec.record_count = 0;
    s->stages[2].sets |= RP_SETS_WEIGHTS;
    s->weights[2][0] = 1;
    s->stages[1].ramp = 401;
}
static void break_seq_len(Stream *s)
{
    s->stages[2].seq_len = (1u << 24) + 8;
}
static void break_short_seq_len(Stream *s)
{
    s->spec.fixed.group = 2;
    s->stages[0].seq_len = 1;
}
static void break_align(Stream *s)
{
    s->stages[2].align = 4097;
}
static void break_no_align(Stream *s)
{
    s->stages[0].align = 0;
}
static void break_unaligned_seq_len(Stream *s)
{
    s->stages[2].align = 24;
}
static void break_packing(Stream *s)
{
    s->stages[2].packing = (enum rp_packing)3;
}
static void break_window(Stream *s)
{
    s->stages[2].window = 4097;
}
static void break_fill(Stream *s)
{
    s->stages[0].row_gap = (enum rp_row_gap)2;
}
static void break_spread(Stream *s)
{
    s->stages[0].spread = 1025;
}
static void break_concat_window(Stream *s)
{
    s->stages[2].packing = RP_PACKING_CONCAT;
}
static void break_after_concat_fill(Stream *s)
{
    s->stages[0].packing = RP_PACKING_CONCAT;
    s->stages[0].sets &= ~(uint32_t)(RP_SETS_WINDOW | RP_SETS_ROW_GAP | RP_SETS_SPREAD);
}
static void break_max_docs(Stream *s)
{
    s->stages[2].max_docs_per_row = 129;
}
static void break_max_docs_of_group(Stream *s)
{
    s->spec.fixed.group = 2;
    s->sources[2].documents = 4;
    s->stages[2].max_docs_per_row = 1;
}
static void break_deal_window(Stream *s)
{
    s->stages[2].deal.window = 10;
}
static void break_deal_large_window(Stream *s)
{
    s->stages[2].deal.window = (1u << 20) + 4;
}
static void break_deal_step(Stream *s)
{
    s->stages[2].deal.step = 3;
    s->stages[2].deal.window = 9;
}
static void break_deal_tier(Stream *s)
{
    s->stages[2].deal.bundle = 3;
    s->stages[2].deal.tier = 4;
}
static void break_deal_bundle(Stream *s)
{
    s->stages[2].deal.bundle = 0;
}
static void break_deal_k(Stream *s)
{
    s->stages[2].deal.cost.k = 0;
}
static void break_deal_w(Stream *s)
{
    s->stages[2].deal.cost.w = (1u << 24) + 1;
}
static void break_deal_b(Stream *s)
{
    s->stages[2].deal.cost.b = 65;
}
static void break_deal_h(Stream *s)
{
    s->stages[2].deal.cost.h = 5;
}
static void break_deal_order(Stream *s)
{
    s->stages[2].deal.order = RP_DEAL_ORDERS;
}
static void break_deal_cost(Stream *s)
{
    s->stages[2].seq_len = 1u << 24;
    s->stages[2].deal = (struct rp_deal){1u << 20, 1u << 20,       2,
                                         1,        RP_DEAL_MIDDLE, .cost = {4, 0, 1, 64}};
}
static void break_no_limit(Stream *s)
{
    s->limits.sets = 0;
}
static void break_limit_source(Stream *s)
{
    s->limits.source = 3;
}
static void break_without_order(Stream *s)
{
    s->without[0].documents = twice;
}
static void break_joins_empty(Stream *s)
{
    s->sources[0].documents = 0;
}
static void break_group_documents(Stream *s)
{
    s->spec.fixed.group = 2;
}
static void break_grows_over_index(Stream *s)
{
    s->grown = (struct rp_source_count){1, 7};
    s->record.documents = &s->grown;
    s->record.documents_count = 1;
}
static void break_shrinks(Stream *s)
{
    s->grown = (struct rp_source_count){1, 5};
    s->stages[2].documents = &s->grown;
    s->stages[2].documents_count = 1;
}
static void break_grows_before_joining(Stream *s)
{
    s->grown = (struct rp_source_count){0, 4};
    s->stages[0].documents = &s->grown;
    s->stages[0].documents_count = 1;
}
static void break_record_and_stage(Stream *s)
{
    s->record.from = 100;
}
static void break_record_and_stage_deal(Stream *s)
{
    s->record.from = 500;
    s->record.sets = RP_SETS_DEAL;
}
static void break_record_deal(Stream *s)
{
    s->record.deal = (struct rp_deal){.window = 4, .step = 4, .tier = 4, .bundle = 1, .cost.b = 1};
}
static void break_absent(Stream *s)
{
    s->sources[1].is_absent = true;
}

static const struct {
    void (*change)(Stream *stream);
    const char *message;
} refused[] = {
    {break_group, "group: expected 1 to 64, found 65"},
    {break_shuffle, "shuffle: expected 0 to 2"},
    {break_long_doc, "long_doc: expected 0 to 2"},
    {break_block, "block_documents: expected a multiple of group 1, found 0"},
    {break_block_of_groups, "block_documents: expected a multiple of group 2, found 3"},
    {break_window_blocks, "window_blocks: expected 1"},
    {break_no_sources, "sources: expected 1 to 4096, found 0"},
    {break_empty_name, "source 2: name: expected 1 to 63 bytes, found none"},
    {break_long_name, "found more"},
    {break_equal_names, "two sources have the name \"web\""},
    {break_range_end, "source \"web\": documents: expected FIRST-END"},
    {break_range_of_groups, "FIRST a multiple of group 2, found FIRST 3"},
    {break_range_documents, "source \"web\": 6 documents do not fit"},
    {break_too_long, "source \"web\": too_long"},
    {break_truncated_group, "source \"web\": too_long: truncate would cut a group of 2"},
    {break_skips, "skip: expected ascending ranges"},
    {break_adjacent_skips,
     "skip: expected ascending ranges of rows with a gap between them, found rows 3-5 as range 1"},
    {break_no_stages, "stages: expected 1 to 10000, found 0"},
    {break_many_stages, "stages: expected 1 to 10000, found 10001"},
    {break_first_row, "stage 0 (from row 1): the first stage begins at row 0"},
    {break_equal_rows,
     "stage 2 (from row 100): it does not begin after the stage before it, from row 100"},
    {break_first_lacks, "stage 0 (from row 0): the first stage lacks"},
    {break_first_window, "stage 0 (from row 0): window is missing"},
    {break_no_weight, "stage 1 (from row 100): weight: no source has a weight above 0"},
    {break_no_weight_of_record, "the record for row 300: weight: no source"},
    {break_first_ramp, "stage 0 (from row 0): ramp: expected 0 to 0, found 1"},
    {break_long_ramp,
     "stage 1 (from row 100): ramp: expected 0 to 9007199254740991, found 9007199254740992"},
    {break_stage_in_ramp,
     "the stage from row 500 sets weights, but the ramp of the stage from row 100 ends at row 501"},
    {break_seq_len, "stage 2 (from row 500): seq_len: expected 1 to 16777216, found 16777224"},
    {break_short_seq_len, "stage 0 (from row 0): seq_len: expected 2 to 16777216, found 1"},
    {break_align, "stage 2 (from row 500): align: expected 1 to 4096, found 4097"},
    {break_no_align, "align: expected 1 to 4096, found 0"},
    {break_unaligned_seq_len, "row 500: seq_len: expected a multiple of align 24, found 128"},
    {break_packing, "packing: expected 0 to 2, found 3"},
    {break_window, "stage 2 (from row 500): window: expected 1 to 4096, found 4097"},
    {break_fill, "row_gap: expected 0 to 1, found 2"},
    {break_spread, "spread: expected 1 to 1024, found 1025"},
    {break_concat_window, "stage 2 (from row 500): window: expected 0 to 0, found 32"},
    {break_after_concat_fill,
     "stage 2 (from row 500): row_gap is missing: the packing before it was concat"},
    {break_max_docs, "row 500: max_docs_per_row: expected group 1 to seq_len 128, found 129"},
    {break_max_docs_of_group, "row 500: max_docs_per_row: expected group 2"},
    {break_deal_window,
     "stage 2 (from row 500): deal: window: expected a multiple of step 4, found 10"},
    {break_deal_large_window, "deal: window: expected 4 to 1048576"},
    {break_deal_step, "deal: step: expected a multiple of tier 2, found 3"},
    {break_deal_tier, "deal: tier: expected a multiple of bundle 3, found 4"},
    {break_deal_bundle, "deal: bundle: expected 1"},
    {break_deal_k, "deal: K: expected 1 to 16777215, found 0"},
    {break_deal_w, "deal: w: expected 0 to 16777216"},
    {break_deal_b, "deal: b: expected 1 to 64, found 65"},
    {break_deal_h, "deal: h: expected 0 to 4, found 5"},
    {break_deal_order, "deal: order: expected 0 to 3, found 4"},
    {break_deal_cost, "row 500: deal: the cost of a step of 1048576 rows of 16777216 tokens"},
    {break_no_limit, "stage 1 (from row 100): limits: a source has no limit"},
    {break_limit_source, "stage 1 (from row 100): limits: a source is not in the config"},
    {break_without_order,
     "stage 1 (from row 100): without: source \"code\": documents do not ascend at 1"},
    {break_joins_empty, "row 100: source \"math \\1\" joins without a document"},
    {break_group_documents,
     "row 0: source \"code\": documents: expected a multiple of group 2, whose units "
     "stay whole, found 5"},
    {break_grows_over_index,
     "row 300: source \"web\": documents: expected at most 6, which its index has, found 7"},
    {break_shrinks, "row 500: source \"web\": documents: expected 6 or more, as before, found 5"},
    {break_grows_before_joining, "row 0: documents: source \"math \\1\" has not joined"},
    {break_record_and_stage, "row 100: both the stage and the record here set weights"},
    {break_record_and_stage_deal, "row 500: both the stage and the record here set deal"},
    {break_record_deal, "row 300: deal: K: expected 1"},
    {break_absent, "row 0: weight: no source has the name \"web\""},
};

static void test_refused(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < RP_ARRAY_COUNT(refused); i++) {
        struct calendar_stream stream;
        struct rp_calendar *calendar;
        struct rp_error error = {0};
        calendar_three(&stream);
        refused[i].change(&stream);
        int code = rp_calendar_open(&calendar, &stream.spec, NULL, &error);
        assert_null(calendar);
        if (code != -RP_E_CONFIG || !strstr(error.message, refused[i].message))
            fail_msg("case %zu: expected \"%s\", found %d: %s", i, refused[i].message, code,
                     error.message);
    }
}

/* ---- shares ---------------------------------------------------------------------------------- */

static void test_share_of_0(void **unused)
{
    (void)unused;
    static uint32_t weights[8] = {1,          UINT32_MAX, UINT32_MAX, UINT32_MAX,
                                  UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX};
    static const char *const names[] = {"tiny", "b", "c", "d", "e", "f", "g", "h"};
    struct rp_stream_source sources[8];
    struct calendar_stream stream;
    struct rp_calendar *calendar;
    struct rp_error error;
    calendar_three(&stream);
    for (unsigned i = 0; i < 8; i++) {
        sources[i] = stream.sources[1];
        sources[i].name = names[i];
    }
    stream.stages[0].weights = weights;
    stream.spec.sources = sources;
    stream.spec.source_count = 8;
    stream.spec.stage_count = 1;
    stream.spec.record_count = 0;
    assert_int_equal(rp_calendar_open(&calendar, &stream.spec, NULL, &error), -RP_E_CONFIG);
    assert_non_null(strstr(error.message, "row 0: source \"tiny\": its weight is less than 2^-32"));
    weights[0] = 10;
    calendar = calendar_open(&stream, NULL);
    rp_calendar_close(calendar);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_share_of_0),
    };
    return cmocka_run_group_tests_name("v2_refusals", tests, NULL, NULL);
}
