/* SPDX-License-Identifier: Apache-2.0 */
#include "audit/digest_entries.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "audit/log.h"
#include "base/bits.h"
#include "base/file.h"
#include "base/mem.h"

#define ID_DIGITS 16 /* digits kept of an entry's hash */

/* ---- files ----------------------------------------------------------------------------------- */

static bool is_name(const char *name)
{
    size_t bytes = strlen(name);
    return strncmp(name, "rank-", 5) == 0 && bytes > 6 && strcmp(name + bytes - 6, ".jsonl") == 0;
}

static bool has_files(const char *path)
{
    DIR *directory = opendir(path);
    bool found = false;
    for (struct dirent *entry; directory && !found && (entry = readdir(directory));)
        found = is_name(entry->d_name);
    if (directory)
        closedir(directory);
    return found;
}

bool rp_audit_is_digests(const char *path)
{
    static const char begin[] = "{\"entry\":";
    struct stat info;
    char text[sizeof begin];
    if (stat(path, &info) < 0)
        return false;
    if (S_ISDIR(info.st_mode))
        return has_files(path);
    return S_ISREG(info.st_mode) && rp_file_head(path, text, sizeof text) &&
           strcmp(text, begin) == 0;
}

static uint64_t parse_id(const char *hash)
{
    char digits[ID_DIGITS + 1] = {0};
    memcpy(digits, hash, strnlen(hash, ID_DIGITS));
    return strtoull(digits, NULL, 16);
}

static bool parse_digest(const struct rp_audit_log_entry *entry, struct rp_digest_entry *out)
{
    json_int_t row = rp_audit_log_number(entry, "row", -1);
    json_int_t first = rp_audit_log_number(entry, "first_row", -1);
    out->of = (struct rp_audit_interval){.first_row = (uint64_t)first, .row = (uint64_t)row};
    out->of.rows = (uint64_t)rp_audit_log_number(entry, "rows", 0);
    out->of.tokens = (uint64_t)rp_audit_log_number(entry, "tokens", 0);
    out->of.lacks_plan = !rp_hash128_parse(rp_audit_log_text(entry, "plan_digest"), &out->of.plan);
    return first >= 0 && row > first &&
           rp_hash128_parse(rp_audit_log_text(entry, "content_digest"), &out->of.content);
}

/* An attach of an older version has no `seen`. False when out of memory. */
static bool parse_attach(const struct rp_audit_log_entry *entry, struct rp_digest_entry *out)
{
    json_int_t row = rp_audit_log_number(entry, "row", 0);
    const char *seen = rp_audit_log_text(entry, "seen");
    out->is_attach = true;
    out->of.first_row = row > 0 ? (uint64_t)row : 0;
    if (!seen || !*seen)
        return true;
    out->seen = rp_calloc(strlen(seen) / ID_DIGITS + 1, sizeof *out->seen);
    for (; out->seen && strlen(seen) >= ID_DIGITS; seen += ID_DIGITS + (seen[ID_DIGITS] == ' '))
        out->seen[out->seen_count++] = parse_id(seen);
    return out->seen != NULL;
}

/* 1: it is about a delivery, 0: it is not. */
static int parse(const struct rp_audit_log_entry *entry, struct rp_digest_entry *out,
                 struct rp_error *error)
{
    json_int_t rank = rp_audit_log_number(entry, "rank", -1);
    json_int_t world = rp_audit_log_number(entry, "world", -1);
    *out = (struct rp_digest_entry){
        .rank = (uint32_t)rank, .world = (uint32_t)world, .id = parse_id(entry->chain.hash)};
    if (rank < 0 || world <= rank || world > UINT32_MAX)
        return 0;
    if (rp_audit_log_is(entry, "digest"))
        return parse_digest(entry, out);
    if (!rp_audit_log_is(entry, "attached"))
        return 0;
    return parse_attach(entry, out) ? 1 : rp_fail(error, -ENOMEM, NULL, "no memory for an entry");
}

static int add_entry(struct rp_digest_entries *entries, const struct rp_digest_entry *entry,
                     struct rp_error *error)
{
    if (!RP_GROW(entries->list, entries->room, entries->count + 1)) {
        free(entry->seen);
        return rp_fail(error, -ENOMEM, NULL, "no memory for the entries of digests");
    }
    entries->list[entries->count++] = *entry;
    return 0;
}

static void note_damage(struct rp_audit_digests *digests, const char *path)
{
    if (digests->damaged++ > 0)
        return;
    snprintf(digests->damaged_name, sizeof digests->damaged_name, "%.255s", path);
    rp_audit_make_printable(digests->damaged_name);
}

