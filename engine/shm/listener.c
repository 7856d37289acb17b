/* SPDX-License-Identifier: Apache-2.0 */
/* listener — the run directory and the names in it.
 *
 * The directory is opened once, checked, and everything in it is reached through that descriptor:
 * nothing can be put in our way between the check and the use, and a long path meets no limit of
 * sun_path. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "shm/socket.h"

#define RP_BACKLOG 64
#define RP_CONNECT_NS UINT64_C(5000000000)
#define RP_NAME_TRIES 100

/* ---- names -------------------------------------------------------------------------- */

static int check_run_name(const char *run, struct rp_error *error)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    size_t length = strlen(run);
    if (length > 0 && length < RP_RUN_NAME_BYTES && run[0] != '.' && strspn(run, letters) == length)
        return 0;
    return rp_fail(
        error, -RP_E_USAGE, NULL,
        "run name `%.80s`: 1 to %u letters, digits, `.`, `_` and `-` expected, no `.` at its start",
        run, RP_RUN_NAME_BYTES - 1);
}

static char *directory_path(const char *run_dir)
{
    if (run_dir && run_dir[0])
        return rp_format("%s", run_dir);
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    if (runtime && runtime[0] == '/')
        return rp_format("%s/ringpack", runtime);
    return rp_format("/tmp/ringpack-%" PRIuMAX, (uintmax_t)geteuid());
}

/* A user who may write into the directory could put another socket under our name. */
static int check_directory(int fd, const char *path, struct rp_error *error)
{
    struct stat status;
    if (fstat(fd, &status) != 0)
        return rp_fail(error, -errno, NULL, "run directory %s: %s", path, strerror(errno));
    if (status.st_uid != geteuid())
        return rp_fail(error, -EPERM, "choose another one with --run-dir",
                       "run directory %s: it belongs to user %" PRIuMAX ", we are user %" PRIuMAX,
                       path, (uintmax_t)status.st_uid, (uintmax_t)geteuid());
    if (status.st_mode & (S_IWGRP | S_IWOTH))
        return rp_fail(
            error, -EPERM, "`chmod 700` it, or choose another one with --run-dir",
            "run directory %s: mode 0700 expected, %04o found: others could put files in our way",
            path, status.st_mode & 07777u);
    return 0;
}

/* Open and check it. Returns a descriptor, -ENOENT if there is none, or a code. */
static int open_directory(const char *path, struct rp_error *error)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        const char *why = errno == ENOTDIR || errno == ELOOP ? "a directory and no symlink expected"
                                                             : strerror(errno);
        return rp_fail(error, -errno, "choose another one with --run-dir", "run directory %s: %s",
                       path, why);
    }
    int code = check_directory(fd, path, error);
    if (code == 0)
        return fd;
    close(fd);
    return code;
}

static struct sockaddr_un socket_address(int directory_fd, const char *run)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s.sock", directory_fd,
             run);
    return address;
}

/* ---- taking a name ------------------------------------------------------------------ */

static int fail_busy(const char *run, int lock_fd, struct rp_error *error)
{
    char pid[16] = "";
    ssize_t length = pread(lock_fd, pid, sizeof pid - 1, 0);
    pid[strcspn(pid, "\n")] = '\0';
    return rp_fail(
        error, -RP_E_BUSY,
        "choose another name with --run, or stop that engine (it checkpoints on SIGTERM)",
        "run `%s`: an engine of that name is running, process %s", run,
        length > 0 ? pid : "unknown");
}

