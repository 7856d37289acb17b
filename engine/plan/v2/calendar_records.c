/* SPDX-License-Identifier: Apache-2.0 */
/* Records of rows ahead: values that the engine resolves from the opened index, and values that a
 * command or a resume wants at a row (STREAM2.md section 9.4). */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "plan/docs_per_row.h"
#include "plan/v2/calendar_parts.h"

/* ---- the default of max_docs_per_row (section 1.3) ------------------------------------------- */

/* The sizes of the sample, each at most L. Empty documents and those with a damaged entry are left
 * out. Returns how many there are. */
static uint32_t take_sample(uint32_t *sizes, const struct rp_stream_source *source, uint64_t n,
                            uint32_t inserted, const struct rp_stage *now)
{
    uint64_t documents[RP_SAMPLE_RUN], tokens[RP_SAMPLE_RUN];
    uint64_t sampled = rp_min_u64(n, RP_SAMPLE_MAX);
    uint32_t count = 0;
    for (uint64_t first = 0; first < sampled; first += RP_SAMPLE_RUN) {
        uint32_t here = (uint32_t)rp_min_u64(RP_SAMPLE_RUN, sampled - first);
        for (uint32_t i = 0; i < here; i++)
            documents[i] = rp_sample_document(n, first + i);
        source->view.lengths(source->view.context, documents, here, tokens);
        for (uint32_t i = 0; i < here; i++)
            if (tokens[i] != 0 && tokens[i] != RP_LENGTH_BAD)
                sizes[count++] = (uint32_t)rp_min_u64(
                    rp_div_up(rp_min_u64(tokens[i], now->seq_len) + inserted, now->align) *
                        now->align,
                    now->seq_len);
    }
    return count;
}

/* Under the values of `now`. */
static int default_docs(struct rp_calendar_making *making, uint32_t *max_docs_per_row)
{
    const struct rp_calendar *calendar = making->calendar;
    const struct rp_stream_fixed *fixed = &calendar->spec.fixed;
    const struct rp_stage *now = &making->now;
    uint32_t has_bos = fixed->bos_id != RP_NO_TOKEN_ID, has_eos = fixed->eos_id != RP_NO_TOKEN_ID;
    uint64_t wanted = 1;
    if (!making->sample)
        making->sample = rp_calloc(RP_SAMPLE_MAX, sizeof *making->sample);
    if (!making->sample)
        return rp_fail(making->error, -ENOMEM, NULL,
                       "out of memory for a sample of document lengths");
    for (uint32_t j = 0; j < calendar->count; j++) {
        const struct rp_stream_source *source = rp_calendar_source(calendar, j);
        if (now->weights[j] == 0 || !source)
            continue;
        uint32_t count = take_sample(making->sample, source, now->documents[j], has_bos + has_eos,
                                     now);
        wanted = rp_max_u64(wanted, rp_docs_wanted(making->sample, count, now->seq_len));
    }
    uint32_t standard = rp_docs_standard(now->seq_len, rp_min_u64(now->seq_len, wanted),
                                         now->packing == RP_PACKING_BEST_FIT ? now->window : 0);
    *max_docs_per_row = (uint32_t)rp_max_u64(fixed->group, standard);
    return 0;
}

/* ---- documents and ranges -------------------------------------------------------------------- */

/* making->wanted[number] = documents of a stage or a wanted record. `joined` sources have joined
 * before: one that joined here until an earlier stage gave it a weight wants nothing here. */
static int want_documents(struct rp_calendar_making *making, const struct rp_calendar_walk *walk,
                          const struct rp_stage_spec *from, uint32_t joined)
{
    const struct rp_calendar *calendar = making->calendar;
    for (uint32_t i = 0; i < from->documents_count; i++) {
        uint32_t source = from->documents[i].source;
        uint32_t number = calendar->number_of[source];
        if (i >= from->documents_count - from->joins_count && number < joined)
            continue;
        if (number == RP_NO_SOURCE || number >= making->now.joined ||
            calendar->sources[source].is_absent)
            return rp_fail(making->error, -RP_E_CONFIG,
                           "name the documents of a source that has joined",
                           "row %" PRIu64 ": documents: source \"%s\" has not joined", walk->row,
                           calendar->sources[source].name);
        /* RP_NO_ROW means: none wanted */
        making->wanted[number] = rp_min_u64(from->documents[i].documents, RP_MAX_ROWS);
    }
    return 0;
}

