/* SPDX-License-Identifier: Apache-2.0 */
/* storage.c — the table of storage.h over system calls. */
#include "checkpoint/storage.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"

/* The result of a call that returns -1 and errno, repeated while a signal interrupts it. */
#define RESULT_OF(call)                                                                            \
    ({                                                                                             \
        __typeof__(call) result_;                                                                  \
        do                                                                                         \
            result_ = (call);                                                                      \
        while (result_ < 0 && errno == EINTR);                                                     \
        result_ < 0 ? (__typeof__(result_))-errno : result_;                                       \
    })

/* Direct I/O keeps the corpus in the page cache, is faster (a first buffered write of 256 MiB took
 * 700 ms, a direct one 85), and makes reads come from the disk. Some file systems do not support
 * it, and some of these report it only at the first read or write. */
void rp_storage_direct(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags >= 0)
        (void)fcntl(fd, F_SETFL, flags | O_DIRECT);
}

/* If `result` is how a file system refuses direct I/O, switch it off and return true: the call is
 * to be repeated. */
static bool direct_refused(int fd, ssize_t result)
{
    int flags = result == -EINVAL ? fcntl(fd, F_GETFL) : 0;
    return flags > 0 && (flags & O_DIRECT) && fcntl(fd, F_SETFL, flags & ~O_DIRECT) == 0;
}

static int system_create(struct rp_storage *storage, int dir, const char *name)
{
    (void)storage;
    int fd = RESULT_OF(
        openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (fd >= 0) /* not a flag of openat: a file system that refuses it has created the file then */
        rp_storage_direct(fd);
    return fd;
}

static int system_reserve(struct rp_storage *storage, int fd, uint64_t bytes)
{
    (void)storage;
    int code = RESULT_OF(fallocate(fd, 0, 0, (off_t)bytes));
    return code == -EOPNOTSUPP ? 0 : code; /* NFSv3 and others: writing finds a full disk */
}

static ssize_t system_write(struct rp_storage *storage, int fd, const void *data, size_t bytes,
                            uint64_t offset)
{
    (void)storage;
    ssize_t result = RESULT_OF(pwrite(fd, data, bytes, (off_t)offset));
    return direct_refused(fd, result) ? RESULT_OF(pwrite(fd, data, bytes, (off_t)offset)) : result;
}

/* Not repeated, not even after EINTR: after a failed fsync the kernel has dropped the pages, and a
 * second fsync would succeed without them. */
static int system_sync(struct rp_storage *storage, int fd)
{
    (void)storage;
    return fsync(fd) < 0 ? -errno : 0;
}

static int system_close(struct rp_storage *storage, int fd)
{
    (void)storage;
    return close(fd) < 0 && errno != EINTR ? -errno : 0;
}

/* POSIX_FADV_DONTNEED is for file systems that refuse direct I/O: it drops clean pages, and after
 * the fsync all pages are clean. */
static int system_reopen(struct rp_storage *storage, int dir, const char *name)
{
    (void)storage;
    int fd = RESULT_OF(openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
    if (fd >= 0) {
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        rp_storage_direct(fd);
    }
    return fd;
}

static ssize_t system_read(struct rp_storage *storage, int fd, void *data, size_t bytes,
                           uint64_t offset)
{
    (void)storage;
    ssize_t result = RESULT_OF(pread(fd, data, bytes, (off_t)offset));
    return direct_refused(fd, result) ? RESULT_OF(pread(fd, data, bytes, (off_t)offset)) : result;
}

static int system_rename(struct rp_storage *storage, int dir, const char *from, const char *to)
{
    (void)storage;
    int code = RESULT_OF(renameat2(dir, from, dir, to, RENAME_NOREPLACE));
    if (code != -EINVAL && code != -ENOSYS)
        return code;
    /* The file system does not support RENAME_NOREPLACE (NFS). The directory is locked, so no other
     * ringpack creates `to` between these two calls. */
    struct stat info;
    if (fstatat(dir, to, &info, AT_SYMLINK_NOFOLLOW) == 0)
        return -EEXIST;
    return RESULT_OF(renameat(dir, from, dir, to));
}

static int system_sync_dir(struct rp_storage *storage, int dir)
{
    (void)storage;
    /* EINVAL: the file system does not support fsync of a directory. */
    return fsync(dir) < 0 && errno != EINVAL ? -errno : 0;
}

static int system_unlink(struct rp_storage *storage, int dir, const char *name)
{
    (void)storage;
    return RESULT_OF(unlinkat(dir, name, 0));
}

static void system_wait(struct rp_storage *storage, uint64_t ns)
{
    (void)storage;
    rp_sleep_ns(ns);
}

struct rp_storage rp_storage_system = {
    .create = system_create,
    .reserve = system_reserve,
    .write = system_write,
    .sync = system_sync,
    .close = system_close,
    .reopen = system_reopen,
    .read = system_read,
    .rename = system_rename,
    .sync_dir = system_sync_dir,
    .unlink = system_unlink,
    .wait = system_wait,
};
