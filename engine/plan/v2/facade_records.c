/* SPDX-License-Identifier: Apache-2.0 */
/* facade_records.c — the records of a run, kept as the text of its contract, so that a token of any
 * of its rows is loaded into the same calendar: records that are begun at the token's row are given
 * to the calendar as text, those ahead of it as stages of the spec. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "plan/v2/facade.h"

int rp_v2_make_contract(struct rp_plan_v2 *v2, struct rp_error *error)
{
    if (v2->contract)
        return 0;
    struct rp_record_writer writer = {0};
    int code = rp_calendar_contract(v2->calendar, &writer, error);
    if (code == 0 && writer.out_of_memory)
        code = rp_fail(error, -ENOMEM, NULL, "no memory for the contract of a stream");
    char *text = code < 0 ? NULL : rp_calloc(1, writer.bytes + 1);
    if (code == 0 && !text)
        code = rp_fail(error, -ENOMEM, NULL, "no memory for the contract of a stream");
    if (code == 0) {
        memcpy(text, writer.text, writer.bytes);
        v2->contract = text;
        v2->contract_bytes = writer.bytes;
    }
    free(writer.text);
    return code;
}

/* A line of a record: `record[NUMBER].KEY[SOURCE]=VALUE`. */
struct line {
    uint32_t record, source; /* source: 0 without one */
    char key[RP_RECORD_NAME_MAX + 1];
    uint64_t value;
};

static bool parse(const struct rp_field *field, struct line *line)
{
    char name[RP_RECORD_NAME_MAX + 1], value[RP_RECORD_VALUE_MAX + 1];
    memcpy(name, field->name, field->name_bytes);
    name[field->name_bytes] = 0;
    memcpy(value, field->value, field->value_bytes);
    value[field->value_bytes] = 0;
    line->source = 0;
    line->value = strtoull(value, NULL, 10);
    return sscanf(name, "record[%" SCNu32 "].%63[a-z_][%" SCNu32 "]", &line->record, line->key,
                  &line->source) >= 2;
}

/* Calls for each line of a record of the contract, in its order. */
typedef void visitor(void *context, const struct line *line);

static void visit(const struct rp_plan_v2 *v2, visitor *call, void *context)
{
    const struct rp_record record = {v2->contract, v2->contract_bytes};
    struct rp_field field;
    for (size_t at = 0; rp_record_next(&record, &at, &field);) {
        struct line line;
        if (parse(&field, &line))
            call(context, &line);
    }
}

/* ---- sizes ----------------------------------------------------------------------------------- */

struct sizes {
    uint32_t records;
    uint32_t documents; /* lines */
};

static void measure(void *context, const struct line *line)
{
    struct sizes *sizes = context;
    if (sizes->records <= line->record)
        sizes->records = line->record + 1;
    sizes->documents += strcmp(line->key, "documents") == 0;
}

/* ---- filling in ------------------------------------------------------------------------------ */

struct filling {
    const struct rp_plan_v2 *v2;
    struct rp_stage_spec *list; /* by number of the record */
    uint32_t *weights;          /* [record][source of the config] */
    struct rp_source_count *documents;
    uint32_t documents_count;
};

static void fill(void *context, const struct line *line)
{
    struct filling *filling = context;
    struct rp_stage_spec *record = &filling->list[line->record];
    uint32_t sources = filling->v2->spec.source_count;
    uint32_t place = line->source < filling->v2->number_count ? filling->v2->places[line->source]
                                                              : RP_NO_NUMBER;
    if (strcmp(line->key, "from") == 0) {
        record->from = line->value;
    } else if (strcmp(line->key, "weight") == 0 && place != RP_NO_NUMBER) {
        uint32_t *weights = filling->weights + (size_t)line->record * sources;
        weights[place] = (uint32_t)line->value;
        record->weights = weights;
        record->sets |= RP_SETS_WEIGHTS;
    } else if (strcmp(line->key, "documents") == 0 && place != RP_NO_NUMBER) {
        struct rp_source_count *entry = &filling->documents[filling->documents_count++];
        *entry = (struct rp_source_count){place, line->value};
        if (record->documents_count++ == 0)
            record->documents = entry; /* the lines of a record are neighbours */
    }
}

/* One block of memory: the list, its weights, its numbers of documents. */
static int allocate(struct filling *filling, const struct sizes *sizes, struct rp_error *error)
{
    size_t list = (sizes->records + 1u) * sizeof *filling->list;
    size_t documents = sizes->documents * sizeof *filling->documents;
    size_t weights = (size_t)sizes->records * filling->v2->spec.source_count *
                     sizeof *filling->weights;
    char *block = rp_calloc(1, list + documents + weights);
    if (!block)
        return rp_fail(error, -ENOMEM, NULL, "no memory for %" PRIu32 " records", sizes->records);
    filling->list = (void *)block;
    filling->documents = (void *)(block + list);
    filling->weights = (void *)(block + list + documents);
    return 0;
}

/* Records that the calendar makes by itself, of defaults and ranges, set nothing here. */
static bool is_wanted(const struct rp_stage_spec *record, uint64_t row)
{
    return record->from >= row && record->from > 0 && (record->sets || record->documents_count);
}

int rp_v2_records_ahead(const struct rp_plan_v2 *v2, uint64_t row, struct rp_v2_records *records,
                        struct rp_error *error)
{
    struct sizes sizes = {0};
    struct filling filling = {.v2 = v2};
    *records = (struct rp_v2_records){NULL, 0};
    visit(v2, measure, &sizes);
    int code = sizes.records ? allocate(&filling, &sizes, error) : 0;
    if (code < 0 || sizes.records == 0)
        return code;
    visit(v2, fill, &filling);
    records->list = filling.list;
    for (uint32_t i = 0; i < sizes.records; i++)
        if (is_wanted(&filling.list[i], row))
            records->list[records->count++] = filling.list[i];
    return 0;
}

void rp_v2_records_free(struct rp_v2_records *records)
{
    free(records->list);
    *records = (struct rp_v2_records){NULL, 0};
}
