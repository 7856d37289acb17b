/* SPDX-License-Identifier: Apache-2.0 */
/* system_faults.h — every system call of a module fails on command: all of them counted, or the
 * calls of one name. A test that includes this stands in front of the C library.
 *
 * Also every_call() and every_allocation(), which fail one after the other under an operation and
 * check each: a code has a message, no descriptor stays open, and with all well again it works. */
#ifndef RP_TESTS_SYSTEM_FAULTS_H
#define RP_TESTS_SYSTEM_FAULTS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/fail.h"
#include "memory_faults.h"

#define FAULTS_MAX 5000u /* no operation of a test makes as many calls */

static struct {
    bool armed;
    const char *only; /* NULL: calls of every name */
    unsigned at;      /* the first that fails, counted from 0 */
    unsigned failing; /* how many of them, one after the other */
    unsigned calls;   /* so far */
    int error;
} system_orders;

static inline void system_spoil(const char *only, unsigned at, unsigned failing, int error)
{
    system_orders.only = only;
    system_orders.at = at;
    system_orders.failing = failing;
    system_orders.error = error;
    system_orders.calls = 0;
    system_orders.armed = true;
}

/* All is well again. Returns how many calls there were. */
static inline unsigned system_mend(void)
{
    system_orders.armed = false;
    return system_orders.calls;
}

static inline bool system_fails(const char *name)
{
    if (!system_orders.armed || (system_orders.only && strcmp(name, system_orders.only)))
        return false;
    unsigned number = system_orders.calls++;
    bool fails = number >= system_orders.at && number - system_orders.at < system_orders.failing;
    if (fails)
        errno = system_orders.error;
    return fails;
}

#define SYSTEM_FAULT(type, name, parameters, arguments)                                            \
    SYSTEM_FAULT_AS(type, -1, name, parameters, arguments)
#define SYSTEM_FAULT_AS(type, failure, name, parameters, arguments)                                \
    type name parameters                                                                           \
    {                                                                                              \
        static type(*next) parameters;                                                             \
        if (!next)                                                                                 \
            *(void **)&next = dlsym(RTLD_NEXT, #name);                                             \
        return system_fails(#name) ? failure : next arguments;                                     \
    }

#ifndef __SANITIZE_THREAD__ /* it calls them too early; the tests are left out */
SYSTEM_FAULT(int, open, (const char *path, int flags, ...), (path, flags, 0600))
SYSTEM_FAULT(int, openat, (int dir, const char *path, int flags, ...), (dir, path, flags, 0600))
SYSTEM_FAULT(ssize_t, pread, (int fd, void *data, size_t bytes, off_t offset),
             (fd, data, bytes, offset))
SYSTEM_FAULT(ssize_t, pwrite, (int fd, const void *data, size_t bytes, off_t offset),
             (fd, data, bytes, offset))
SYSTEM_FAULT(ssize_t, write, (int fd, const void *data, size_t bytes), (fd, data, bytes))
SYSTEM_FAULT(int, stat, (const char *restrict path, struct stat *restrict info), (path, info))
SYSTEM_FAULT(int, fstat, (int fd, struct stat *info), (fd, info))
SYSTEM_FAULT(int, fstatat,
             (int dir, const char *restrict path, struct stat *restrict info, int flags),
             (dir, path, info, flags))
SYSTEM_FAULT(int, fsync, (int fd), (fd))
SYSTEM_FAULT(int, fallocate, (int fd, int mode, off_t offset, off_t bytes),
             (fd, mode, offset, bytes))
SYSTEM_FAULT(int, ftruncate, (int fd, off_t bytes), (fd, bytes))
SYSTEM_FAULT(int, fchmod, (int fd, mode_t mode), (fd, mode))
SYSTEM_FAULT(int, flock, (int fd, int operation), (fd, operation))
SYSTEM_FAULT(int, renameat, (int from_dir, const char *from, int to_dir, const char *to),
             (from_dir, from, to_dir, to))
SYSTEM_FAULT(int, renameat2,
             (int from_dir, const char *from, int to_dir, const char *to, unsigned flags),
             (from_dir, from, to_dir, to, flags))
SYSTEM_FAULT(int, unlinkat, (int dir, const char *path, int flags), (dir, path, flags))
SYSTEM_FAULT_AS(DIR *, NULL, fdopendir, (int fd), (fd))
SYSTEM_FAULT_AS(struct dirent *, NULL, readdir, (DIR * dir), (dir))
SYSTEM_FAULT(int, memfd_create, (const char *name, unsigned flags), (name, flags))
SYSTEM_FAULT(int, madvise, (void *data, size_t bytes, int advice), (data, bytes, advice))
SYSTEM_FAULT(int, socket, (int domain, int type, int protocol), (domain, type, protocol))
SYSTEM_FAULT(int, listen, (int fd, int backlog), (fd, backlog))
SYSTEM_FAULT(int, poll, (struct pollfd * entries, nfds_t count, int timeout_ms),
             (entries, count, timeout_ms))
SYSTEM_FAULT(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags),
             (fd, message, flags))
SYSTEM_FAULT(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags), (fd, message, flags))
SYSTEM_FAULT(int, getsockopt,
             (int fd, int level, int option, void *restrict value, socklen_t *restrict bytes),
             (fd, level, option, value, bytes))

