/* SPDX-License-Identifier: Apache-2.0 */
/* digests.c — reading the files of all ranks, and adding up their digests. */
#include "audit/digests.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "audit/log.h"
#include "base/bits.h"
#include "base/mem.h"

/* An entry of one rank. */
struct part {
    uint32_t rank, world;
    struct rp_audit_interval of;
};

struct parts {
    struct part *list;
    size_t count, room;
    size_t begin; /* of the file that is read */
};

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
    char text[sizeof begin] = {0};
    if (stat(path, &info) < 0)
        return false;
    if (S_ISDIR(info.st_mode))
        return has_files(path);
    FILE *file = S_ISREG(info.st_mode) ? fopen(path, "re") : NULL;
    size_t got = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file)
        fclose(file);
    return got == sizeof text - 1 && strcmp(text, begin) == 0;
}

static bool parse_hash(const char *text, struct rp_hash128 *hash)
{
    char high[17] = {0}, *end;
    *hash = (struct rp_hash128){0, 0};
    if (!text || strspn(text, "0123456789abcdef") != RP_HASH_HEX_BYTES - 1 ||
        strlen(text) != RP_HASH_HEX_BYTES - 1)
        return false;
    memcpy(high, text, 16);
    *hash = (struct rp_hash128){strtoull(text + 16, &end, 16), strtoull(high, &end, 16)};
    return true;
}

static bool parse_part(const struct rp_audit_log_entry *entry, struct part *part)
{
    const char *time = rp_audit_log_text(entry, "time");
    json_int_t rank = rp_audit_log_number(entry, "rank", -1);
    json_int_t world = rp_audit_log_number(entry, "world", -1);
    json_int_t first = rp_audit_log_number(entry, "first_row", -1);
    json_int_t row = rp_audit_log_number(entry, "row", -1);
    *part = (struct part){(uint32_t)rank,
                          (uint32_t)world,
                          {.first_row = (uint64_t)first,
                           .row = (uint64_t)row,
                           .rows = (uint64_t)rp_audit_log_number(entry, "rows", 0),
                           .tokens = (uint64_t)rp_audit_log_number(entry, "tokens", 0)}};
    if (time)
        snprintf(part->of.time, sizeof part->of.time, "%.31s", time);
    (void)parse_hash(rp_audit_log_text(entry, "plan_digest"), &part->of.plan);
    return time && rank >= 0 && world > rank && world <= UINT32_MAX && first >= 0 && row > first &&
           parse_hash(rp_audit_log_text(entry, "content_digest"), &part->of.content);
}

static bool overlap(const struct rp_audit_interval *a, const struct rp_audit_interval *b)
{
    return a->first_row < b->row && b->first_row < a->row;
}

/* `by` replaces `old`, which was given before: were they the same? */
static void note_twice(struct rp_audit_digests *digests, const struct rp_audit_interval *old,
                       const struct rp_audit_interval *by)
{
    if (old->first_row != by->first_row || old->row != by->row ||
        rp_hash128_equal(old->content, by->content))
        return;
    if (digests->twice == 0 || old->first_row < digests->twice_row)
        digests->twice_row = old->first_row;
    digests->twice++;
}

/* Add an entry of the file that is read. Later entries replace those of the same rows. */
static int add_part(struct rp_audit_digests *digests, struct parts *parts, const struct part *part,
                    struct rp_error *error)
{
    while (parts->count > parts->begin && overlap(&parts->list[parts->count - 1].of, &part->of))
        note_twice(digests, &parts->list[--parts->count].of, &part->of);
    while (parts->count > parts->begin &&
           parts->list[parts->count - 1].of.first_row > part->of.first_row)
        parts->count--;
    if (parts->count == parts->room) {
        parts->room = parts->room ? 2 * parts->room : 64;
        void *grown = reallocarray(parts->list, parts->room, sizeof *parts->list);
        if (!grown)
            return rp_fail(error, -ENOMEM, NULL, "%s: no memory for its entries", digests->path);
        parts->list = grown;
    }
    parts->list[parts->count++] = *part;
    return 0;
}

