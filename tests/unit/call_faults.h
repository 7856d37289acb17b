/* SPDX-License-Identifier: Apache-2.0 */
/* call_faults.h — system calls that fail when they are told to, for code that makes them itself and
 * not through a table. A test that includes this stands in front of the C library. */
#ifndef RP_TESTS_CALL_FAULTS_H
#define RP_TESTS_CALL_FAULTS_H

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

static struct {
    bool armed, for_ever;
    unsigned at;    /* number of the call, from 0, that is the first to fail */
    unsigned calls; /* so far */
    int error;      /* errno of the failure */
} call_orders;

static inline void calls_spoil(unsigned at, int error, bool for_ever)
{
    call_orders.at = at;
    call_orders.error = error;
    call_orders.for_ever = for_ever;
    call_orders.calls = 0;
    call_orders.armed = true;
}

/* All is well again. Returns how many calls there were. */
static inline unsigned calls_mend(void)
{
    call_orders.armed = false;
    return call_orders.calls;
}

static inline bool call_fails(void)
{
    if (!call_orders.armed)
        return false;
    unsigned number = call_orders.calls++;
    bool fails = call_orders.for_ever ? number >= call_orders.at : number == call_orders.at;
    if (fails)
        errno = call_orders.error;
    return fails;
}

#define CALL_FAULT(type, failure, name, parameters, arguments)                                     \
    type name parameters                                                                           \
    {                                                                                              \
        static type(*next) parameters;                                                             \
        if (!next)                                                                                 \
            *(void **)&next = dlsym(RTLD_NEXT, #name);                                             \
        return call_fails() ? failure : next arguments;                                            \
    }

#ifndef __SANITIZE_THREAD__ /* it calls them before it can be asked; the tests are left out */
CALL_FAULT(int, -1, open, (const char *path, int flags, ...), (path, flags, 0600))
CALL_FAULT(int, -1, openat, (int dir, const char *path, int flags, ...), (dir, path, flags, 0600))
CALL_FAULT(ssize_t, -1, pread, (int fd, void *data, size_t bytes, off_t offset),
           (fd, data, bytes, offset))
CALL_FAULT(int, -1, stat, (const char *restrict path, struct stat *restrict info), (path, info))
CALL_FAULT(int, -1, fstat, (int fd, struct stat *info), (fd, info))
CALL_FAULT(int, -1, fstatat,
           (int dir, const char *restrict path, struct stat *restrict info, int flags),
           (dir, path, info, flags))
CALL_FAULT(DIR *, NULL, fdopendir, (int fd), (fd))
CALL_FAULT(struct dirent *, NULL, readdir, (DIR * dir), (dir))
CALL_FAULT(int, -1, renameat2,
           (int from_dir, const char *from, int to_dir, const char *to, unsigned flags),
           (from_dir, from, to_dir, to, flags))
CALL_FAULT(int, -1, fsync, (int fd), (fd))
#endif

#endif
