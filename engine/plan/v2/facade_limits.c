/* SPDX-License-Identifier: Apache-2.0 */
/* facade_limits.c — limits of stages that are over (STREAM2.md section 12.4, 6). Neither chain A
 * nor a state token has them, so they are compared with the contract of a checkpoint. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/v2/facade.h"

/* Read a line of a limit. */
static bool read_limit(const struct rp_field *field, struct rp_calendar_line *line)
{
    return rp_calendar_read_line(field, "stage", line) && line->source != UINT32_MAX &&
           (strcmp(line->key, "max_epochs") == 0 || strcmp(line->key, "max_tokens") == 0 ||
            strcmp(line->key, "on_exhausted") == 0);
}

/* Whether a later stage that is begun sets the limit, in one of two contracts. */
static bool is_replaced(const struct rp_record_pair *pair, const struct rp_calendar_line *line,
                        uint32_t begun)
{
    char text[RP_RECORD_NAME_MAX + 32];
    struct rp_field found;
    for (uint32_t i = line->number + 1; i < begun; i++) {
        snprintf(text, sizeof text, "stage[%04" PRIu32 "].%s[%04" PRIu32 "]", i, line->key,
                 line->source);
        if (rp_record_find(pair->of[0], text, &found) || rp_record_find(pair->of[1], text, &found))
            return true;
    }
    return false;
}

/* Whether the config of the contract has the source: of one that is removed, only the name. */
static bool has_source(const struct rp_record *contract, uint32_t number)
{
    char text[RP_RECORD_NAME_MAX + 1];
    struct rp_field found;
    snprintf(text, sizeof text, "source[%04" PRIu32 "].range", number);
    return rp_record_find(contract, text, &found);
}

static int refuse(const struct rp_record_pair *pair, const struct rp_calendar_line *line,
                  const struct rp_calendar *calendar, struct rp_error *error)
{
    const struct rp_field *had = &pair->field[0], *has = &pair->field[1];
    return rp_fail(
        error, -RP_E_MISMATCH,
        "the run is unchanged; set it back: a stage that is over never changes. To change "
        "it from here on, add a stage",
        "%s of source %s in stage %" PRIu32 " (from row %" PRIu64
        ") differs: the state has %.*s, this run has %.*s",
        line->key, rp_calendar_source_name(calendar, line->source), line->number,
        rp_calendar_spec(calendar)->stages[line->number].from,
        pair->has[0] ? (int)had->value_bytes : 4, pair->has[0] ? had->value : "none",
        pair->has[1] ? (int)has->value_bytes : 4, pair->has[1] ? has->value : "none");
}

int rp_v2_match_past_limits(const struct rp_calendar *calendar, const struct rp_record *contract,
                            uint32_t begun, struct rp_error *error)
{
    struct rp_record_writer writer = {0};
    int code = rp_calendar_add_stages(calendar, &writer, error);
    if (code == 0 && writer.out_of_memory)
        code = rp_fail(error, -ENOMEM, NULL, "no memory for the contract of a stream");
    const struct rp_record present = {writer.text, writer.bytes};
    struct rp_record_pair pair = {.of = {contract, &present}};
    while (code == 0 && rp_record_next_difference(&pair)) {
        struct rp_calendar_line line;
        if (read_limit(&pair.field[pair.has[0] ? 0 : 1], &line) && line.number < begun &&
            line.source < rp_calendar_source_count(calendar) &&
            rp_calendar_source(calendar, line.source) && has_source(contract, line.source) &&
            is_replaced(&pair, &line, begun))
            code = refuse(&pair, &line, calendar, error);
    }
    free(writer.text);
    return code;
}
