/* SPDX-License-Identifier: Apache-2.0 */
/* The calendar of stream version 2: its contract, chains, history and skips are those that the
 * oracle (tests/oracle/stream2_calendar.py, stream2_contract.py) wrote for the streams of
 * calendar_kit.h; values in force; a calendar that continues. Refusals: test_v2_refusals.c. */
#include "calendar_kit.h"

#include "base/hash.h"

static const char three_contract[] = "block_documents=4\n"
                                     "bos_id=1\n"
                                     "eos_id=none\n"
                                     "group=1\n"
                                     "label_across_cuts=1\n"
                                     "long_doc=truncate\n"
                                     "record[0000].documents[0000]=6\n"
                                     "record[0000].documents[0001]=5\n"
                                     "record[0000].from=0\n"
                                     "record[0000].max_docs_per_row=33\n"
                                     "record[0001].documents[0002]=4\n"
                                     "record[0001].from=100\n"
                                     "record[0002].deal=off\n"
                                     "record[0002].from=300\n"
                                     "record[0002].weight[0000]=3\n"
                                     "record[0002].weight[0002]=1\n"
                                     "seed=7\n"
                                     "shuffle=block\n"
                                     "skip[0000]=10-13\n"
                                     "skip[0001]=40-41\n"
                                     "source[0000].atomic=no\n"
                                     "source[0000].drop_untrained=none\n"
                                     "source[0000].full~000000000000feed\n"
                                     "source[0000].name=web\n"
                                     "source[0000].range=0-\n"
                                     "source[0000].sampled=0000000000001006\n"
                                     "source[0000].selection=0000000000000000\n"
                                     "source[0001].atomic=drop\n"
                                     "source[0001].drop_untrained=none\n"
                                     "source[0001].name=code\n"
                                     "source[0001].range=0-\n"
                                     "source[0001].sampled=0000000000002005\n"
                                     "source[0001].selection=0000000000000000\n"
                                     "source[0002].atomic=no\n"
                                     "source[0002].drop_untrained=fragment\n"
                                     "source[0002].name=math \\5c1\n"
                                     "source[0002].range=0-8\n"
                                     "source[0002].sampled=0000000000003004\n"
                                     "source[0002].selection=0000000000000000\n"
                                     "stage[0000].align=1\n"
                                     "stage[0000].deal=off\n"
                                     "stage[0000].fill=split\n"
                                     "stage[0000].from=0\n"
                                     "stage[0000].max_epochs[0000]=1\n"
                                     "stage[0000].max_epochs[0001]=0\n"
                                     "stage[0000].max_tokens[0000]=0\n"
                                     "stage[0000].max_tokens[0001]=0\n"
                                     "stage[0000].on_exhausted[0000]=continue\n"
                                     "stage[0000].on_exhausted[0001]=continue\n"
                                     "stage[0000].packing=lookahead\n"
                                     "stage[0000].ramp=0\n"
                                     "stage[0000].seq_len=64\n"
                                     "stage[0000].spread=64\n"
                                     "stage[0000].weight[0000]=2\n"
                                     "stage[0000].weight[0001]=1\n"
                                     "stage[0000].window=16\n"
                                     "stage[0001].from=100\n"
                                     "stage[0001].max_epochs[0000]=3\n"
                                     "stage[0001].max_epochs[0002]=1\n"
                                     "stage[0001].max_tokens[0002]=1000\n"
                                     "stage[0001].on_exhausted[0002]=stop\n"
                                     "stage[0001].ramp=100\n"
                                     "stage[0001].weight[0000]=1\n"
                                     "stage[0001].weight[0001]=1\n"
                                     "stage[0001].weight[0002]=2\n"
                                     "stage[0001].without[0000]=1:c77b3abb6f87acd9\n"
                                     "stage[0001].without[0001]=2:8756763de0c65ecf\n"
                                     "stage[0002].align=8\n"
                                     "stage[0002].deal=8,4,2,1,middle,4,16,1,2\n"
                                     "stage[0002].from=500\n"
                                     "stage[0002].max_docs_per_row=9\n"
                                     "stage[0002].packing=best_fit\n"
                                     "stage[0002].seq_len=128\n"
                                     "stage[0002].window=32\n"
                                     "stream_version=2\n"
                                     "tokenizer~0123456789abcdef0011223344556677\n"
                                     "window_blocks=2\n";

