/* SPDX-License-Identifier: Apache-2.0 */
/* listener.c — the engine's end: its names in the run directory, and its connections.
 *
 * Invariants
 *
 *   L1  At most one engine has a name: it holds the guard (guard.h) and an flock on NAME.lock, and
 *       listens at NAME.sock. Everything in the directory is reached through one descriptor, which
 *       was checked when it was opened.
 *
 *   L2  The names live as long as the engine. Other programs remove them: the last logout of a user
 *       removes $XDG_RUNTIME_DIR, and cleaners of /tmp remove old files. So once a second the
 *       engine compares them with its descriptors, and makes them again where trainers will search.
 *       It also updates their timestamps, so that cleaners never find them old.
 *
 *   L3  A name is removed only while it still leads to this engine's file. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "shm/guard.h"
#include "shm/run_dir.h"
#include "shm/socket.h"

#define RP_BACKLOG 64
#define RP_NAME_TRIES 100
#define RP_NAME_BYTES (RP_RUN_NAME_BYTES + 8)
#define RP_COMPARE_NS UINT64_C(1000000000)
#define RP_DATE_NS UINT64_C(600000000000)

static const struct rp_listener closed = RP_LISTENER_CLOSED;

static void make_name(char name[RP_NAME_BYTES], const char *run, const char *suffix)
{
    int length = snprintf(name, RP_NAME_BYTES, "%s.%s", run, suffix);
    RP_ASSERT(length > 0 && (size_t)length < RP_NAME_BYTES); /* rp_run_name_check */
}

/* The inode that has a name in the directory; 0 if none has. */
static ino_t number_of(const struct rp_listener *listener, const char *suffix)
{
    char name[RP_NAME_BYTES];
    struct stat found;
    make_name(name, listener->run, suffix);
    return fstatat(listener->directory_fd, name, &found, AT_SYMLINK_NOFOLLOW) == 0 ? found.st_ino
                                                                                   : 0;
}

static bool has_lock_name(const struct rp_listener *listener)
{
    struct stat held;
    return listener->lock_fd >= 0 && fstat(listener->lock_fd, &held) == 0 &&
           number_of(listener, "lock") == held.st_ino;
}

/* ---- taking a name --------------------------------------------------------------------------- */

static int fail_busy(const char *run, const char *pid, struct rp_error *error)
{
    return rp_fail(
        error, -RP_E_BUSY,
        "choose another name with --run, or stop that engine (it checkpoints on SIGTERM)",
        "run `%s`: an engine of that name is running, process %s", run, pid[0] ? pid : "unknown");
}

static int fail_locked(const char *run, int lock_fd, struct rp_error *error)
{
    char pid[16] = "";
    ssize_t length = pread(lock_fd, pid, sizeof pid - 1, 0);
    (void)length; /* it stays empty then */
    pid[strcspn(pid, "\n")] = '\0';
    return fail_busy(run, pid, error);
}

static int take_guard(struct rp_listener *listener, const char *path, struct rp_error *error)
{
    pid_t holder;
    if (listener->guard_fd >= 0) /* taken for an earlier run directory; it still excludes others */
        return 0;
    int fd = rp_guard_take(path, listener->run, &holder);
    char pid[16] = "";
    if (holder > 0)
        snprintf(pid, sizeof pid, "%ld", (long)holder);
    if (fd == -RP_E_BUSY)
        return fail_busy(listener->run, pid, error);
    listener->guard_fd = fd;
    return 0;
}

/* NAME.lock cannot be opened: something else has the name, or the directory takes no file. -ENOENT
 * also when the directory was removed since it was opened. */
static int fail_lock_file(int directory_fd, const char *path, const char *name,
                          struct rp_error *error)
{
    int code = -errno;
    struct stat found;
    bool is_there = fstatat(directory_fd, name, &found, AT_SYMLINK_NOFOLLOW) == 0;
    return rp_fail(error, code,
                   is_there ? "remove it if it is not ours"
                            : "give another directory with --run-dir, or `run_dir:` in the config: "
                              "one on a disk or in memory that this user may write to",
                   "run directory %s: cannot %s %s: %s", path, is_there ? "open" : "create", name,
                   strerror(-code));
}

