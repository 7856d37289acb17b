/* SPDX-License-Identifier: Apache-2.0 */
/* retention — which checkpoint of a directory counts: list, newest, set aside, rewind. (Removing
 * old ones belongs to whoever writes: prune.c.)
 *
 * Invariants
 *
 *   R1  Nothing here removes a file. What does not count is renamed, and can be renamed back by
 *       hand.
 *
 *   R2  A bad file is set aside only when an older one verifies: a directory without any good one
 *       stays as it is.
 *
 *   R3  "Never held a checkpoint" and "lost them all" are told apart: the second is an error, so
 *       that no run starts from zero by itself. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/log.h"
#include "base/mem.h"
#include "checkpoint/locked_dir.h"
#include "checkpoint/reader.h"
#include "checkpoint/listing.h"

#define LISTINGS_MAX 10u /* of a directory in which checkpoints come and go meanwhile */

static int open_directory(const char *path, struct rp_error *error)
{
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir >= 0)
        return dir;
    int code = -errno;
    return rp_fail(error, code, "give the directory of the checkpoints",
                   "%s: cannot open the directory: %s", path, rp_strerror(code));
}

/* ---- newest ---------------------------------------------------------------------------------- */

static void set_aside(int dir, const char *path, const struct rp_name *name)
{
    struct rp_name aside;
    rp_name_make(&aside, name->sequence, RP_NAME_SET_ASIDE);
    int code = rp_storage_system.rename(&rp_storage_system, dir, name->text, aside.text);
    if (code == -ENOENT)
        return; /* it was not damaged but removed: a run is pruning */
    if (code < 0)
        rp_log(RP_LOG_WARNING, "%s/%s: cannot set this damaged checkpoint aside: %s", path,
               name->text, rp_strerror(code));
    else
        rp_log(RP_LOG_WARNING, "%s/%s: set aside as %s", path, name->text, aside.text);
}

/* *is_stale is set, and nothing else done, when one that was listed is gone: a run saves and
 * prunes, so the newest is not in this list any more. NULL: take what is left of it. */
static int newest_of(struct rp_checkpoint **out, int dir, const char *path,
                     const struct rp_listing *scan, bool aside, bool *is_stale,
                     struct rp_error *error)
{
    size_t bad_count = 0, good = scan->count;
    for (size_t i = 0; i < scan->count && good == scan->count; i++) {
        if (scan->names[i].kind != RP_NAME_CURRENT)
            continue;
        struct rp_error found;
        int code = rp_reader_open(out, dir, path, &scan->names[i], &found);
        if (code == 0) {
            good = i;
        } else if (code == -ENOENT) {
            if (is_stale) {
                *is_stale = true;
                return 0;
            }
        } else if (rp_reader_is_damage(code)) {
            rp_log(RP_LOG_WARNING, "%s", found.message);
            bad_count++;
        } else { /* it may be the one to take: an older one instead would be a silent step back */
            return rp_fail(error, code, found.hint, "%s", found.message);
        }
    }
    if (good == scan->count)
        return rp_fail(
            error, -RP_E_CORRUPT,
            "`ringpack checkpoint list` shows them; --fresh starts from zero, if you mean it",
            "%s: none of its checkpoints verifies (%zu damaged, %zu of all kinds)", path, bad_count,
            scan->count);
    for (size_t i = 0; aside && i < good; i++) /* R2 */
        if (scan->names[i].kind == RP_NAME_CURRENT)
            set_aside(dir, path, &scan->names[i]);
    if (rp_checkpoint_contents_bad(*out))
        rp_log(RP_LOG_WARNING,
               "%s: its contents are damaged: they will be read from the corpus again",
               rp_checkpoint_path(*out));
    return 1;
}