/* One try at NAME.lock: -EAGAIN when the last holder removed it while we were opening it. */
static int try_lock(int directory_fd, const char *run, struct rp_error *error)
{
    char name[RP_RUN_NAME_BYTES + 8], pid[16];
    snprintf(name, sizeof name, "%s.lock", run);
    int fd = openat(directory_fd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
                    0600);
    if (fd < 0)
        return rp_fail(error, errno == ENOENT ? -EAGAIN : -errno, "remove it if it is not ours",
                       "run directory: %s: %s", name, strerror(errno));
    int code = rp_file_lock(fd);
    struct stat held, named;
    if (code < 0)
        code = code == -EWOULDBLOCK
                   ? fail_busy(run, fd, error)
                   : rp_fail(error, code, NULL, "%s: flock: %s", name, rp_strerror(code));
    else if (fstat(fd, &held) != 0 ||
             fstatat(directory_fd, name, &named, AT_SYMLINK_NOFOLLOW) != 0 ||
             held.st_ino != named.st_ino || held.st_dev != named.st_dev)
        code = -EAGAIN;
    if (code == 0) {
        int length = snprintf(pid, sizeof pid, "%ld\n", (long)getpid());
        if (ftruncate(fd, 0) != 0 || pwrite(fd, pid, (size_t)length, 0) != length)
            code = rp_fail(error, -errno, NULL, "%s: writing our pid: %s", name, strerror(errno));
    }
    if (code == 0)
        return fd;
    close(fd);
    return code;
}

/* We hold the lock, so a socket of that name has no engine behind it. */
static int remove_stale_socket(int directory_fd, const char *run, struct rp_error *error)
{
    char name[RP_RUN_NAME_BYTES + 8];
    struct stat status;
    snprintf(name, sizeof name, "%s.sock", run);
    if (fstatat(directory_fd, name, &status, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? 0 : rp_fail(error, -errno, NULL, "%s: %s", name, strerror(errno));
    if (!S_ISSOCK(status.st_mode))
        return rp_fail(error, -EEXIST, "look what it is and remove it",
                       "run directory: %s is in the way and is no socket", name);
    if (unlinkat(directory_fd, name, 0) != 0 && errno != ENOENT)
        return rp_fail(error, -errno, NULL, "%s: removing what a killed engine left: %s", name,
                       strerror(errno));
    return 0;
}

static int listen_at(int directory_fd, const char *run, struct rp_error *error)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return rp_fail(error, -errno, NULL, "run `%s`: socket: %s", run, strerror(errno));
    struct sockaddr_un address = socket_address(directory_fd, run);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, RP_BACKLOG) == 0)
        return fd;
    int code = -errno;
    close(fd);
    return rp_fail(error, code, NULL, "run `%s`: listening on its socket: %s", run,
                   strerror(-code));
}

/* The directory and the lock in it. -EAGAIN, -ENOENT: both may be removed by the end of the last
 * engine at any moment before we hold the lock; a directory that is never there stays -ENOENT. */
static int try_name(struct rp_listener *listener, const char *path, struct rp_error *error)
{
    int code = open_directory(path, error);
    if (code == -ENOENT) { /* made only then: that waits for the disk */
        code = rp_dir_make(path, error);
        if (code == 0)
            code = open_directory(path, error);
    }
    if (code < 0)
        return code;
    listener->directory_fd = code;
    code = try_lock(listener->directory_fd, listener->run, error);
    if (code < 0) {
        close(listener->directory_fd);
        listener->directory_fd = -1;
        return code;
    }
    listener->lock_fd = code;
    return 0;
}

static int take_name(struct rp_listener *listener, const char *path, struct rp_error *error)
{
    int code = -EAGAIN;
    for (int i = 0; (code == -EAGAIN || code == -ENOENT) && i < RP_NAME_TRIES; i++)
        code = try_name(listener, path, error);
    if (code == -EAGAIN)
        code = rp_fail(error, -RP_E_BUSY, "try again",
                       "run `%s`: engines of that name come and go in %s", listener->run, path);
    if (code == 0)
        code = remove_stale_socket(listener->directory_fd, listener->run, error);
    if (code < 0)
        return code;
    code = listen_at(listener->directory_fd, listener->run, error);
    if (code < 0)
        return code;
    listener->fd = code;
    return 0;
}

int rp_listener_open(struct rp_listener *listener, const char *run_dir, const char *run,
                     struct rp_error *error)
{
    *listener = (struct rp_listener){.fd = -1, .lock_fd = -1, .directory_fd = -1};
    int code = check_run_name(run, error);
    if (code < 0)
        return code;
    char *path = directory_path(run_dir);
    listener->run = rp_format("%s", run);
    bool is_default = !run_dir || !run_dir[0];
    if (path && (is_default || access(path, F_OK) != 0))
        listener->directory = rp_format("%s", path);
    if (path && listener->run)
        code = take_name(listener, path, error);
    else
        code = rp_fail(error, -ENOMEM, NULL, "run `%s`: out of memory", run);
    free(path);
    if (code < 0)
        rp_listener_close(listener);
    return code;
}