static const char one_contract[] = "block_documents=0\n"
                                   "bos_id=none\n"
                                   "eos_id=none\n"
                                   "group=2\n"
                                   "label_across_cuts=0\n"
                                   "long_doc=split\n"
                                   "record[0000].documents[0000]=8\n"
                                   "record[0000].from=0\n"
                                   "record[0000].max_docs_per_row=2049\n"
                                   "seed=0\n"
                                   "shuffle=none\n"
                                   "source[0000].atomic=error\n"
                                   "source[0000].drop_untrained=none\n"
                                   "source[0000].name=only\n"
                                   "source[0000].range=0-\n"
                                   "source[0000].sampled=0000000000000000\n"
                                   "source[0000].selection=0000000000000000\n"
                                   "stage[0000].align=1\n"
                                   "stage[0000].deal=off\n"
                                   "stage[0000].fill=pad\n"
                                   "stage[0000].from=0\n"
                                   "stage[0000].max_epochs[0000]=1\n"
                                   "stage[0000].max_tokens[0000]=0\n"
                                   "stage[0000].on_exhausted[0000]=continue\n"
                                   "stage[0000].packing=concat\n"
                                   "stage[0000].ramp=0\n"
                                   "stage[0000].seq_len=4096\n"
                                   "stage[0000].spread=0\n"
                                   "stage[0000].weight[0000]=1\n"
                                   "stage[0000].window=0\n"
                                   "stream_version=2\n"
                                   "window_blocks=0\n";

static char *contract_of(const struct rp_calendar *calendar)
{
    struct rp_record_writer writer = {0};
    struct rp_error error;
    assert_int_equal(rp_calendar_contract(calendar, &writer, &error), 0);
    char *text = calloc(writer.bytes + 1, 1);
    assert_non_null(text);
    memcpy(text, writer.text, writer.bytes);
    free(writer.text);
    return text;
}

static void expect_contract(const struct calendar_stream *stream, const char *expected)
{
    struct rp_calendar *calendar = calendar_open(stream, NULL);
    char *text = contract_of(calendar);
    struct rp_record record;
    assert_string_equal(text, expected);
    assert_int_equal(rp_record_open(&record, text, strlen(text), NULL), 0);
    free(text);
    rp_calendar_close(calendar);
}

static void test_contract(void **unused)
{
    (void)unused;
    struct calendar_stream stream;
    calendar_three(&stream);
    expect_contract(&stream, three_contract);
    for (unsigned i = 0; i < 3; i++) /* weights that are not reduced are the same */
        stream.weights[1][i] *= 1000;
    expect_contract(&stream, three_contract);
    calendar_one(&stream);
    expect_contract(&stream, one_contract);
}

static void expect_hash(struct rp_hash128 found, const char *expected)
{
    char text[RP_HASH_HEX_BYTES];
    assert_string_equal(rp_hash128_hex(found, text), expected);
}

static void test_chains(void **unused)
{
    (void)unused;
    static const struct {
        uint64_t row;
        uint32_t stages;
        const char *declared, *records;
    } expected[] = {
        {0, 1, "e2ff31e009c418b94ff8286ff6b8340d", "d7bc979e2df609902b3357c2952a3d01"},
        {100, 1, "e2ff31e009c418b94ff8286ff6b8340d", "d7bc979e2df609902b3357c2952a3d01"},
        {101, 2, "22c033b7fbc0c0439a7d3ea4286b2880", "a10cbd02778ac0606a17d54de74af67f"},
        {301, 2, "22c033b7fbc0c0439a7d3ea4286b2880", "d5c554a3d0672b00d412ee9de085cfff"},
        {501, 3, "68a69995bc27bc90fcac076b142a0c1e", "d5c554a3d0672b00d412ee9de085cfff"},
    };
    struct calendar_stream stream;
    struct rp_calendar_chains chains;
    calendar_three(&stream);
    struct rp_calendar *calendar = calendar_open(&stream, NULL);
    for (size_t i = 0; i < RP_ARRAY_COUNT(expected); i++) {
        chains = rp_calendar_chains(calendar, expected[i].row);
        expect_hash(chains.declared, expected[i].declared);
        expect_hash(chains.records, expected[i].records);
        assert_int_equal(chains.declared_count, expected[i].stages);
    }
    rp_calendar_close(calendar);
    calendar_one(&stream);
    calendar = calendar_open(&stream, NULL);
    chains = rp_calendar_chains(calendar, 0);
    expect_hash(chains.declared, "9d7258fcb2b3f00bc7f7f46195acff94");
    expect_hash(chains.records, "9d340535ba53380db85bb95ace9b88f0");
    rp_calendar_close(calendar);
}

