/* SPDX-License-Identifier: Apache-2.0 */
/* Two walks over all boundaries: the first gives sources their numbers, the second makes the values
 * in force at each boundary. */
#include "plan/v2/calendar_parts.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* ---- the walk -------------------------------------------------------------------------------- */

static bool step(const struct rp_calendar *calendar, struct rp_calendar_walk *walk)
{
    const struct rp_stream_spec *spec = &calendar->spec;
    while (walk->next_wanted < spec->record_count &&
           rp_calendar_is_begun(calendar, spec->records[walk->next_wanted].from))
        walk->next_wanted++; /* it is among the begun ones */
    const struct rp_stage_spec *stage = walk->next_stage < spec->stage_count
                                            ? &calendar->stages[walk->next_stage]
                                            : NULL;
    const struct rp_stage_spec *wanted = walk->next_wanted < spec->record_count
                                             ? &spec->records[walk->next_wanted]
                                             : NULL;
    const struct rp_calendar_record *begun = walk->next_begun < calendar->begun_count
                                                 ? &calendar->records[walk->next_begun]
                                                 : NULL;
    uint64_t row = rp_min_u64(stage ? stage->from : RP_NO_ROW, wanted ? wanted->from : RP_NO_ROW);
    row = rp_min_u64(row, begun ? begun->from : RP_NO_ROW);
    if (row == RP_NO_ROW)
        return false;
    walk->row = row;
    walk->stage = stage && stage->from == row ? stage : NULL;
    walk->wanted = wanted && wanted->from == row ? wanted : NULL;
    walk->begun = begun && begun->from == row ? begun : NULL;
    walk->is_begun = rp_calendar_is_begun(calendar, row);
    walk->next_stage += walk->stage != NULL;
    walk->next_wanted += walk->wanted != NULL;
    walk->next_begun += walk->begun != NULL;
    return true;
}

/* The stage or record ahead that sets the weights of a boundary; the record if both do. NULL: none
 * of them does, or a begun record, all of whose sources have numbers. */
static const struct rp_stage_spec *weighting(const struct rp_calendar_walk *walk)
{
    if (walk->begun && (walk->begun->sets & RP_SETS_WEIGHTS))
        return NULL;
    if (walk->wanted && (walk->wanted->sets & RP_SETS_WEIGHTS))
        return walk->wanted;
    return walk->stage && (walk->stage->sets & RP_SETS_WEIGHTS) ? walk->stage : NULL;
}

/* ---- numbers --------------------------------------------------------------------------------- */

static int number_known(struct rp_calendar_making *making)
{
    struct rp_calendar *calendar = making->calendar;
    uint32_t known = making->position->known_count;
    for (uint32_t j = 0; j < known; j++) {
        const char *name = making->position->known_names[j];
        char *copy = rp_calendar_take(calendar, strlen(name) + 1, 1, making->error);
        if (!copy)
            return -ENOMEM;
        memcpy(copy, name, strlen(name) + 1);
        calendar->names[j] = copy;
        uint32_t source = rp_calendar_find(calendar, name);
        if (source != RP_NO_SOURCE && calendar->number_of[source] != RP_NO_SOURCE)
            return rp_fail(making->error, -RP_E_CORRUPT, NULL,
                           "two sources of the state have the name \"%s\"", name);
        calendar->config_of[j] = source;
        if (source != RP_NO_SOURCE)
            calendar->number_of[source] = j;
    }
    calendar->count = known;
    return 0;
}

static int join_at(struct rp_calendar_making *making, const struct rp_calendar_walk *walk,
                   const struct rp_stage_spec *stage)
{
    struct rp_calendar *calendar = making->calendar;
    for (uint32_t source = 0; source < calendar->spec.source_count; source++) {
        const char *name = calendar->sources[source].name;
        if (stage->weights[source] == 0)
            continue;
        if (calendar->sources[source].is_absent &&
            (calendar->number_of[source] == RP_NO_SOURCE || !walk->is_begun))
            return rp_fail(making->error, -RP_E_CONFIG, "add the source, or leave out its weight",
                           "row %" PRIu64 ": weight: no source has the name \"%s\"", walk->row,
                           name);
        if (calendar->number_of[source] != RP_NO_SOURCE)
            continue;
        if (calendar->count == RP_SOURCES_MAX)
            return rp_fail(making->error, -RP_E_CONFIG, NULL,
                           "row %" PRIu64 ": source \"%s\": at most %u sources can join a stream",
                           walk->row, name, RP_SOURCES_MAX);
        calendar->names[calendar->count] = name;
        calendar->config_of[calendar->count] = source;
        calendar->number_of[source] = calendar->count++;
    }
    return 0;
}

