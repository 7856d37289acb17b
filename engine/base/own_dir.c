/* SPDX-License-Identifier: Apache-2.0 */
#include "base/own_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

static int check_owner(int fd, const char *path, const char *what, const char *choose,
                       struct rp_error *error)
{
    struct stat status;
    char hint[160];
    if (fstat(fd, &status) != 0)
        return rp_fail(error, -errno, NULL, "%s %s: %s", what, path, strerror(errno));
    if (status.st_uid != geteuid())
        return rp_fail(error, -EPERM, choose,
                       "%s %s: it belongs to user %" PRIuMAX ", we are user %" PRIuMAX, what, path,
                       (uintmax_t)status.st_uid, (uintmax_t)geteuid());
    snprintf(hint, sizeof hint, "`chmod 700` it, or %s", choose);
    if (status.st_mode & (S_IWGRP | S_IWOTH))
        return rp_fail(error, -EPERM, hint,
                       "%s %s: mode 0700 expected, %04o found: others could put files in our way",
                       what, path, status.st_mode & 07777u);
    return 0;
}

int rp_own_dir_open(const char *path, const char *what, const char *choose, struct rp_error *error)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        const char *why = errno == ENOTDIR || errno == ELOOP ? "a directory and no symlink expected"
                                                             : strerror(errno);
        return rp_fail(error, -errno, choose, "%s %s: %s", what, path, why);
    }
    int code = check_owner(fd, path, what, choose, error);
    if (code == 0)
        return fd;
    close(fd);
    return code;
}

/* ---- caches ---------------------------------------------------------------------------------- */

static char *default_in_tmp(void)
{
    return rp_asprintf("/tmp/ringpack-%u-cache", (unsigned)getuid());
}

static bool can_be_used(const char *path)
{
    return rp_dir_make(path, NULL) == 0 && access(path, W_OK | X_OK) == 0;
}

char *rp_dir_of_caches(const char *given)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (given)
        return strdup(given);
    if (cache && *cache)
        return rp_asprintf("%s/ringpack", cache);
    char *at_home = home && *home ? rp_asprintf("%s/.cache/ringpack", home) : NULL;
    if (at_home && can_be_used(at_home))
        return at_home;
    free(at_home);
    return default_in_tmp();
}

static int make_own(const char *path, struct rp_error *error)
{
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return rp_file_fail(error, path, "create the directory");
    int fd = rp_own_dir_open(path, "directory of caches", "set cache_dir, or XDG_CACHE_HOME",
                             error);
    if (fd < 0)
        return fd;
    close(fd);
    return 0;
}

int rp_dir_make_caches(const char *path, struct rp_error *error)
{
    char *shared = default_in_tmp();
    if (!shared)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", path);
    size_t bytes = strlen(shared);
    bool is_in_tmp = !strncmp(path, shared, bytes) && (!path[bytes] || path[bytes] == '/');
    int code = is_in_tmp ? make_own(shared, error) : 0;
    free(shared);
    if (code < 0)
        return code;
    code = rp_dir_make(path, error);
    if (code == -EACCES || code == -EPERM || code == -EROFS)
        return rp_fail(error, code,
                       "name a directory that can be written: `cache_dir`, or XDG_CACHE_HOME",
                       "the directory of caches %s cannot be made: %s", path, rp_strerror(code));
    return code;
}
