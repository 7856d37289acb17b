/* SPDX-License-Identifier: Apache-2.0 */
/* retention.c — find the newest checkpoint of a directory, and list all. (Old checkpoints are
 * removed by the process that writes new ones: prune.c.)
 *
 * Invariants
 *
 *   R1  No function here removes a file. Unusable files are renamed, and can be
 *       renamed back by hand.
 *
 *   R2  A damaged file is renamed only when an older one verifies: a directory without a verified
 *       file stays as it is.
 *
 *   R3  A directory whose checkpoints all fail to verify is an error, unlike one that never held
 *       a checkpoint, so that no run starts at row 0 unasked. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "checkpoint/locked_dir.h"
#include "checkpoint/reader.h"
#include "checkpoint/listing.h"

#define LISTINGS_MAX 10u /* times to list a directory while an engine saves and prunes there */

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

static void rename_damaged(const struct rp_listing *listing, const struct rp_name *name)
{
    const char *path = listing->path;
    struct rp_name bad;
    rp_name_make(&bad, name->sequence, RP_NAME_BAD);
    int code = rp_storage_system.rename(&rp_storage_system, listing->dir, name->text, bad.text);
    if (code == -ENOENT)
        return; /* a run has pruned it */
    if (code < 0)
        rp_log(RP_LOG_WARNING, "%s/%s: cannot set this damaged checkpoint aside: %s", path,
               name->text, rp_strerror(code));
    else
        rp_log(RP_LOG_WARNING, "%s/%s: set aside as %s", path, name->text, bad.text);
}

static int fail_none_verifies(const struct rp_listing *listing, size_t damaged_count,
                              struct rp_error *error)
{
    return rp_fail(
        error, -RP_E_CORRUPT,
        "`ringpack checkpoint list` shows them; --fresh starts from zero, if you mean it",
        "%s: none of its checkpoints verifies (%zu damaged, %zu of all kinds)", listing->path,
        damaged_count, listing->count);
}

/* Open the newest checkpoint of the listing that verifies, and set *index. Returns 1; or 0 when a
 * listed file is gone, unless skip_gone is set: an engine saves and prunes here, so the newest
 * checkpoint is not in this listing. */
static int open_newest(struct rp_checkpoint **out, size_t *index, const struct rp_listing *listing,
                       bool skip_gone, struct rp_error *error)
{
    size_t damaged_count = 0;
    for (size_t i = 0; i < listing->count; i++) {
        if (listing->names[i].kind != RP_NAME_CURRENT)
            continue;
        struct rp_error found;
        int code = rp_reader_open(out, listing->dir, listing->path, &listing->names[i], &found);
        if (code == 0) {
            *index = i;
            return 1;
        }
        if (code == -ENOENT) {
            if (!skip_gone)
                return 0;
        } else if (rp_reader_is_damage(code)) {
            rp_log(RP_LOG_WARNING, "%s", found.message);
            damaged_count++;
        } else { /* it may be good: to take an older one would silently repeat rows */
            return rp_fail(error, code, found.hint, "%s", found.message);
        }
    }
    return fail_none_verifies(listing, damaged_count, error);
}

int rp_checkpoint_newest(struct rp_checkpoint **out, const char *directory, bool rename_bad,
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
    bool is_new = false;
    for (unsigned tries = 1; code == 0 && !is_new && tries <= LISTINGS_MAX; tries++) {
        struct rp_listing listing;
        size_t newest = 0;
        code = rp_listing_open(&listing, dir, directory, error);
        is_new = code == 0 && listing.count == 0 && tries == 1; /* R3: no name of any kind */
        if (code == 0 && !is_new)
            code = open_newest(out, &newest, &listing, tries == LISTINGS_MAX, error);
        for (size_t i = 0; code == 1 && rename_bad && i < newest; i++) /* R2 */
            if (listing.names[i].kind == RP_NAME_CURRENT)
                rename_damaged(&listing, &listing.names[i]);
        rp_listing_free(&listing);
    }
    close(dir);
    if (code == 1 && rp_checkpoint_contents_bad(*out))
        rp_log(RP_LOG_WARNING,
               "%s: its contents are damaged: they will be read from the corpus again",
               rp_checkpoint_path(*out));
    return code;
}

bool rp_checkpoint_peek(void *state, size_t bytes, const char *directory)
{
    _Alignas(RP_CHECKPOINT_PAGE_BYTES) uint8_t page[RP_CHECKPOINT_PAGE_BYTES];
    struct rp_listing listing;
    uint64_t found = 0;
    int dir = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC), code = -ENOENT;
    if (dir < 0)
        return false;
    RP_ASSERT(bytes <= sizeof page);
    if (rp_listing_open(&listing, dir, directory, NULL) == 0)
        for (size_t i = 0; i < listing.count && code < 0; i++)
            if (listing.names[i].kind == RP_NAME_CURRENT)
                code = rp_reader_state(page, &found, dir, directory, &listing.names[i], NULL);
    rp_listing_free(&listing);
    close(dir);
    if (code < 0 || found < bytes)
        return false;
    memcpy(state, page, bytes);
    return true;
}

/* ---- list ------------------------------------------------------------------------------------ */

/* Returns 1, or 0 when the file was removed after the directory was listed: an engine prunes it. */
static int list_one(struct rp_checkpoint_entry *entry, int dir, const char *path,
                    const struct rp_name *name)
{
    static const enum rp_checkpoint_status status_of[] = {
        [RP_NAME_CURRENT] = RP_CHECKPOINT_GOOD,
        [RP_NAME_BAD] = RP_CHECKPOINT_SET_ASIDE,
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
        if (name->kind == RP_NAME_CURRENT)
            entry->status = RP_CHECKPOINT_BAD;
        snprintf(entry->message, sizeof entry->message, "%.255s", found.message);
        return 1;
    }
    if (name->kind == RP_NAME_BAD)
        snprintf(entry->message, sizeof entry->message,
                 "it verifies now: rename it back to use it");
    entry->info = *rp_checkpoint_info(checkpoint);
    entry->contents_bad = rp_checkpoint_contents_bad(checkpoint);
    entry->other_bad = rp_checkpoint_other_bad(checkpoint);
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
    struct rp_listing listing;
    int code = rp_listing_open(&listing, dir, directory, error);
    struct rp_checkpoint_entry *entries = code == 0 ? rp_calloc(listing.count, sizeof *entries)
                                                    : NULL;
    size_t count = 0;
    if (code == 0 && !entries)
        code = rp_fail(error, -ENOMEM, NULL, "%s: no memory for a list", directory);
    for (size_t i = 0; code == 0 && i < listing.count; i++) {
        int listed = list_one(&entries[count], dir, directory, &listing.names[i]);
        if (listed < 0)
            code = rp_fail(error, -ENOMEM, NULL, "%s: no memory for a list", directory);
        else
            count += (size_t)listed;
    }
    rp_listing_free(&listing);
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