int rp_calendar_number(struct rp_calendar_making *making)
{
    struct rp_calendar *calendar = making->calendar;
    size_t most = (size_t)making->position->known_count + calendar->spec.source_count;
    struct rp_error *error = making->error;
    calendar->names = rp_calendar_take(calendar, most, sizeof *calendar->names, error);
    calendar->config_of = rp_calendar_take(calendar, most, sizeof *calendar->config_of, error);
    calendar->number_of = rp_calendar_take(calendar, calendar->spec.source_count,
                                           sizeof *calendar->number_of, error);
    if (!calendar->names || !calendar->config_of || !calendar->number_of)
        return -ENOMEM;
    for (uint32_t i = 0; i < calendar->spec.source_count; i++)
        calendar->number_of[i] = RP_NO_SOURCE;
    int code = number_known(making);
    for (struct rp_calendar_walk walk = {0}; code == 0 && step(calendar, &walk);)
        if (weighting(&walk))
            code = join_at(making, &walk, weighting(&walk));
    return code;
}

/* ---- values ---------------------------------------------------------------------------------- */

static int set_weights(struct rp_calendar_making *making, const struct rp_stage_spec *from,
                       const uint32_t *given, uint64_t ramp)
{
    struct rp_calendar *calendar = making->calendar;
    const uint32_t *weights = given;
    if (from) {
        uint32_t divisor = rp_calendar_divisor(calendar, from);
        uint32_t *reduced = rp_calendar_take(calendar, calendar->count, sizeof *reduced,
                                             making->error);
        if (!reduced)
            return -ENOMEM;
        for (uint32_t j = 0; j < calendar->count; j++)
            reduced[j] = rp_calendar_weight(calendar, from, j) / divisor;
        weights = reduced;
    }
    making->now.weights = weights;
    for (uint32_t j = making->now.joined; j < calendar->count; j++)
        if (weights[j] > 0)
            making->now.joined = j + 1;
    calendar->mixes[calendar->mix_count++] = (struct rp_calendar_mix){
        .from = making->now.from, .ramp = ramp, .weights = weights};
    return 0;
}

static void set_stage(struct rp_calendar_making *making, const struct rp_stage_spec *stage)
{
    struct rp_stage *now = &making->now;
    uint32_t sets = stage->sets;
    now->seq_len = sets & RP_SETS_SEQ_LEN ? stage->seq_len : now->seq_len;
    now->align = sets & RP_SETS_ALIGN ? stage->align : now->align;
    now->packing = sets & RP_SETS_PACKING ? stage->packing : now->packing;
    now->window = sets & RP_SETS_WINDOW ? stage->window : now->window;
    now->row_gap = sets & RP_SETS_ROW_GAP ? stage->row_gap : now->row_gap;
    now->spread = sets & RP_SETS_SPREAD ? stage->spread : now->spread;
    if (sets & RP_SETS_MAX_DOCS)
        now->max_docs_per_row = stage->max_docs_per_row;
    if (sets & RP_SETS_DEAL)
        now->deal = stage->deal;
}

static int set_record(struct rp_calendar_making *making, const struct rp_calendar_record *record,
                      uint32_t joined)
{
    if (record->sets & RP_SETS_MAX_DOCS)
        making->now.max_docs_per_row = record->max_docs_per_row;
    if (record->sets & RP_SETS_DEAL)
        making->now.deal = record->deal;
    making->now.has_record = true;
    return rp_calendar_set_documents(making, record, joined);
}

