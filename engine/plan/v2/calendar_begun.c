/* SPDX-License-Identifier: Apache-2.0 */
/* Records that are begun, read from the text of a contract. They are not made again: an index that
 * has grown since would give other values. */
#include "plan/v2/calendar_parts.h"

#include <string.h>

#include "base/mem.h"
#include "plan/v2/deal.h"

/* A record that is being read. The arrays are by number, and RP_NO_ROW means that it has no line.
 */
struct reader {
    struct rp_calendar_making *making;
    uint32_t known; /* sources that have a number */
    struct rp_calendar_record record;
    bool has_from, has_bad;
    struct rp_field bad; /* the first line that was not understood */
    uint64_t *documents, *first, *end;
    uint32_t *weights;
    struct rp_calendar_limits *limits; /* RP_NO_SOURCE: no line */
};

static int refuse_line(const struct reader *reader, const struct rp_field *field)
{
    return rp_fail(reader->making->error, -RP_E_CORRUPT, "continue from another checkpoint",
                   "the records of the checkpoint: a line was not understood: %.*s=%.*s",
                   (int)field->name_bytes, field->name, (int)field->value_bytes, field->value);
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Digits of a value, up to `end`. */
static bool read_number(const char **at, const char *end, uint64_t *number)
{
    const char *begin = *at;
    *number = 0;
    for (; *at < end && **at >= '0' && **at <= '9'; (*at)++)
        if (!rp_mul_u64(*number, 10, number) ||
            !rp_add_u64(*number, (uint64_t)(**at - '0'), number))
            return false;
    return *at > begin;
}

static bool read_word(const char **at, const char *end, const char *word)
{
    size_t bytes = strlen(word);
    if ((size_t)(end - *at) < bytes || memcmp(*at, word, bytes) != 0)
        return false;
    *at += bytes;
    return true;
}

bool rp_calendar_read_limits(const struct rp_field *field, struct rp_limits *limits)
{
    const char *at = field->value, *end = at + field->value_bytes;
    uint64_t epochs;
    if (!read_number(&at, end, &epochs) || epochs > UINT32_MAX || !read_word(&at, end, ",") ||
        !read_number(&at, end, &limits->max_tokens) || !read_word(&at, end, ","))
        return false;
    limits->max_epochs = (uint32_t)epochs;
    for (unsigned i = 0; i <= RP_EXHAUSTED_ERROR; i++) {
        limits->on_exhausted = (enum rp_on_exhausted)i;
        if (read_word(&at, end, rp_calendar_exhausted_word(limits->on_exhausted)))
            return at == end;
    }
    return false;
}

static bool read_range(const struct rp_field *field, uint64_t *first, uint64_t *last)
{
    const char *at = field->value, *end = at + field->value_bytes;
    return read_number(&at, end, first) && read_word(&at, end, "-") &&
           read_number(&at, end, last) && at == end && *first < *last && *last < RP_MAX_ROWS;
}

static bool read_order(const char **at, const char *end, uint64_t *order)
{
    for (*order = 0; *order < RP_DEAL_ORDERS; ++*order)
        if (read_word(at, end, rp_deal_order_name((enum rp_deal_order) * order)))
            return true;
    return false;
}

bool rp_calendar_read_deal(const struct rp_field *field, struct rp_deal *deal)
{
    const char *at = field->value, *end = at + field->value_bytes;
    uint64_t numbers[9];
    *deal = (struct rp_deal){0};
    if (read_word(&at, end, "off"))
        return at == end;
    for (unsigned i = 0; i < 9; i++) {
        if (i == 4 ? !read_order(&at, end, &numbers[i])
                   : !read_number(&at, end, &numbers[i]) ||
                         numbers[i] > (i >= 7 ? UINT8_MAX : UINT32_MAX))
            return false;
        if (i < 8 && !read_word(&at, end, ","))
            return false;
    }
    *deal = (struct rp_deal){.window = (uint32_t)numbers[0],
                             .step = (uint32_t)numbers[1],
                             .tier = (uint32_t)numbers[2],
                             .bundle = (uint32_t)numbers[3],
                             .order = (enum rp_deal_order)numbers[4],
                             .cost.k = (uint32_t)numbers[5],
                             .cost.w = (uint32_t)numbers[6],
                             .cost.h = (uint8_t)numbers[7],
                             .cost.b = (uint8_t)numbers[8]};
    struct rp_error ignored;
    return at == end && rp_calendar_check_deal(deal, &ignored) == 0;
}

/* ---- lines ----------------------------------------------------------------------------------- */

static bool read_index(const char **at, const char *end, uint32_t *index, bool *is_padded)
{
    const char *begin = *at + 1;
    uint64_t number;
    if (!read_word(at, end, "[") || !read_number(at, end, &number) || number > UINT32_MAX)
        return false;
    *index = (uint32_t)number;
    *is_padded &= *at == begin + 4;
    return read_word(at, end, "]");
}

bool rp_calendar_read_line(const struct rp_field *field, const char *list,
                           struct rp_calendar_line *line)
{
    const char *at = field->name, *end = at + field->name_bytes, *value = field->value;
    line->field = field;
    line->source = RP_NO_SOURCE;
    line->is_padded = true;
    if (!read_word(&at, end, list) || !read_index(&at, end, &line->number, &line->is_padded) ||
        !read_word(&at, end, "."))
        return false;
    const char *bracket = memchr(at, '[', (size_t)(end - at));
    size_t bytes = (size_t)((bracket ? bracket : end) - at);
    memcpy(line->key, at, bytes);
    line->key[bytes] = 0;
    at += bytes;
    if (at < end && (!read_index(&at, end, &line->source, &line->is_padded) || at != end))
        return false;
    if (!read_number(&value, field->value + field->value_bytes, &line->value) ||
        value != field->value + field->value_bytes)
        line->value = RP_NO_ROW;
    return true;
}

/* A record ahead may have sources that have not joined, so a bad line is refused at its end. */
static void read_line(struct reader *reader, const struct rp_calendar_line *line)
{
    struct rp_calendar_record *record = &reader->record;
    const struct rp_field *field = line->field;
    uint32_t j = line->source;
    bool is_fine = false, is_known = j < reader->known;
    if (strcmp(line->key, "documents") == 0 && is_known) {
        is_fine = line->value < RP_MAX_ROWS;
        reader->documents[j] = line->value;
    } else if (strcmp(line->key, "range") == 0 && is_known) {
        is_fine = read_range(field, &reader->first[j], &reader->end[j]);
    } else if (strcmp(line->key, "weight") == 0 && is_known) {
        is_fine = line->value > 0 && line->value <= UINT32_MAX;
        reader->weights[j] = (uint32_t)line->value;
        record->sets |= RP_SETS_WEIGHTS;
    } else if (strcmp(line->key, "limits") == 0 && is_known) {
        is_fine = rp_calendar_read_limits(field, &reader->limits[j].limits);
        reader->limits[j].number = j;
    } else if (j != RP_NO_SOURCE) {
        is_fine = false;
    } else if (strcmp(line->key, "from") == 0) {
        is_fine = reader->has_from = line->value < RP_MAX_ROWS;
        record->from = line->value;
    } else if (strcmp(line->key, "max_docs_per_row") == 0) {
        is_fine = line->value > 0 && line->value <= RP_SEQ_LEN_MAX;
        record->max_docs_per_row = (uint32_t)line->value;
        record->sets |= RP_SETS_MAX_DOCS;
    } else if (strcmp(line->key, "deal") == 0) {
        is_fine = rp_calendar_read_deal(field, &record->deal);
        record->sets |= RP_SETS_DEAL;
    }
    if (!is_fine && !reader->has_bad)
        reader->bad = *field;
    reader->has_bad = reader->has_bad || !is_fine;
}

/* ---- records --------------------------------------------------------------------------------- */

static void clear(struct reader *reader)
{
    reader->record = (struct rp_calendar_record){0};
    reader->has_from = reader->has_bad = false;
    memset(reader->documents, 0xff, reader->known * sizeof *reader->documents);
    memset(reader->first, 0xff, reader->known * sizeof *reader->first);
    memset(reader->weights, 0, reader->known * sizeof *reader->weights);
    memset(reader->limits, 0xff, reader->known * sizeof *reader->limits);
}

static int keep_entries(struct reader *reader, const uint64_t *values, const uint64_t *ends,
                        const struct rp_calendar_entry **entries_out, uint32_t *count_out)
{
    *count_out = 0;
    for (uint32_t j = 0; j < reader->known; j++)
        *count_out += values[j] != RP_NO_ROW;
    struct rp_calendar_entry *entries = rp_calendar_take(reader->making->calendar, *count_out,
                                                         sizeof *entries, reader->making->error);
    if (!entries)
        return -ENOMEM;
    *entries_out = entries;
    for (uint32_t j = 0; j < reader->known; j++)
        if (values[j] != RP_NO_ROW)
            *entries++ = (struct rp_calendar_entry){j, values[j], ends[j]};
    return 0;
}

static int keep_limits(struct reader *reader, struct rp_calendar_record *record)
{
    for (uint32_t j = 0; j < reader->known; j++)
        record->limits_count += reader->limits[j].number == j;
    struct rp_calendar_limits *limits = rp_calendar_take(
        reader->making->calendar, record->limits_count, sizeof *limits, reader->making->error);
    if (!limits)
        return -ENOMEM;
    record->limits = limits;
    for (uint32_t j = 0; j < reader->known; j++)
        if (reader->limits[j].number == j)
            *limits++ = reader->limits[j];
    return 0;
}

/* The record is complete: keep it if it is begun. */
static int end_record(struct reader *reader)
{
    struct rp_calendar *calendar = reader->making->calendar;
    struct rp_calendar_record *record = &reader->record;
    struct rp_error *error = reader->making->error;
    uint32_t count = calendar->begun_count;
    if (!reader->has_from || (count > 0 && record->from <= calendar->records[count - 1].from))
        return rp_fail(error, -RP_E_CORRUPT, "continue from another checkpoint",
                       "the records of the checkpoint: the rows of records do not ascend at "
                       "row %" PRIu64,
                       record->from);
    if (!rp_calendar_is_begun(calendar, record->from))
        return 0;
    if (reader->has_bad)
        return refuse_line(reader, &reader->bad);
    int code = keep_entries(reader, reader->documents, reader->end, &record->documents,
                            &record->document_count);
    if (code == 0)
        code = keep_entries(reader, reader->first, reader->end, &record->ranges,
                            &record->range_count);
    if (code == 0)
        code = keep_limits(reader, record);
    if (code == 0 && (record->sets & RP_SETS_WEIGHTS)) {
        uint32_t *weights = rp_calendar_take(
            calendar, (size_t)reader->known + calendar->spec.source_count, sizeof *weights, error);
        if (!weights)
            return -ENOMEM;
        memcpy(weights, reader->weights, reader->known * sizeof *weights);
        record->weights = weights;
    }
    if (code < 0)
        return code;
    calendar->records[calendar->begun_count++] = *record;
    return 0;
}

static int read_all(struct reader *reader, const struct rp_record *text)
{
    struct rp_calendar *calendar = reader->making->calendar;
    struct rp_field field;
    struct rp_calendar_line line;
    uint32_t current = RP_NO_SOURCE;
    int code = 0;
    for (size_t at = 0; code == 0 && rp_record_next(text, &at, &field);) {
        const char *begin = field.name;
        if (!read_word(&begin, begin + field.name_bytes, "record"))
            continue;
        if (field.sign != '=' || !rp_calendar_read_line(&field, "record", &line) || !line.is_padded)
            return refuse_line(reader, &field);
        if (line.number != current && current != RP_NO_SOURCE)
            code = end_record(reader);
        if (line.number != current)
            clear(reader);
        current = line.number;
        if (code == 0)
            read_line(reader, &line);
    }
    RP_ASSERT(calendar->begun_count <= RP_STAGES_MAX); /* NNNN has four digits */
    return code == 0 && current != RP_NO_SOURCE ? end_record(reader) : code;
}

int rp_calendar_read_records(struct rp_calendar_making *making)
{
    struct rp_calendar *calendar = making->calendar;
    const char *text = making->position->begun_records;
    struct reader reader = {.making = making, .known = making->position->known_count};
    struct rp_record record;
    bool has_text = calendar->is_resumed && text;
    size_t most = (has_text ? RP_STAGES_MAX : 0) + (size_t)calendar->spec.stage_count +
                  calendar->spec.record_count;
    if (reader.known > RP_SOURCES_MAX)
        return rp_fail(making->error, -RP_E_CONFIG, NULL,
                       "a stream has at most %u sources, found %" PRIu32 " that have joined",
                       RP_SOURCES_MAX, reader.known);
    calendar->records = rp_calendar_take(calendar, most, sizeof *calendar->records, making->error);
    if (!calendar->records)
        return -ENOMEM;
    if (!has_text)
        return 0;
    int code = rp_record_open(&record, text, strlen(text), making->error);
    if (code < 0)
        return rp_fail_context(making->error, code, "the records of the checkpoint");
    size_t n = reader.known;
    reader.documents = rp_calloc(3 * n, sizeof *reader.documents);
    reader.weights = rp_calloc(n, sizeof *reader.weights);
    reader.limits = rp_calloc(n, sizeof *reader.limits);
    if (reader.documents && reader.weights && reader.limits) {
        reader.first = reader.documents + n;
        reader.end = reader.first + n;
        code = read_all(&reader, &record);
    } else {
        code = rp_fail(making->error, -ENOMEM, NULL, "no memory for the calendar of a stream");
    }
    free(reader.documents);
    free(reader.weights);
    free(reader.limits);
    return code;
}
