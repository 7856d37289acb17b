/* SPDX-License-Identifier: Apache-2.0 */
/* rewind.c — make an older checkpoint the newest one, in the directory and in its mirror.
 *
 * A rewind knows only the directory, so it leaves a marker there, an empty file whose name is
 * `.rewind-AFTER-LAST`: the checkpoints above AFTER and up to LAST were given up. The next start
 * that has a mirror renames the copies of these, before it searches for a copy to resume
 * from, and removes the marker.
 *
 * Invariants
 *
 *   W1  The marker is durable before a checkpoint is renamed, and the new names of the copies are
 *       before the marker is removed. So at no moment would a copy of a given-up checkpoint stay
 *       for good.
 *
 *   W2  A copy is renamed only if the directory has no usable checkpoint from its sequence up to
 *       LAST. So a rewind that was interrupted, or undone by hand, gives up no checkpoint that is
 *       in use.
 *
 *   W3  Sequences are never used twice: a checkpoint that is saved after a rewind is above LAST,
 *       however late the marker is applied. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "checkpoint/listing.h"
#include "checkpoint/locked_dir.h"
#include "checkpoint/reader.h"

#define MARKER_NAME_BYTES 40
#define MARKER_FORMAT ".rewind-%012" PRIu64 "-%012" PRIu64

/* The checkpoints that one rewind has given up. */
struct rewound {
    uint64_t after, last; /* sequences */
};

/* ---- of the directory ------------------------------------------------------------------------ */

