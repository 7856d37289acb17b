/* SPDX-License-Identifier: Apache-2.0 */
/* quota.c — the lock and the record of a cache directory. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "cache/quota.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/out_dir.h"
#include "base/own_dir.h"

#define MAGIC 0x3145434153435052u /* "RPCSACE1" */
#define TRY_NS 1000000u
/* The record is in the first page; punching the second one tests the file system. */
#define SPACE_BYTES 4096

struct record {
    uint64_t magic, kept_bytes, is_locked;
    uint64_t hash; /* hash of the words before it: a power cut may leave any bytes in a record */
};

static int write_record(const struct rp_quota *quota, bool is_locked)
{
    struct record record = {
        .magic = MAGIC, .kept_bytes = quota->kept_bytes, .is_locked = is_locked};
    record.hash = rp_hash64(&record, offsetof(struct record, hash));
    ssize_t put;
    do
        put = pwrite(quota->fd, &record, sizeof record, 0);
    while (put < 0 && errno == EINTR);
    return put == sizeof record ? 0 : put < 0 ? -errno : -EIO;
}

static bool read_record(const struct rp_quota *quota, struct record *record)
{
    return pread(quota->fd, record, sizeof *record, 0) == sizeof *record &&
           record->magic == MAGIC &&
           record->hash == rp_hash64(record, offsetof(struct record, hash));
}

int rp_quota_open(struct rp_quota *quota, const char *directory, struct rp_error *error)
{
    *quota = (struct rp_quota){.directory = -1, .fd = -1};
    int code = rp_dir_make_caches(directory, error);
    if (code < 0)
        return code;
    quota->directory = rp_out_dir_open_read(directory, error);
    quota->fd = quota->directory < 0
                    ? quota->directory
                    : rp_out_file_open_at(quota->directory, "space", O_RDWR | O_CREAT, 0600,
                                          directory, error);
    if (quota->fd < 0) {
        code = quota->fd;
        rp_quota_close(quota);
        return code;
    }
    if (fallocate(quota->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, SPACE_BYTES, SPACE_BYTES) <
        0) {
        code = -errno;
        rp_quota_close(quota);
        return rp_fail(error, code, "name a directory on a local disk with `cache_dir`",
                       "%s: its file system cannot give back parts of a file: %s", directory,
                       rp_strerror(code));
    }
    return 0;
}

void rp_quota_close(struct rp_quota *quota)
{
    if (quota->fd >= 0)
        close(quota->fd);
    if (quota->directory >= 0)
        close(quota->directory);
    quota->fd = quota->directory = -1;
}

int rp_quota_lock(struct rp_quota *quota, uint32_t wait_ms)
{
    uint64_t until = rp_now_ns() + (uint64_t)wait_ms * 1000000u;
    RP_ASSERT(!quota->is_locked);
    while (flock(quota->fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return -errno;
        if (rp_now_ns() >= until)
            return -EWOULDBLOCK;
        rp_sleep_ns(TRY_NS);
    }
    struct record record;
    bool is_known = read_record(quota, &record) && !record.is_locked;
    quota->kept_bytes = is_known ? record.kept_bytes : 0;
    int code = write_record(quota, true);
    if (code < 0) {
        (void)flock(quota->fd, LOCK_UN);
        return code;
    }
    quota->is_locked = true;
    return is_known ? RP_QUOTA_COUNTED : RP_QUOTA_UNKNOWN;
}

/* If the write fails, the next holder counts the pages. */
void rp_quota_unlock(struct rp_quota *quota)
{
    RP_ASSERT(quota->is_locked);
    (void)!write_record(quota, false);
    quota->is_locked = false;
    (void)flock(quota->fd, LOCK_UN);
}

void rp_quota_leave(struct rp_quota *quota)
{
    RP_ASSERT(quota->is_locked);
    quota->is_locked = false;
    (void)flock(quota->fd, LOCK_UN);
}

uint64_t rp_quota_peek(const struct rp_quota *quota)
{
    struct record record;
    return read_record(quota, &record) ? record.kept_bytes : 0;
}
