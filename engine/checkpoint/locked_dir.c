/* SPDX-License-Identifier: Apache-2.0 */
/* locked_dir.c — see locked_dir.h.
 *
 * Invariants
 *
 *   P1  At most one process writes into a directory: the one that holds an flock on .lock. The
 *       kernel drops the lock when the process ends. The text in the file is for people only.
 *       Removing .lock breaks this, and one of two processes finds it out: a lock is taken only if
 *       it is still the file of that name, and each save checks again.
 *
 *   P2  The holder of the lock may remove every temporary file of ringpack in the directory: the
 *       process that wrote it has ended. */
#include "checkpoint/locked_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/file.h"
#include "base/lock_holder.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/out_dir.h"
#include "checkpoint/directory_id.h"
#include "checkpoint/reader.h"
#include "checkpoint/listing.h"

#define LOCK_NAME ".lock"
#define HOLDER_BYTES 96 /* the text in the lock file, padded with zeros */
#define TRIES_MAX 8u    /* to open the file that has the lock's name */

static int fail_errno(struct rp_error *error, const char *path, const char *verb)
{
    int code = -errno;
    const char *hint = NULL;
    if (code == -EACCES || code == -EPERM || code == -EROFS)
        hint = "make the directory writable for this user, or give another one";
    else if (code == -ENOENT)
        hint = "give a directory that exists";
    else if (code == -ELOOP)
        hint = LOCK_NAME " is a symbolic link, which is not followed: remove it";
    return rp_fail(error, code, hint, "%s: cannot %s: %s", path, verb, rp_strerror(code));
}

/* ---- the lock -------------------------------------------------------------------------------- */

static int fail_busy(const struct rp_locked_dir *locked, struct rp_error *error)
{
    char holder[HOLDER_BYTES + 1] = {0};
    ssize_t bytes = pread(locked->lock, holder, HOLDER_BYTES, 0);
    for (ssize_t i = 0; i < bytes; i++)
        if (holder[i] < 0x20 || holder[i] > 0x7e)
            holder[i] = 0; /* the first line, as far as it is printable */
    return rp_fail(error, -RP_E_BUSY, "stop that process, or give this run a directory of its own",
                   "%s: another ringpack writes here: process %s", locked->path,
                   holder[0] ? holder : "(not known)");
}

/* Does the name of the lock lead to the held file? */
enum lock_name { LOCK_UNKNOWN, LOCK_HELD, LOCK_OTHER };
static enum lock_name check_lock(const struct rp_locked_dir *locked)
{
    struct stat held, found;
    if (fstat(locked->lock, &held) < 0 ||
        fstatat(locked->dir, LOCK_NAME, &found, AT_SYMLINK_NOFOLLOW) < 0)
        return LOCK_UNKNOWN;
    return held.st_ino == found.st_ino ? LOCK_HELD : LOCK_OTHER;
}

/* One try at the lock. */
static int open_lock(struct rp_locked_dir *locked, struct rp_error *error)
{
    locked->lock = rp_out_file_open_at(locked->dir, LOCK_NAME, O_RDWR | O_CREAT | O_NONBLOCK, 0600,
                                       locked->path, error);
    if (locked->lock == -EPERM)
        return -EPERM; /* another user's */
    errno = -locked->lock;
    if (locked->lock < 0)
        return fail_errno(error, locked->path, "open " LOCK_NAME " in it");
    int code = rp_file_lock(locked->lock);
    if (code == -EWOULDBLOCK)
        return fail_busy(locked, error);
    return code < 0 ? rp_file_fail_lock(error, code, locked->path) : 0;
}

/* A lock file that was removed after it was opened excludes no other process, so the file that has
 * its name now is tried. */
static int take_lock(struct rp_locked_dir *locked, struct rp_error *error)
{
    bool is_ours = false;
    for (unsigned tries = 0; tries < TRIES_MAX && !is_ours; tries++) {
        if (locked->lock >= 0)
            close(locked->lock);
        int code = open_lock(locked, error);
        if (code < 0)
            return code;
        is_ours = check_lock(locked) == LOCK_HELD;
    }
    locked->is_watched = locked->is_watched && is_ours;
    char host[RP_HOST_BYTES], text[HOLDER_BYTES] = {0};
    rp_host_name(host);
    snprintf(text, sizeof text, "%ld on %s\n", (long)getpid(), host);
    ssize_t written = pwrite(locked->lock, text, sizeof text, 0);
    (void)written; /* for people only (P1) */
    return 0;
}