static int read_file(struct rp_audit_digests *digests, struct parts *parts, const char *path,
                     struct rp_error *error)
{
    struct rp_audit_log log;
    struct part part;
    int code = rp_audit_log_open(&log, path, NULL, error);
    bool is_empty = code == -RP_E_FORMAT && log.text; /* it was read, and has no entry */
    code = is_empty ? 0 : code;
    parts->begin = parts->count;
    for (size_t i = 0; code == 0 && i < log.count; i++)
        if (rp_audit_log_is(&log.entries[i], "digest") && parse_part(&log.entries[i], &part))
            code = add_part(digests, parts, &part, error);
    digests->files++;
    bool is_damaged = is_empty || log.whole < log.count || log.end < log.bytes;
    if (code == 0 && is_damaged && digests->damaged++ == 0) {
        snprintf(digests->damaged_name, sizeof digests->damaged_name, "%.255s", path);
        rp_audit_make_printable(digests->damaged_name);
    }
    rp_audit_log_close(&log);
    return code;
}

static int read_files(struct rp_audit_digests *digests, struct parts *parts, struct rp_error *error)
{
    DIR *directory = opendir(digests->path);
    if (!directory)
        return read_file(digests, parts, digests->path, error);
    int code = 0;
    for (struct dirent *entry; code == 0 && (entry = readdir(directory));) {
        char *path = is_name(entry->d_name) ? rp_format("%s/%s", digests->path, entry->d_name)
                                            : NULL;
        if (path)
            code = read_file(digests, parts, path, error);
        free(path);
    }
    closedir(directory);
    return code;
}

/* ---- adding up ------------------------------------------------------------------------------- */

static int compare_parts(const void *a, const void *b)
{
    const struct part *x = a, *y = b;
    if (x->world != y->world)
        return x->world < y->world ? -1 : 1;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->of.first_row < y->of.first_row ? -1 : x->of.first_row > y->of.first_row;
}

/* The entries of one rank, ascending. */
struct lane {
    const struct part *at, *end;
    struct rp_audit_interval sum; /* of those that are taken */
};

static void take(struct rp_audit_interval *sum, const struct rp_audit_interval *next)
{
    sum->row = next->row;
    sum->rows += next->rows;
    sum->tokens += next->tokens;
    sum->content = rp_hash128_sum(sum->content, next->content);
    sum->plan = next->plan;
    if (strcmp(sum->time, next->time) < 0)
        memcpy(sum->time, next->time, sizeof sum->time);
}

/* Move every lane to a row at which each of them has an entry. False: there is no such row. */
static bool align(struct lane *lanes, uint32_t world)
{
    for (uint64_t row = 0;;) {
        bool is_aligned = true;
        for (uint32_t r = 0; r < world; r++) {
            while (lanes[r].at < lanes[r].end && lanes[r].at->of.first_row < row)
                lanes[r].at++;
            if (lanes[r].at == lanes[r].end)
                return false;
            is_aligned = is_aligned && lanes[r].at->of.first_row == row;
            row = lanes[r].at->of.first_row;
        }
        if (is_aligned)
            return true;
    }
}

/* Add entries to each lane until all end at one row. False where one of them has a gap before. */
static bool add_up(struct lane *lanes, uint32_t world, struct rp_audit_interval *all)
{
    uint64_t end = 0;
    for (uint32_t r = 0; r < world; r++) {
        lanes[r].sum = (lanes[r].at++)->of;
        end = rp_max_u64(end, lanes[r].sum.row);
    }
    for (uint32_t r = 0; r < world;) {
        struct lane *lane = &lanes[r];
        if (lane->sum.row == end) {
            r++;
            continue;
        }
        if (lane->sum.row > end) { /* it passed the end of the others: they have to follow */
            end = lane->sum.row;
            r = 0;
            continue;
        }
        if (lane->at == lane->end || lane->at->of.first_row != lane->sum.row)
            return false;
        take(&lane->sum, &(lane->at++)->of);
    }
    *all = lanes[0].sum;
    for (uint32_t r = 1; r < world; r++)
        take(all, &lanes[r].sum);
    return true;
}

