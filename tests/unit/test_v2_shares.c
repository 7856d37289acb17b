/* SPDX-License-Identifier: Apache-2.0 */
/* Shares and the order of a deal window: the worked examples of STREAM2.md, sections 6.1, 6.2 and
 * 8, and laws of both. */
#include "calendar_kit.h"

#include "plan/v2/deal.h"

#define WHOLE (UINT64_C(1) << 32)

/* ---- apportion ------------------------------------------------------------------------------- */

static void expect_shares(const uint64_t *x, uint32_t count, const uint64_t *expected)
{
    uint64_t shares[4];
    assert_true(count <= 4);
    rp_apportion(x, count, shares);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(shares[i], expected[i]);
}

static void test_apportion(void **unused)
{
    (void)unused;
    expect_shares((uint64_t[]){5, 3, 2}, 3, (uint64_t[]){2147483648, 1288490189, 858993459});
    expect_shares((uint64_t[]){5, 0, 2}, 3, (uint64_t[]){3067833783, 0, 1227133513});
    expect_shares((uint64_t[]){0, 77, 0}, 3, (uint64_t[]){0, WHOLE, 0});
    expect_shares((uint64_t[]){WHOLE}, 1, (uint64_t[]){WHOLE});
    /* equal rests: the lowest number first, and never a source that is not in the set */
    expect_shares((uint64_t[]){1, 1, 1}, 3, (uint64_t[]){1431655766, 1431655765, 1431655765});
    expect_shares((uint64_t[]){0, 1, 1, 1}, 4, (uint64_t[]){0, 1431655766, 1431655765, 1431655765});
    expect_shares((uint64_t[]){WHOLE - 1, WHOLE - 1}, 2, (uint64_t[]){WHOLE / 2, WHOLE / 2});
    expect_shares((uint64_t[]){WHOLE - 1, 1}, 2, (uint64_t[]){WHOLE - 1, 1});
}

/* Rests decide who gets 1 more: sorted here, halved there. */
static void test_greatest_rests(void **unused)
{
    (void)unused;
    uint64_t x[64], shares[64], draw = 1, seen = 0;
    for (uint32_t round = 0; round < 300; round++) {
        uint32_t count = 2 + round % 63, more = 0;
        uint64_t sum = 0, given = 0;
        for (uint32_t i = 0; i < count; i++) {
            draw = draw * UINT64_C(6364136223846793005) + 1442695040888963407;
            x[i] = 1 + (draw >> 33) % (round % 3 ? 1000 : UINT32_MAX - 1);
            sum += x[i];
        }
        rp_apportion(x, count, shares);
        for (uint32_t i = 0; i < count; i++) {
            uint64_t below = x[i] * WHOLE / sum;
            assert_true(shares[i] == below || shares[i] == below + 1);
            given += shares[i];
            more += shares[i] != below;
        }
        assert_int_equal(given, WHOLE);
        for (uint32_t i = 0; i < count; i++)
            for (uint32_t j = 0; j < count; j++) {
                uint64_t rest_i = x[i] * WHOLE % sum, rest_j = x[j] * WHOLE % sum;
                bool has_i = shares[i] != x[i] * WHOLE / sum;
                bool has_j = shares[j] != x[j] * WHOLE / sum;
                if (rest_i > rest_j || (rest_i == rest_j && i < j))
                    assert_true(has_i || !has_j);
            }
        seen += more;
    }
    assert_true(seen > 1000);
}

/* ---- a ramp ---------------------------------------------------------------------------------- */

