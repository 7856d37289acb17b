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
    int code = rp_calendar_contract(v2->now.calendar, &writer, error);
    if (code < 0) {
        free(writer.text);
        return code;
    }
    v2->contract = writer.text;
    v2->contract_bytes = writer.bytes;
    return 0;
}

/* Calls for each line of a record of the contract, in its order. */
typedef void visitor(void *context, const struct rp_calendar_line *line);

static void visit(const struct rp_record *contract, visitor *call, void *context)
{
    struct rp_field field;
    struct rp_calendar_line line;
    for (size_t at = 0; rp_record_next(contract, &at, &field);)
        if (rp_calendar_read_line(&field, "record", &line))
            call(context, &line);
}

/* ---- sizes ----------------------------------------------------------------------------------- */

struct sizes {
    uint64_t records;                  /* the greatest number, and 1 */
    uint32_t lines, documents, limits; /* lines: of all records, at least one each */
};

static void measure(void *context, const struct rp_calendar_line *line)
{
    struct sizes *sizes = context;
    sizes->records = rp_max_u64(sizes->records, UINT64_C(1) + line->number);
    sizes->lines++;
    sizes->documents += strcmp(line->key, "documents") == 0;
    sizes->limits += strcmp(line->key, "limits") == 0;
}

/* ---- filling in ------------------------------------------------------------------------------ */

struct filling {
    const struct rp_plan_v2 *v2;
    struct rp_stage_spec *list; /* by number of the record */
    uint32_t *weights;          /* [record][source of the config] */
    struct rp_source_count *documents;
    uint32_t documents_count, joined; /* joined: sources with documents so far */
    struct rp_limits_change *limits;
    uint32_t limits_count;
};

static void set_value(void *context, const struct rp_calendar_line *line)
{
    struct filling *filling = context;
    struct rp_stage_spec *record = &filling->list[line->number];
    uint32_t sources = filling->v2->spec.source_count;
    uint32_t place = line->source < filling->v2->number_count
                         ? filling->v2->now.places[line->source]
                         : RP_NO_NUMBER;
    if (strcmp(line->key, "from") == 0) {
        record->from = line->value;
    } else if (strcmp(line->key, "weight") == 0 && place != RP_NO_NUMBER) {
        uint32_t *weights = filling->weights + (size_t)line->number * sources;
        weights[place] = (uint32_t)line->value;
        record->weights = weights;
        record->sets |= RP_SETS_WEIGHTS;
    } else if (strcmp(line->key, "documents") == 0 && place != RP_NO_NUMBER) {
        struct rp_source_count *entry = &filling->documents[filling->documents_count++];
        *entry = (struct rp_source_count){place, line->value};
        if (record->documents_count++ == 0)
            record->documents = entry; /* the lines of a record are neighbours */
        if (line->source >= filling->joined) {
            record->joins_count++;
            filling->joined = line->source + 1;
        }
    } else if (strcmp(line->key, "limits") == 0 && place != RP_NO_NUMBER) {
        struct rp_limits_change *entry = &filling->limits[filling->limits_count];
        *entry = (struct rp_limits_change){.source = place, .sets = 7};
        if (!rp_calendar_read_limits(line->field, &entry->limits))
            return;
        filling->limits_count++;
        if (record->limits_count++ == 0)
            record->limits = entry;
    } else if (strcmp(line->key, "deal") == 0 &&
               rp_calendar_read_deal(line->field, &record->deal)) {
        record->sets |= RP_SETS_DEAL;
    }
}

/* Places for the values of records that are appended. */
struct spare {
    uint32_t count;
    uint32_t *weights;                 /* [count][sources of the config] */
    struct rp_source_count *documents; /* likewise */
};

/* One block of memory: the list, its limits, its numbers of documents, its weights. It has room for
 * records that are appended. */
static int allocate(struct filling *filling, const struct sizes *sizes, struct spare *spare,
                    struct rp_error *error)
{
    size_t sources = filling->v2->spec.source_count, count = (size_t)sizes->records + spare->count;
    size_t list = count * sizeof *filling->list;
    size_t documents = (sizes->documents + spare->count * sources) * sizeof *filling->documents;
    size_t weights = count * sources * sizeof *filling->weights;
    size_t limits = sizes->limits * sizeof *filling->limits;
    char *block = rp_calloc(1, list + limits + documents + weights);
    if (!block)
        return rp_fail(error, -ENOMEM, NULL, "no memory for %" PRIu64 " records", sizes->records);
    filling->list = (void *)block;
    filling->limits = (void *)(block + list);
    filling->documents = (void *)(block + list + limits);
    filling->weights = (void *)(block + list + limits + documents);
    spare->weights = filling->weights + sizes->records * sources;
    spare->documents = filling->documents + sizes->documents;
    return 0;
}

/* Records that the calendar makes by itself, of defaults and ranges, set nothing here. A deal does:
 * the job from which it was made may be another one now. */