/* Check values in force against each other: different stages and records may have set them. */
static int check_now(const struct rp_calendar_making *making)
{
    const struct rp_stage *now = &making->now;
    const struct rp_deal *deal = &now->deal;
    uint64_t L = now->seq_len, D = now->max_docs_per_row, k = making->calendar->spec.fixed.group;
    uint64_t cost = (uint64_t)deal->cost.b * (deal->cost.k + L) * L; /* < 2^6 · 2^25 · 2^24 */
    if (L % now->align != 0)
        return rp_fail(making->error, -RP_E_CONFIG, "choose seq_len as a multiple of align",
                       "row %" PRIu64 ": seq_len: expected a multiple of align %" PRIu32
                       ", found %" PRIu64,
                       now->from, now->align, L);
    if ((D < k || D > L) && !(D == 0 && rp_calendar_is_begun(making->calendar, now->from)))
        return rp_fail(making->error, -RP_E_CONFIG, "leave it out: it has a default",
                       "row %" PRIu64 ": max_docs_per_row: expected group %" PRIu64
                       " to seq_len %" PRIu64 ", found %" PRIu64,
                       now->from, k, L, D);
    if (deal->window > 0 && !rp_mul_u64(cost, deal->step, &cost))
        cost = UINT64_MAX;
    if (deal->window > 0 && cost >= RP_MAX_ROWS)
        return rp_fail(making->error, -RP_E_CONFIG, "deal smaller steps, or lower b or K",
                       "row %" PRIu64 ": deal: the cost of a step of %" PRIu32 " rows of %" PRIu64
                       " tokens may be 2^63 or more",
                       now->from, deal->step, L);
    return 0;
}

/* The index must still have the documents that a source had at a begun row. */
static int check_count(const struct rp_calendar_making *making, uint32_t number, uint64_t documents,
                       uint64_t row)
{
    const struct rp_stream_source *source = rp_calendar_source(making->calendar, number);
    if (source && (documents > source->documents || documents == 0 ||
                   documents % making->calendar->spec.fixed.group != 0))
        return rp_fail(making->error, -RP_E_CONFIG,
                       "restore the documents: a stream can use more, but never fewer",
                       "source \"%s\": expected the %" PRIu64 " documents that the stream has at "
                       "row %" PRIu64 ", found %" PRIu64 " in its index",
                       source->name, documents, row, source->documents);
    return 0;
}

/* Percent of an index that has grown are other documents; the recorded ones can be named. */
static int check_range(const struct rp_calendar_making *making,
                       const struct rp_calendar_entry *entry)
{
    const struct rp_stream_source *source = rp_calendar_source(making->calendar, entry->number);
    char end[24] = "", hint[96];
    if (!source || (source->range_first == entry->value && source->range_end == entry->end))
        return 0;
    if (source->range_end != RP_NO_ROW)
        snprintf(end, sizeof end, "%" PRIu64, source->range_end);
    snprintf(hint, sizeof hint, "set `documents: %" PRIu64 "-%" PRIu64 "` for the source",
             entry->value, entry->end);
    return rp_fail(making->error, -RP_E_CONFIG, hint,
                   "source \"%s\": documents: expected %" PRIu64 "-%" PRIu64
                   ", as when it joined, found %" PRIu64 "-%s",
                   source->name, entry->value, entry->end, source->range_first, end);
}

/* A begun record must suit the index and the config as they are now. */
static int check_begun(const struct rp_calendar_making *making,
                       const struct rp_calendar_record *record)
{
    int code = 0;
    for (uint32_t i = 0; code == 0 && i < record->range_count; i++)
        code = check_range(making, &record->ranges[i]);
    for (uint32_t i = 0; code == 0 && i < record->document_count; i++)
        code = check_count(making, record->documents[i].number, record->documents[i].value,
                           record->from);
    return code;
}

static int add_boundary(struct rp_calendar_making *making, const struct rp_calendar_walk *walk)
{
    const uint32_t rebuilding = RP_SETS_SEQ_LEN | RP_SETS_ALIGN | RP_SETS_PACKING | RP_SETS_WINDOW |
                                RP_SETS_MAX_DOCS;
    struct rp_calendar *calendar = making->calendar;
    const struct rp_stage_spec *stage = walk->stage, *weights = weighting(walk);
    struct rp_stage *now = &making->now;
    uint32_t joined = now->joined;
    now->from = walk->row;
    now->is_declared = stage;
    now->has_record = false;
    if (stage)
        set_stage(making, stage);
    int code = rp_calendar_set_limits(making, walk);
    if (code == 0 && weights)
        code = set_weights(making, weights, NULL, weights == stage ? stage->ramp : 0);
    else if (code == 0 && walk->begun && (walk->begun->sets & RP_SETS_WEIGHTS))
        code = set_weights(making, NULL, walk->begun->weights, 0);
    struct rp_calendar_record made = {0};
    const struct rp_calendar_record *record = walk->begun;
    bool is_made = false;
    if (code == 0 && record)
        code = check_begun(making, record);
    if (code == 0 && !walk->is_begun)
        code = rp_calendar_make_record(making, walk, joined, &made, &is_made);
    if (is_made) {
        if (calendar->record_count == RP_STAGES_MAX)
            return rp_fail(making->error, -RP_E_CONFIG, "begin a new stream",
                           "row %" PRIu64 ": a stream has at most %u records", walk->row,
                           RP_STAGES_MAX);
        record = &calendar->records[calendar->record_count++];
        calendar->records[calendar->record_count - 1] = made;
    }
    if (code == 0 && record)
        code = set_record(making, record, joined);
    uint32_t sets = (stage ? stage->sets : 0) | (record ? record->sets : 0);
    now->rebuilds = walk->row > 0 && (sets & rebuilding);
    if (code == 0)
        code = check_now(making);
    if (code == 0 && (stage || record))
        calendar->in_force[calendar->stage_count++] = *now;
    return code;
}

