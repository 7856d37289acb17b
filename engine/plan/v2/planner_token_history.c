/* SPDX-License-Identifier: Apache-2.0 */
/* planner_token_history.c — the newest stages and records of a token as text (STREAM2.md section
 * 12.2): its records for a calendar, and the stage that differs from the config's. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/contract.h"
#include "base/mem.h"
#include "plan/v2/planner_token_format.h"

/* An entry of a history: `stage ROW` or `record ROW`, then its lines. No text is NUL-terminated. */
struct entry {
    bool is_record;
    uint64_t from;
    const char *lines, *end;
};

static const char *end_of_line(const char *at)
{
    return at + strcspn(at, "\n") + (at[strcspn(at, "\n")] == '\n');
}

static bool is_head(const char *at)
{
    return strncmp(at, "stage ", 6) == 0 || strncmp(at, "record ", 7) == 0;
}

/* The next entry; false at the end. Lines before the first head are skipped. */
static bool next_entry(const char **at, struct entry *entry)
{
    while (**at && !is_head(*at))
        *at = end_of_line(*at);
    if (!**at)
        return false;
    entry->is_record = **at == 'r';
    entry->from = strtoull(*at + (entry->is_record ? 7 : 6), NULL, 10);
    entry->lines = *at = end_of_line(*at);
    while (**at && !is_head(*at))
        *at = end_of_line(*at);
    entry->end = *at;
    return true;
}

int rp_token2_history_records(const char *history, char **text_out, struct rp_error *error)
{
    enum { PREFIX_BYTES = sizeof "record[0000]." };
    size_t room = strlen(history) + 1;
    for (const char *at = history; *at; at++)
        room += *at == '\n' ? PREFIX_BYTES : 0;
    char *text = rp_calloc(room, 1), *out = text;
    *text_out = text;
    if (!text)
        return rp_fail(error, -ENOMEM, NULL, "no memory for the records of a state token");
    struct entry entry;
    for (unsigned number = 0; next_entry(&history, &entry);) {
        if (!entry.is_record)
            continue;
        for (const char *line = entry.lines, *next; line < entry.end; line = next) {
            next = end_of_line(line);
            int bytes = snprintf(out, room - (size_t)(out - text), "record[%04u].%.*s", number,
                                 (int)(next - line), line);
            out += bytes;
        }
        number++;
    }
    return 0;
}

bool rp_token2_history_excludes(const char *history, uint64_t row)
{
    struct entry entry = {.is_record = true, .from = row};
    while (next_entry(&history, &entry))
        ;
    return entry.from < row || !entry.is_record;
}

struct rp_token2_oldest rp_token2_history_oldest(const char *history, uint64_t next_row)
{
    struct entry entry = {.from = next_row};
    next_entry(&history, &entry);
    return (struct rp_token2_oldest){entry.from, entry.is_record};
}

uint32_t rp_token2_history_of(const struct rp_calendar *calendar, uint64_t next_row, uint32_t flags,
                              const struct rp_token2_oldest *oldest, char text[RP_HISTORY_MAX + 1])
{
    memset(text, 0, RP_HISTORY_MAX + 1);
    uint32_t whole = rp_calendar_history(calendar, next_row, flags, text);
    if (rp_calendar_knows_records(calendar))
        return whole;
    const char *at = text, *kept = text;
    for (struct entry entry; next_entry(&at, &entry);) {
        bool is_older = entry.from < oldest->from ||
                        (entry.from == oldest->from && oldest->is_record && !entry.is_record);
        if (!is_older)
            break;
        kept = at;
    }
    size_t bytes = strlen(kept);
    memmove(text, kept, bytes);
    memset(text + bytes, 0, RP_HISTORY_MAX - bytes);
    return (uint32_t)rp_align_up(bytes, 8);
}

/* ---- the stage that differs ------------------------------------------------------------------ */

#define STAGES_HINT "the run is unchanged; set the stages back: those that are begun never change"

/* A line NAME=VALUE. */
struct line {
    const char *name, *value;
    int name_bytes, value_bytes;
};

static struct line read_line(const char *at)
{
    int bytes = (int)strcspn(at, "\n"), name_bytes = (int)strcspn(at, "=\n");
    int skipped = name_bytes < bytes ? name_bytes + 1 : name_bytes;
    return (struct line){at, at + skipped, name_bytes, bytes - skipped};
}

