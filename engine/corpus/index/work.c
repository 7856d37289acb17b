/* SPDX-License-Identifier: Apache-2.0 */
/* work.c — the folder PATH.work of whoever writes the index at PATH (build.h). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/lock_holder.h"
#include "base/mem.h"
#include "base/out_dir.h"
#include "corpus/index/build.h"
#include "corpus/staged_shard.h"

static int lock(const char *work, int fd, struct rp_error *error)
{
    char holder[RP_LOCK_HOLDER_BYTES];
    int code = rp_file_lock(fd);
    if (code == -EWOULDBLOCK)
        return rp_fail(error, code, "wait for it to end, or end it",
                       "%s: cannot be locked: another `ringpack index` or `ringpack annotate` "
                       "writes this index: %s",
                       work, rp_lock_holder(fd, holder));
    return code == 0 ? 0
                     : rp_fail(error, code,
                               "put the index on a file system with locks: `-o FILE`, or "
                               "`index: FILE` in the configuration",
                               "%s: cannot be locked: %s", work, strerror(-code));
}

/* The process before this one removes the folder while it has the lock. A folder that was removed
 * between the open and the lock protects nothing: it is made again. */
int rp_index_work_open(const char *path, char **work_out, int *fd_out, struct rp_error *error)
{
    char *work = *work_out = rp_asprintf("%s.work", path);
    *fd_out = -1;
    if (!work)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", path);
    for (;;) {
        struct stat info, now;
        int code = rp_dir_make(work, error);
        if (code < 0)
            return code;
        *fd_out = rp_out_dir_open_read(work, error);
        if (*fd_out == -ENOENT)
            continue;
        if (*fd_out < 0)
            return *fd_out;
        if (fstat(*fd_out, &info) < 0)
            return rp_fail(error, -errno, NULL, "%s: cannot be opened: %s", work, strerror(errno));
        code = lock(work, *fd_out, error);
        if (code < 0) { /* an empty folder may be the holder's, so it is not removed */
            close(*fd_out);
            *fd_out = -1;
            return code;
        }
        if (stat(work, &now) == 0 && now.st_dev == info.st_dev && now.st_ino == info.st_ino) {
            rp_staged_shard_sweep(work);
            return 0;
        }
        close(*fd_out);
        *fd_out = -1;
    }
}

void rp_index_work_close(char *work, int fd)
{
    if (fd >= 0) {
        (void)rmdir(work); /* if it is empty: no work was done */
        close(fd);
    }
    free(work);
}