/* An empty file is left by a refused trainer: it is complete. */
static int read_file(struct rp_digest_entries *entries, struct rp_audit_digests *digests,
                     const char *path, struct rp_error *error)
{
    struct rp_audit_log log;
    struct rp_digest_entry entry;
    int code = rp_audit_log_open(&log, path, NULL, error);
    bool has_none = code == -RP_E_FORMAT && log.text; /* it was read, and has no entry */
    code = has_none ? 0 : code;
    for (size_t i = 0; code >= 0 && i < log.count; i++) {
        code = parse(&log.entries[i], &entry, error);
        entry.file = digests->files;
        if (code > 0)
            code = add_entry(entries, &entry, error);
    }
    digests->files++;
    if (code >= 0 && ((has_none && log.bytes > 0) || log.whole < log.count || log.end < log.bytes))
        note_damage(digests, path);
    rp_audit_log_close(&log);
    return code < 0 ? code : 0;
}

int rp_digest_entries_read(struct rp_digest_entries *entries, struct rp_audit_digests *digests,
                           struct rp_error *error)
{
    *entries = (struct rp_digest_entries){.list = NULL};
    DIR *directory = opendir(digests->path);
    if (!directory)
        return read_file(entries, digests, digests->path, error);
    int code = 0;
    for (struct dirent *entry; code == 0 && (entry = readdir(directory));) {
        char *path = is_name(entry->d_name) ? rp_asprintf("%s/%s", digests->path, entry->d_name)
                                            : NULL;
        if (path)
            code = read_file(entries, digests, path, error);
        free(path);
    }
    closedir(directory);
    return code;
}

void rp_digest_entries_free(struct rp_digest_entries *entries)
{
    for (size_t i = 0; i < entries->count; i++)
        free(entries->list[i].seen);
    free(entries->list);
    free(entries->places);
}

/* ---- which are superseded -------------------------------------------------------------------- */

bool rp_digest_takes_back(const struct rp_digest_entry *attach, const struct rp_digest_entry *entry)
{
    return entry->world != attach->world || entry->rank == attach->rank;
}

/* Rows from `row` on were given again: mark the rows that list[end - 1], and the entries of its
 * file before it, had of them. Those that are left ascend, so the search ends at the first that is
 * before. */
static void supersede(struct rp_digest_entries *entries, size_t end,
                      const struct rp_digest_entry *by, uint64_t row)
{
    const size_t file = entries->list[end - 1].file;
    for (size_t i = end; i > 0 && entries->list[i - 1].file == file; i--) {
        struct rp_digest_entry *entry = &entries->list[i - 1];
        if (entry->is_attach || entry->is_superseded || !rp_digest_takes_back(by, entry))
            continue;
        if (entry->of.row <= row)
            break;
        entry->is_superseded = true;
    }
}

static int compare_places(const void *a, const void *b)
{
    const struct rp_digest_place *x = a, *y = b;
    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

size_t rp_digest_entries_find(const struct rp_digest_entries *entries, uint64_t id)
{
    RP_ASSERT(entries->count <= UINT32_MAX);
    return id ? RP_COUNT_UP_TO(entries->places, (uint32_t)entries->count, id, id - 1) : 0;
}

/* The entries of other files that an attach came after. */
static void supersede_seen(struct rp_digest_entries *entries, const struct rp_digest_entry *attach)
{
    const struct rp_digest_place *places = entries->places;
    for (size_t s = 0; s < attach->seen_count; s++) {
        size_t i = rp_digest_entries_find(entries, attach->seen[s]);
        for (; i < entries->count && places[i].id == attach->seen[s]; i++)
            supersede(entries, places[i].at + 1, attach, attach->of.first_row);
    }
}

/* Copies of a file have the same entries: one of each counts, and none if one is superseded. */
static void join_copies(struct rp_digest_entries *entries)
{
    const struct rp_digest_place *places = entries->places;
    size_t first = 0; /* the first entry with this id */
    for (size_t i = 1; i <= entries->count; i++) {
        bool is_superseded = false;
        if (i < entries->count && places[i].id == places[first].id)
            continue;
        for (size_t copy = first; copy < i; copy++)
            is_superseded = is_superseded || entries->list[places[copy].at].is_superseded;
        for (size_t copy = first + !is_superseded; copy < i; copy++)
            entries->list[places[copy].at].is_superseded = true;
        first = i;
    }
}

int rp_digest_entries_order(struct rp_digest_entries *entries, struct rp_error *error)
{
    entries->places = rp_calloc(entries->count + 1, sizeof *entries->places);
    if (!entries->places)
        return rp_fail(error, -ENOMEM, NULL, "no memory for the entries of digests");
    for (size_t i = 0; i < entries->count; i++) {
        const struct rp_digest_entry *entry = &entries->list[i];
        entries->places[i] = (struct rp_digest_place){entry->id, i};
        if (i > 0 && entries->list[i - 1].file == entry->file)
            supersede(entries, i, entry, entry->of.first_row);
    }
    qsort(entries->places, entries->count, sizeof *entries->places, compare_places);
    for (size_t i = 0; i < entries->count; i++)
        supersede_seen(entries, &entries->list[i]);
    join_copies(entries);
    return 0;
}
