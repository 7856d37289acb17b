/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of sources in force at a row (STREAM2.md section 9.4): the config's, but up to a
 * record those that it names. */
#include "plan/v2/calendar_parts.h"

#include <string.h>

/* ---- a line of a record ---------------------------------------------------------------------- */

static const char *const words[] = {"continue", "stop", "error"};

const char *rp_calendar_exhausted_word(enum rp_on_exhausted on_exhausted)
{
    return words[on_exhausted];
}

/* ---- in force -------------------------------------------------------------------------------- */

/* The limits of a source before some record; `until`: its row. */
struct before {
    const struct rp_limits *limits; /* NULL: no record has any */
    uint64_t until;
};

static void take_earlier(struct before *found, uint64_t row, uint64_t from,
                         const struct rp_limits *limits)
{
    if (from > row && (!found->limits || from < found->until))
        *found = (struct before){limits, from};
}

/* In the first record after a row that has limits of the source. */
static struct before limits_before(const struct rp_calendar *calendar, uint64_t row, uint32_t j)
{
    const struct rp_stream_spec *spec = &calendar->spec;
    struct before found = {NULL, 0};
    for (uint32_t r = 0; r < calendar->begun_count; r++)
        for (uint32_t i = 0; i < calendar->records[r].limits_count; i++)
            if (calendar->records[r].limits[i].number == j)
                take_earlier(&found, row, calendar->records[r].from,
                             &calendar->records[r].limits[i].limits);
    for (uint32_t r = 0; r < spec->record_count; r++)
        for (uint32_t i = 0; i < spec->records[r].limits_count; i++)
            if (calendar->number_of[spec->records[r].limits[i].source] == j &&
                !rp_calendar_is_begun(calendar, spec->records[r].from))
                take_earlier(&found, row, spec->records[r].from,
                             &spec->records[r].limits[i].limits);
    return found;
}

/* The bits of the limits of a source that declared stages between two rows set. */
static uint8_t set_between(const struct rp_calendar *calendar, uint64_t after, uint64_t until,
                           uint32_t number)
{
    uint8_t sets = 0;
    for (uint32_t i = 0; i < calendar->spec.stage_count; i++) {
        const struct rp_stage_spec *stage = &calendar->stages[i];
        for (uint32_t l = 0; stage->from > after && stage->from < until && l < stage->limits_count;
             l++)
            if (calendar->number_of[stage->limits[l].source] == number)
                sets |= stage->limits[l].sets;
    }
    return sets;
}

static void copy(struct rp_limits *limits, const struct rp_limits *from, uint8_t sets)
{
    if (sets & 1)
        limits->max_epochs = from->max_epochs;
    if (sets & 2)
        limits->max_tokens = from->max_tokens;
    if (sets & 4)
        limits->on_exhausted = from->on_exhausted;
}

static bool has_limits(const struct rp_calendar *calendar)
{
    bool found = false;
    for (uint32_t r = 0; r < calendar->begun_count && !found; r++)
        found = calendar->records[r].limits_count > 0;
    for (uint32_t r = 0; r < calendar->spec.record_count && !found; r++)
        found = calendar->spec.records[r].limits_count > 0;
    return found;
}

static struct rp_limits *copy_of(struct rp_calendar_making *making, const struct rp_limits *limits)
{
    uint32_t count = making->calendar->count;
    struct rp_limits *made = rp_calendar_take(making->calendar, count, sizeof *made, making->error);
    if (made)
        memcpy(made, limits, count * sizeof *made);
    return made;
}

int rp_calendar_set_limits(struct rp_calendar_making *making, const struct rp_calendar_walk *walk)
{
    struct rp_calendar *calendar = making->calendar;
    const struct rp_stage_spec *stage = walk->stage;
    bool is_changed = stage && stage->limits_count > 0;
    bool is_record = (walk->begun && walk->begun->limits_count > 0) ||
                     (walk->wanted && walk->wanted->limits_count > 0);
    bool has_records = is_record || ((is_changed || walk->row == 0) && has_limits(calendar));
    struct rp_limits *limits = making->limits;
    if (is_changed) {
        limits = copy_of(making, limits);
        for (uint32_t i = 0; limits && i < stage->limits_count; i++) {
            const struct rp_limits_change *change = &stage->limits[i];
            uint32_t number = calendar->number_of[change->source];
            if (number != RP_NO_SOURCE)
                copy(&limits[number], &change->limits, change->sets);
        }
        making->limits = limits;
    }
    if (limits && has_records) {
        limits = copy_of(making, limits);
        for (uint32_t j = 0; limits && j < calendar->count; j++) {
            struct before before = limits_before(calendar, walk->row, j);
            if (before.limits)
                copy(&limits[j], before.limits,
                     (uint8_t)(7 & ~set_between(calendar, walk->row, before.until, j)));
        }
    } else if (!is_changed) {
        return 0;
    }
    if (!limits)
        return -ENOMEM;
    making->now.limits = limits;
    making->now.limits_of_config = making->limits;
    return 0;
}