static void test_ramp(void **unused)
{
    (void)unused;
    static const uint32_t weights[2][4] = {{5, 3, 2, 0}, {1, 1, 0, 2}};
    static const uint64_t first[] = {2147483648, 1288490189, 858993459, 0},
                          at_1[] = {2136997889, 1286393036, 850604851, 20971520},
                          at_50[] = {1610612737, 1181116006, 429496729, 1073741824},
                          last[] = {WHOLE / 4, WHOLE / 4, 0, WHOLE / 2};
    static const struct {
        uint64_t row, next;
        const uint64_t *shares;
    } expected[] = {{0, RP_NO_ROW, first}, {999, RP_NO_ROW, first}, {1000, 1001, first},
                    {1001, 1002, at_1},    {1050, 1051, at_50},     {1100, RP_NO_ROW, last}};
    static const char *const names[] = {"a", "b", "c", "d"};
    struct rp_stream_source sources[4];
    struct calendar_stream stream;
    uint64_t shares[4];
    calendar_three(&stream);
    for (unsigned i = 0; i < 4; i++) {
        sources[i] = stream.sources[1];
        sources[i].name = names[i];
    }
    stream.stages[0].weights = weights[0];
    stream.stages[1] = (struct rp_stage_spec){
        .from = 1000, .sets = RP_SETS_WEIGHTS, .weights = weights[1], .ramp = 100};
    stream.spec.sources = sources;
    stream.spec.source_count = 4;
    stream.spec.stage_count = 2;
    stream.spec.record_count = 0;
    struct rp_calendar *calendar = calendar_open(&stream, NULL);
    for (size_t i = 0; i < RP_ARRAY_COUNT(expected); i++) {
        assert_int_equal(rp_calendar_shares(calendar, expected[i].row, shares), expected[i].next);
        for (unsigned j = 0; j < 4; j++)
            assert_int_equal(shares[j], expected[i].shares[j]);
    }
    rp_calendar_close(calendar);
    /* longer than 1024 rows: a level has several rows, and its shares change at its first one */
    stream.stages[1].ramp = 5000;
    calendar = calendar_open(&stream, NULL);
    uint64_t row = 1000, next, before[4];
    unsigned levels = 0;
    for (; (next = rp_calendar_shares(calendar, row, before)) != RP_NO_ROW; row = next, levels++) {
        assert_true(rp_calendar_shares(calendar, next - 1, shares) == next);
        assert_memory_equal(before, shares, sizeof shares);
        rp_calendar_shares(calendar, next, shares);
        assert_memory_not_equal(before, shares, sizeof shares);
    }
    assert_int_equal(levels, 1024);
    assert_int_equal(row, 6000);
    rp_calendar_close(calendar);
}

/* ---- deal ------------------------------------------------------------------------------------ */

static const uint32_t fragments[10][4] = {{8}, {2, 2, 2, 2}, {4, 4}, {6, 2}, {2, 2, 2, 1},
                                          {8}, {4, 2, 2},    {5, 3}, {1, 1}, {7}};

static void costs_of(const struct rp_deal *deal, uint32_t first, uint32_t rows, uint64_t *costs)
{
    for (uint32_t q = 0; q < rows; q++) {
        costs[q] = 0;
        for (unsigned i = 0; i < 4; i++)
            costs[q] += rp_cost_of(&deal->cost, fragments[first + q][i]);
    }
}

static void expect_order(const struct rp_deal *deal, const uint64_t *costs, uint32_t rows,
                         const uint32_t *expected)
{
    uint32_t order[8];
    void *scratch = malloc(rp_deal_scratch_bytes(rows));
    assert_int_equal(rp_deal_order(deal, costs, rows, order, scratch), 0);
    assert_memory_equal(order, expected, rows * sizeof *order);
    memset(order, 0xff, sizeof order);
    assert_int_equal(rp_deal_order(deal, costs, rows, order, NULL), 0);
    assert_memory_equal(order, expected, rows * sizeof *order);
    free(scratch);
}

static void test_deal(void **unused)
{
    (void)unused;
    struct rp_deal deal = {
        .window = 8, .step = 4, .tier = 2, .bundle = 1, .cost.k = 4, .cost.b = 1};
    const uint64_t expected[] = {96, 48, 64, 72, 41, 96, 56, 66};
    uint64_t costs[8];
    costs_of(&deal, 0, 8, costs);
    assert_memory_equal(costs, expected, sizeof costs);
    expect_order(&deal, costs, 8, (uint32_t[]){0, 5, 1, 4, 3, 7, 6, 2});
    deal.order = RP_DEAL_MIDDLE;
    expect_order(&deal, costs, 8, (uint32_t[]){1, 4, 0, 5, 6, 2, 3, 7});
    deal.order = RP_DEAL_LATE_WAVE; /* two tiers: as they come */
    expect_order(&deal, costs, 8, (uint32_t[]){0, 5, 1, 4, 3, 7, 6, 2});
    deal.order = RP_DEAL_DESCENDING;
    deal.tier = 4;
    deal.bundle = 2;
    expect_order(&deal, costs, 8, (uint32_t[]){0, 1, 5, 4, 7, 2, 3, 6});
    costs_of(&deal, 8, 2, costs); /* fewer rows than a step keep their places */
    assert_true(costs[0] == 10 && costs[1] == 77);
    expect_order(&deal, costs, 2, (uint32_t[]){0, 1});
    expect_order(&deal, costs, 0, NULL);
}