/* ---- values of a token ----------------------------------------------------------------------- */

static int refuse_unknown(struct rp_calendar_making *making, const char *why)
{
    return rp_fail(making->error, -RP_E_CONFIG,
                   "continue from a checkpoint, which has the records of its stream",
                   "the records of the stream before row %" PRIu64 " are not known: %s",
                   making->calendar->next_row, why);
}

/* Values of a token may be forged. */
static int check_held(const struct rp_calendar_making *making, const struct rp_calendar_held *held)
{
    bool has_weight = false;
    int code = 0;
    for (uint32_t j = 0; code == 0 && j < making->position->known_count; j++) {
        has_weight = has_weight || held->weights[j] > 0;
        code = check_count(making, j, held->documents[j], making->calendar->next_row);
    }
    if (code == 0 && (!has_weight || held->max_docs_per_row == 0))
        code = rp_fail(making->error, -RP_E_CORRUPT, "continue from another checkpoint",
                       "the state has no weight above 0, or max_docs_per_row 0");
    if (code == 0 && held->deal.window > 0)
        code = rp_calendar_check_deal(&held->deal, making->error);
    return code;
}

/* Begun stages that were edited may name sources that had not joined, whose number of documents no
 * record has. Chain A refuses such a start later, by its stages; until then the index's number
 * stands in. */
static int take_documents_of_index(struct rp_calendar_making *making)
{
    const struct rp_calendar *calendar = making->calendar;
    for (uint32_t j = making->position->known_count; j < making->now.joined; j++) {
        const struct rp_stream_source *source = rp_calendar_source(calendar, j);
        if (making->documents[j] != RP_NO_ROW)
            continue;
        if (!source || !making->position->held)
            return refuse_unknown(making, calendar->names[j]);
        making->documents[j] = source->documents;
    }
    return 0;
}

/* Records are missing: the values of the token are in force. */
static int hold(struct rp_calendar_making *making, const struct rp_calendar_held *held)
{
    struct rp_calendar *calendar = making->calendar;
    struct rp_stage *last = &calendar->in_force[calendar->stage_count - 1], *now = &making->now;
    struct rp_calendar_mix *mix = &calendar->mixes[calendar->mix_count - 1];
    uint32_t known = making->position->known_count;
    int code = check_held(making, held);
    if (code < 0)
        return code;
    /* the first row of a deal window that may be planned again */
    uint64_t first = calendar->next_row - rp_min_u64(calendar->next_row, held->deal.window);
    if (rp_max_u64(first, mix->from) - mix->from < mix->ramp)
        return refuse_unknown(making, "a ramp needs the weights before it");
    size_t most = calendar->count;
    uint64_t *documents = rp_calendar_take(calendar, most, sizeof *documents, making->error);
    uint32_t *weights = rp_calendar_take(calendar, most, sizeof *weights, making->error);
    if (!documents || !weights)
        return -ENOMEM;
    memset(documents, 0xff, most * sizeof *documents);
    memcpy(documents, held->documents, known * sizeof *documents);
    memcpy(weights, held->weights, known * sizeof *weights);
    now->documents = making->documents = documents;
    now->weights = weights;
    now->max_docs_per_row = held->max_docs_per_row;
    now->deal = held->deal;
    now->joined = (uint32_t)rp_max_u64(now->joined, known);
    code = take_documents_of_index(making);
    if (code < 0)
        return code;
    *last = *now;
    if (memcmp(mix->weights, weights, most * sizeof *weights) != 0) {
        if (mix->from < last->from)
            mix = &calendar->mixes[calendar->mix_count++];
        *mix = (struct rp_calendar_mix){.from = last->from, .weights = weights};
    }
    calendar->lacks_records = true;
    calendar->held_chain = held->records;
    return check_now(making);
}