#ifdef __USE_GNU /* the C library's own prototypes: a union of all kinds of addresses */
SYSTEM_FAULT(int, accept4, (int fd, __SOCKADDR_ARG address, socklen_t *restrict bytes, int flags),
             (fd, address, bytes, flags))
SYSTEM_FAULT(int, connect, (int fd, __CONST_SOCKADDR_ARG address, socklen_t bytes),
             (fd, address, bytes))
#endif

/* The third argument is a number or a pointer; a register holds either. */
int fcntl(int fd, int command, ...)
{
    static int (*next)(int fd, int command, ...);
    va_list list;
    va_start(list, command);
    void *argument = va_arg(list, void *);
    va_end(list);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "fcntl");
    return system_fails("fcntl") ? -1 : next(fd, command, argument);
}

int close(int fd) /* a failed close has closed all the same */
{
    static int (*next)(int fd);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "close");
    int code = next(fd);
    return system_orders.only && system_fails("close") ? -1 : code;
}
#endif

static inline unsigned open_descriptors(void)
{
    unsigned count = 0;
    for (int fd = 0; fd < 256; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static inline void hold_after_fault(int (*operate)(struct rp_error *error), int code,
                                    const struct rp_error *error, unsigned at, unsigned descriptors)
{
    struct rp_error after = {0};
    if (code < 0 && error->message[0] == '\0')
        fail_msg("failure %u: code %d without a message", at, code);
    if (open_descriptors() != descriptors)
        fail_msg("failure %u (%s): a descriptor stays open", at, error->message);
    if (operate(&after) != 0)
        fail_msg("failure %u, and well again: %s", at, after.message);
}

/* Each call fails with `number`, `failing` times in a row. Returns how many there were. */
static inline unsigned every_call(int (*operate)(struct rp_error *error), int number,
                                  unsigned failing)
{
    unsigned refused = 0, descriptors = open_descriptors();
    for (unsigned at = 0; at < FAULTS_MAX; at++) {
        struct rp_error error = {0};
        system_spoil(NULL, at, failing, number);
        int code = operate(&error);
        bool is_past = system_mend() <= at;
        refused += code < 0;
        hold_after_fault(operate, code, &error, at, descriptors);
        if (is_past) {
            assert_int_equal(code, 0);
            assert_true(refused > 0);
            return at;
        }
    }
    fail_msg("more than %u calls", FAULTS_MAX);
    return 0;
}

/* Each allocation fails, one at a time or with all after it, and a refusal says that it is memory.
 */
static inline unsigned every_allocation(int (*operate)(struct rp_error *error), bool for_ever)
{
    unsigned refused = 0, descriptors = open_descriptors();
    for (unsigned at = 0; at < FAULTS_MAX; at++) {
        struct rp_error error = {0};
        memory_spoil(getpid(), at, for_ever);
        int code = operate(&error);
        bool is_past = memory_mend() <= at;
        refused += code < 0;
        hold_after_fault(operate, code, &error, at, descriptors);
        if (code < 0 && !strstr(error.message, "memory") && !strstr(error.message, "bytes wanted"))
            fail_msg("allocation %u: `%s` does not say that it is memory", at, error.message);
        if (is_past) {
            assert_int_equal(code, 0);
            assert_true(refused > 0);
            return at;
        }
    }
    fail_msg("more than %u allocations", FAULTS_MAX);
    return 0;
}

#endif