static bool is_wanted(const struct rp_stage_spec *record, uint64_t row)
{
    return record->from >= row && record->from > 0 &&
           (record->sets || record->documents_count || record->limits_count);
}

static int list_records(const struct rp_plan_v2 *v2, uint64_t row, struct rp_v2_records *records,
                        struct spare *spare, struct rp_error *error)
{
    const struct rp_record contract = {v2->contract, v2->contract_bytes};
    struct sizes sizes = {0};
    struct filling filling = {.v2 = v2};
    *records = (struct rp_v2_records){NULL, 0};
    visit(&contract, measure, &sizes);
    if (sizes.records > sizes.lines)
        return rp_fail(error, -RP_E_CORRUPT, "the run is unchanged; take an older checkpoint",
                       "the contract has a record number %" PRIu64 ", and %" PRIu32
                       " lines of records",
                       sizes.records - 1, sizes.lines);
    int code = allocate(&filling, &sizes, spare, error);
    if (code < 0)
        return code;
    visit(&contract, set_value, &filling);
    records->list = filling.list;
    for (uint32_t i = 0; i < sizes.records; i++)
        if (is_wanted(&filling.list[i], row))
            records->list[records->count++] = filling.list[i];
    return 0;
}

int rp_v2_records_ahead(const struct rp_plan_v2 *v2, uint64_t row, struct rp_v2_records *records,
                        struct rp_error *error)
{
    struct spare spare = {.count = 0};
    return list_records(v2, row, records, &spare, error);
}

/* ---- records that are appended --------------------------------------------------------------- */

/* The documents of a source in a record; 0: it has none. */
static uint64_t documents_in(const struct rp_stage_spec *record, uint32_t source)
{
    for (uint32_t i = 0; i < record->documents_count; i++)
        if (record->documents[i].source == source)
            return record->documents[i].documents;
    return 0;
}

/* Set the documents of a record that may have others. */
static void set_documents(struct rp_stage_spec *record, const uint64_t *documents, uint32_t sources,
                          struct rp_source_count *place)
{
    uint32_t count = 0;
    for (uint32_t s = 0; s < sources; s++) {
        uint64_t number = documents[s] ? documents[s] : documents_in(record, s);
        if (number > 0)
            place[count++] = (struct rp_source_count){s, number};
    }
    record->documents = place;
    record->documents_count = count;
}

/* The record of the list at a row, which is inserted if it is not there. The list has room. */
static struct rp_stage_spec *record_at(struct rp_v2_records *records, uint64_t row)
{
    uint32_t at = 0;
    while (at < records->count && records->list[at].from < row)
        at++;
    struct rp_stage_spec *record = &records->list[at];
    if (at == records->count || record->from != row) {
        memmove(record + 1, record, (records->count - at) * sizeof *record);
        *record = (struct rp_stage_spec){.from = row};
        records->count++;
    }
    return record;
}

/* Add a record to the list, which has room for it. */
static int insert(const struct rp_plan_v2 *v2, struct rp_v2_records *records,
                  const struct rp_plan_record *added, const struct spare *place,
                  struct rp_error *error)
{
    struct rp_stage_spec *record = record_at(records, added->row);
    size_t bytes = v2->spec.source_count * sizeof *place->weights;
    if (added->documents)
        set_documents(record, added->documents, v2->spec.source_count, place->documents);
    if (!added->weights)
        return 0;
    if (record->sets & RP_SETS_WEIGHTS)
        return memcmp(record->weights, added->weights, bytes) == 0
                   ? 0
                   : rp_fail(error, -RP_E_CONFIG, "bring back the run journal of this run",
                             "row %" PRIu64 ": the checkpoint has other weights than the journal",
                             added->row);
    memcpy(place->weights, added->weights, bytes);
    record->sets |= RP_SETS_WEIGHTS;
    record->weights = place->weights;
    return 0;
}

int rp_v2_records_with(const struct rp_plan_v2 *v2, uint64_t row,
                       const struct rp_plan_record *added, struct rp_v2_records *records,
                       struct rp_error *error)
{
    struct spare spare = {.count = 1};
    int code = list_records(v2, row, records, &spare, error);
    return code < 0 ? code : insert(v2, records, added, &spare, error);
}

/* Whether a record sets documents of one of these sources to another number, and whether it sets
 * all of them to the same. */
static bool has_documents(const struct rp_stage_spec *record, const uint64_t *documents,
                          uint32_t sources, bool *is_equal)
{
    bool is_other = false, is_missing = false;
    for (uint32_t s = 0; s < sources; s++) {
        uint64_t number = documents[s] ? documents_in(record, s) : 0;
        is_missing |= documents[s] && number == 0;
        is_other |= number > 0 && number != documents[s];
    }
    *is_equal = !is_other && !is_missing;
    return is_other || !is_missing;
}