int rp_checkpoint_newest(struct rp_checkpoint **out, const char *directory, bool aside,
                         struct rp_error *error)
{
    *out = NULL;
    struct stat info;
    if (stat(directory, &info) < 0 && errno == ENOENT)
        return 0;
    int dir = open_directory(directory, error);
    if (dir < 0)
        return dir;
    int code = 0;
    bool is_stale = true;
    for (unsigned listing = 1; is_stale; listing++) {
        struct rp_listing scan;
        is_stale = false;
        code = rp_listing_open(&scan, dir, directory, error);
        if (code == 0 && (scan.count > 0 || listing > 1)) /* R3: names of any kind */
            code = newest_of(out, dir, directory, &scan, aside,
                             listing < LISTINGS_MAX ? &is_stale : NULL, error);
        rp_listing_free(&scan);
    }
    close(dir);
    return code;
}

/* ---- list ------------------------------------------------------------------------------------ */

/* 1, or 0 when it was removed since the directory was read, as an engine that saves does. */
static int list_one(struct rp_checkpoint_entry *entry, int dir, const char *path,
                    const struct rp_name *name)
{
    static const enum rp_checkpoint_status status_of[] = {
        [RP_NAME_CURRENT] = RP_CHECKPOINT_GOOD,
        [RP_NAME_SET_ASIDE] = RP_CHECKPOINT_SET_ASIDE,
        [RP_NAME_REWOUND] = RP_CHECKPOINT_REWOUND};
    *entry = (struct rp_checkpoint_entry){
        .name = strdup(name->text), .sequence = name->sequence, .status = status_of[name->kind]};
    if (!entry->name)
        return -ENOMEM;
    struct stat info;
    if (fstatat(dir, name->text, &info, AT_SYMLINK_NOFOLLOW) == 0)
        entry->bytes = (uint64_t)info.st_size;
    struct rp_checkpoint *checkpoint;
    struct rp_error found;
    int code = rp_reader_open(&checkpoint, dir, path, name, &found);
    if (code == -ENOENT) {
        free(entry->name);
        return 0;
    }
    if (code < 0) {
        entry->status = name->kind == RP_NAME_CURRENT ? RP_CHECKPOINT_BAD : RP_CHECKPOINT_SET_ASIDE;
        snprintf(entry->message, sizeof entry->message, "%.255s", found.message);
        return 1;
    }
    if (name->kind == RP_NAME_SET_ASIDE)
        snprintf(entry->message, sizeof entry->message,
                 "it verifies now: rename it back to use it");
    entry->info = *rp_checkpoint_info(checkpoint);
    entry->contents_bad = rp_checkpoint_contents_bad(checkpoint);
    rp_checkpoint_close(checkpoint);
    return 1;
}

int rp_checkpoint_list(const char *directory, struct rp_checkpoint_entry **entries_out,
                       size_t *count_out, struct rp_error *error)
{
    *entries_out = NULL;
    *count_out = 0;
    int dir = open_directory(directory, error);
    if (dir < 0)
        return dir;
    struct rp_listing scan;
    int code = rp_listing_open(&scan, dir, directory, error);
    struct rp_checkpoint_entry *entries = code == 0 ? rp_calloc(scan.count, sizeof *entries) : NULL;
    size_t count = 0;
    if (code == 0 && !entries)
        code = rp_fail(error, -ENOMEM, NULL, "%s: no memory for a list", directory);
    for (size_t i = 0; code == 0 && i < scan.count; i++) {
        int listed = list_one(&entries[count], dir, directory, &scan.names[i]);
        if (listed < 0)
            code = rp_fail(error, -ENOMEM, NULL, "%s: no memory for a list", directory);
        else
            count += (size_t)listed;
    }
    rp_listing_free(&scan);
    close(dir);
    if (code < 0) {
        rp_checkpoint_list_free(entries, count);
        return code;
    }
    *entries_out = entries;
    *count_out = count;
    return 0;
}

void rp_checkpoint_list_free(struct rp_checkpoint_entry *entries, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(entries[i].name);
    free(entries);
}