/* ---- sweeping -------------------------------------------------------------------------------- */

/* Whether the entry is a temporary file of ringpack. Other programs may also keep files here, with
 * names like `.*.tmp` among them. */
static bool is_left_over(const char *entry)
{
    char name[RP_WRITER_NAME_MAX];
    struct rp_name ignored;
    return strcmp(entry, RP_TRIAL_NAME) == 0 ||
           (rp_writer_name_of(name, entry) &&
            (strcmp(name, RP_TRIAL_NAME) == 0 || strcmp(name, RP_DIRECTORY_ID_NAME) == 0 ||
             rp_name_parse(&ignored, name)));
}

/* P2. A file that cannot be removed does no harm: its sequence is never used again. */
static int sweep(struct rp_locked_dir *locked, struct rp_error *error)
{
    DIR *stream;
    int code = rp_names_open(&stream, locked->dir, locked->path, error);
    if (code < 0)
        return code;
    for (struct dirent *entry; (entry = readdir(stream)) != NULL;) {
        if (is_left_over(entry->d_name) &&
            locked->writer.storage->unlink(locked->writer.storage, locked->dir, entry->d_name) < 0)
            rp_log(RP_LOG_WARNING, "%s/%s: a killed run left it and it cannot be removed",
                   locked->path, entry->d_name);
    }
    closedir(stream);
    return 0;
}

static int find_newest_sequence(struct rp_locked_dir *locked, struct rp_error *error)
{
    struct rp_listing listing;
    int code = rp_listing_open(&listing, locked->dir, locked->path, error);
    if (code == 0 && listing.count > 0)
        locked->newest_sequence = listing.names[0].sequence;
    rp_listing_free(&listing);
    struct rp_set_aside *asides = NULL;
    size_t count = 0;
    if (code == 0)
        code = rp_set_aside_list(locked->dir, locked->path, &asides, &count, error);
    for (size_t i = 0; i < count; i++) /* set_aside.c, A3 */
        locked->newest_sequence = rp_max_u64(locked->newest_sequence, asides[i].newest_sequence);
    free(asides);
    return code;
}

/* ---- checks before a save -------------------------------------------------------------------- */

/* Whether the path leads to no directory or to another one. False if that cannot be found out:
 * the save itself will fail then, with a better message. */
static bool is_elsewhere(const struct rp_locked_dir *locked)
{
    struct stat held, found;
    if (fstat(locked->dir, &held) < 0)
        return false;
    if (stat(locked->path, &found) < 0)
        return errno == ENOENT || errno == ENOTDIR;
    return held.st_dev != found.st_dev || held.st_ino != found.st_ino;
}

int rp_locked_dir_check(const struct rp_locked_dir *locked, struct rp_error *error)
{
    RP_ASSERT(!locked->trial.is_under_way);
    if (!locked->is_watched)
        return 0;
    if (check_lock(locked) == LOCK_OTHER) /* it was removed, and another process made a new one */
        return rp_fail(error, -RP_E_BUSY,
                       "stop one of the two; never remove " LOCK_NAME ": a lock ends with its "
                       "process",
                       "%s: " LOCK_NAME " was removed, and another ringpack writes here now",
                       locked->path);
    if (!is_elsewhere(locked))
        return 0;
    return rp_fail(error, -ENOENT,
                   "it was moved, removed or mounted over while it was in use; bring it back and "
                   "restart",
                   "%s: the checkpoint directory is not there any more: %s", locked->path,
                   rp_strerror(-ENOENT));
}

/* ---- open and close -------------------------------------------------------------------------- */

