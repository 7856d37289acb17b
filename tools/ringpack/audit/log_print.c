/* SPDX-License-Identifier: Apache-2.0 */
/* log_print.c — a run journal as one page: a line for each entry, the consequences of one entry for
 * the next, and the problems.
 *
 * A remark has the meaning of an entry for the data. A problem is a place where the file differs
 * from the written one, or where the rows of the run differ from its earlier rows. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "audit/log.h"
#include "cmd.h"

#define ROW_NONE (-1)
#define TEXT_BYTES 2048

struct page {
    const struct rp_audit_log *log;
    json_t *remarks, *problems;             /* the whole log's */
    const struct rp_audit_log_entry *start; /* the last start */
    const struct rp_audit_log_entry *stop;  /* the stop that follows it, or NULL */
    bool was_rewound;                       /* since that stop */
    bool prints;
};

static void add(struct page *page, json_t *list, size_t entry, size_t offset, const char *format,
                ...) __attribute__((format(printf, 5, 6)));

static void add(struct page *page, json_t *list, size_t entry, size_t offset, const char *format,
                ...)
{
    char text[TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (page->prints)
        printf("      %s%s\n", list == page->problems ? "PROBLEM: " : "", text);
    json_array_append_new(list, json_pack("{s:I, s:I, s:o}", "entry", (json_int_t)entry, "offset",
                                          (json_int_t)offset, "what", rp_cmd_json_text(text)));
}

static const char *shown(const struct rp_audit_log_entry *entry, const char *key)
{
    const char *text = rp_audit_log_text(entry, key);
    return text ? text : "?";
}

/* ---- one line -------------------------------------------------------------------------------- */

static void print_start(const struct rp_audit_log_entry *e)
{
    char row[RP_CMD_TEXT_BYTES];
    rp_cmd_count_text((uint64_t)rp_audit_log_number(e, "row", 0), row);
    printf("started at row %s from %s (resume: %s): ringpack %s, ranks %" JSON_INTEGER_FORMAT
           " to %" JSON_INTEGER_FORMAT " of %" JSON_INTEGER_FORMAT ", %" JSON_INTEGER_FORMAT
           " rows each, config %.8s",
           row, shown(e, "from"), shown(e, "policy"), shown(e, "version"),
           rp_audit_log_number(e, "rank_first", 0),
           rp_audit_log_number(e, "rank_first", 0) + rp_audit_log_number(e, "rank_count", 1) - 1,
           rp_audit_log_number(e, "dp_world_size", 0), rp_audit_log_number(e, "batch_size", 0),
           shown(e, "config"));
}

/* The last save failed: the run continues from a row before its last one. */
static void print_lost_save(const struct rp_audit_log_entry *e, json_int_t saved)
{
    char row[RP_CMD_TEXT_BYTES];
    const char *lost = shown(e, "not_saved"), *reason = rp_audit_log_text(e, "reason");
    rp_cmd_count_text((uint64_t)rp_audit_log_number(e, "consumed_row", 0), row);
    printf(" at row %s; not saved: %s", row, lost);
    if (reason && strcmp(reason, lost))
        printf("; ended by: %s", reason);
    if (saved == ROW_NONE)
        printf("; no checkpoint is known");
    else
        printf("; newest checkpoint %s, row %s", shown(e, "checkpoint"),
               rp_cmd_count_text((uint64_t)saved, row));
}

static void print_stop(const struct rp_audit_log_entry *e)
{
    char row[RP_CMD_TEXT_BYTES];
    json_int_t saved = rp_audit_log_number(e, "row", ROW_NONE);
    printf("stopped (%s)", shown(e, "cause"));
    if (rp_audit_log_text(e, "not_saved")) {
        print_lost_save(e, saved);
        return;
    }
    if (saved == ROW_NONE)
        printf(", and no checkpoint of this position is known");
    else
        printf(" at row %s, saved as %s", rp_cmd_count_text((uint64_t)saved, row),
               shown(e, "checkpoint"));
    if (rp_audit_log_text(e, "reason"))
        printf(": %s", shown(e, "reason"));
}

static void print_other(const struct rp_audit_log_entry *e)
{
    char row[RP_CMD_TEXT_BYTES];
    rp_cmd_count_text((uint64_t)rp_audit_log_number(e, "row", 0), row);
    if (rp_audit_log_is(e, "rolled_back"))
        printf("trainers attached from a state of row %s", row);
    else if (rp_audit_log_is(e, "weights"))
        printf("weights from row %s on: %s", row, shown(e, "weights"));
    else if (rp_audit_log_is(e, "documents"))
        printf("documents from row %s on: %s", row, shown(e, "documents"));
    else if (rp_audit_log_is(e, "save_failed"))
        printf("a save failed: %s", shown(e, "reason"));
    else if (rp_audit_log_is(e, "rewound"))
        printf("rewound by an operator to row %s, %s", row, shown(e, "checkpoint"));
    else if (rp_audit_log_is(e, "exported"))
        printf("the state of row %s was exported to %s", row, shown(e, "output"));
    else if (rp_audit_log_is(e, "imported"))
        printf("the state of row %s was imported from %s to %s", row, shown(e, "input"),
               shown(e, "output"));
    else
        printf("%s", shown(e, "event"));
}

static void print_entry(const struct rp_audit_log_entry *e)
{
    printf("%5" PRIu64 " %.10s %.8s  ", e->chain.number, shown(e, "time"),
           strlen(shown(e, "time")) > 11 ? shown(e, "time") + 11 : "");
    if (rp_audit_log_is(e, "started"))
        print_start(e);
    else if (rp_audit_log_is(e, "stopped"))
        print_stop(e);
    else
        print_other(e);
    putchar('\n');
}

/* ---- consequences ---------------------------------------------------------------------------- */

/* Settings of a start that differ from the start before. */
static void compare_starts(struct page *page, size_t index, const struct rp_audit_log_entry *e)
{
    static const char *const keys[] = {"config",     "stream",       "run",
                                       "version",    "host",         "rank_first",
                                       "rank_count", "batch_size",   "global_batch_size",
                                       "seq_len",    "dp_world_size"};
    enum { HASHES = 2 }; /* number of hashes here: their first digits are enough */
    char text[TEXT_BYTES] = "";
    size_t used = 0;
    for (size_t i = 0; page->start && i < sizeof keys / sizeof keys[0]; i++) {
        const char *was = rp_audit_log_text(page->start, keys[i]),
                   *is = rp_audit_log_text(e, keys[i]);
        json_int_t had = rp_audit_log_number(page->start, keys[i], 0),
                   has = rp_audit_log_number(e, keys[i], 0);
        const char *comma = used ? ", " : "";
        int more = 0, digits = i < HASHES ? 8 : 65;
        if (was && is && strcmp(was, is) != 0)
            more = snprintf(text + used, sizeof text - used, "%s%s %.*s to %.*s", comma, keys[i],
                            digits, was, digits, is);
        else if (!was && !is && had != has)
            more = snprintf(text + used, sizeof text - used,
                            "%s%s %" JSON_INTEGER_FORMAT " to %" JSON_INTEGER_FORMAT, comma,
                            keys[i], had, has);
        used += (size_t)more;
    }
    if (used)
        add(page, page->remarks, index, e->chain.offset, "changed: %s", text);
}

/* "row 7 is" or "rows 7 to 9 are": those from `first` to before `end`. */
static const char *rows_text(json_int_t first, json_int_t end, char text[3 * RP_CMD_TEXT_BYTES])
{
    char one[RP_CMD_TEXT_BYTES], last[RP_CMD_TEXT_BYTES];
    rp_cmd_count_text((uint64_t)first, one);
    rp_cmd_count_text((uint64_t)end - 1, last);
    bool is_one = end - first == 1;
    snprintf(text, 3 * RP_CMD_TEXT_BYTES, is_one ? "row %s is" : "rows %s to %s are", one, last);
    return text;
}

/* Does the start continue the state before it? */
static void compare_rows(struct page *page, size_t index, const struct rp_audit_log_entry *e)
{
    const struct rp_audit_log_entry *stop = page->stop;
    json_int_t row = rp_audit_log_number(e, "row", 0),
               was = rp_audit_log_number(stop, "row", ROW_NONE);
    size_t at = e->chain.offset;
    char rows[3 * RP_CMD_TEXT_BYTES];
    if (was == ROW_NONE)
        return;
    const char *had = rp_audit_log_text(stop, "plan_digest"),
               *has = rp_audit_log_text(e, "plan_digest");
    if (row < was)
        add(page, page->remarks, index, at, "it begins before the stop: %s given again%s",
            rows_text(row, was, rows), page->was_rewound ? ", as the rewind asked for" : "");
    else if (row > was)
        add(page, page->remarks, index, at, "it begins after the stop: %s left out",
            rows_text(was, row, rows));
    else if (had && has && strcmp(had, has) != 0)
        add(page, page->problems, index, at,
            "row %" JSON_INTEGER_FORMAT " has the plan digest %s, and had %s at the stop: the rows "
            "before it are not the same",
            row, has, had);
}

static void follow_start(struct page *page, size_t index, const struct rp_audit_log_entry *e)
{
    size_t at = e->chain.offset;
    if (strcmp(shown(e, "before"), "killed") == 0)
        add(page, page->remarks, index, at,
            "the engine before it was killed, or could not write its end");
    compare_starts(page, index, e);
    if (page->stop)
        compare_rows(page, index, e);
    if (json_is_true(json_object_get(e->value, "reweighted")))
        add(page, page->remarks, index, at, "from this row on with other weights than before");
    if (rp_audit_log_text(e, "damaged"))
        add(page, page->remarks, index, at, "%s, which the stop had saved, was damaged",
            shown(e, "damaged"));
    if (rp_audit_log_text(e, "missing") && !page->was_rewound)
        add(page, page->remarks, index, at,
            "%s, which the stop had saved, is not there any more: removed, moved or renamed by "
            "hand, or another directory",
            shown(e, "missing"));
    json_int_t set_aside = rp_audit_log_number(e, "set_aside", 0);
    if (set_aside > 0)
        add(page, page->remarks, index, at,
            "%" JSON_INTEGER_FORMAT " checkpoints that were here were set aside", set_aside);
    page->start = e;
    page->stop = NULL;
    page->was_rewound = false;
}

static void check_link(struct page *page, size_t index, const struct rp_audit_log_entry *e)
{
    const struct rp_chain_entry *chain = &e->chain;
    uint64_t before = index > 0 ? page->log->entries[index - 1].chain.number : 0;
    if (chain->link == RP_CHAIN_SKIPPED)
        add(page, page->remarks, index, chain->offset,
            "%zu bytes before it are a part of an entry that a kill or a power cut ended",
            chain->skipped);
    if (chain->link != RP_CHAIN_BROKEN)
        return;
    if (chain->number > before + 1)
        add(page, page->problems, index, chain->offset,
            "the chain is broken: entries %" PRIu64 " to %" PRIu64 " are missing or were changed",
            before + 1, chain->number - 1);
    else
        add(page, page->problems, index, chain->offset,
            "the chain is broken: entry %" PRIu64 " does not follow entry %" PRIu64, chain->number,
            before);
}

static void follow(struct page *page, size_t index)
{
    const struct rp_audit_log_entry *e = &page->log->entries[index];
    if (page->prints)
        print_entry(e);
    check_link(page, index, e);
    json_int_t lost = rp_audit_log_number(e, "lost", 0);
    if (lost > 0)
        add(page, page->remarks, index, e->chain.offset,
            "%" JSON_INTEGER_FORMAT " entries before it were not written: the disk took too long",
            lost);
    if (rp_audit_log_is(e, "started"))
        follow_start(page, index, e);
    else if (rp_audit_log_is(e, "stopped"))
        page->stop = e;
    else if (rp_audit_log_is(e, "rewound"))
        page->was_rewound = true;
}

/* ---- the whole log --------------------------------------------------------------------------- */

static void check_end(struct page *page, const char *expected)
{
    const struct rp_audit_log *log = page->log;
    size_t left = log->bytes - log->end;
    if (left > 0)
        add(page, page->problems, log->count - 1, log->end,
            "%zu bytes after entry %" PRIu64 " are of no entry: a write that a kill or a power "
            "cut ended, or damage",
            left, log->entries[log->count - 1].chain.number);
    bool is_there = !expected;
    for (size_t i = 0; i < log->whole && !is_there; i++)
        is_there = strcmp(log->entries[i].chain.hash, expected) == 0;
    if (!is_there)
        add(page, page->problems, log->count - 1, log->end,
            "no entry has the hash %.64s: the entries from there on are gone, or this is another "
            "journal",
            expected);
}

static void print_json(struct page *page, bool is_whole)
{
    const struct rp_audit_log *log = page->log;
    json_t *entries = json_array();
    for (size_t i = 0; i < log->count; i++)
        json_array_append(entries, log->entries[i].value);
    rp_cmd_print_json(json_pack("{s:o, s:b, s:I, s:I, s:s, s:O, s:O, s:o}", "path",
                                rp_cmd_json_text(log->path), "whole", is_whole, "whole_entries",
                                (json_int_t)log->whole, "bytes", (json_int_t)log->bytes, "hash",
                                log->entries[log->count - 1].chain.hash, "problems", page->problems,
                                "remarks", page->remarks, "entries", entries));
}

int rp_audit_log_print(const struct rp_audit_log *log, const char *expected, bool json)
{
    struct page page = {
        .log = log, .remarks = json_array(), .problems = json_array(), .prints = !json};
    if (!json)
        printf("%s: %zu entries\n", log->path, log->count);
    for (size_t i = 0; i < log->count; i++)
        follow(&page, i);
    check_end(&page, expected);
    bool is_whole = json_array_size(page.problems) == 0;
    if (json)
        print_json(&page, is_whole);
    else if (is_whole)
        printf("whole: each entry has the hash of the one before it; the newest is %s\n",
               log->entries[log->count - 1].chain.hash);
    else
        printf("not whole: %zu of %zu entries are before the first break\n", log->whole,
               log->count);
    json_decref(page.remarks);
    json_decref(page.problems);
    return is_whole ? RP_EXIT_FINE : RP_EXIT_DIFFERS;
}
