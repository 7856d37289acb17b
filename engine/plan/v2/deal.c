/* SPDX-License-Identifier: Apache-2.0 */
/* deal.c — see deal.h.
 *
 * All sorts are stable, and of (key, number) pairs whose numbers ascend at first, so the lowest
 * number is first among equals everywhere. A level gives each bin one element. So tier t of a step
 * is the one that level t of step 4 gave it, and one pass does steps 4 to 7. */
#include "plan/v2/deal.h"

#include <errno.h>
#include <string.h>

#include "base/mem.h"

struct pair {
    uint64_t key;
    uint32_t number;
};

/* Memory of one call: every array has an entry for each dealt row at most. */
struct table {
    struct pair *pairs, *other;
    uint64_t *bundle_cost, *step_sum, *column_sum;
    uint32_t *bundle_rows, *bundle_order, *step_of, *places;
};
#define BYTES_A_ROW (2 * sizeof(struct pair) + 3 * sizeof(uint64_t) + 4 * sizeof(uint32_t))

size_t rp_deal_scratch_bytes(uint32_t rows)
{
    return (size_t)rows * BYTES_A_ROW;
}

static struct table table_of(void *scratch, uint32_t rows)
{
    struct table table = {.pairs = scratch};
    table.other = table.pairs + rows;
    table.bundle_cost = (uint64_t *)(table.other + rows);
    table.step_sum = table.bundle_cost + rows;
    table.column_sum = table.step_sum + rows;
    table.bundle_rows = (uint32_t *)(table.column_sum + rows);
    table.bundle_order = table.bundle_rows + rows;
    table.step_of = table.bundle_order + rows;
    table.places = table.step_of + rows;
    return table;
}

/* ---- sort ------------------------------------------------------------------------------------ */

#define RUN 8u /* pairs that insertion sorts faster than merging */
#define DIGIT_BITS 8u
#define DIGITS (1u << DIGIT_BITS)

static void insert_runs(struct pair *pairs, uint32_t count)
{
    for (uint32_t begin = 0; begin < count; begin += RUN) {
        uint32_t end = (uint32_t)rp_min_u64((uint64_t)begin + RUN, count);
        for (uint32_t i = begin + 1; i < end; i++) {
            struct pair moved = pairs[i];
            uint32_t at = i;
            for (; at > begin && pairs[at - 1].key > moved.key; at--)
                pairs[at] = pairs[at - 1];
            pairs[at] = moved;
        }
    }
}

static void merge(struct pair *to, const struct pair *from, uint32_t middle, uint32_t count)
{
    uint32_t left = 0, right = middle;
    for (uint32_t i = 0; i < count; i++) {
        bool is_right = left == middle || (right < count && from[right].key < from[left].key);
        to[i] = from[is_right ? right : left];
        right += is_right;
        left += !is_right;
    }
}

static void swap(struct table *table)
{
    struct pair *sorted = table->other;
    table->other = table->pairs;
    table->pairs = sorted;
}

static void merge_sort(struct table *table, uint32_t count)
{
    insert_runs(table->pairs, count);
    for (uint64_t run = RUN; run < count; run *= 2) {
        for (uint64_t begin = 0; begin < count; begin += 2 * run) {
            uint64_t size = rp_min_u64(2 * run, count - begin);
            merge(table->other + begin, table->pairs + begin, (uint32_t)rp_min_u64(run, size),
                  (uint32_t)size);
        }
        swap(table);
    }
}

/* By one digit of the keys, less `least`; equal digits keep their order. */
static void sort_digit(struct table *table, uint32_t count, uint64_t least, uint32_t shift)
{
    uint32_t places[DIGITS] = {0}, place = 0;
    for (uint32_t i = 0; i < count; i++)
        places[(table->pairs[i].key - least) >> shift & (DIGITS - 1)]++;
    for (uint32_t digit = 0; digit < DIGITS; digit++) {
        uint32_t here = places[digit];
        places[digit] = place;
        place += here;
    }
    for (uint32_t i = 0; i < count; i++)
        table->other[places[(table->pairs[i].key - least) >> shift & (DIGITS - 1)]++] =
            table->pairs[i];
    swap(table);
}

/* Sort table->pairs by key, ascending: many by their digits, which takes 20 ns a pair; few by
 * merging, since digits have a fixed cost. */
static void sort(struct table *table, uint32_t count)
{
    uint64_t least = UINT64_MAX, most = 0;
    if (count < DIGITS) {
        merge_sort(table, count);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        least = rp_min_u64(least, table->pairs[i].key);
        most = rp_max_u64(most, table->pairs[i].key);
    }
    for (uint32_t shift = 0; shift < 64 && (most - least) >> shift > 0; shift += DIGIT_BITS)
        sort_digit(table, count, least, shift);
}

static void sort_descending(struct table *table, const uint64_t *costs, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        table->pairs[i] = (struct pair){~costs[i], i};
    sort(table, count);
}

/* The bins of one level in the order in which they get its elements: pairs[j].number. */
static void sort_bins(struct table *table, const uint64_t *sums, uint32_t count)
{
    bool is_sorted = true;
    for (uint32_t i = 0; i < count; i++) {
        table->pairs[i] = (struct pair){sums[i], i};
        is_sorted = is_sorted && (i == 0 || sums[i] >= sums[i - 1]);
    }
    if (!is_sorted) /* it is in every first level, where all sums are 0 */
        sort(table, count);
}

