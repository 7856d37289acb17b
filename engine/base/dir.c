/* SPDX-License-Identifier: Apache-2.0 */
/* dir.c — directories that are made, and whose names are synced (file.h). */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/out_dir.h"

int rp_dir_sync_parent(const char *path, struct rp_error *error)
{
    char *directory = rp_path_directory(path);
    if (!directory)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", path);
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int code = fd < 0 ? rp_file_fail(error, directory, "open") : 0;
    /* EINVAL: the file system does not support fsync of a directory. */
    if (code == 0 && fsync(fd) < 0 && errno != EINVAL)
        code = rp_file_fail(error, directory, "sync");
    if (fd >= 0)
        close(fd);
    free(directory);
    return code;
}

/* Sync the parent of a directory, so that a power cut does not remove the directory; also if the
 * directory existed, because the process that made it may have been killed before it synced. A
 * parent that may be searched but not read cannot be synced; it was not made by us. */
static int sync_name(const char *path, struct rp_error *error)
{
    struct rp_error local;
    error = error ? error : &local;
    int code = rp_dir_sync_parent(path, error);
    return code == -EACCES ? 0 : code;
}

/* Call `act` for every directory above the path, from the first on, and for itself. */
static int for_each_above(const char *path, int (*act)(const char *path, struct rp_error *error),
                          struct rp_error *error)
{
    char *partial = strdup(path);
    if (!partial)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", path);
    int code = 0;
    for (char *at = partial; code == 0 && *at;) {
        at += strspn(at, "/");
        at += strcspn(at, "/");
        char separator = *at;
        *at = 0;
        code = act(partial, error);
        *at = separator;
    }
    free(partial);
    return code;
}

int rp_dir_make_unsynced(const char *path, struct rp_error *error)
{
    int fd = rp_out_dir_make(path, 0700, error);
    if (fd >= 0)
        close(fd);
    return fd < 0 ? fd : 0;
}

int rp_dir_sync_names(const char *path, struct rp_error *error)
{
    return for_each_above(path, sync_name, error);
}

int rp_dir_make(const char *path, struct rp_error *error)
{
    int code = rp_dir_make_unsynced(path, error);
    return code < 0 ? code : rp_dir_sync_names(path, error);
}