static void test_history(void **unused)
{
    (void)unused;
    static const char expected[] = "stage 0\n"
                                   "align=1\n"
                                   "deal=off\n"
                                   "fill=split\n"
                                   "from=0\n"
                                   "packing=lookahead\n"
                                   "ramp=0\n"
                                   "seq_len=64\n"
                                   "spread=64\n"
                                   "weight[0000]=2\n"
                                   "weight[0001]=1\n"
                                   "window=16\n"
                                   "record 0\n"
                                   "documents[0000]=6\n"
                                   "documents[0001]=5\n"
                                   "from=0\n"
                                   "max_docs_per_row=33\n"
                                   "stage 100\n"
                                   "from=100\n"
                                   "ramp=100\n"
                                   "weight[0000]=1\n"
                                   "weight[0001]=1\n"
                                   "weight[0002]=2\n"
                                   "without[0000]=1:c77b3abb6f87acd9\n"
                                   "without[0001]=2:8756763de0c65ecf\n"
                                   "record 100\n"
                                   "documents[0002]=4\n"
                                   "from=100\n"
                                   "record 300\n"
                                   "deal=off\n"
                                   "from=300\n"
                                   "weight[0000]=3\n"
                                   "weight[0002]=1\n";
    struct calendar_stream stream;
    char text[RP_HISTORY_MAX];
    uint32_t bytes;
    calendar_three(&stream);
    struct rp_calendar *calendar = calendar_open(&stream, NULL);
    memset(text, 'x', sizeof text);
    bytes = rp_calendar_history(calendar, 301, 20, text);
    assert_int_equal(bytes, 440);
    assert_memory_equal(text, expected, sizeof expected);
    for (size_t i = sizeof expected; i < bytes; i++)
        assert_int_equal(text[i], 0);
    /* less room: the oldest entries are left out, up to the newest that does not fit */
    const char *from = strstr(expected, "record 0\n");
    uint32_t own = (uint32_t)strlen(from);
    bytes = rp_calendar_history(calendar, 301, (640 - own) / 8, text);
    assert_memory_equal(text, from, own);
    bytes = rp_calendar_history(calendar, 301, (640 - own) / 8 + 1, text);
    assert_memory_equal(text, strstr(expected, "stage 100\n"), 9);
    bytes = rp_calendar_history(calendar, 301, 1000, text);
    assert_int_equal(bytes, 0);
    rp_calendar_close(calendar);
}

static void test_skips(void **unused)
{
    (void)unused;
    static const struct {
        uint64_t row;
        bool skips;
        const char *hash;
    } expected[] = {{0, false, "99aa06d3014798d86001c324468d497f"},
                    {10, true, "99aa06d3014798d86001c324468d497f"},
                    {11, true, "0572536aeee64e29837be46050682462"},
                    {13, false, "0bbf650a0dcd79375cb1f8047d8e1526"},
                    {40, true, "0bbf650a0dcd79375cb1f8047d8e1526"},
                    {41, false, "465ee5099f2536de8bdb5467f5221a61"},
                    {50, false, "465ee5099f2536de8bdb5467f5221a61"}};
    struct calendar_stream stream;
    calendar_three(&stream);
    struct rp_calendar *calendar = calendar_open(&stream, NULL);
    for (size_t i = 0; i < RP_ARRAY_COUNT(expected); i++) {
        assert_int_equal(rp_calendar_skips(calendar, expected[i].row), expected[i].skips);
        expect_hash(rp_calendar_skip_hash(calendar, expected[i].row), expected[i].hash);
    }
    rp_calendar_close(calendar);
}

