/* SPDX-License-Identifier: Apache-2.0 */
/* The stream contract (STREAM2.md section 14). Lines are in alphabetical order. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "plan/v2/calendar_parts.h"

void rp_calendar_add_id(struct rp_record_writer *writer, const char *name, uint32_t id)
{
    if (id == RP_NO_TOKEN_ID)
        rp_record_add(writer, '=', name, "none");
    else
        rp_record_add(writer, '=', name, "%" PRIu32, id);
}

static void add_records(const struct rp_calendar *calendar, struct rp_record_writer *writer)
{
    char prefix[32];
    struct rp_calendar_lines lines = {calendar, writer, prefix, {0}};
    for (uint32_t i = 0; i < calendar->record_count; i++) {
        snprintf(prefix, sizeof prefix, "record[%04" PRIu32 "].", i);
        rp_calendar_add_record(&lines, &calendar->records[i]);
    }
}

static void add_skips(const struct rp_calendar *calendar, struct rp_record_writer *writer)
{
    char name[32];
    for (uint32_t i = 0; i < calendar->spec.skip_count; i++) {
        const struct rp_row_range *skip = &calendar->spec.skips[i];
        snprintf(name, sizeof name, "skip[%04" PRIu32 "]", i);
        rp_record_add(writer, '=', name, "%" PRIu64 "-%" PRIu64, skip->first, skip->end);
    }
}

/* ---- sources --------------------------------------------------------------------------------- */

static void add_of(struct rp_record_writer *writer, uint32_t number, char sign, const char *field,
                   const char *value)
{
    char name[RP_RECORD_NAME_MAX + 1];
    snprintf(name, sizeof name, "source[%04" PRIu32 "].%s", number, field);
    rp_record_add(writer, sign, name, "%s", value);
}

static void add_hash(struct rp_record_writer *writer, uint32_t number, char sign, const char *field,
                     uint64_t hash)
{
    char text[17];
    snprintf(text, sizeof text, "%016" PRIx64, hash);
    add_of(writer, number, sign, field, text);
}

static int add_source(const struct rp_calendar *calendar, uint32_t number,
                      struct rp_record_writer *writer, struct rp_error *error)
{
    static const char *const too_long[] = {"no", "drop", "truncate", "error"};
    static const char *const drop_untrained[] = {"none", "document", "fragment"};
    const struct rp_stream_source *source = rp_calendar_source(calendar, number);
    const struct rp_stage *last = &calendar->in_force[calendar->stage_count - 1];
    struct rp_source_prints prints = {0};
    char range[48] = "";
    if (!source) { /* it left the config */
        add_of(writer, number, '=', "name", calendar->names[number]);
        return 0;
    }
    int code = source->view.prints(source->view.context, last->documents[number], &prints, error);
    if (code < 0)
        return rp_fail_context(error, code, "source \"%s\"", source->name);
    if (source->range_end == RP_NO_ROW)
        snprintf(range, sizeof range, "%" PRIu64 "-", source->range_first);
    else
        snprintf(range, sizeof range, "%" PRIu64 "-%" PRIu64, source->range_first,
                 source->range_end);
    add_of(writer, number, '=', "atomic", too_long[source->too_long]);
    add_of(writer, number, '=', "drop_untrained", drop_untrained[source->drop_untrained]);
    if (prints.full != 0)
        add_hash(writer, number, '~', "full", prints.full);
    add_of(writer, number, '=', "name", source->name);
    add_of(writer, number, '=', "range", range);
    add_hash(writer, number, '=', "sampled", prints.sampled);
    add_hash(writer, number, '=', "selection", prints.selection);
    return 0;
}

/* ---- stages ---------------------------------------------------------------------------------- */

/* The limits that have a line at stage i: the ones that it sets, and all limits of a source that
 * joins there. */
static void find_limits(const struct rp_calendar *calendar, uint32_t i, uint8_t *sets)
{
    const struct rp_stage_spec *stage = &calendar->stages[i];
    uint32_t joined = stage->from ? rp_calendar_at(calendar, stage->from - 1)->joined : 0;
    uint32_t joins = rp_calendar_at(calendar, stage->from)->joined;
    memset(sets, 0, calendar->count);
    for (uint32_t l = 0; l < stage->limits_count; l++) {
        uint32_t number = calendar->number_of[stage->limits[l].source];
        if (number != RP_NO_SOURCE)
            sets[number] |= stage->limits[l].sets;
    }
    for (uint32_t j = joined; j < joins; j++)
        sets[j] = 7;
}

int rp_calendar_add_stages(const struct rp_calendar *calendar, struct rp_record_writer *writer,
                           struct rp_error *error)
{
    char prefix[32];
    struct rp_calendar_lines lines = {calendar, writer, prefix, {0}};
    uint8_t *sets = rp_calloc(calendar->count, 1);
    if (!sets)
        return rp_fail(error, -ENOMEM, NULL, "no memory for the contract of a stream");
    for (uint32_t i = 0; i < calendar->spec.stage_count; i++) {
        const struct rp_stage *stage = rp_calendar_at(calendar, calendar->stages[i].from);
        snprintf(prefix, sizeof prefix, "stage[%04" PRIu32 "].", i);
        find_limits(calendar, i, sets);
        rp_calendar_add_stage(&lines, &calendar->stages[i], stage->limits_of_config, sets);
    }
    free(sets);
    return 0;
}

int rp_calendar_contract(const struct rp_calendar *calendar, struct rp_record_writer *writer,
                         struct rp_error *error)
{
    const struct rp_stream_fixed *fixed = &calendar->spec.fixed;
    char hex[RP_HASH_HEX_BYTES];
    rp_record_add(writer, '=', "block_documents", "%" PRIu32, fixed->block_documents);
    rp_calendar_add_id(writer, "bos_id", fixed->bos_id);
    rp_calendar_add_id(writer, "eos_id", fixed->eos_id);
    rp_record_add(writer, '=', "group", "%" PRIu32, fixed->group);
    rp_record_add(writer, '=', "label_across_cuts", "%d", fixed->label_across_cuts);
    rp_record_add(writer, '=', "long_doc", "%s", rp_long_doc_name(fixed->long_doc));
    add_records(calendar, writer);
    rp_record_add(writer, '=', "seed", "%" PRIu64, fixed->seed);
    rp_record_add(writer, '=', "shuffle", "%s", rp_shuffle_name(fixed->shuffle));
    add_skips(calendar, writer);
    for (uint32_t j = 0; j < calendar->count; j++) {
        int code = add_source(calendar, j, writer, error);
        if (code < 0)
            return code;
    }
    int code = rp_calendar_add_stages(calendar, writer, error);
    if (code < 0)
        return code;
    rp_record_add(writer, '=', "stream_version", "2");
    if (rp_hash128_is_known(fixed->tokenizer))
        rp_record_add(writer, '~', "tokenizer", "%s", rp_hash128_hex(fixed->tokenizer, hex));
    rp_record_add(writer, '=', "window_blocks", "%" PRIu32, fixed->window_blocks);
    return writer->out_of_memory
               ? rp_fail(error, -ENOMEM, NULL, "no memory for the contract of a stream")
               : 0;
}