/* The contract has the fingerprint of all documents that any stage takes, so it must be known. */
static int fail_missing(const struct rp_calendar_making *making, uint64_t row, uint32_t number)
{
    const struct rp_stream_source *source = rp_calendar_source(making->calendar, number);
    uint64_t n = making->wanted[number];
    char hint[320];
    snprintf(hint, sizeof hint,
             "append the documents and index them before the start; or leave them out of the "
             "stage: `grow: true` takes them at the next start, and, with `grow: false`, "
             "`ringpack grow RUN %s=%" PRIu64 " --at-step STEP` while the engine runs",
             source->name, n);
    return rp_fail(making->error, -RP_E_CONFIG, hint,
                   "row %" PRIu64 ": source \"%s\": documents: expected at most %" PRIu64
                   ", which its index has, found %" PRIu64,
                   row, source->name, source->documents, n);
}

static int fail_group(const struct rp_calendar_making *making, uint64_t row, uint32_t number)
{
    const struct rp_stream_source *source = rp_calendar_source(making->calendar, number);
    uint64_t n = making->wanted[number], k = making->calendar->spec.fixed.group, fits = n - n % k;
    char hint[160];
    if (n == source->documents && fits > 0 && !source->is_percent)
        snprintf(hint, sizeof hint,
                 "`documents: %" PRIu64 "-%" PRIu64 "` of the source leaves out the last %" PRIu64,
                 source->range_first, source->range_first + fits, n % k);
    else
        snprintf(hint, sizeof hint, "give it %" PRIu64 " documents, or %" PRIu64,
                 fits ? fits : 2 * k, fits + k);
    return rp_fail(making->error, -RP_E_CONFIG, hint,
                   "row %" PRIu64
                   ": source \"%s\": documents: expected a multiple of group %" PRIu64
                   ", whose units stay whole, found %" PRIu64,
                   row, source->name, k, n);
}

static int check_documents(const struct rp_calendar_making *making, uint64_t row, uint32_t number,
                           bool joins)
{
    const struct rp_stream_source *source = rp_calendar_source(making->calendar, number);
    uint64_t n = making->wanted[number], k = making->calendar->spec.fixed.group;
    const char *name = making->calendar->names[number];
    if (n == 0)
        return rp_fail(making->error, -RP_E_CONFIG,
                       "add documents, or leave the source out of the stage",
                       "row %" PRIu64 ": source \"%s\" joins without a document", row, name);
    if (n % k != 0)
        return fail_group(making, row, number);
    if (n > source->documents)
        return fail_missing(making, row, number);
    if (!joins && n < making->now.documents[number])
        return rp_fail(making->error, -RP_E_CONFIG, "use `without` to take documents out",
                       "row %" PRIu64 ": source \"%s\": documents: expected %" PRIu64
                       " or more, as before, found %" PRIu64,
                       row, name, making->now.documents[number], n);
    return 0;
}

/* The entries of a record: documents, and ranges of sources with `is_percent` that join. */
static int list_entries(struct rp_calendar_making *making, const struct rp_calendar_walk *walk,
                        uint32_t joined, struct rp_calendar_record *record)
{
    struct rp_calendar *calendar = making->calendar;
    uint32_t documents = 0, ranges = 0;
    for (uint32_t j = 0; j < making->now.joined; j++) {
        if (making->wanted[j] == RP_NO_ROW)
            continue;
        int code = check_documents(making, walk->row, j, j >= joined);
        if (code < 0)
            return code;
        documents++;
        ranges += j >= joined && rp_calendar_source(calendar, j)->is_percent;
    }
    size_t bytes = sizeof(struct rp_calendar_entry);
    struct rp_calendar_entry *entries = rp_calendar_take(calendar, (size_t)documents + ranges,
                                                         bytes, making->error);
    if (!entries)
        return -ENOMEM;
    record->documents = entries;
    record->ranges = entries + documents;
    for (uint32_t j = 0; j < making->now.joined; j++) {
        const struct rp_stream_source *source = rp_calendar_source(calendar, j);
        if (making->wanted[j] == RP_NO_ROW)
            continue;
        entries[record->document_count++] = (struct rp_calendar_entry){.number = j,
                                                                       .value = making->wanted[j]};
        if (j >= joined && source->is_percent)
            entries[documents + record->range_count++] = (struct rp_calendar_entry){
                j, source->range_first, source->range_end};
    }
    return 0;
}

/* The greater number of a source that has joined gets a new array, because stages of earlier rows
 * share the old one. The first number of a source is written in place: no earlier row reads it. */
