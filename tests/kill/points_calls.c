/* SPDX-License-Identifier: Apache-2.0 */
/* points_calls.c — the calls that change something outside of a process, and copies into shared
 * memory: a kill comes before them, after them, and in the middle of those that take time.
 * tools/CMakeLists.txt lists the wrapped calls. */
#include "points.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/types.h>

struct epoll_event;

/* Before and after; errno is the call's. */
#define CALL(type, name, parameters, arguments)                                                    \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters                                                                  \
    {                                                                                              \
        rp_point_pass(RP_HERE, RP_BEFORE);                                                         \
        type result = __real_##name arguments;                                                     \
        int kept = errno;                                                                          \
        rp_point_pass(RP_HERE, RP_AFTER);                                                          \
        errno = kept;                                                                              \
        return result;                                                                             \
    }
CALL(int, ftruncate, (int fd, off_t bytes), (fd, bytes))
CALL(int, fallocate, (int fd, int mode, off_t from, off_t bytes), (fd, mode, from, bytes))
CALL(int, fsync, (int fd), (fd))
CALL(int, close, (int fd), (fd))
CALL(ssize_t, pread, (int fd, void *data, size_t bytes, off_t at), (fd, data, bytes, at))
CALL(int, renameat2, (int from, const char *a, int to, const char *b, unsigned flags),
     (from, a, to, b, flags))
CALL(int, renameat, (int from, const char *a, int to, const char *b), (from, a, to, b))
CALL(int, rename, (const char *a, const char *b), (a, b))
CALL(int, unlinkat, (int dir, const char *name, int flags), (dir, name, flags))
CALL(int, mkdirat, (int dir, const char *name, mode_t mode), (dir, name, mode))
CALL(int, mkdir, (const char *name, mode_t mode), (name, mode))
CALL(int, flock, (int fd, int operation), (fd, operation))
CALL(int, bind, (int fd, const struct sockaddr *name, socklen_t bytes), (fd, name, bytes))
CALL(int, listen, (int fd, int backlog), (fd, backlog))
CALL(int, connect, (int fd, const struct sockaddr *name, socklen_t bytes), (fd, name, bytes))
CALL(int, accept4, (int fd, struct sockaddr *name, socklen_t *bytes, int flags),
     (fd, name, bytes, flags))
CALL(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags))
CALL(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags), (fd, message, flags))
CALL(ssize_t, send, (int fd, const void *data, size_t bytes, int flags), (fd, data, bytes, flags))
CALL(ssize_t, recv, (int fd, void *data, size_t bytes, int flags), (fd, data, bytes, flags))
CALL(int, memfd_create, (const char *name, unsigned flags), (name, flags))
CALL(int, epoll_wait, (int fd, struct epoll_event *events, int most, int timeout_ms),
     (fd, events, most, timeout_ms))
CALL(int, pthread_create, (void *thread, const void *attributes, void *main, void *argument),
     (thread, attributes, main, argument))

int __real_openat(int dir, const char *name, int flags, ...);
int __wrap_openat(int dir, const char *name, int flags, ...);
int __wrap_openat(int dir, const char *name, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    rp_point_pass(RP_HERE, RP_BEFORE);
    int fd = __real_openat(dir, name, flags, mode);
    int kept = errno;
    rp_point_pass(RP_HERE, RP_AFTER);
    errno = kept;
    return fd;
}

/* ---- in the middle --------------------------------------------------------------------------- */

ssize_t __real_write(int fd, const void *data, size_t bytes);
ssize_t __wrap_write(int fd, const void *data, size_t bytes);
ssize_t __wrap_write(int fd, const void *data, size_t bytes)
{
    rp_point_pass(RP_HERE, RP_BEFORE);
    if (rp_point_is_drawn(RP_HERE, RP_WITHIN)) {
        (void)!__real_write(fd, data, bytes / 2);
        rp_point_die();
    }
    ssize_t result = __real_write(fd, data, bytes);
    int kept = errno;
    rp_point_pass(RP_HERE, RP_AFTER);
    errno = kept;
    return result;
}

#define BLOCK 4096u /* the least write of direct I/O */

ssize_t __real_pwrite(int fd, const void *data, size_t bytes, off_t at);
ssize_t __wrap_pwrite(int fd, const void *data, size_t bytes, off_t at);
ssize_t __wrap_pwrite(int fd, const void *data, size_t bytes, off_t at)
{
    rp_point_pass(RP_HERE, RP_BEFORE);
    if (rp_point_is_drawn(RP_HERE, RP_WITHIN)) {
        (void)!__real_pwrite(fd, data, bytes / 2 / BLOCK * BLOCK, at);
        rp_point_die();
    }
    ssize_t result = __real_pwrite(fd, data, bytes, at);
    int kept = errno;
    rp_point_pass(RP_HERE, RP_AFTER);
    errno = kept;
    return result;
}

/* ---- copies ---------------------------------------------------------------------------------- */

#define COPY(name, source_type)                                                                    \
    void *__real_##name(void *to, source_type from, size_t bytes);                                 \
    void *__wrap_##name(void *to, source_type from, size_t bytes);                                 \
    void *__wrap_##name(void *to, source_type from, size_t bytes)                                  \
    {                                                                                              \
        if (!rp_point_is_shared(to))                                                               \
            return __real_##name(to, from, bytes);                                                 \
        rp_point_pass(RP_HERE, RP_BEFORE);                                                         \
        if (rp_point_is_drawn(RP_HERE, RP_WITHIN)) {                                               \
            __real_##name(to, from, bytes / 2);                                                    \
            rp_point_die();                                                                        \
        }                                                                                          \
        return __real_##name(to, from, bytes);                                                     \
    }
COPY(memcpy, const void *)
COPY(memmove, const void *)
COPY(memset, int)

/* ---- memory and processes -------------------------------------------------------------------- */

void *__real_mmap(void *wish, size_t bytes, int protection, int flags, int fd, off_t at);
void *__wrap_mmap(void *wish, size_t bytes, int protection, int flags, int fd, off_t at);
void *__wrap_mmap(void *wish, size_t bytes, int protection, int flags, int fd, off_t at)
{
    void *mapped = __real_mmap(wish, bytes, protection, flags, fd, at);
    if (mapped != MAP_FAILED && (flags & MAP_SHARED) && (protection & PROT_WRITE))
        rp_point_mapped(mapped, bytes);
    return mapped;
}

int __real_munmap(void *address, size_t bytes);
int __wrap_munmap(void *address, size_t bytes);
int __wrap_munmap(void *address, size_t bytes)
{
    rp_point_unmapped(address);
    return __real_munmap(address, bytes);
}

pid_t __real_fork(void);
pid_t __wrap_fork(void);
pid_t __wrap_fork(void)
{
    rp_point_pass(RP_HERE, RP_BEFORE);
    pid_t pid = __real_fork();
    if (pid == 0)
        rp_point_forked();
    return pid;
}
