/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/v2/calendar_parts.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* ---- memory ---------------------------------------------------------------------------------- */

struct block {
    struct block *next;
    uint64_t bytes[]; /* aligned for everything that a calendar has */
};

void *rp_calendar_take(struct rp_calendar *calendar, size_t count, size_t size,
                       struct rp_error *error)
{
    uint64_t bytes;
    struct block *block = NULL;
    if (rp_mul_u64(count, size, &bytes) && bytes <= SIZE_MAX / 2)
        block = rp_calloc(1, sizeof *block + bytes);
    if (!block) {
        int code = rp_fail(error, -ENOMEM, NULL, "no memory for the calendar of a stream");
        (void)code;
        return NULL;
    }
    block->next = calendar->blocks;
    calendar->blocks = block;
    return block->bytes;
}

void rp_calendar_close(struct rp_calendar *calendar)
{
    if (!calendar)
        return;
    for (struct block *block = calendar->blocks, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    free(calendar);
}

/* ---- open ------------------------------------------------------------------------------------ */

static int make_all(struct rp_calendar_making *making)
{
    struct rp_calendar *calendar = making->calendar;
    struct rp_error *error = making->error;
    int code = rp_calendar_check_fixed(calendar, error);
    if (code == 0)
        code = rp_calendar_check_sources(calendar, error);
    if (code == 0)
        code = rp_calendar_check_stages(calendar, error);
    if (code == 0)
        code = rp_calendar_make_skips(calendar, error);
    if (code == 0)
        code = rp_calendar_read_records(making);
    if (code == 0)
        code = rp_calendar_number(making);
    if (code == 0)
        code = rp_calendar_make_stages(making);
    if (code == 0)
        code = rp_calendar_check_mixes(calendar, error);
    if (code == 0)
        code = rp_calendar_make_outs(calendar, error);
    if (code == 0)
        code = rp_calendar_link_records(calendar, calendar->begun_count, calendar->record_count,
                                        error);
    return code < 0 ? code : rp_calendar_link_stages(calendar, error);
}

int rp_calendar_open(struct rp_calendar **calendar_out, const struct rp_stream_spec *spec,
                     const struct rp_calendar_position *position, struct rp_error *error)
{
    static const struct rp_calendar_position new_stream = {0};
    struct rp_calendar *calendar = rp_calloc(1, sizeof *calendar);
    *calendar_out = NULL;
    if (!calendar)
        return rp_fail(error, -ENOMEM, NULL, "no memory for the calendar of a stream");
    struct rp_calendar_making making = {
        .calendar = calendar, .position = position ? position : &new_stream, .error = error};
    calendar->spec = *spec;
    calendar->is_resumed = making.position->is_resumed;
    calendar->next_row = making.position->next_row;
    int code = make_all(&making);
    free(making.wanted);
    free(making.sample);
    if (code < 0) {
        rp_calendar_close(calendar);
        return code;
    }
    *calendar_out = calendar;
    return 0;
}

/* ---- answers --------------------------------------------------------------------------------- */

bool rp_calendar_knows_records(const struct rp_calendar *calendar)
{
    return !calendar->lacks_records;
}

const struct rp_stream_spec *rp_calendar_spec(const struct rp_calendar *calendar)
{
    return &calendar->spec;
}

uint32_t rp_calendar_source_count(const struct rp_calendar *calendar)
{
    return calendar->count;
}

const struct rp_stream_source *rp_calendar_source(const struct rp_calendar *calendar,
                                                  uint32_t number)
{
    RP_ASSERT(number < calendar->count);
    uint32_t source = calendar->config_of[number];
    bool is_here = source != RP_NO_SOURCE && !calendar->sources[source].is_absent;
    return is_here ? &calendar->sources[source] : NULL;
}

const char *rp_calendar_source_name(const struct rp_calendar *calendar, uint32_t number)
{
    RP_ASSERT(number < calendar->count);
    return calendar->names[number];
}

/* The number of boundaries at or before `row`, which is at least 1. */
static uint32_t begun_at(const struct rp_calendar *calendar, uint64_t row)
{
    uint32_t low = 1, high = calendar->stage_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (calendar->in_force[middle].from <= row)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct rp_stage *rp_calendar_at(const struct rp_calendar *calendar, uint64_t row)
{
    return &calendar->in_force[begun_at(calendar, row) - 1];
}

uint64_t rp_calendar_next(const struct rp_calendar *calendar, uint64_t row)
{
    uint32_t next = begun_at(calendar, row);
    return next < calendar->stage_count ? calendar->in_force[next].from : RP_NO_ROW;
}

bool rp_calendar_is_boundary(const struct rp_calendar *calendar, uint64_t row)
{
    return rp_calendar_at(calendar, row)->from == row;
}