int rp_checkpoint_set_asides(const char *directory, struct rp_set_aside **list_out,
                             size_t *count_out, struct rp_error *error)
{
    *list_out = NULL;
    *count_out = 0;
    int dir = open_directory(directory, error);
    if (dir < 0)
        return dir;
    int code = rp_set_aside_list(dir, directory, list_out, count_out, error);
    close(dir);
    return code;
}

/* ---- rewind ---------------------------------------------------------------------------------- */

/* Somebody may look for a checkpoint from before a fresh start. */
static int fail_no_target(const struct rp_locked_dir *place, uint64_t sequence,
                          struct rp_error *error)
{
    struct rp_set_aside *list;
    size_t count;
    char hint[sizeof error->hint] = "`ringpack checkpoint list` shows what is there; nothing was "
                                    "changed";
    struct rp_name name;
    rp_name_make(&name, rp_min_u64(sequence, RP_SEQUENCE_MAX), RP_NAME_CURRENT);
    int code = rp_set_aside_list(place->dir, place->path, &list, &count, NULL);
    for (size_t i = 0; i < count && code == 0; i++) {
        char path[RP_SET_ASIDE_NAME_BYTES + RP_NAME_BYTES + 1];
        snprintf(path, sizeof path, "%s/%s", list[i].name, name.text);
        if (faccessat(place->dir, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
            snprintf(hint, sizeof hint,
                     "it was set aside: `cd %.240s && mv %s .`, then the same again", place->path,
                     path);
    }
    free(list);
    return rp_fail(error, -RP_E_USAGE, hint, "%s: there is no checkpoint with sequence %" PRIu64,
                   place->path, sequence);
}

static int check_target(const struct rp_locked_dir *place, const struct rp_listing *scan,
                        uint64_t sequence, struct rp_error *error)
{
    struct rp_checkpoint *checkpoint;
    for (size_t i = 0; i < scan->count; i++) {
        if (scan->names[i].sequence != sequence || scan->names[i].kind != RP_NAME_CURRENT)
            continue;
        int code = rp_reader_open(&checkpoint, place->dir, place->path, &scan->names[i], error);
        if (code == 0)
            rp_checkpoint_close(checkpoint);
        return code;
    }
    return fail_no_target(place, sequence, error);
}

/* Newest first: stopped half-way, the newest that is left is still one of the later ones, and the
 * same command goes on from there. */
static int set_back(struct rp_locked_dir *place, const struct rp_listing *scan, uint64_t sequence,
                    struct rp_error *error)
{
    struct rp_storage *storage = place->writer.storage;
    for (size_t i = 0; i < scan->count && scan->names[i].sequence > sequence; i++) {
        if (scan->names[i].kind != RP_NAME_CURRENT)
            continue;
        struct rp_name rewound;
        rp_name_make(&rewound, scan->names[i].sequence, RP_NAME_REWOUND);
        int code = storage->rename(storage, place->dir, scan->names[i].text, rewound.text);
        if (code < 0)
            return rp_fail(error, code, "no file is lost; run the same command again",
                           "%s/%s: cannot rename it to %s: %s", place->path, scan->names[i].text,
                           rewound.text, rp_strerror(code));
    }
    int code = storage->sync_dir(storage, place->dir);
    return code < 0 ? rp_fail(error, code, "no file is lost; run the same command again",
                              "%s: cannot sync the directory: %s", place->path, rp_strerror(code))
                    : 0;
}

int rp_checkpoint_rewind(const char *directory, uint64_t sequence, struct rp_error *error)
{
    struct rp_locked_dir place; /* so that no run writes here meanwhile */
    int code = rp_locked_dir_open(&place, directory, RP_LOCKED_DIR_KEEP_MIN, false,
                                  &rp_storage_system, error);
    if (code < 0)
        return code;
    struct rp_listing scan;
    code = rp_listing_open(&scan, place.dir, place.path, error);
    if (code == 0)
        code = check_target(&place, &scan, sequence, error);
    if (code == 0)
        code = set_back(&place, &scan, sequence, error);
    rp_listing_free(&scan);
    rp_locked_dir_close(&place);
    return code;
}
