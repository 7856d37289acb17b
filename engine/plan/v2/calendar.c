/* SPDX-License-Identifier: Apache-2.0 */
/* calendar.c — the steps that open a calendar, in their order; each has a file of its own
 * (plan/v2/README.md). */
#include "base/mem.h"
#include "plan/v2/calendar_parts.h"

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
    calendar->spec.records = NULL; /* they are among calendar->records now */
    calendar->spec.record_count = 0;
    *calendar_out = calendar;
    return 0;
}
