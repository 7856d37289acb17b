/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of stages and records, the two chains over them, and the history of a state token
 * (STREAM2.md sections 9.5, 12.2). Chains are made with the calendar, so that a token allocates
 * nothing. A text that fits into no history is not kept. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "plan/v2/calendar_parts.h"
#include "plan/v2/deal.h"

/* ---- lines ----------------------------------------------------------------------------------- */

static const char *field_name(struct rp_calendar_lines *lines, const char *field)
{
    snprintf(lines->name, sizeof lines->name, "%s%s", lines->prefix, field);
    return lines->name;
}

static const char *source_field(struct rp_calendar_lines *lines, const char *field, uint32_t number)
{
    snprintf(lines->name, sizeof lines->name, "%s%s[%04" PRIu32 "]", lines->prefix, field, number);
    return lines->name;
}

#define ADD(lines, field, ...)                                                                     \
    rp_record_add((lines)->writer, '=', field_name(lines, field), __VA_ARGS__)
#define ADD_OF(lines, field, number, ...)                                                          \
    rp_record_add((lines)->writer, '=', source_field(lines, field, number), __VA_ARGS__)

struct rp_deal_text rp_calendar_deal_text(const struct rp_deal *deal)
{
    struct rp_deal_text out = {"off"};
    if (deal->window > 0)
        snprintf(out.text, sizeof out.text,
                 "%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%s,%" PRIu32 ",%" PRIu32 ",%u,%u",
                 deal->window, deal->step, deal->tier, deal->bundle,
                 rp_deal_order_name(deal->order), deal->cost.k, deal->cost.w, deal->cost.h,
                 deal->cost.b);
    return out;
}

static void add_deal(struct rp_calendar_lines *lines, const struct rp_deal *deal)
{
    ADD(lines, "deal", "%s", rp_calendar_deal_text(deal).text);
}

static void add_weights(struct rp_calendar_lines *lines, const struct rp_stage_spec *stage)
{
    uint32_t divisor = rp_calendar_divisor(lines->calendar, stage);
    for (uint32_t j = 0; j < lines->calendar->count; j++) {
        uint32_t weight = rp_calendar_weight(lines->calendar, stage, j);
        if (weight > 0)
            ADD_OF(lines, "weight", j, "%" PRIu32, weight / divisor);
    }
}

/* By number, which is not the order of the list. */
static void add_without(struct rp_calendar_lines *lines, const struct rp_stage_spec *stage)
{
    for (uint32_t j = 0; stage->without_count > 0 && j < lines->calendar->count; j++)
        for (uint32_t i = 0; i < stage->without_count; i++) {
            const struct rp_without *without = &stage->without[i];
            if (lines->calendar->number_of[without->source] == j)
                ADD_OF(lines, "without", j, "%" PRIu64 ":%016" PRIx64, without->count,
                       rp_hash64(without->documents, without->count * sizeof(uint64_t)));
        }
}

static void add_limits(struct rp_calendar_lines *lines, const struct rp_limits *limits,
                       const uint8_t *sets)
{
    uint32_t count = limits ? lines->calendar->count : 0;
    for (uint32_t j = 0; j < count; j++)
        if (sets[j] & 1)
            ADD_OF(lines, "max_epochs", j, "%" PRIu32, limits[j].max_epochs);
    for (uint32_t j = 0; j < count; j++)
        if (sets[j] & 2)
            ADD_OF(lines, "max_tokens", j, "%" PRIu64, limits[j].max_tokens);
    for (uint32_t j = 0; j < count; j++)
        if (sets[j] & 4)
            ADD_OF(lines, "on_exhausted", j, "%s",
                   rp_calendar_exhausted_word(limits[j].on_exhausted));
}

