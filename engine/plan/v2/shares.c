/* SPDX-License-Identifier: Apache-2.0 */
/* shares.c — weights to shares of 2^32 (STREAM2.md section 6.1). */
#include <string.h>

#include "plan/v2/calendar_parts.h"

#define WHOLE (UINT64_C(1) << 32)
#define LEVELS 1024u

/* How many of the rests are at least `least`. */
static uint32_t count_rests(const uint64_t *rests, uint32_t count, uint64_t least)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < count; i++)
        found += rests[i] >= least;
    return found;
}

/* Give 1 more to the `left` greatest rests, the lowest numbers first among equals. The last of them
 * is found by halving the range of rests, so that no list must be sorted. */
static void give_rests(const uint64_t *x, uint64_t *shares, uint32_t count, uint64_t sum,
                       uint32_t left)
{
    uint64_t rests[RP_SOURCES_MAX];
    for (uint32_t i = 0; i < count; i++)
        rests[i] = x[i] * WHOLE - shares[i] * sum;
    uint64_t low = 1, high = sum; /* the greatest value that at least `left` rests have */
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (count_rests(rests, count, middle) >= left)
            low = middle;
        else
            high = middle;
    }
    uint32_t equal = left - count_rests(rests, count, low + 1);
    for (uint32_t i = 0; i < count; i++) {
        bool is_last = rests[i] == low && equal > 0;
        equal -= is_last;
        shares[i] += rests[i] > low || is_last;
    }
}

void rp_apportion(const uint64_t *x, uint32_t count, uint64_t *shares)
{
    uint64_t sum = 0, given = 0;
    uint32_t members = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum += x[i];
        members += x[i] > 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (x[i] == 0)
            shares[i] = 0;
        else /* the product is below 2^64 with two members or more */
            shares[i] = members == 1 ? WHOLE : x[i] * WHOLE / sum;
        given += shares[i];
    }
    if (members > 1 && given < WHOLE)
        give_rests(x, shares, count, sum, (uint32_t)(WHOLE - given));
}

uint64_t rp_calendar_shares(const struct rp_calendar *calendar, uint64_t row, uint64_t *shares)
{
    uint32_t begun = RP_COUNT_UP_TO(calendar->mixes, calendar->mix_count, from, row);
    const struct rp_calendar_mix *mix = &calendar->mixes[begun - 1]; /* the first is from row 0 */
    uint64_t i = row - mix->from, x[RP_SOURCES_MAX];
    if (i >= mix->ramp) {
        memcpy(shares, mix->shares, calendar->count * sizeof *shares);
        return RP_NO_ROW;
    }
    uint64_t level = LEVELS * i / mix->ramp;
    for (uint32_t j = 0; j < calendar->count; j++)
        x[j] = (mix[-1].shares[j] * (LEVELS - level) + mix->shares[j] * level) / LEVELS;
    rp_apportion(x, calendar->count, shares);
    return mix->from + rp_div_up((level + 1) * mix->ramp, LEVELS);
}

/* ---- when a calendar is made ----------------------------------------------------------------- */

static bool declares_weights(const struct rp_calendar *calendar, uint64_t row)
{
    uint32_t begun = RP_COUNT_UP_TO(calendar->stages, calendar->spec.stage_count, from, row);
    const struct rp_stage_spec *stage = &calendar->stages[begun - 1]; /* the first is from row 0 */
    return stage->from == row && (stage->sets & RP_SETS_WEIGHTS);
}

static int make_shares(struct rp_calendar *calendar, struct rp_calendar_mix *mix,
                       struct rp_error *error)
{
    uint64_t weights[RP_SOURCES_MAX] = {0};
    mix->shares = rp_calendar_take(calendar, calendar->count, sizeof *mix->shares, error);
    if (!mix->shares)
        return -ENOMEM;
    for (uint32_t j = 0; j < calendar->count; j++)
        weights[j] = mix->weights[j];
    rp_apportion(weights, calendar->count, mix->shares);
    for (uint32_t j = 0; j < calendar->count; j++)
        if (weights[j] > 0 && mix->shares[j] == 0)
            return rp_fail(error, -RP_E_CONFIG,
                           "give the source a greater weight, or leave it out of the stage",
                           "row %" PRIu64 ": source \"%s\": its weight is less than 2^-32 of all "
                           "weights, so its share is 0",
                           mix->from, calendar->names[j]);
    return 0;
}

int rp_calendar_check_mixes(struct rp_calendar *calendar, struct rp_error *error)
{
    for (uint32_t i = 0; i < calendar->mix_count; i++) {
        struct rp_calendar_mix *mix = &calendar->mixes[i];
        if (i > 0 && mix->from - mix[-1].from < mix[-1].ramp &&
            declares_weights(calendar, mix->from))
            return rp_fail(error, -RP_E_CONFIG,
                           "begin the stage later, shorten the ramp, or leave out its weights",
                           "the stage from row %" PRIu64 " sets weights, but the ramp of the stage "
                           "from row %" PRIu64 " ends at row %" PRIu64,
                           mix->from, mix[-1].from, mix[-1].from + mix[-1].ramp);
        int code = make_shares(calendar, mix, error);
        if (code < 0)
            return code;
    }
    return 0;
}