bool rp_run_is_held(const char *run_dir, const char *run)
{
    struct rp_run_dirs dirs;
    struct rp_error error;
    char name[RP_NAME_BYTES];
    bool is_held = false;
    if (rp_run_dirs_list(&dirs, run_dir, &error) < 0)
        return false;
    make_name(name, run, "lock");
    for (unsigned i = 0; i < dirs.count; i++) {
        int directory = rp_run_dir_open(dirs.paths[i], &error);
        int fd = directory < 0 ? -1 : openat(directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        is_held |= fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
        if (fd >= 0)
            close(fd);
        if (directory >= 0)
            close(directory);
    }
    rp_run_dirs_free(&dirs);
    return is_held;
}

/* One try at NAME.lock: -EAGAIN when the last holder removed it while we were opening it. */
static int try_lock(int directory_fd, const char *path, const char *run, struct rp_error *error)
{
    char name[RP_NAME_BYTES], pid[16];
    make_name(name, run, "lock");
    int fd = openat(directory_fd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
                    0600);
    if (fd < 0)
        return fail_lock_file(directory_fd, path, name, error);
    int code = rp_file_lock(fd);
    struct stat held, named;
    if (code < 0)
        code = code == -EWOULDBLOCK ? fail_locked(run, fd, error)
                                    : rp_file_fail_lock(error, code, path);
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
    char name[RP_NAME_BYTES];
    struct stat status;
    make_name(name, run, "sock");
    if (fstatat(directory_fd, name, &status, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? 0 : rp_fail(error, -errno, NULL, "%s: %s", name, strerror(errno));
    if (!S_ISSOCK(status.st_mode))
        return rp_fail(error, -EEXIST, "identify it and remove it",
                       "run directory: %s is in the way and is no socket", name);
    if (unlinkat(directory_fd, name, 0) != 0 && errno != ENOENT)
        return rp_fail(error, -errno, NULL, "%s: removing the socket of a killed engine: %s", name,
                       strerror(errno));
    return 0;
}

static int listen_at(int directory_fd, const char *run, struct rp_error *error)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return rp_fail(error, -errno, NULL, "run `%s`: socket: %s", run, strerror(errno));
    struct sockaddr_un address = rp_run_socket_address(directory_fd, run);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, RP_BACKLOG) == 0)
        return fd;
    int code = -errno;
    close(fd);
    const char *hint = code == -ENOENT ? rp_proc_hint() : NULL; /* the name goes through /proc */
    return rp_fail(error, code, hint, "run `%s`: listening on its socket: %s", run,
                   strerror(-code));
}

/* The directory and the lock in it. -EAGAIN, -ENOENT: both may be removed by the end of the last
 * engine at any moment before we hold the lock; a directory that is never there stays -ENOENT. */
static int try_name(struct rp_listener *listener, const char *path, struct rp_error *error)
{
    RP_ASSERT(listener->directory_fd < 0 && listener->lock_fd < 0);
    int code = rp_run_dir_open(path, error);
    if (code == -ENOENT) { /* made only then: that waits for the disk */
        code = rp_dir_make(path, error);
        if (code == 0)
            code = rp_run_dir_open(path, error);
    }
    if (code < 0)
        return code;
    listener->directory_fd = code;
    code = take_guard(listener, path, error);
    if (code == 0)
        code = try_lock(listener->directory_fd, path, listener->run, error);
    if (code < 0) {
        close(listener->directory_fd);
        listener->directory_fd = -1;
        return code;
    }
    listener->lock_fd = code;
    return 0;
}

static int listen_again(struct rp_listener *listener, struct rp_error *error)
{
    RP_ASSERT(listener->lock_fd >= 0 && listener->fd < 0); /* L1 */
    int code = remove_stale_socket(listener->directory_fd, listener->run, error);
    if (code == 0)
        code = listen_at(listener->directory_fd, listener->run, error);
    if (code < 0)
        return code;
    listener->fd = code;
    listener->socket_number = number_of(listener, "sock");
    return 0;
}

static bool has_names(const struct rp_listener *listener)
{
    struct stat held, found;
    return fstat(listener->directory_fd, &held) == 0 && stat(listener->path, &found) == 0 &&
           held.st_dev == found.st_dev && held.st_ino == found.st_ino &&
           listener->socket_number != 0 && number_of(listener, "sock") == listener->socket_number &&
           has_lock_name(listener);
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
        code = listen_again(listener, error);
    if (code == 0) /* not on a file system whose numbers change between two checks */
        listener->is_watched = has_names(listener);
    return code;
}

/* The parent of a default directory belongs to the system: it is never made. */
static bool has_parent(const char *path)
{
    char *parent = rp_asprintf("%s", path), *slash = parent ? strrchr(parent, '/') : NULL;
    if (slash)
        *slash = '\0';
    bool usable = !slash || access(parent, W_OK | X_OK) == 0;
    free(parent);
    return usable;
}