bool rp_v2_record_at(const struct rp_plan_v2 *v2, const struct rp_plan_record *wanted,
                     bool *is_equal)
{
    struct rp_v2_records records;
    struct spare spare = {.count = 0};
    uint32_t sources = v2->spec.source_count;
    bool is_there = false;
    if (list_records(v2, wanted->row, &records, &spare, NULL) < 0)
        return false;
    const struct rp_stage_spec *record = records.count > 0 ? &records.list[0] : NULL;
    if (record && record->from == wanted->row && wanted->weights) {
        is_there = record->sets & RP_SETS_WEIGHTS;
        *is_equal = is_there &&
                    memcmp(record->weights, wanted->weights, sources * sizeof(uint32_t)) == 0;
    } else if (record && record->from == wanted->row) {
        is_there = has_documents(record, wanted->documents, sources, is_equal);
    }
    rp_v2_records_free(&records);
    return is_there;
}

/* ---- the records of a start ------------------------------------------------------------------ */

/* The place of a source that the other contract has under this number. False: it has none. */
static bool find_place(const struct rp_plan_v2 *v2, const struct rp_record *contract,
                       uint32_t number, uint32_t *place)
{
    char name[RP_RECORD_NAME_MAX + 1];
    struct rp_field field;
    const struct rp_stream_spec *spec = &v2->spec;
    snprintf(name, sizeof name, "source[%04" PRIu32 "].name", number);
    *place = RP_NO_NUMBER;
    if (!rp_record_find(contract, name, &field))
        return false;
    for (uint32_t s = 0; s < spec->source_count; s++)
        if (strlen(spec->sources[s].name) == field.value_bytes &&
            memcmp(spec->sources[s].name, field.value, field.value_bytes) == 0)
            *place = s;
    return true;
}

/* All records of another contract that are not begun at `row`. */
static int list_all(const struct rp_plan_v2 *v2, const struct rp_record *contract, uint64_t row,
                    struct rp_v2_records *records, struct spare *spare, struct rp_error *error)
{
    uint32_t *places = rp_calloc(RP_SOURCES_MAX, sizeof *places);
    struct rp_plan_v2 with = *v2;
    if (!places)
        return rp_fail(error, -ENOMEM, NULL, "no memory for the sources of a contract");
    with.number_count = 0;
    while (with.number_count < RP_SOURCES_MAX &&
           find_place(v2, contract, with.number_count, &places[with.number_count]))
        with.number_count++;
    with.contract = (char *)contract->text;
    with.contract_bytes = contract->bytes;
    with.now.places = places;
    int code = list_records(&with, row, records, spare, error);
    free(places);
    return code;
}

/* Keep only the weights of the records. */
static void keep_weights(struct rp_v2_records *records)
{
    uint32_t count = records->count;
    records->count = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct rp_stage_spec *record = &records->list[i];
        if (record->sets & RP_SETS_WEIGHTS)
            records->list[records->count++] = (struct rp_stage_spec){
                .from = record->from, .sets = RP_SETS_WEIGHTS, .weights = record->weights};
    }
}

int rp_v2_records_kept(const struct rp_plan_v2 *v2, const struct rp_plan_start *start,
                       const struct rp_stream_position *position, struct rp_v2_records *records,
                       struct rp_error *error)
{
    static const struct rp_record none = {"", 0};
    bool keeps_all = start->keeps_records && start->contract;
    uint64_t row = keeps_all ? position->next_row : position->window_end;
    struct spare place = {.count = keeps_all ? 0 : start->ahead_count};
    int code = list_all(v2, start->contract ? start->contract : &none, row, records, &place, error);
    if (code < 0 || keeps_all)
        return code;
    keep_weights(records);
    for (uint32_t i = 0; i < start->ahead_count && code == 0; i++) {
        const struct rp_plan_record *entry = &start->ahead[i];
        if ((entry->weights || entry->documents) && entry->row >= row && entry->row > 0)
            code = insert(v2, records, entry, &place, error);
        place.weights += v2->spec.source_count;
        place.documents += v2->spec.source_count;
    }
    if (code < 0)
        rp_v2_records_free(records);
    return code;
}

void rp_v2_records_free(struct rp_v2_records *records)
{
    free(records->list);
    *records = (struct rp_v2_records){NULL, 0};
}

int rp_v2_follow(struct rp_plan_v2 *v2, struct rp_plan_v2 *started, struct rp_error *error)
{
    int code = rp_v2_make_contract(started, error);
    char *contract = code < 0 ? NULL : strndup(started->contract, started->contract_bytes);
    if (code == 0 && !contract)
        code = rp_fail(error, -ENOMEM, NULL, "no memory for the contract of a stream");
    if (code < 0)
        return code;
    free(v2->contract);
    v2->contract = contract;
    v2->contract_bytes = started->contract_bytes;
    v2->seq_len = started->seq_len;
    v2->known_from = started->known_from;
    return 0;
}
