/* SPDX-License-Identifier: Apache-2.0 */
/* Documents that stages take out (STREAM2.md section 9.3), and rows that are skipped (10.3). */
#include "plan/v2/calendar_parts.h"

#include <string.h>

#include "base/mem.h"

/* ---- documents taken out --------------------------------------------------------------------- */

/* Tables are at most half full, and this spreads neighbours. */
static uint64_t place_of(const struct rp_calendar_out *out, uint64_t document)
{
    return document * UINT64_C(0x9e3779b97f4a7c15) >> out->shift;
}

/* Sets are cumulative and stages ascend, so the first row of a document stays. */
static void take_out(struct rp_calendar_out *out, uint64_t document, uint64_t from)
{
    uint64_t at = place_of(out, document);
    while (out->entries[at].document != RP_NO_ROW && out->entries[at].document != document)
        at = (at + 1) & out->mask;
    if (out->entries[at].document == RP_NO_ROW)
        out->entries[at] = (struct rp_calendar_out_entry){document, from};
}

static int make_table(struct rp_calendar *calendar, struct rp_calendar_out *out, uint64_t documents,
                      struct rp_error *error)
{
    uint64_t size = rp_pow2_at_least(rp_max_u64(2, 2 * documents));
    out->entries = rp_calendar_take(calendar, size, sizeof *out->entries, error);
    if (!out->entries)
        return -ENOMEM;
    memset(out->entries, 0xff, size * sizeof *out->entries);
    out->mask = size - 1;
    out->shift = 64u - (uint32_t)__builtin_ctzll(size);
    return 0;
}

static void fill_tables(struct rp_calendar *calendar)
{
    for (uint32_t i = 0; i < calendar->spec.stage_count; i++) {
        const struct rp_stage_spec *stage = &calendar->stages[i];
        for (uint32_t w = 0; w < stage->without_count; w++) {
            uint32_t number = calendar->number_of[stage->without[w].source];
            if (number == RP_NO_SOURCE || stage->without[w].count == 0)
                continue;
            struct rp_calendar_out *out = &calendar->outs[number];
            out->first_row = rp_min_u64(out->first_row, stage->from);
            for (uint64_t d = 0; d < stage->without[w].count; d++)
                take_out(out, stage->without[w].documents[d], stage->from);
        }
    }
}

int rp_calendar_make_outs(struct rp_calendar *calendar, struct rp_error *error)
{
    uint64_t *counts = rp_calloc(calendar->count, sizeof *counts);
    calendar->outs = rp_calendar_take(calendar, calendar->count, sizeof *calendar->outs, error);
    int code = calendar->outs ? 0 : -ENOMEM;
    if (!counts)
        code = rp_fail(error, -ENOMEM, NULL, "no memory for the calendar of a stream");
    for (uint32_t i = 0; code == 0 && i < calendar->spec.stage_count; i++) {
        const struct rp_stage_spec *stage = &calendar->stages[i];
        for (uint32_t w = 0; w < stage->without_count; w++) {
            uint32_t number = calendar->number_of[stage->without[w].source];
            if (number != RP_NO_SOURCE)
                counts[number] += stage->without[w].count;
        }
    }
    for (uint32_t number = 0; code == 0 && number < calendar->count; number++) {
        calendar->outs[number].first_row = RP_NO_ROW;
        if (counts[number] > 0)
            code = make_table(calendar, &calendar->outs[number], counts[number], error);
    }
    if (code == 0)
        fill_tables(calendar);
    free(counts);
    return code;
}

bool rp_calendar_has_out(const struct rp_calendar *calendar, uint32_t number, uint64_t row)
{
    RP_DASSERT(number < calendar->count);
    return calendar->outs[number].first_row <= row && calendar->outs[number].entries;
}

bool rp_calendar_is_out(const struct rp_calendar *calendar, uint32_t number, uint64_t document,
                        uint64_t row)
{
    if (!rp_calendar_has_out(calendar, number, row))
        return false;
    const struct rp_calendar_out *out = &calendar->outs[number];
    uint64_t at = place_of(out, document);
    while (out->entries[at].document != RP_NO_ROW) {
        if (out->entries[at].document == document)
            return out->entries[at].from <= row;
        at = (at + 1) & out->mask;
    }
    return false;
}

/* ---- skips ----------------------------------------------------------------------------------- */

int rp_calendar_make_skips(struct rp_calendar *calendar, struct rp_error *error)
{
    const struct rp_row_range *skips = calendar->spec.skips;
    uint32_t count = calendar->spec.skip_count;
    if (count > RP_STAGES_MAX)
        return rp_fail(error, -RP_E_CONFIG, "skip longer ranges of rows",
                       "skip: expected at most %u ranges of rows, found %" PRIu32, RP_STAGES_MAX,
                       count);
    calendar->skip_hashes = rp_calendar_take(calendar, (size_t)count + 1,
                                             sizeof *calendar->skip_hashes, error);
    if (!calendar->skip_hashes)
        return -ENOMEM;
    struct rp_hasher hasher;
    rp_hasher_begin(&hasher);
    for (uint32_t i = 0; i <= count; i++) {
        calendar->skip_hashes[i] = rp_hasher_finish(&hasher);
        if (i == count)
            break;
        if (skips[i].first >= skips[i].end || skips[i].end > RP_MAX_ROWS ||
            (i > 0 && skips[i].first <= skips[i - 1].end))
            return rp_fail(error, -RP_E_CONFIG, NULL,
                           "skip: expected ascending ranges of rows with a gap between them, found "
                           "rows %" PRIu64 "-%" PRIu64 " as range %" PRIu32,
                           skips[i].first, skips[i].end, i);
        rp_hasher_add(&hasher, &skips[i], sizeof skips[i]);
    }
    return 0;
}

/* Ranges are not adjacent, so one of them has all of the rows. */
bool rp_calendar_skips_all(const struct rp_calendar *calendar, uint64_t first, uint64_t count)
{
    uint32_t ranges = RP_COUNT_UP_TO(calendar->spec.skips, calendar->spec.skip_count, first, first);
    uint64_t end = ranges > 0 ? calendar->spec.skips[ranges - 1].end : 0;
    return first < end && count <= end - first;
}

bool rp_calendar_skips(const struct rp_calendar *calendar, uint64_t row)
{
    return rp_calendar_skips_all(calendar, row, 1);
}

struct rp_hash128 rp_calendar_skip_hash(const struct rp_calendar *calendar, uint64_t row)
{
    uint32_t ranges =
        row ? RP_COUNT_UP_TO(calendar->spec.skips, calendar->spec.skip_count, first, row - 1) : 0;
    if (ranges == 0 || calendar->spec.skips[ranges - 1].end <= row)
        return calendar->skip_hashes[ranges];
    struct rp_row_range last = {calendar->spec.skips[ranges - 1].first, row};
    struct rp_hasher hasher;
    rp_hasher_begin(&hasher);
    if (ranges > 1)
        rp_hasher_add(&hasher, calendar->spec.skips, (ranges - 1) * sizeof last);
    rp_hasher_add(&hasher, &last, sizeof last);
    return rp_hasher_finish(&hasher);
}