static int open_directory(struct rp_locked_dir *locked, bool make, struct rp_error *error)
{
    struct stat info;
    const char *path = locked->path;
    locked->is_new = stat(path, &info) < 0 && errno == ENOENT;
    int code = make ? rp_dir_make_unsynced(path, error) : 0; /* the trial syncs the names */
    if (code < 0)
        return code;
    for (unsigned tries = 0; tries < TRIES_MAX && !locked->is_watched; tries++) {
        if (locked->dir >= 0)
            close(locked->dir);
        locked->dir = rp_out_dir_open_read(path, error);
        errno = -locked->dir;
        if (locked->dir < 0)
            return locked->dir == -EPERM ? -EPERM : fail_errno(error, path, "open the directory");
        locked->is_watched = !is_elsewhere(locked);
    }
    if (fstat(locked->dir, &info) == 0 && (info.st_mode & S_IWOTH))
        rp_log(RP_LOG_WARNING,
               "%s: everybody can write into this checkpoint directory: chmod 700 is safer", path);
    return 0;
}

int rp_locked_dir_begin(struct rp_locked_dir *locked, const struct rp_checkpoint_place *place,
                        bool make, struct rp_error *error)
{
    const char *path = place->path;
    uint32_t keep = place->keep;
    size_t buffer_bytes = place->buffer_bytes ? place->buffer_bytes : RP_WRITER_BUFFER_BYTES;
    RP_ASSERT(buffer_bytes % (2 * RP_CHECKPOINT_PAGE_BYTES) == 0 &&
              buffer_bytes <= RP_WRITER_BUFFER_BYTES);
    *locked = (struct rp_locked_dir){
        .dir = -1, .lock = -1, .keep = keep, .damaged_mutex = PTHREAD_MUTEX_INITIALIZER};
    if (keep < RP_LOCKED_DIR_KEEP_MIN || keep > RP_LOCKED_DIR_KEEP_MAX)
        return rp_fail(error, -RP_E_CONFIG, "set checkpoint_keep to 3",
                       "%s: cannot keep %" PRIu32 " checkpoints: expected %u to %u", path, keep,
                       RP_LOCKED_DIR_KEEP_MIN, RP_LOCKED_DIR_KEEP_MAX);
    locked->path = strdup(path);
    int code = locked->path ? open_directory(locked, make, error)
                            : rp_fail(error, -ENOMEM, NULL, "%s: no memory to open it", path);
    if (code == 0) {
        uint8_t *buffer = rp_take_pages(RP_WRITER_BUFFER_BYTES);
        locked->writer = (struct rp_writer){.storage = place->storage ? place->storage
                                                                      : &rp_storage_system,
                                            .dir = locked->dir,
                                            .path = locked->path,
                                            .buffer = buffer,
                                            .buffer_bytes = buffer_bytes};
        locked->trial = (struct rp_trial){.writer = &locked->writer, .sync_names = make};
        if (!buffer)
            code = rp_fail(error, -ENOMEM, NULL, "%s: no memory to open it", path);
    }
    if (code == 0)
        code = take_lock(locked, error);
    if (code == 0)
        code = sweep(locked, error);
    if (code == 0)
        code = find_newest_sequence(locked, error);
    if (code < 0) {
        rp_locked_dir_close(locked);
        return code;
    }
    rp_trial_begin(&locked->trial);
    return 0;
}

int rp_locked_dir_open(struct rp_locked_dir *locked, const char *path, struct rp_error *error)
{
    const struct rp_checkpoint_place place = {.path = path, .keep = RP_LOCKED_DIR_KEEP_MIN};
    int code = rp_locked_dir_begin(locked, &place, false, error);
    if (code < 0)
        return code;
    code = rp_trial_finish(&locked->trial, error);
    if (code < 0)
        rp_locked_dir_close(locked);
    return code;
}

void rp_locked_dir_close(struct rp_locked_dir *locked)
{
    (void)!rp_trial_finish(&locked->trial, NULL);
    if (locked->lock >= 0)
        close(locked->lock);
    if (locked->dir >= 0)
        close(locked->dir);
    rp_give_pages(locked->writer.buffer, RP_WRITER_BUFFER_BYTES);
    free(locked->known);
    free(locked->path);
    *locked = (struct rp_locked_dir){.dir = -1, .lock = -1};
}

void rp_locked_dir_remove(const char *path)
{
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return;
    (void)unlinkat(dir, LOCK_NAME, 0);
    (void)unlinkat(dir, RP_TRIAL_NAME, 0);
    close(dir);
    (void)rmdir(path);
}
