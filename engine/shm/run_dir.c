/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/run_dir.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/mem.h"
#include "base/own_dir.h"
#include "shm/peer.h"
#include "shm/socket.h"

#define RP_CONNECT_NS UINT64_C(5000000000)

/* ---- names and directories ------------------------------------------------------------------- */

int rp_run_name_check(const char *run, struct rp_error *error)
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

int rp_run_dirs_list(struct rp_run_dirs *dirs, const char *run_dir, struct rp_error *error)
{
    *dirs = (struct rp_run_dirs){.is_default = !run_dir || !run_dir[0]};
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    if (!dirs->is_default)
        dirs->paths[dirs->count++] = rp_asprintf("%s", run_dir);
    if (dirs->is_default && runtime && runtime[0] == '/')
        dirs->paths[dirs->count++] = rp_asprintf("%s/ringpack", runtime);
    if (dirs->is_default)
        dirs->paths[dirs->count++] = rp_asprintf("/tmp/ringpack-%" PRIuMAX, (uintmax_t)geteuid());
    RP_ASSERT(dirs->count > 0 && dirs->count <= RP_ARRAY_COUNT(dirs->paths));
    for (unsigned i = 0; i < dirs->count; i++)
        if (!dirs->paths[i]) {
            rp_run_dirs_free(dirs);
            return rp_fail(error, -ENOMEM, NULL, "looking for the run directory: out of memory");
        }
    return 0;
}

void rp_run_dirs_free(struct rp_run_dirs *dirs)
{
    for (unsigned i = 0; i < dirs->count; i++)
        free(dirs->paths[i]);
    dirs->count = 0;
}

int rp_run_dir_open(const char *path, struct rp_error *error)
{
    return rp_own_dir_open(path, "run directory", "choose another one with --run-dir", error);
}

struct sockaddr_un rp_run_socket_address(int directory_fd, const char *run)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    RP_ASSERT(directory_fd >= 0);
    int length = snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s.sock",
                          directory_fd, run);
    RP_ASSERT(length > 0 && (size_t)length < sizeof address.sun_path); /* rp_run_name_check */
    return address;
}

/* ---- connecting ------------------------------------------------------------------------------ */

bool rp_socket_peer_is_ours(int fd)
{
    return rp_peer_of(fd).uid == geteuid();
}

static int fail_gone(const char *run, const struct rp_run_dirs *dirs, struct rp_error *error)
{
    bool two = dirs->count > 1;
    return rp_fail(
        error, -RP_E_GONE,
        "start one with `ringpack serve`; run and --run-dir must be the same on both sides",
        "run `%s`: no engine of that name is running (run director%s %s%s%s)", run,
        two ? "ies" : "y", dirs->paths[0], two ? " and " : "", two ? dirs->paths[1] : "");
}

/* -RP_E_GONE without a message if no engine listens there. */
static int connect_at(int directory_fd, const char *run, uint64_t patience_ns,
                      struct rp_error *error)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return rp_fail(error, -errno, NULL, "run `%s`: socket: %s", run, strerror(errno));
    /* a stopped engine (SIGSTOP) accepts no connection; a timeout of zero would mean none */
    uint64_t us = rp_max_u64(rp_min_u64(patience_ns, RP_CONNECT_NS) / 1000, 1000);
    struct timeval patience = {.tv_sec = (time_t)(us / 1000000),
                               .tv_usec = (suseconds_t)(us % 1000000)};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    struct sockaddr_un address = rp_run_socket_address(directory_fd, run);
    int code = 0;
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        code = errno == ENOENT || errno == ECONNREFUSED || errno == EAGAIN
                   ? -RP_E_GONE
                   : rp_fail(error, -errno, NULL, "run `%s`: connect: %s", run, strerror(errno));
    else if (!rp_socket_peer_is_ours(fd))
        code = rp_fail(error, -EPERM, NULL, "run `%s`: its engine belongs to another user", run);
    if (code == 0)
        return fd;
    close(fd);
    return code;
}

static int connect_in(const char *path, const char *run, uint64_t patience_ns,
                      struct rp_error *error)
{
    int directory_fd = rp_run_dir_open(path, error);
    if (directory_fd < 0)
        return directory_fd == -ENOENT ? -RP_E_GONE : directory_fd;
    int code = connect_at(directory_fd, run, patience_ns, error);
    close(directory_fd);
    return code;
}

int rp_socket_connect_within(const char *run_dir, const char *run, uint64_t patience_ns,
                             struct rp_error *error)
{
    struct rp_run_dirs dirs;
    int code = rp_run_name_check(run, error);
    if (code == 0)
        code = rp_run_dirs_list(&dirs, run_dir, error);
    if (code < 0)
        return code;
    /* A trainer skips a directory that it cannot use, as an engine does. The last directory's error
     * is reported. */
    for (unsigned i = 0; i < dirs.count && (i == 0 || code < 0); i++)
        code = connect_in(dirs.paths[i], run, patience_ns, error);
    if (code == -RP_E_GONE)
        code = fail_gone(run, &dirs, error);
    rp_run_dirs_free(&dirs);
    return code;
}

int rp_socket_connect(const char *run_dir, const char *run, struct rp_error *error)
{
    return rp_socket_connect_within(run_dir, run, RP_CONNECT_NS, error);
}