void rp_listener_close(struct rp_listener *listener)
{
    char name[RP_RUN_NAME_BYTES + 8];
    if (listener->fd >= 0) {
        snprintf(name, sizeof name, "%s.sock", listener->run);
        unlinkat(listener->directory_fd, name, 0);
        close(listener->fd);
    }
    if (listener->lock_fd >= 0) { /* removed while we hold it: see try_lock */
        snprintf(name, sizeof name, "%s.lock", listener->run);
        unlinkat(listener->directory_fd, name, 0);
        close(listener->lock_fd);
    }
    if (listener->directory_fd >= 0)
        close(listener->directory_fd);
    if (listener->directory)
        rmdir(listener->directory); /* fails when other runs live there, as it should */
    free(listener->directory);
    free(listener->run);
    *listener = (struct rp_listener){.fd = -1, .lock_fd = -1, .directory_fd = -1};
}

/* ---- connections -------------------------------------------------------------------- */

/* Whether the process at the other end of a connection is of our own user. */
static bool peer_is_ours(int fd)
{
    struct ucred peer;
    socklen_t length = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

int rp_listener_accept(struct rp_listener *listener, struct rp_error *error)
{
    for (;;) {
        int fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
            continue;
        if (fd < 0)
            return errno == EAGAIN
                       ? -EAGAIN
                       : rp_fail(error, -errno,
                                 "raise the limit of open files (ulimit -n) if that is it",
                                 "run `%s`: accept: %s", listener->run, strerror(errno));
        if (peer_is_ours(fd))
            return fd;
        rp_log(RP_LOG_WARNING, "run `%s`: a connection of another user was refused", listener->run);
        close(fd);
    }
}

static int fail_gone(const char *run, const char *path, struct rp_error *error)
{
    return rp_fail(
        error, -RP_E_GONE,
        "start one with `ringpack serve`; run and --run-dir must be the same on both sides",
        "run `%s`: no engine of that name is running (run directory %s)", run, path);
}

static int connect_at(int directory_fd, const char *run, const char *path, uint64_t patience_ns,
                      struct rp_error *error)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return rp_fail(error, -errno, NULL, "run `%s`: socket: %s", run, strerror(errno));
    /* a stopped engine accepts nobody; zero would be for ever */
    uint64_t us = rp_max_u64(rp_min_u64(patience_ns, RP_CONNECT_NS) / 1000, 1000);
    struct timeval patience = {.tv_sec = (time_t)(us / 1000000),
                               .tv_usec = (suseconds_t)(us % 1000000)};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    struct sockaddr_un address = socket_address(directory_fd, run);
    int code = 0;
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        code = errno == ENOENT || errno == ECONNREFUSED || errno == EAGAIN
                   ? fail_gone(run, path, error)
                   : rp_fail(error, -errno, NULL, "run `%s`: connect: %s", run, strerror(errno));
    else if (!peer_is_ours(fd))
        code = rp_fail(error, -EPERM, NULL, "run `%s`: its engine belongs to another user", run);
    if (code == 0)
        return fd;
    close(fd);
    return code;
}

int rp_socket_connect_within(const char *run_dir, const char *run, uint64_t patience_ns,
                             struct rp_error *error)
{
    int code = check_run_name(run, error);
    if (code < 0)
        return code;
    char *path = directory_path(run_dir);
    if (!path)
        return rp_fail(error, -ENOMEM, NULL, "run `%s`: out of memory", run);
    int directory_fd = open_directory(path, error);
    if (directory_fd >= 0) {
        code = connect_at(directory_fd, run, path, patience_ns, error);
        close(directory_fd);
    } else {
        code = directory_fd == -ENOENT ? fail_gone(run, path, error) : directory_fd;
    }
    free(path);
    return code;
}

int rp_socket_connect(const char *run_dir, const char *run, struct rp_error *error)
{
    return rp_socket_connect_within(run_dir, run, RP_CONNECT_NS, error);
}
