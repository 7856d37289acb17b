/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a calendar, and its answers about rows and sources. */
#include "base/mem.h"
#include "plan/v2/calendar_parts.h"

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

bool rp_calendar_lacks_source(const struct rp_calendar *calendar)
{
    uint32_t number = 0;
    while (number < calendar->count && rp_calendar_source(calendar, number))
        number++;
    return number < calendar->count;
}

const char *rp_calendar_source_name(const struct rp_calendar *calendar, uint32_t number)
{
    RP_ASSERT(number < calendar->count);
    return calendar->names[number];
}

bool rp_calendar_place(const struct rp_calendar *calendar, uint32_t number, uint32_t *place)
{
    RP_ASSERT(number < calendar->count);
    *place = calendar->config_of[number];
    return *place != RP_NO_SOURCE;
}

/* The first boundary is at row 0. */
const struct rp_stage *rp_calendar_at(const struct rp_calendar *calendar, uint64_t row)
{
    uint32_t begun = RP_COUNT_UP_TO(calendar->in_force, calendar->stage_count, from, row);
    return &calendar->in_force[begun - 1];
}

uint64_t rp_calendar_next(const struct rp_calendar *calendar, uint64_t row)
{
    uint32_t next = RP_COUNT_UP_TO(calendar->in_force, calendar->stage_count, from, row);
    return next < calendar->stage_count ? calendar->in_force[next].from : RP_NO_ROW;
}

bool rp_calendar_is_boundary(const struct rp_calendar *calendar, uint64_t row)
{
    return rp_calendar_at(calendar, row)->from == row;
}

bool rp_calendar_is_begun(const struct rp_calendar *calendar, uint64_t row)
{
    return calendar->is_resumed && (row == 0 || row < calendar->next_row);
}
