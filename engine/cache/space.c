/* SPDX-License-Identifier: Apache-2.0 */
/* space — see space.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "cache/space.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/out_dir.h"
#include "base/own_dir.h"

#define MAGIC 0x3145434153435052u /* "RPCSACE1" */
#define TRY_NS 1000000u
/* The file itself is one page. Its second page is punched, to see whether that works. */
#define SPACE_BYTES 4096

struct record {
    uint64_t magic, kept_bytes, is_locked;
    uint64_t hash; /* of the words before it: after a power cut, a record may be any bytes */
};

static int write_record(const struct rp_space *space, bool is_locked)
{
    struct record record = {
        .magic = MAGIC, .kept_bytes = space->kept_bytes, .is_locked = is_locked};
    record.hash = rp_hash64(&record, offsetof(struct record, hash));
    ssize_t put;
    do
        put = pwrite(space->fd, &record, sizeof record, 0);
    while (put < 0 && errno == EINTR);
    return put == sizeof record ? 0 : put < 0 ? -errno : -EIO;
}

static bool read_record(const struct rp_space *space, struct record *record)
{
    return pread(space->fd, record, sizeof *record, 0) == sizeof *record &&
           record->magic == MAGIC &&
           record->hash == rp_hash64(record, offsetof(struct record, hash));
}

int rp_space_open(struct rp_space *space, const char *directory, struct rp_error *error)
{
    *space = (struct rp_space){.directory = -1, .fd = -1};
    int code = rp_dir_make_caches(directory, error);
    if (code < 0)
        return code;
    space->directory = rp_out_dir_open_read(directory, error);
    space->fd = space->directory < 0
                    ? space->directory
                    : rp_out_file_open_at(space->directory, "space", O_RDWR | O_CREAT, 0600,
                                          directory, error);
    if (space->fd < 0) {
        code = space->fd;
        rp_space_close(space);
        return code;
    }
    if (fallocate(space->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, SPACE_BYTES, SPACE_BYTES) <
        0) {
        code = -errno;
        rp_space_close(space);
        return rp_fail(error, code, "name a directory on a local disk with `cache_dir`",
                       "%s: its file system cannot give back parts of a file: %s", directory,
                       rp_strerror(code));
    }
    return 0;
}

void rp_space_close(struct rp_space *space)
{
    if (space->fd >= 0)
        close(space->fd);
    if (space->directory >= 0)
        close(space->directory);
    space->fd = space->directory = -1;
}

int rp_space_lock(struct rp_space *space, uint32_t wait_ms)
{
    uint64_t until = rp_now_ns() + (uint64_t)wait_ms * 1000000u;
    RP_ASSERT(!space->is_locked);
    while (flock(space->fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return -errno;
        if (rp_now_ns() >= until)
            return -EWOULDBLOCK;
        rp_sleep_ns(TRY_NS);
    }
    struct record record;
    bool is_known = read_record(space, &record) && !record.is_locked;
    space->kept_bytes = is_known ? record.kept_bytes : 0;
    int code = write_record(space, true);
    if (code < 0) {
        (void)flock(space->fd, LOCK_UN);
        return code;
    }
    space->is_locked = true;
    return is_known ? RP_SPACE_COUNTED : RP_SPACE_UNKNOWN;
}

/* If the record cannot be written, the next holder counts anew. */
void rp_space_unlock(struct rp_space *space)
{
    RP_ASSERT(space->is_locked);
    (void)!write_record(space, false);
    space->is_locked = false;
    (void)flock(space->fd, LOCK_UN);
}

void rp_space_leave(struct rp_space *space)
{
    RP_ASSERT(space->is_locked);
    space->is_locked = false;
    (void)flock(space->fd, LOCK_UN);
}

uint64_t rp_space_peek(const struct rp_space *space)
{
    struct record record;
    return read_record(space, &record) ? record.kept_bytes : 0;
}