static int add_interval(struct rp_audit_digests *digests, size_t *room,
                        const struct rp_audit_interval *interval, struct rp_error *error)
{
    if (digests->count == *room) {
        *room = *room ? 2 * *room : 64;
        void *grown = reallocarray(digests->intervals, *room, sizeof *digests->intervals);
        if (!grown)
            return rp_fail(error, -ENOMEM, NULL, "%s: no memory for its rows", digests->path);
        digests->intervals = grown;
    }
    digests->intervals[digests->count++] = *interval;
    return 0;
}

/* The entries of all ranks of one size of the job: [first, end) of the sorted list. */
static int add_world(struct rp_audit_digests *digests, size_t *room, const struct part *first,
                     const struct part *end, struct rp_error *error)
{
    uint32_t world = first->world, ranks = 0;
    struct rp_audit_interval all;
    struct lane *lanes = rp_calloc((size_t)(end - first), sizeof *lanes);
    if (!lanes)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for its ranks", digests->path);
    for (const struct part *part = first; part < end; part++) {
        if (part == first || part->rank != part[-1].rank)
            lanes[ranks++] = (struct lane){.at = part};
        lanes[ranks - 1].end = part + 1;
    }
    int code = 0;
    while (ranks == world && code == 0 && align(lanes, world))
        if (add_up(lanes, world, &all))
            code = add_interval(digests, room, &all, error);
    free(lanes);
    return code;
}

static int compare_intervals(const void *a, const void *b)
{
    const struct rp_audit_interval *x = a, *y = b;
    if (x->first_row != y->first_row)
        return x->first_row < y->first_row ? -1 : 1;
    return strcmp(x->time, y->time);
}

/* Of intervals that overlap, after a rollback to another number of ranks, keep the later one. */
static void keep_latest(struct rp_audit_digests *digests)
{
    struct rp_audit_interval *list = digests->intervals;
    size_t kept = 0;
    for (size_t i = 0; i < digests->count; i++) {
        bool is_older = false;
        while (kept > 0 && !is_older && overlap(&list[kept - 1], &list[i])) {
            is_older = strcmp(list[i].time, list[kept - 1].time) < 0;
            note_twice(digests, &list[kept - 1], &list[i]);
            kept -= !is_older;
        }
        if (!is_older)
            list[kept++] = list[i];
    }
    digests->count = kept;
}

int rp_audit_digests_open(struct rp_audit_digests *digests, const char *path,
                          struct rp_error *error)
{
    *digests = (struct rp_audit_digests){.path = path};
    struct parts parts = {.list = NULL};
    size_t room = 0;
    int code = read_files(digests, &parts, error);
    if (parts.count > 0)
        qsort(parts.list, parts.count, sizeof *parts.list, compare_parts);
    for (size_t i = 0, next; code == 0 && i < parts.count; i = next) {
        for (next = i; next < parts.count && parts.list[next].world == parts.list[i].world;)
            next++;
        code = add_world(digests, &room, &parts.list[i], &parts.list[next], error);
    }
    if (code == 0 && parts.count == 0)
        code = rp_fail(error, -RP_E_FORMAT,
                       "give what trainers wrote with digest_log; `ringpack audit --log` says what "
                       "is in a chained file",
                       "%s: none of its entries is a digest", path);
    free(parts.list);
    if (digests->count > 0)
        qsort(digests->intervals, digests->count, sizeof *digests->intervals, compare_intervals);
    keep_latest(digests);
    if (code == 0 && digests->count == 0)
        return rp_fail(error, -RP_E_EMPTY, "put the files of all ranks into one folder",
                       "%s: no rows of which every rank has a digest", path);
    return code;
}

void rp_audit_digests_close(struct rp_audit_digests *digests)
{
    free(digests->intervals);
}
