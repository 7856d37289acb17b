/* SPDX-License-Identifier: Apache-2.0 */
/* decompress.c — files of text as they are, or through a process that decompresses them. gzip needs
 * none. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "convert/convert.h"

enum { EXIT_NO_PACKAGE = 3, EXIT_CORRUPT = 4 }; /* the worker script's */

static int start_worker(struct rp_plain *plain, struct rp_error *error)
{
    static const char *const arguments[RP_WORKER_WORDS] = {"--decompress", "zstd"};
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return rp_fail(error, -errno, NULL, "cannot make a pipe: %s", strerror(errno));
    plain->packed = plain->text.fd;
    plain->text.fd = ends[0];
    int code = rp_worker_spawn(&plain->child, arguments, plain->packed, ends[1], error);
    close(ends[1]);
    return code;
}

int rp_plain_open(struct rp_plain *plain, const char *path, uint64_t begin, struct rp_error *error)
{
    *plain = (struct rp_plain){.path = path, .packed = -1};
    int fd = rp_file_open_read(path, NULL, error);
    int code = rp_gunzip_begin(&plain->text, fd, path, RP_GUNZIP_EITHER, error);
    if (fd < 0)
        return fd;
    if (code == 0 && lseek(fd, (off_t)begin, SEEK_SET) < 0)
        code = rp_file_fail(error, path, "read");
    return code == 0 && rp_text_has_suffix(path, ".zst") ? start_worker(plain, error) : code;
}

/* The error of the archive. */
static int end_worker(struct rp_plain *plain, struct rp_error *error)
{
    int status = 0;
    while (waitpid(plain->child, &status, 0) < 0 && errno == EINTR)
        ;
    plain->child = 0;
    if (status == 0)
        return 0;
    int ended = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (ended == EXIT_NO_PACKAGE)
        return rp_fail(error, -RP_E_RESOURCE,
                       "`pip install zstandard`, or set RINGPACK_PYTHON to a Python that has it",
                       "%s: the Python package `zstandard` is not installed", plain->path);
    if (ended == EXIT_CORRUPT)
        return rp_fail(error, -RP_E_CORRUPT, "make the archive again; `zstd -t` tests one",
                       "%s: expected a zstd archive, found one that is damaged or ends early",
                       plain->path);
    return rp_fail(error, -RP_E_GONE, "its output above has the reason",
                   "%s: the process that decompresses it ended in the middle (wait status %d)",
                   plain->path, status);
}

int rp_plain_read(struct rp_plain *plain, void *to, size_t bytes, size_t *got_out,
                  struct rp_error *error)
{
    int code = rp_gunzip_read(&plain->text, to, bytes, got_out, error);
    return code == 0 && *got_out == 0 && plain->child ? end_worker(plain, error) : code;
}

uint64_t rp_plain_done(const struct rp_plain *plain)
{
    int64_t done = plain->packed >= 0 ? lseek(plain->packed, 0, SEEK_CUR) : (int64_t)plain->text.at;
    return done > 0 ? (uint64_t)done : 0;
}

void rp_plain_close(struct rp_plain *plain)
{
    if (plain->child) {
        kill(plain->child, SIGKILL);
        while (waitpid(plain->child, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    if (plain->packed >= 0)
        close(plain->packed);
    if (plain->text.fd >= 0)
        close(plain->text.fd);
    rp_gunzip_end(&plain->text);
}