/* Called once, after the last boundary that is begun: if records are missing, the values of the
 * token are in force from here on. */
static int end_begun(struct rp_calendar_making *making)
{
    struct rp_calendar *calendar = making->calendar;
    const struct rp_calendar_held *held = making->position->held;
    uint32_t count = calendar->begun_count;
    making->is_held = true;
    if (!calendar->is_resumed)
        return 0;
    int code = rp_calendar_link_records(calendar, 0, count, making->error);
    if (code < 0)
        return code;
    struct rp_hash128 chain = count ? calendar->record_links[count - 1].chain : rp_hash128("", 0);
    if (held && !rp_hash128_equal(chain, held->records))
        return hold(making, held);
    if (making->now.max_docs_per_row == 0)
        return refuse_unknown(making, "max_docs_per_row");
    for (uint32_t j = 0; j < making->position->known_count; j++)
        if (j >= making->now.joined || making->documents[j] == RP_NO_ROW)
            return refuse_unknown(making, calendar->names[j]);
    return take_documents_of_index(making);
}

/* ---- all boundaries -------------------------------------------------------------------------- */

static int begin(struct rp_calendar_making *making)
{
    struct rp_calendar *calendar = making->calendar;
    struct rp_error *error = making->error;
    size_t most = (size_t)calendar->begun_count + calendar->spec.stage_count +
                  calendar->spec.record_count,
           count = calendar->count;
    calendar->in_force = rp_calendar_take(calendar, most, sizeof *calendar->in_force, error);
    calendar->mixes = rp_calendar_take(calendar, most + 1, sizeof *calendar->mixes, error);
    calendar->record_links = rp_calendar_take(calendar, most, sizeof *calendar->record_links,
                                              error);
    making->limits = rp_calendar_take(calendar, count, sizeof *making->limits, error);
    making->documents = rp_calendar_take(calendar, count, sizeof *making->documents, error);
    making->wanted = rp_calloc(count, sizeof *making->wanted);
    if (!calendar->in_force || !calendar->mixes || !calendar->record_links || !making->limits ||
        !making->documents)
        return -ENOMEM;
    if (!making->wanted)
        return rp_fail(error, -ENOMEM, NULL, "no memory for the calendar of a stream");
    memset(making->documents, 0xff, count * sizeof *making->documents);
    for (uint32_t j = 0; j < calendar->count; j++) {
        const struct rp_stream_source *source = rp_calendar_source(calendar, j);
        making->limits[j] = source ? source->limits : (struct rp_limits){.max_epochs = 1};
    }
    making->now = (struct rp_stage){.limits = making->limits,
                                    .limits_of_config = making->limits,
                                    .documents = making->documents};
    calendar->record_count = calendar->begun_count;
    return 0;
}

/* A source that left the config must not be needed any more (section 9.3). */
static int check_left(const struct rp_calendar_making *making)
{
    const struct rp_calendar *calendar = making->calendar;
    if (!calendar->is_resumed)
        return 0;
    uint64_t last = calendar->next_row ? calendar->next_row - 1 : 0;
    const uint32_t *weights = rp_calendar_at(calendar, last)->weights;
    for (uint32_t j = 0; j < making->position->known_count; j++)
        if (!rp_calendar_source(calendar, j) && weights[j] > 0)
            return rp_fail(making->error, -RP_E_CONFIG,
                           "keep the source in the config, and give it the weight 0 at a stage",
                           "source \"%s\" has left the config, but its weight at row %" PRIu64
                           " is above 0",
                           calendar->names[j], last);
    return 0;
}

int rp_calendar_make_stages(struct rp_calendar_making *making)
{
    struct rp_calendar *calendar = making->calendar;
    int code = begin(making);
    for (struct rp_calendar_walk walk = {0}; code == 0 && step(calendar, &walk);) {
        if (!walk.is_begun && !making->is_held)
            code = end_begun(making);
        if (code == 0)
            code = add_boundary(making, &walk);
    }
    if (code == 0 && !making->is_held)
        code = end_begun(making);
    return code < 0 ? code : check_left(making);
}