static void test_cost(void **unused)
{
    (void)unused;
    struct rp_deal deal = {.cost.k = 10, .cost.b = 1};
    assert_int_equal(rp_cost_of(&deal.cost, 7), 7 * 17);
    deal = (struct rp_deal){.cost.k = 10, .cost.w = 4, .cost.h = 2, .cost.b = 3};
    assert_int_equal(rp_cost_of(&deal.cost, 4), 3 * 10 * 4 + 3 * 16);
    assert_int_equal(rp_cost_of(&deal.cost, 7), 3 * 10 * 7 + 49 + 2 * (2 * 4 * 7 - 16));
    deal = (struct rp_deal){
        .cost.k = (1u << 24) - 1, .cost.w = 1u << 24, .cost.h = 63, .cost.b = 64};
    uint64_t L = 1u << 24;
    assert_true(rp_cost_of(&deal.cost, 1u << 24) == 64 * (L - 1) * L + 64 * L * L);
}

/* The example of section 8; and a place for each tier, the smallest two at both ends. */
static void test_waves(void **unused)
{
    (void)unused;
    static const uint32_t wave[16] = {4, 5, 3, 6, 2, 7, 1, 8, 9, 10, 11, 12, 13, 14, 0, 15},
                          late[8] = {3, 4, 2, 5, 6, 1, 0, 7};
    static uint32_t places[2100];
    static bool has[2100];
    rp_deal_places(RP_DEAL_WAVE, 16, places);
    assert_memory_equal(places, wave, sizeof wave);
    rp_deal_places(RP_DEAL_LATE_WAVE, 8, places);
    assert_memory_equal(places, late, sizeof late);
    for (uint32_t tiers = 1; tiers < 2100; tiers += 1 + tiers / 50)
        for (uint32_t order = 0; order < RP_DEAL_ORDERS; order++) {
            rp_deal_places((enum rp_deal_order)order, tiers, places);
            memset(has, 0, sizeof has);
            for (uint32_t t = 0; t < tiers; t++) {
                assert_true(places[t] < tiers && !has[places[t]]);
                has[places[t]] = true;
            }
            if (order >= RP_DEAL_WAVE && tiers >= 4)
                assert_true(places[tiers - 1] == tiers - 1 && places[tiers - 2] == 0);
        }
}

/* Every row of a window once; the rows of the last, shorter step stay. */
static void test_deal_permutes(void **unused)
{
    (void)unused;
    enum { ROWS = 1000 };
    static uint64_t costs[ROWS];
    static uint32_t order[ROWS];
    static bool seen[ROWS];
    struct rp_deal deal = {
        .window = 1024, .step = 96, .tier = 24, .bundle = 3, .cost.k = 1, .cost.b = 1};
    for (uint32_t i = 0; i < ROWS; i++)
        costs[i] = i * UINT64_C(2654435761) % 997;
    assert_int_equal(rp_deal_order(&deal, costs, ROWS, order, NULL), 0);
    for (uint32_t i = 0; i < ROWS; i++) {
        assert_true(order[i] < ROWS && !seen[order[i]]);
        seen[order[i]] = true;
        if (i >= 960)
            assert_int_equal(order[i], i);
    }
    uint64_t least = UINT64_MAX, most = 0; /* steps have equal cost, nearly */
    for (uint32_t z = 0; z < 10; z++) {
        uint64_t sum = 0;
        for (uint32_t i = 0; i < 96; i++)
            sum += costs[order[96 * z + i]];
        least = sum < least ? sum : least;
        most = sum > most ? sum : most;
    }
    assert_true(most - least < least / 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_apportion), cmocka_unit_test(test_greatest_rests),
        cmocka_unit_test(test_ramp),      cmocka_unit_test(test_deal),
        cmocka_unit_test(test_cost),      cmocka_unit_test(test_deal_permutes),
        cmocka_unit_test(test_waves),
    };
    return cmocka_run_group_tests_name("v2_shares", tests, NULL, NULL);
}