void rp_calendar_add_stage(struct rp_calendar_lines *lines, const struct rp_stage_spec *stage,
                           const struct rp_limits *limits, const uint8_t *limit_sets)
{
    uint32_t sets = stage->sets;
    if (sets & RP_SETS_ALIGN)
        ADD(lines, "align", "%" PRIu32, stage->align);
    if (sets & RP_SETS_DEAL)
        add_deal(lines, &stage->deal);
    if (sets & RP_SETS_ROW_GAP)
        ADD(lines, "fill", "%s", rp_plan_row_gap_name(stage->row_gap));
    ADD(lines, "from", "%" PRIu64, stage->from);
    if (sets & RP_SETS_MAX_DOCS)
        ADD(lines, "max_docs_per_row", "%" PRIu32, stage->max_docs_per_row);
    add_limits(lines, limits, limit_sets);
    if (sets & RP_SETS_PACKING)
        ADD(lines, "packing", "%s", rp_packing_name(stage->packing));
    if (sets & RP_SETS_WEIGHTS)
        ADD(lines, "ramp", "%" PRIu64, stage->ramp);
    if (sets & RP_SETS_SEQ_LEN)
        ADD(lines, "seq_len", "%" PRIu32, stage->seq_len);
    if (sets & RP_SETS_SPREAD)
        ADD(lines, "spread", "%" PRIu32, stage->spread);
    if (sets & RP_SETS_WEIGHTS)
        add_weights(lines, stage);
    if (sets & RP_SETS_WINDOW)
        ADD(lines, "window", "%" PRIu32, stage->window);
    add_without(lines, stage);
}

void rp_calendar_add_record(struct rp_calendar_lines *lines,
                            const struct rp_calendar_record *record)
{
    if (record->sets & RP_SETS_DEAL)
        add_deal(lines, &record->deal);
    for (uint32_t i = 0; i < record->document_count; i++)
        ADD_OF(lines, "documents", record->documents[i].number, "%" PRIu64,
               record->documents[i].value);
    ADD(lines, "from", "%" PRIu64, record->from);
    for (uint32_t i = 0; i < record->limits_count; i++) {
        const struct rp_limits *limits = &record->limits[i].limits;
        ADD_OF(lines, "limits", record->limits[i].number, "%" PRIu32 ",%" PRIu64 ",%s",
               limits->max_epochs, limits->max_tokens,
               rp_calendar_exhausted_word(limits->on_exhausted));
    }
    if (record->sets & RP_SETS_MAX_DOCS)
        ADD(lines, "max_docs_per_row", "%" PRIu32, record->max_docs_per_row);
    for (uint32_t i = 0; i < record->range_count; i++)
        ADD_OF(lines, "range", record->ranges[i].number, "%" PRIu64 "-%" PRIu64,
               record->ranges[i].value, record->ranges[i].end);
    for (uint32_t j = 0; (record->sets & RP_SETS_WEIGHTS) && j < lines->calendar->count; j++)
        if (record->weights[j] > 0)
            ADD_OF(lines, "weight", j, "%" PRIu32, record->weights[j]);
}

/* ---- chains ---------------------------------------------------------------------------------- */

/* Add the text in the writer to a link, which has the chain before it, and make room for the next
 * text. `word`: what begins its entry in a history. */
static int set_link(struct rp_calendar *calendar, struct rp_calendar_link *link, const char *word,
                    struct rp_record_writer *writer, struct rp_error *error)
{
    if (writer->out_of_memory)
        return rp_fail(error, -ENOMEM, NULL, "no memory for the calendar of a stream");
    struct rp_hasher hasher;
    uint8_t chain[16];
    rp_hash128_store(chain, link->chain);
    rp_hasher_begin(&hasher);
    rp_hasher_add(&hasher, chain, sizeof chain);
    rp_hasher_add(&hasher, writer->text, writer->bytes);
    link->chain = rp_hasher_finish(&hasher);
    char head[32];
    size_t bytes = (size_t)snprintf(head, sizeof head, "%s %" PRIu64 "\n", word, link->from);
    if (bytes + writer->bytes <= RP_HISTORY_MAX) {
        char *entry = rp_calendar_take(calendar, bytes + writer->bytes, 1, error);
        if (!entry)
            return -ENOMEM;
        memcpy(entry, head, bytes);
        memcpy(entry + bytes, writer->text, writer->bytes);
        link->entry = entry;
        link->bytes = (uint32_t)(bytes + writer->bytes);
    }
    writer->bytes = writer->last = 0;
    return 0;
}

