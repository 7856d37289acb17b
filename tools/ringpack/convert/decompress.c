/* SPDX-License-Identifier: Apache-2.0 */
/* decompress.c — files of text as they are, or through a process that decompresses them. gzip needs
 * none: zlib reads it and plain text alike. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "convert/convert.h"

enum { EXIT_NO_PACKAGE = 3, EXIT_CORRUPT = 4 }; /* of the worker script */

int rp_plain_open(struct rp_plain *plain, const char *path, struct rp_error *error)
{
    int ends[2];
    *plain = (struct rp_plain){.fd = rp_file_open_read(path, NULL, error), .packed = -1};
    if (plain->fd < 0 || !rp_text_has_suffix(path, ".zst"))
        return plain->fd < 0 ? plain->fd : 0;
    int file = plain->fd;
    if (pipe2(ends, O_CLOEXEC) < 0) {
        close(file);
        return rp_fail(error, -errno, NULL, "cannot make a pipe: %s", strerror(errno));
    }
    const char *arguments[RP_WORKER_WORDS] = {"--decompress", "zstd"};
    int code = rp_worker_spawn(&plain->child, arguments, file, ends[1], error);
    close(ends[1]);
    if (code < 0) {
        close(file);
        close(ends[0]);
        return code;
    }
    plain->fd = ends[0];
    plain->packed = file;
    return 0;
}

uint64_t rp_plain_done(const struct rp_plain *plain, int64_t taken)
{
    int64_t done = plain->packed >= 0 ? lseek(plain->packed, 0, SEEK_CUR) : taken;
    return done > 0 ? (uint64_t)done : 0;
}

int rp_plain_end(struct rp_plain *plain, const char *path, int code, struct rp_error *error)
{
    int status = 0;
    if (plain->packed >= 0)
        close(plain->packed);
    plain->packed = -1;
    if (!plain->child)
        return code;
    if (code != 0)
        kill(plain->child, SIGKILL);
    while (waitpid(plain->child, &status, 0) < 0 && errno == EINTR)
        ;
    plain->child = 0;
    if (code != 0 || status == 0)
        return code;
    int ended = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (ended == EXIT_NO_PACKAGE)
        return rp_fail(error, -RP_E_RESOURCE,
                       "`pip install zstandard`, or set RINGPACK_PYTHON to a Python that has it",
                       "%s: the Python package `zstandard` is not installed", path);
    if (ended == EXIT_CORRUPT)
        return rp_fail(error, -RP_E_CORRUPT, "make the archive anew; `zstd -t` tests one",
                       "%s: expected a zstd archive, found one that is damaged or ends early",
                       path);
    return rp_fail(error, -RP_E_GONE, "what it printed above says why",
                   "%s: the process that decompresses it ended in the middle (wait status %d)",
                   path, status);
}
