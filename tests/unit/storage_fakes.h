/* SPDX-License-Identifier: Apache-2.0 */
/* storage_fakes.h — storages for tests of checkpoints.
 *
 * fast_storage() really writes, but into the page cache, and neither syncs nor waits. A `faulty`
 * storage counts the calls that go through it and spoils some of them. */
#ifndef RP_TESTS_STORAGE_FAKES_H
#define RP_TESTS_STORAGE_FAKES_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "base/bits.h"
#include "checkpoint/storage.h"

/* ---- fast ------------------------------------------------------------------------------------ */

static inline int fast_sync(struct rp_storage *storage, int fd)
{
    (void)storage;
    return fd >= 0 ? 0 : -EBADF;
}

static inline int fast_create(struct rp_storage *storage, int dir, const char *name)
{
    (void)storage;
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    return fd < 0 ? -errno : fd;
}

static inline int fast_reopen(struct rp_storage *storage, int dir, const char *name)
{
    (void)storage;
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static inline void fast_wait(struct rp_storage *storage, uint64_t ns)
{
    (void)storage;
    (void)ns;
}

static inline struct rp_storage fast_storage(void)
{
    struct rp_storage storage = rp_storage_system;
    storage.sync = storage.sync_dir = fast_sync;
    storage.create = fast_create;
    storage.reopen = fast_reopen;
    storage.wait = fast_wait;
    return storage;
}

/* ---- faulty ---------------------------------------------------------------------------------- */

enum fault {
    FAULT_CODE,        /* the call only returns `code` */
    FAULT_SHORT,       /* half of a write or read is done, and said so */
    FAULT_NOTHING,     /* a write or read says that 0 bytes were done */
    FAULT_LIE,         /* a read gives back a flipped bit */
    FAULT_KILL_BEFORE, /* SIGKILL in place of the call */
    FAULT_KILL_AFTER,
};

struct faulty {
    struct rp_storage storage; /* first: methods are called with a pointer to it */
    struct rp_storage real;
    bool armed, for_ever;
    enum fault fault;
    int code;
    unsigned at;    /* the number of the call, counted from arming, that is the first to fail */
    unsigned calls; /* since arming */
    unsigned hits, creates, waits;
    int synced[256]; /* fd -> fsyncs since it was created */
    int syncs_max;   /* with one inode */
};

static inline bool faulty_hit(struct rp_storage *storage)
{
    struct faulty *faulty = (struct faulty *)storage;
    unsigned number = faulty->calls++;
    bool hit = faulty->armed && (faulty->for_ever ? number >= faulty->at : number == faulty->at);
    faulty->hits += hit;
    if (hit && faulty->fault == FAULT_KILL_BEFORE)
        raise(SIGKILL);
    return hit;
}

/* After the call was really made. */
static inline void faulty_after(struct rp_storage *storage, bool hit)
{
    if (hit && ((struct faulty *)storage)->fault == FAULT_KILL_AFTER)
        raise(SIGKILL);
}

#define FAULTY_CALL(method, ...)                                                                   \
    struct faulty *faulty = (struct faulty *)storage;                                              \
    bool hit = faulty_hit(storage);                                                                \
    if (hit && faulty->fault == FAULT_CODE)                                                        \
        return faulty->code;                                                                       \
    int result = faulty->real.method(&faulty->real, __VA_ARGS__);                                  \
    faulty_after(storage, hit)

static inline int faulty_create(struct rp_storage *storage, int dir, const char *name)
{
    ((struct faulty *)storage)->creates++;
    FAULTY_CALL(create, dir, name);
    if (result >= 0 && result < (int)RP_ARRAY_COUNT(faulty->synced))
        faulty->synced[result] = 0;
    return result;
}
static inline int faulty_reserve(struct rp_storage *storage, int fd, uint64_t bytes)
{
    FAULTY_CALL(reserve, fd, bytes);
    return result;
}
static inline int faulty_sync(struct rp_storage *storage, int fd)
{
    struct faulty *self = (struct faulty *)storage;
    int syncs = ++self->synced[fd];
    self->syncs_max = syncs > self->syncs_max ? syncs : self->syncs_max;
    FAULTY_CALL(sync, fd);
    return result;
}
static inline int faulty_close(struct rp_storage *storage, int fd)
{
    struct faulty *faulty = (struct faulty *)storage;
    bool hit = faulty_hit(storage);
    int result = faulty->real.close(&faulty->real,
                                    fd); /* a close that fails has closed all the same */
    faulty_after(storage, hit);
    return hit && faulty->fault == FAULT_CODE ? faulty->code : result;
}
static inline int faulty_reopen(struct rp_storage *storage, int dir, const char *name)
{
    FAULTY_CALL(reopen, dir, name);
    return result;
}
static inline int faulty_rename(struct rp_storage *storage, int dir, const char *from,
                                const char *to)
{
    FAULTY_CALL(rename, dir, from, to);
    return result;
}
static inline int faulty_sync_dir(struct rp_storage *storage, int dir)
{
    FAULTY_CALL(sync_dir, dir);
    return result;
}
static inline int faulty_unlink(struct rp_storage *storage, int dir, const char *name)
{
    FAULTY_CALL(unlink, dir, name);
    return result;
}
static inline ssize_t faulty_write(struct rp_storage *storage, int fd, const void *data,
                                   size_t bytes, uint64_t offset)
{
    struct faulty *faulty = (struct faulty *)storage;
    bool hit = faulty_hit(storage);
    if (hit && faulty->fault == FAULT_CODE)
        return faulty->code;
    if (hit && faulty->fault == FAULT_NOTHING)
        return 0;
    if (hit && faulty->fault == FAULT_SHORT)
        bytes = (bytes + 1) / 2;
    ssize_t result = faulty->real.write(&faulty->real, fd, data, bytes, offset);
    faulty_after(storage, hit);
    return result;
}
static inline ssize_t faulty_read(struct rp_storage *storage, int fd, void *data, size_t bytes,
                                  uint64_t offset)
{
    struct faulty *faulty = (struct faulty *)storage;
    bool hit = faulty_hit(storage);
    if (hit && faulty->fault == FAULT_CODE)
        return faulty->code;
    if (hit && faulty->fault == FAULT_NOTHING)
        return 0;
    if (hit && faulty->fault == FAULT_SHORT && bytes > 4096)
        bytes = 4096;
    ssize_t result = faulty->real.read(&faulty->real, fd, data, bytes, offset);
    faulty_after(storage, hit);
    if (hit && faulty->fault == FAULT_LIE && result > 0)
        ((uint8_t *)data)[result / 2] ^= 1;
    return result;
}
static inline void faulty_wait(struct rp_storage *storage, uint64_t ns)
{
    (void)ns;
    ((struct faulty *)storage)->waits++;
}

static inline void faulty_init(struct faulty *faulty)
{
    memset(faulty, 0, sizeof *faulty);
    faulty->real = fast_storage();
    faulty->storage = (struct rp_storage){
        .create = faulty_create,
        .reserve = faulty_reserve,
        .write = faulty_write,
        .sync = faulty_sync,
        .close = faulty_close,
        .reopen = faulty_reopen,
        .read = faulty_read,
        .rename = faulty_rename,
        .sync_dir = faulty_sync_dir,
        .unlink = faulty_unlink,
        .wait = faulty_wait,
    };
}

static inline void faulty_arm(struct faulty *faulty, enum fault fault, int code, unsigned at,
                              bool for_ever)
{
    faulty->armed = true;
    faulty->fault = fault;
    faulty->code = code;
    faulty->at = at;
    faulty->for_ever = for_ever;
    faulty->calls = faulty->hits = faulty->creates = faulty->waits = 0;
    faulty->syncs_max = 0;
}

#endif