/* Remove our names from a directory that we leave. */
static void leave_names(struct rp_listener *listener)
{
    char name[RP_NAME_BYTES];
    RP_ASSERT(listener->directory_fd >= 0 || (listener->fd < 0 && listener->lock_fd < 0));
    make_name(name, listener->run, "sock");
    if (listener->fd >= 0 && number_of(listener, "sock") == listener->socket_number) /* L3 */
        unlinkat(listener->directory_fd, name, 0);
    make_name(name, listener->run, "lock");
    if (has_lock_name(listener))
        unlinkat(listener->directory_fd, name, 0); /* while we hold it: see try_lock */
    int fds[] = {listener->fd, listener->lock_fd, listener->directory_fd};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    listener->fd = listener->lock_fd = listener->directory_fd = -1;
    if (listener->is_made)
        rmdir(listener->path); /* fails when other runs live there, as it should */
    free(listener->path);
    listener->path = NULL;
}

/* Take the name in the first of these directories that can be used. */
static int take_first(struct rp_listener *listener, const struct rp_run_dirs *dirs,
                      struct rp_error *error)
{
    int code = -ENOENT;
    for (unsigned i = 0; i < dirs->count && code < 0 && code != -RP_E_BUSY; i++) {
        const char *path = dirs->paths[i];
        bool is_last = i + 1 == dirs->count;
        struct rp_error found = {.message = ""};
        leave_names(listener);
        listener->path = rp_asprintf("%s", path);
        listener->is_made = dirs->is_default || access(path, F_OK) != 0;
        code = !listener->path ? -ENOMEM
               : !is_last && !has_parent(path)
                   ? rp_fail(&found, -ENOENT, NULL,
                             "run directory %s: XDG_RUNTIME_DIR is not there, or not ours", path)
                   : take_name(listener, path, &found);
        if (code < 0 && !is_last && code != -RP_E_BUSY)
            rp_log(RP_LOG_INFO, "%s: the socket of run `%s` is in %s instead", found.message,
                   listener->run, dirs->paths[i + 1]);
        else if (code < 0)
            code = rp_fail(error, code, found.hint, "%s",
                           found.message[0] ? found.message : rp_strerror(code));
    }
    return code;
}

int rp_listener_open(struct rp_listener *listener, const char *run_dir, const char *run,
                     struct rp_error *error)
{
    *listener = closed;
    struct rp_run_dirs dirs;
    int code = rp_run_name_check(run, error);
    if (code == 0)
        code = rp_run_dirs_list(&dirs, run_dir, error);
    if (code < 0)
        return code;
    listener->run = rp_asprintf("%s", run);
    listener->run_dir = rp_asprintf("%s", run_dir ? run_dir : "");
    if (listener->run && listener->run_dir)
        code = take_first(listener, &dirs, error);
    else
        code = rp_fail(error, -ENOMEM, NULL, "run `%s`: out of memory", run);
    rp_run_dirs_free(&dirs);
    if (code < 0)
        rp_listener_close(listener);
    return code;
}

void rp_listener_close(struct rp_listener *listener)
{
    if (listener->run)
        leave_names(listener);
    if (listener->guard_fd >= 0)
        close(listener->guard_fd);
    free(listener->run_dir);
    free(listener->run);
    *listener = closed;
}

/* ---- keeping the names ----------------------------------------------------------------------- */

static void date_names(const struct rp_listener *listener)
{
    static const char *const suffixes[] = {"sock", "lock"};
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        char name[RP_NAME_BYTES];
        make_name(name, listener->run, suffixes[i]);
        (void)utimensat(listener->directory_fd, name, NULL, AT_SYMLINK_NOFOLLOW);
    }
}

bool rp_listener_check(struct rp_listener *listener, uint64_t now_ns)
{
    if (!listener->is_watched || now_ns < listener->compare_at_ns)
        return true;
    listener->compare_at_ns = now_ns + RP_COMPARE_NS;
    if (!has_names(listener))
        return false;
    if (now_ns >= listener->date_at_ns) {
        listener->date_at_ns = now_ns + RP_DATE_NS;
        date_names(listener);
    }
    return true;
}

int rp_listener_renew(struct rp_listener *listener, struct rp_error *error)
{
    RP_ASSERT(listener->run && listener->run_dir);
    struct rp_run_dirs dirs;
    int code = rp_run_dirs_list(&dirs, listener->run_dir, error);
    if (code == 0)
        code = take_first(listener, &dirs, error);
    rp_run_dirs_free(&dirs);
    return code;
}

/* ---- connections ----------------------------------------------------------------------------- */

int rp_listener_accept(struct rp_listener *listener, struct rp_error *error)
{
    if (listener->fd < 0) /* between two sockets */
        return -EAGAIN;
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
        if (rp_socket_peer_is_ours(fd))
            return fd;
        rp_log(RP_LOG_WARNING, "run `%s`: a connection of another user was refused", listener->run);
        close(fd);
    }
}
