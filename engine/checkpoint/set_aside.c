/* SPDX-License-Identifier: Apache-2.0 */
/* set_aside.c — for a run that starts at row 0 again: move the checkpoints of a directory into a
 * new directory inside it, set-aside-DATE-N, where they are never pruned.
 *
 * Invariants
 *
 *   A1  No file is removed or overwritten: the directory is new, and files keep their names.
 *
 *   A2  The newest checkpoint moves last. After a kill before that, the next start resumes from the
 *       newest checkpoint, as if none had been set aside.
 *
 *   A3  New sequence numbers are above those that were set aside, so that files can be moved back.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "checkpoint/locked_dir.h"
#include "checkpoint/listing.h"

#define NAMES_MAX 100000u

static bool is_set_aside_name(const char *name)
{
    return strncmp(name, RP_SET_ASIDE_PREFIX, strlen(RP_SET_ASIDE_PREFIX)) == 0;
}

/* Make the first set-aside-DATE-N that does not exist. The date is for people, N for order. */
static int make_directory(const struct rp_locked_dir *locked, char name[RP_SET_ASIDE_NAME_BYTES],
                          struct rp_error *error)
{
    time_t now = time(NULL);
    struct tm utc = {0};
    gmtime_r(&now, &utc);
    int code = -EEXIST;
    for (unsigned n = 1; n < NAMES_MAX && code == -EEXIST; n++) {
        snprintf(name, RP_SET_ASIDE_NAME_BYTES, RP_SET_ASIDE_PREFIX "%04d%02d%02d-%u",
                 utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday, n);
        code = mkdirat(locked->dir, name, 0700) < 0 ? -errno : 0;
    }
    return code < 0 ? rp_fail(error, code, "the run is unchanged; make the directory writable",
                              "%s/%s: cannot create the directory: %s", locked->path, name,
                              rp_strerror(code))
                    : 0;
}

static int sync_directories(const struct rp_locked_dir *locked, const char *name)
{
    struct rp_storage *storage = locked->writer.storage;
    int fd = openat(locked->dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int code = fd < 0 ? -errno : storage->sync_dir(storage, fd);
    if (fd >= 0)
        close(fd);
    return code < 0 ? code : storage->sync_dir(storage, locked->dir);
}

static int move_all(const struct rp_locked_dir *locked, const struct rp_listing *listing,
                    const char *name, struct rp_error *error)
{
    struct rp_storage *storage = locked->writer.storage;
    int code = 0;
    for (size_t i = listing->count; i-- > 0 && code == 0;) { /* A2: oldest first */
        char to[RP_SET_ASIDE_NAME_BYTES + RP_NAME_BYTES + 1];
        snprintf(to, sizeof to, "%s/%s", name, listing->names[i].text);
        code = storage->rename(storage, locked->dir, listing->names[i].text, to);
    }
    if (code == 0)
        code = sync_directories(locked, name);
    return code < 0 ? rp_fail(error, code, "no file is lost; run the same command again",
                              "%s: cannot move its checkpoints to %s: %s", locked->path, name,
                              rp_strerror(code))
                    : 0;
}

int rp_locked_dir_set_aside(const struct rp_locked_dir *locked, struct rp_error *error)
{
    struct rp_listing listing;
    char name[RP_SET_ASIDE_NAME_BYTES];
    RP_ASSERT(!locked->trial.is_under_way);
    int code = rp_listing_open(&listing, locked->dir, locked->path, error);
    size_t count = code == 0 ? listing.count : 0;
    if (code == 0 && listing.count > 0) {
        code = make_directory(locked, name, error);
        if (code == 0)
            code = move_all(locked, &listing, name, error);
        if (code == 0)
            rp_log(RP_LOG_WARNING, "%zu checkpoints were set aside in %s/%s", listing.count,
                   locked->path, name);
    }
    rp_listing_free(&listing);
    return code < 0 ? code : (int)rp_min_u64(count, INT_MAX);
}

int rp_set_aside_list(int dir, const char *path, struct rp_set_aside **list_out, size_t *count_out,
                      struct rp_error *error)
{
    *list_out = NULL;
    *count_out = 0;
    DIR *stream;
    int code = rp_names_open(&stream, dir, path, error);
    if (code < 0)
        return code;
    for (struct dirent *entry; code == 0 && (entry = readdir(stream)) != NULL;) {
        if (!is_set_aside_name(entry->d_name) || strlen(entry->d_name) >= RP_SET_ASIDE_NAME_BYTES)
            continue;
        struct rp_set_aside found = {.count = 0};
        struct rp_listing listing;
        int inner = openat(dir, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (inner < 0)
            continue;
        snprintf(found.name, sizeof found.name, "%s", entry->d_name);
        code = rp_listing_open(&listing, inner, entry->d_name, error);
        if (code == 0 && listing.count > 0) {
            found.count = listing.count;
            found.newest_sequence = listing.names[0].sequence;
            found.oldest_sequence = listing.names[listing.count - 1].sequence;
        }
        rp_listing_free(&listing);
        close(inner);
        struct rp_set_aside *added = RP_APPEND(*list_out, *count_out);
        if (added)
            *added = found;
        else
            code = rp_fail(error, -ENOMEM, NULL, "%s: no memory for a list", path);
    }
    closedir(stream);
    return code;
}