static int compare_lines(const struct line *a, const struct line *b)
{
    int bytes = a->name_bytes < b->name_bytes ? a->name_bytes : b->name_bytes;
    int order = memcmp(a->name, b->name, (size_t)bytes);
    return order != 0 ? order : a->name_bytes - b->name_bytes;
}

/* Refuse the first line that only one of both has, or with another value; 0 without one. */
static int compare_stages(const struct rp_token2_resume *resume, const struct entry *had,
                          const struct entry *has)
{
    const char *a = had->lines, *b = has->lines;
    while (a < had->end || b < has->end) {
        struct line x = read_line(a), y = read_line(b);
        int order = a == had->end ? 1 : b == has->end ? -1 : compare_lines(&x, &y);
        bool equal = order == 0 && x.value_bytes == y.value_bytes &&
                     memcmp(x.value, y.value, (size_t)x.value_bytes) == 0;
        const struct line *line = order <= 0 ? &x : &y;
        char name[RP_HISTORY_MAX + 1];
        snprintf(name, sizeof name, "%.*s", line->name_bytes, line->name);
        if (!equal)
            return rp_fail(
                resume->error, -RP_E_MISMATCH,
                "the run is unchanged; set it back: a stage that is begun never changes. To "
                "change it from here on, add a stage",
                "%s of the stage from row %" PRIu64
                " differs: the state has %.*s, this run has %.*s",
                rp_contract_key(name), had->from, order <= 0 ? x.value_bytes : 4,
                order <= 0 ? x.value : "none", order >= 0 ? y.value_bytes : 4,
                order >= 0 ? y.value : "none");
        a = end_of_line(a);
        b = end_of_line(b);
    }
    return 0;
}

static bool find_stage(const char *history, uint64_t from, struct entry *entry)
{
    while (next_entry(&history, entry)) {
        if (!entry->is_record && entry->from == from)
            return true;
    }
    return false;
}

int rp_token2_match_rows(const struct rp_token2_resume *resume)
{
    const struct rp_stream_spec *spec = resume->spec;
    const struct rp_token2_header *header = &resume->token.header;
    const char *history = resume->token.history;
    uint32_t begun = 0;
    for (uint32_t i = 0; i < spec->stage_count; i++)
        begun += spec->stages[i].from == 0 || spec->stages[i].from < header->next_row;
    if (begun != header->stages_begun)
        return rp_fail(resume->error, -RP_E_MISMATCH, STAGES_HINT,
                       "the number of stages before row %" PRIu64 " differs: the state has %" PRIu32
                       ", this run has %" PRIu32,
                       header->next_row, header->stages_begun, begun);
    for (struct entry had; next_entry(&history, &had);) {
        uint32_t i = 0;
        while (i < begun && (had.is_record || spec->stages[i].from != had.from))
            i++;
        if (!had.is_record && i == begun)
            return rp_fail(resume->error, -RP_E_MISMATCH, STAGES_HINT,
                           "the stages differ: the state has one from row %" PRIu64
                           ", this run has none",
                           had.from);
    }
    return 0;
}

int rp_token2_match_stages(const struct rp_token2_resume *resume,
                           const struct rp_calendar *calendar)
{
    char text[RP_HISTORY_MAX + 1] = "";
    const char *history = resume->token.history;
    uint32_t bytes = rp_calendar_history(calendar, resume->token.header.next_row,
                                         rp_token2_flags(&resume->token), text);
    text[bytes] = 0;
    int code = 0;
    struct entry had, has;
    uint64_t oldest = resume->token.header.next_row;
    while (code == 0 && next_entry(&history, &had)) {
        oldest = rp_min_u64(oldest, had.from);
        if (had.is_record)
            continue;
        if (find_stage(text, had.from, &has))
            code = compare_stages(resume, &had, &has);
    }
    if (code < 0)
        return code;
    return rp_fail(
        resume->error, -RP_E_MISMATCH,
        "the run is unchanged; set the stages back as they were in this run's config, or "
        "continue with the checkpoint, whose contract lists them",
        "the stages differ: one that begins at row %" PRIu64 " or before is not as it was", oldest);
}