static void test_values_in_force(void **unused)
{
    (void)unused;
    struct calendar_stream stream;
    calendar_three(&stream);
    struct rp_calendar *calendar = calendar_open(&stream, NULL);
    assert_int_equal(rp_calendar_source_count(calendar), 3);
    assert_string_equal(rp_calendar_source_name(calendar, 0), "web");
    assert_string_equal(rp_calendar_source_name(calendar, 2), "math \\1");
    assert_string_equal(rp_calendar_source(calendar, 1)->name, "code");
    const struct rp_stage *stage = rp_calendar_at(calendar, 99);
    assert_int_equal(stage->joined, 2);
    assert_int_equal(stage->max_docs_per_row, 33);
    assert_int_equal(stage->limits[0].max_epochs, 1);
    assert_false(stage->rebuilds);
    assert_int_equal(rp_calendar_next(calendar, 99), 100);
    stage = rp_calendar_at(calendar, 100);
    assert_int_equal(stage->joined, 3);
    assert_int_equal(stage->limits[0].max_epochs, 3);
    assert_int_equal(stage->limits[2].max_tokens, 1000);
    assert_int_equal(stage->documents[2], 4);
    assert_true(stage->is_declared && stage->has_record && !stage->rebuilds);
    stage = rp_calendar_at(calendar, 499);
    assert_true(stage->from == 300 && stage->has_record && !stage->is_declared);
    assert_int_equal(stage->weights[1], 0);
    stage = rp_calendar_at(calendar, RP_NO_ROW - 1);
    assert_true(stage->from == 500 && stage->rebuilds && stage->is_declared && !stage->has_record);
    assert_int_equal(stage->max_docs_per_row, 9);
    assert_int_equal(stage->deal.cost.h, 1);
    assert_int_equal(stage->deal.cost.b, 2);
    assert_int_equal(stage->row_gap, RP_ROW_GAP_SPLIT);
    assert_true(rp_calendar_next(calendar, 500) == RP_NO_ROW);
    assert_true(rp_calendar_is_boundary(calendar, 300) && !rp_calendar_is_boundary(calendar, 301));
    assert_false(rp_calendar_has_out(calendar, 1, 99));
    assert_false(rp_calendar_is_out(calendar, 1, 3, 99));
    assert_true(rp_calendar_is_out(calendar, 1, 3, 100) && rp_calendar_is_out(calendar, 0, 0, 600));
    assert_false(rp_calendar_is_out(calendar, 1, 2, 100) || rp_calendar_has_out(calendar, 2, 600));
    rp_calendar_close(calendar);
    calendar_one(&stream);
    calendar = calendar_open(&stream, NULL);
    assert_int_equal(rp_calendar_spec(calendar)->fixed.block_documents, 0);
    assert_int_equal(rp_calendar_spec(calendar)->fixed.long_doc, RP_LONG_DOC_SPLIT);
    assert_int_equal(rp_calendar_source(calendar, 0)->too_long, RP_TOO_LONG_ERROR);
    rp_calendar_close(calendar);
}

/* Sets add up: a document stays out, and another one joins it at its own stage. */
static void test_taken_out(void **unused)
{
    (void)unused;
    static const uint64_t later[] = {3, 4, UINT64_C(1) << 62};
    static const struct rp_without without = {2, 3, later};
    struct calendar_stream stream;
    calendar_three(&stream);
    stream.stages[2].without = &without;
    stream.stages[2].without_count = 1;
    struct rp_calendar *calendar = calendar_open(&stream, NULL);
    for (uint64_t document = 0; document < 6; document++) {
        bool at_100 = document == 1 || document == 3;
        assert_false(rp_calendar_is_out(calendar, 1, document, 99));
        assert_int_equal(rp_calendar_is_out(calendar, 1, document, 499), at_100);
        assert_int_equal(rp_calendar_is_out(calendar, 1, document, 500), at_100 || document == 4);
    }
    assert_true(rp_calendar_is_out(calendar, 1, later[2], 500));
    rp_calendar_close(calendar);
}

/* ---- a calendar that continues --------------------------------------------------------------- */

static const char *const known[] = {"web", "code", "math \\1"};

/* The index of web has grown, so everything that was resolved before would be another now. */
static void test_begun_records_stay(void **unused)
{
    (void)unused;
    struct calendar_stream stream;
    struct rp_calendar_position position = {.next_row = 101,
                                            .known_count = 3,
                                            .known_names = known,
                                            .is_resumed = true,
                                            .begun_records = three_contract};
    calendar_three(&stream);
    stream.sources[1].documents = 8;
    stream.grown = (struct rp_source_count){1, 8};
    stream.record.documents = &stream.grown;
    stream.record.documents_count = 1;
    struct rp_calendar *calendar = calendar_open(&stream, &position);
    struct rp_calendar_chains chains;
    chains = rp_calendar_chains(calendar, 101);
    expect_hash(chains.declared, "22c033b7fbc0c0439a7d3ea4286b2880");
    expect_hash(chains.records, "a10cbd02778ac0606a17d54de74af67f");
    assert_int_equal(rp_calendar_at(calendar, 299)->documents[0], 6);
    assert_int_equal(rp_calendar_at(calendar, 300)->documents[0], 8);
    assert_int_equal(rp_calendar_at(calendar, 300)->documents[2], 4);
    char *text = contract_of(calendar);
    assert_non_null(strstr(text, "record[0000].documents[0000]=6\n"));
    assert_non_null(strstr(text, "record[0002].documents[0000]=8\nrecord[0002].from=300\n"));
    assert_non_null(strstr(text, "sampled=0000000000001008\n"));
    assert_true(rp_calendar_knows_records(calendar));
    free(text);
    rp_calendar_close(calendar);
}