/* Records, or stages, from `begin` to `end`; `before` is the chain before them. */
static int link_all(struct rp_calendar *calendar, bool are_records, uint32_t begin, uint32_t end,
                    struct rp_hash128 before, struct rp_error *error)
{
    struct rp_record_writer writer = {0};
    struct rp_calendar_lines lines = {calendar, &writer, "", {0}};
    struct rp_calendar_link *links = are_records ? calendar->record_links : calendar->stage_links;
    int code = 0;
    for (uint32_t i = begin; code == 0 && i < end; i++) {
        uint64_t from = are_records ? calendar->records[i].from : calendar->stages[i].from;
        if (are_records)
            rp_calendar_add_record(&lines, &calendar->records[i]);
        else
            rp_calendar_add_stage(&lines, &calendar->stages[i], NULL, NULL);
        links[i] = (struct rp_calendar_link){.from = from, .chain = before};
        code = set_link(calendar, &links[i], are_records ? "record" : "stage", &writer, error);
        before = links[i].chain;
    }
    free(writer.text);
    return code;
}

int rp_calendar_link_records(struct rp_calendar *calendar, uint32_t begin, uint32_t end,
                             struct rp_error *error)
{
    struct rp_hash128 before = begin > 0 ? calendar->record_links[begin - 1].chain
                                         : rp_hash128("", 0);
    if (calendar->lacks_records)
        before = calendar->held_chain;
    return link_all(calendar, true, begin, end, before, error);
}

int rp_calendar_link_stages(struct rp_calendar *calendar, struct rp_error *error)
{
    uint32_t count = calendar->spec.stage_count;
    calendar->stage_links = rp_calendar_take(calendar, count, sizeof *calendar->stage_links, error);
    return calendar->stage_links ? link_all(calendar, false, 0, count, rp_hash128("", 0), error)
                                 : -ENOMEM;
}

/* The number of links that are begun at `next_row`; one of row 0 always is. */
static uint32_t begun_of(const struct rp_calendar_link *links, uint32_t count, uint64_t next_row)
{
    return RP_COUNT_UP_TO(links, count, from, next_row ? next_row - 1 : 0);
}

struct rp_calendar_chains rp_calendar_chains(const struct rp_calendar *calendar, uint64_t next_row)
{
    uint32_t stages = begun_of(calendar->stage_links, calendar->spec.stage_count, next_row);
    uint32_t records = begun_of(calendar->record_links, calendar->record_count, next_row);
    struct rp_calendar_chains chains = {
        .declared = calendar->stage_links[stages - 1].chain, /* stage 0 is always begun */
        .records = records ? calendar->record_links[records - 1].chain : rp_hash128("", 0),
        .declared_count = stages,
    };
    if (calendar->lacks_records && records <= calendar->begun_count)
        chains.records = calendar->held_chain;
    return chains;
}

/* ---- history --------------------------------------------------------------------------------- */

uint32_t rp_calendar_history(const struct rp_calendar *calendar, uint64_t next_row, uint32_t flags,
                             char *text)
{
    uint32_t stages = begun_of(calendar->stage_links, calendar->spec.stage_count, next_row);
    uint32_t records = begun_of(calendar->record_links, calendar->record_count, next_row);
    uint64_t room = RP_HISTORY_MAX - rp_min_u64(RP_HISTORY_MAX, 8ull * flags);
    char entries[RP_HISTORY_MAX], *end = entries + room, *begin = end;
    while (stages > 0) { /* stage 0 comes last: it begins at row 0 */
        const struct rp_calendar_link *link = &calendar->stage_links[stages - 1];
        bool is_record = records > 0 && calendar->record_links[records - 1].from >= link->from;
        if (is_record)
            link = &calendar->record_links[records - 1];
        if (!link->entry || (size_t)(begin - entries) < link->bytes)
            break;
        begin -= link->bytes;
        memcpy(begin, link->entry, link->bytes);
        records -= is_record;
        stages -= !is_record;
    }
    uint32_t bytes = (uint32_t)(end - begin);
    memset(text, 0, rp_align_up(bytes, 8));
    memcpy(text, begin, bytes);
    return (uint32_t)rp_align_up(bytes, 8);
}