int rp_calendar_set_documents(struct rp_calendar_making *making,
                              const struct rp_calendar_record *record, uint32_t joined)
{
    struct rp_calendar *calendar = making->calendar;
    if (record->document_count > 0 && record->documents[0].number < joined) {
        uint64_t *documents = rp_calendar_take(calendar, calendar->count, sizeof *documents,
                                               making->error);
        if (!documents)
            return -ENOMEM;
        memcpy(documents, making->documents, calendar->count * sizeof *documents);
        making->now.documents = making->documents = documents;
    }
    for (uint32_t i = 0; i < record->document_count; i++)
        making->documents[record->documents[i].number] = record->documents[i].value;
    return 0;
}

/* ---- records --------------------------------------------------------------------------------- */

static int take_deal(struct rp_calendar_making *making, const struct rp_calendar_walk *walk,
                     const struct rp_deal *deal, struct rp_calendar_record *record)
{
    int code = deal->window ? rp_calendar_check_deal(deal, making->error) : 0;
    record->sets |= RP_SETS_DEAL;
    record->deal = rp_calendar_reduce_deal(deal);
    return code < 0 ? rp_fail_context(making->error, code, "row %" PRIu64, walk->row) : 0;
}

/* Limits before a wanted record, by number. */
static int take_limits(struct rp_calendar_making *making, const struct rp_stage_spec *wanted,
                       struct rp_calendar_record *record)
{
    struct rp_calendar *calendar = making->calendar;
    struct rp_calendar_limits *limits = rp_calendar_take(calendar, wanted->limits_count,
                                                         sizeof *limits, making->error);
    if (!limits)
        return -ENOMEM;
    record->limits = limits;
    for (uint32_t j = 0; wanted->limits_count > 0 && j < calendar->count; j++)
        for (uint32_t i = 0; i < wanted->limits_count; i++)
            if (calendar->number_of[wanted->limits[i].source] == j)
                limits[record->limits_count++] = (struct rp_calendar_limits){
                    j, wanted->limits[i].limits};
    return 0;
}

/* Take the values of a wanted record; one that the stage of its row sets too is refused. */
static int take_wanted(struct rp_calendar_making *making, const struct rp_calendar_walk *walk,
                       struct rp_calendar_record *record)
{
    const uint32_t able = RP_SETS_WEIGHTS | RP_SETS_MAX_DOCS | RP_SETS_DEAL;
    const struct rp_stage_spec *wanted = walk->wanted;
    uint32_t both = walk->stage ? walk->stage->sets & wanted->sets : 0;
    if (both)
        return rp_fail(making->error, -RP_E_CONFIG, "write it into the stage",
                       "row %" PRIu64 ": both the stage and the record here set %s", walk->row,
                       both & RP_SETS_WEIGHTS ? "weights"
                       : both & RP_SETS_DEAL  ? "deal"
                                              : "max_docs_per_row");
    record->sets = wanted->sets & able;
    record->max_docs_per_row = wanted->max_docs_per_row;
    if (record->sets & RP_SETS_WEIGHTS)
        record->weights = making->now.weights;
    int code = take_limits(making, wanted, record);
    return code == 0 && (record->sets & RP_SETS_DEAL)
               ? take_deal(making, walk, &wanted->deal, record)
               : code;
}

int rp_calendar_make_record(struct rp_calendar_making *making, const struct rp_calendar_walk *walk,
                            uint32_t joined, struct rp_calendar_record *record, bool *is_made)
{
    struct rp_calendar *calendar = making->calendar;
    const struct rp_stage_spec *stage = walk->stage;
    *record = (struct rp_calendar_record){.from = walk->row};
    for (uint32_t j = 0; j < making->now.joined; j++) {
        const struct rp_stream_source *source = rp_calendar_source(calendar, j);
        making->wanted[j] = j >= joined && source ? source->documents : RP_NO_ROW;
    }
    int code = walk->wanted ? take_wanted(making, walk, record) : 0;
    bool is_known = record->sets & RP_SETS_DEAL; /* made by an earlier start of the run */
    if (code == 0 && stage && (stage->sets & RP_WANTS_DEAL) && !is_known)
        code = take_deal(making, walk, &stage->deal, record);
    if (code == 0 && walk->wanted)
        code = want_documents(making, walk, walk->wanted, joined);
    if (code == 0 && stage)
        code = want_documents(making, walk, stage, joined);
    if (code == 0)
        code = list_entries(making, walk, joined, record);
    if (code < 0)
        return code;
    if (stage && (stage->sets & RP_SETS_SEQ_LEN) && !(stage->sets & RP_SETS_MAX_DOCS)) {
        record->sets |= RP_SETS_MAX_DOCS;
        code = rp_calendar_set_documents(making, record, joined);
        if (code == 0)
            code = default_docs(making, &record->max_docs_per_row);
    }
    *is_made = record->sets != 0 || record->document_count > 0 || record->limits_count > 0;
    return code;
}