/* Without the begun records, a token's values are in force, and its chain continues. */
static void test_values_of_a_token(void **unused)
{
    (void)unused;
    static const uint64_t documents[] = {6, 5, 4};
    static const uint32_t weights[] = {3, 0, 1};
    struct calendar_stream stream;
    struct rp_calendar_held held = {
        .documents = documents, .weights = weights, .max_docs_per_row = 33};
    struct rp_calendar_position position = {
        .next_row = 301, .known_count = 3, .known_names = known, .is_resumed = true, .held = &held};
    struct rp_calendar_chains chains;
    uint64_t shares[3];
    calendar_three(&stream);
    struct rp_calendar *whole = calendar_open(&stream, NULL);
    chains = rp_calendar_chains(whole, 301);
    held.records = chains.records;
    struct rp_calendar *calendar = calendar_open(&stream, &position);
    assert_false(rp_calendar_knows_records(calendar));
    assert_true(rp_calendar_shares(calendar, 400, shares) == RP_NO_ROW);
    assert_true(shares[0] == UINT64_C(3) << 30 && shares[1] == 0 && shares[2] == 1u << 30);
    const struct rp_stage *stage = rp_calendar_at(calendar, 600);
    assert_true(stage->documents[0] == 6 && stage->max_docs_per_row == 9 && stage->joined == 3);
    chains = rp_calendar_chains(calendar, 600);
    expect_hash(chains.declared, "68a69995bc27bc90fcac076b142a0c1e");
    expect_hash(chains.records, "d5c554a3d0672b00d412ee9de085cfff");
    rp_calendar_close(calendar);
    rp_calendar_close(whole);
}

/* ---- many stages, many sources --------------------------------------------------------------- */

static void test_many_stages(void **unused)
{
    (void)unused;
    static struct rp_stage_spec stages[RP_STAGES_MAX];
    struct calendar_stream stream;
    calendar_three(&stream);
    stages[0] = stream.stages[0];
    for (uint32_t i = 1; i < RP_STAGES_MAX; i++) {
        stages[i] = stream.stages[1];
        stages[i].from = i * UINT64_C(1000);
    }
    stream.spec.stages = stages;
    stream.spec.stage_count = RP_STAGES_MAX;
    struct rp_calendar *calendar = calendar_open(&stream, NULL);
    assert_int_equal(rp_calendar_at(calendar, 9999999)->from, 9999000);
    char *text = contract_of(calendar);
    assert_non_null(strstr(text, "\nstage[9999].from=9999000\n"));
    free(text);
    rp_calendar_close(calendar);
}

static void test_many_sources(void **unused)
{
    (void)unused;
    static struct rp_stream_source sources[RP_SOURCES_MAX];
    static uint32_t weights[RP_SOURCES_MAX];
    static char names[RP_SOURCES_MAX][8];
    static uint64_t shares[RP_SOURCES_MAX];
    struct calendar_stream stream;
    uint64_t sum = 0;
    calendar_three(&stream);
    for (uint32_t i = 0; i < RP_SOURCES_MAX; i++) {
        snprintf(names[i], sizeof names[i], "s%u", i);
        sources[i] = stream.sources[1];
        sources[i].name = names[i];
        weights[i] = i + 1;
    }
    stream.spec.sources = sources;
    stream.spec.source_count = RP_SOURCES_MAX;
    stream.spec.stage_count = 2;
    stream.spec.record_count = 0;
    static uint32_t first[RP_SOURCES_MAX] = {1, 1, 1};
    stream.stages[0].weights = first;
    stream.stages[1].weights = weights;
    struct rp_calendar *calendar = calendar_open(&stream, NULL);
    assert_int_equal(rp_calendar_source_count(calendar), RP_SOURCES_MAX);
    assert_int_equal(rp_calendar_shares(calendar, 150, shares), 151);
    for (uint32_t i = 0; i < RP_SOURCES_MAX; i++)
        sum += shares[i];
    assert_true(sum == UINT64_C(1) << 32);
    rp_calendar_close(calendar);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contract),
        cmocka_unit_test(test_chains),
        cmocka_unit_test(test_history),
        cmocka_unit_test(test_skips),
        cmocka_unit_test(test_values_in_force),
        cmocka_unit_test(test_taken_out),
        cmocka_unit_test(test_begun_records_stay),
        cmocka_unit_test(test_values_of_a_token),
        cmocka_unit_test(test_many_stages),
        cmocka_unit_test(test_many_sources),
    };
    return cmocka_run_group_tests_name("v2_calendar", tests, NULL, NULL);
}