/* The hint names the directory of a fresh start that holds the checkpoint, if there is one. */
static int fail_no_target(const struct rp_locked_dir *locked, uint64_t sequence,
                          struct rp_error *error)
{
    struct rp_set_aside *list;
    size_t count;
    char hint[sizeof error->hint] = "`ringpack checkpoint list` shows the checkpoints; the run is "
                                    "unchanged";
    struct rp_name name;
    rp_name_make(&name, rp_min_u64(sequence, RP_SEQUENCE_MAX), RP_NAME_CURRENT);
    int code = rp_set_aside_list(locked->dir, locked->path, &list, &count, NULL);
    for (size_t i = 0; i < count && code == 0; i++) {
        char path[RP_SET_ASIDE_NAME_BYTES + RP_NAME_BYTES + 1];
        snprintf(path, sizeof path, "%s/%s", list[i].name, name.text);
        if (faccessat(locked->dir, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
            snprintf(hint, sizeof hint, "it was set aside: `cd %s && mv %s .`, then the same again",
                     RP_HINT_PATH(locked->path), path);
    }
    free(list);
    return rp_fail(error, -RP_E_USAGE, hint, "%s: there is no checkpoint with sequence %" PRIu64,
                   locked->path, sequence);
}

static int check_target(const struct rp_locked_dir *locked, const struct rp_listing *listing,
                        uint64_t sequence, struct rp_error *error)
{
    struct rp_checkpoint *checkpoint;
    for (size_t i = 0; i < listing->count; i++) {
        if (listing->names[i].sequence != sequence || listing->names[i].kind != RP_NAME_CURRENT)
            continue;
        int code = rp_reader_open(&checkpoint, locked->dir, locked->path, &listing->names[i],
                                  error);
        if (code == 0)
            rp_checkpoint_close(checkpoint);
        return code;
    }
    return fail_no_target(locked, sequence, error);
}

static int leave_marker(struct rp_locked_dir *locked, const struct rewound *rewound,
                        struct rp_error *error)
{
    struct rp_storage *storage = locked->writer.storage;
    char name[MARKER_NAME_BYTES];
    snprintf(name, sizeof name, MARKER_FORMAT, rewound->after, rewound->last);
    int fd = storage->create(storage, locked->dir, name);
    int code = fd < 0 ? fd : storage->sync(storage, fd);
    if (fd >= 0)
        (void)storage->close(storage, fd);
    if (code == 0 || code == -EEXIST) /* left by the same command, which was interrupted */
        code = storage->sync_dir(storage, locked->dir);
    return code < 0 ? rp_fail(error, code, "the run is unchanged; make the directory writable",
                              "%s/%s: cannot leave this mark for the copies: %s", locked->path,
                              name, rp_strerror(code))
                    : 0;
}

/* Newest first, so that after an interruption the same command completes the rewind. */
static int rename_later_ones(struct rp_locked_dir *locked, const struct rp_listing *listing,
                             uint64_t sequence, struct rp_error *error)
{
    struct rp_storage *storage = locked->writer.storage;
    for (size_t i = 0; i < listing->count && listing->names[i].sequence > sequence; i++) {
        if (listing->names[i].kind != RP_NAME_CURRENT)
            continue;
        struct rp_name rewound;
        rp_name_make(&rewound, listing->names[i].sequence, RP_NAME_REWOUND);
        int code = storage->rename(storage, locked->dir, listing->names[i].text, rewound.text);
        if (code < 0)
            return rp_fail(error, code, "no file is lost; run the same command again",
                           "%s/%s: cannot rename it to %s: %s", locked->path,
                           listing->names[i].text, rewound.text, rp_strerror(code));
    }
    int code = storage->sync_dir(storage, locked->dir);
    return code < 0 ? rp_fail(error, code, "no file is lost; run the same command again",
                              "%s: cannot sync the directory: %s", locked->path, rp_strerror(code))
                    : 0;
}

int rp_checkpoint_rewind(const char *directory, uint64_t sequence, struct rp_error *error)
{
    struct rp_locked_dir locked; /* no engine can write here until it is closed */
    int code = rp_locked_dir_open(&locked, directory, error);
    if (code < 0)
        return code;
    struct rp_listing listing;
    code = rp_listing_open(&listing, locked.dir, locked.path, error);
    if (code == 0)
        code = check_target(&locked, &listing, sequence, error);
    if (code == 0 && listing.names[0].sequence > sequence)
        code = leave_marker(&locked, &(struct rewound){sequence, listing.names[0].sequence}, error);
    if (code == 0)
        code = rename_later_ones(&locked, &listing, sequence, error);
    rp_listing_free(&listing);
    rp_locked_dir_close(&locked);
    return code;
}

/* ---- of the copies --------------------------------------------------------------------------- */

static bool parse_marker(struct rewound *rewound, const char *name)
{
    char again[MARKER_NAME_BYTES];
    return sscanf(name, ".rewind-%12" SCNu64 "-%12" SCNu64, &rewound->after, &rewound->last) == 2 &&
           snprintf(again, sizeof again, MARKER_FORMAT, rewound->after, rewound->last) > 0 &&
           strcmp(again, name) == 0;
}

/* The caller frees the list, also after a failure. */
static int find_markers(const struct rp_locked_dir *locked, struct rewound **list_out,
                        size_t *count_out, struct rp_error *error)
{
    DIR *stream;
    int code = rp_names_open(&stream, locked->dir, locked->path, error);
    if (code < 0)
        return code;
    for (struct dirent *entry; code == 0 && (entry = readdir(stream)) != NULL;) {
        struct rewound found;
        if (!parse_marker(&found, entry->d_name))
            continue;
        struct rewound *added = RP_APPEND(*list_out, *count_out);
        if (added)
            *added = found;
        else
            code = rp_fail(error, -ENOMEM, NULL, "%s: no memory for a list", locked->path);
    }
    closedir(stream);
    return code;
}

/* W2: a checkpoint that is usable again was not given up, and neither was an older one. */
static void leave_out_usable(struct rewound *rewound, const struct rp_listing *listing)
{
    for (size_t i = 0; i < listing->count; i++)
        if (listing->names[i].kind == RP_NAME_CURRENT &&
            listing->names[i].sequence <= rewound->last)
            rewound->after = rp_max_u64(rewound->after, listing->names[i].sequence);
}

static int rename_copy(const struct rp_locked_dir *copies, const struct rp_name *name,
                       struct rp_error *error)
{
    struct rp_storage *storage = copies->writer.storage;
    struct rp_name rewound;
    rp_name_make(&rewound, name->sequence, RP_NAME_REWOUND);
    int code = storage->rename(storage, copies->dir, name->text, rewound.text);
    if (code == -EEXIST) { /* an earlier copy of the same file, of a rewind that was undone */
        (void)storage->unlink(storage, copies->dir, rewound.text);
        code = storage->rename(storage, copies->dir, name->text, rewound.text);
    }
    return code < 0 ? rp_fail(error, code, "no file is lost; remove the cause and start again",
                              "%s/%s: cannot rename this copy of a checkpoint that was rewound: %s",
                              copies->path, name->text, rp_strerror(code))
                    : 0;
}

static int rename_copies(const struct rp_locked_dir *copies, const struct rewound *rewound,
                         struct rp_error *error)
{
    struct rp_listing listing;
    size_t renamed = 0;
    int code = rp_listing_open(&listing, copies->dir, copies->path, error);
    for (size_t i = 0; i < listing.count && code == 0; i++) {
        const struct rp_name *name = &listing.names[i];
        if (name->kind == RP_NAME_CURRENT && name->sequence > rewound->after &&
            name->sequence <= rewound->last) {
            code = rename_copy(copies, name, error);
            renamed += code == 0;
        }
    }
    rp_listing_free(&listing);
    if (renamed > 0)
        rp_log(RP_LOG_WARNING,
               "%s: %zu copies of checkpoints that were rewound are called NAME.rewound now",
               copies->path, renamed);
    return code;
}

static int apply_markers(struct rp_locked_dir *locked, struct rp_locked_dir *copies,
                         struct rewound *list, size_t count, struct rp_error *error)
{
    struct rp_storage *storage = locked->writer.storage;
    struct rp_listing listing;
    int code = rp_listing_open(&listing, locked->dir, locked->path, error);
    for (size_t i = 0; i < count && code == 0; i++) {
        struct rewound rewound = list[i];
        leave_out_usable(&rewound, &listing);
        code = rename_copies(copies, &rewound, error);
    }
    rp_listing_free(&listing);
    if (code < 0)
        return code;
    code = storage->sync_dir(storage, copies->dir);
    if (code < 0)
        return rp_fail(error, code, "no file is lost; start again",
                       "%s: cannot sync the directory: %s", copies->path, rp_strerror(code));
    for (size_t i = 0; i < count; i++) { /* No fsync: applying a marker twice is harmless. */
        char name[MARKER_NAME_BYTES];
        snprintf(name, sizeof name, MARKER_FORMAT, list[i].after, list[i].last);
        (void)storage->unlink(storage, locked->dir, name);
    }
    return 0;
}

int rp_locked_dir_rewind_copies(struct rp_locked_dir *locked, struct rp_locked_dir *copies,
                                struct rp_error *error)
{
    struct rewound *list = NULL;
    size_t count = 0;
    int code = find_markers(locked, &list, &count, error);
    if (code == 0 && count > 0) {
        code = rp_trial_finish(&locked->trial, error);
        if (code == 0)
            code = rp_trial_finish(&copies->trial, error);
        if (code == 0)
            code = apply_markers(locked, copies, list, count, error);
    }
    free(list);
    return code;
}