/* ---- the steps of section 8 ------------------------------------------------------------------ */

/* Steps 1 to 3: bundle_rows, bundle_cost and bundle_order of `dealt` rows. */
static void make_bundles(struct table *table, const struct rp_deal *deal, const uint64_t *cost,
                         uint32_t dealt)
{
    uint32_t m = deal->bundle, bundles = dealt / m, *sorted = table->bundle_order;
    sort_descending(table, cost, dealt);
    for (uint32_t i = 0; i < dealt; i++)
        sorted[i] = table->pairs[i].number;
    memset(table->bundle_cost, 0, bundles * sizeof *table->bundle_cost);
    for (uint32_t level = 0; level < m; level++) {
        sort_bins(table, table->bundle_cost, bundles);
        for (uint32_t j = 0; j < bundles; j++) {
            uint32_t row = sorted[level * bundles + j], bin = table->pairs[j].number;
            table->bundle_rows[bin * m + level] = row;
            table->bundle_cost[bin] += cost[row];
        }
    }
    sort_descending(table, table->bundle_cost, bundles);
    for (uint32_t i = 0; i < bundles; i++)
        table->bundle_order[i] = table->pairs[i].number;
}

const char *rp_deal_order_name(enum rp_deal_order order)
{
    static const char *const names[] = {"descending", "middle", "wave", "late_wave"};
    return names[order];
}

/* Tier 0 at `top`; costs fall to its left about linearly, and all other tiers are to its right. */
static void place_wave(uint32_t top, uint32_t tiers, uint32_t *places)
{
    uint32_t left = top - 1, right = top + 1;
    places[0] = top;
    for (uint32_t t = 1; t < tiers; t++) {
        uint64_t d = top - left;
        bool is_left = left >= 1 && t > d && (t - d) * tiers > 4 * d * d;
        if (t == tiers - 2)
            places[t] = 0;
        else
            places[t] = is_left ? left-- : right++;
    }
}

/* Step 5. */
void rp_deal_places(enum rp_deal_order order, uint32_t tiers, uint32_t *places)
{
    uint32_t middle = tiers / 2, top = 0;
    if (order == RP_DEAL_WAVE)
        top = tiers / 4;
    else if (order == RP_DEAL_LATE_WAVE)
        top = (uint32_t)((uint64_t)3 * tiers / 8);
    if (top > 0) {
        place_wave(top, tiers, places);
        return;
    }
    for (uint32_t t = 0; t < tiers; t++) {
        uint32_t distance = t / 2 + t % 2;
        places[t] = order != RP_DEAL_MIDDLE ? t : t % 2 ? middle - distance : middle + distance;
    }
}

/* Steps 6 and 7 for one tier: its bundles get columns of step z. */
static void place_tier(struct table *table, const struct rp_deal *deal, const uint32_t *bundles,
                       uint64_t *column_sum, uint32_t *order)
{
    uint32_t m = deal->bundle, columns = deal->tier / m;
    sort_bins(table, column_sum, columns);
    for (uint32_t j = 0; j < columns; j++) {
        uint32_t bundle = bundles[j], x = table->pairs[j].number;
        memcpy(order + (size_t)x * m, table->bundle_rows + (size_t)bundle * m, m * sizeof *order);
        column_sum[x] += table->bundle_cost[bundle];
    }
}

static void deal_steps(struct table *table, const struct rp_deal *deal, uint32_t steps,
                       uint32_t *order)
{
    uint32_t T = deal->step, C = deal->tier, columns = C / deal->bundle;
    rp_deal_places(deal->order, T / C, table->places);
    memset(table->step_sum, 0, steps * sizeof *table->step_sum);
    memset(table->column_sum, 0, (size_t)steps * columns * sizeof *table->column_sum);
    for (uint32_t t = 0; t < T / C; t++) {
        sort_bins(table, table->step_sum, steps);
        for (uint32_t j = 0; j < steps; j++) /* place_tier overwrites the pairs */
            table->step_of[j] = table->pairs[j].number;
        for (uint32_t j = 0; j < steps; j++) {
            const uint32_t *bundles = table->bundle_order + ((size_t)t * steps + j) * columns;
            uint32_t z = table->step_of[j];
            for (uint32_t i = 0; i < columns; i++)
                table->step_sum[z] += table->bundle_cost[bundles[i]];
            place_tier(table, deal, bundles, table->column_sum + (size_t)z * columns,
                       order + (size_t)z * T + (size_t)table->places[t] * C);
        }
    }
}

int rp_deal_order(const struct rp_deal *deal, const uint64_t *cost, uint32_t rows, uint32_t *order,
                  void *scratch)
{
    uint32_t steps = rows / deal->step, dealt = steps * deal->step;
    for (uint32_t i = dealt; i < rows; i++)
        order[i] = i;
    if (steps == 0)
        return 0;
    void *memory = scratch ? scratch : rp_calloc(rows, BYTES_A_ROW);
    if (!memory)
        return -ENOMEM;
    struct table table = table_of(memory, rows);
    make_bundles(&table, deal, cost, dealt);
    deal_steps(&table, deal, steps, order);
    if (!scratch)
        free(memory);
    return 0;
}
