/* SPDX-License-Identifier: Apache-2.0 */
/* new_file.c — files that replace others whole (file.h).
 *
 * Invariant: a new file replaces an old one only by rename(2) after its content was synced, never
 * by truncating it. Its directory is one that out_dir.h lets be used. */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/out_dir.h"

/* Give a nameless file a temporary name, because linkat(2) cannot replace a file and rename(2) can;
 * or create a file of such a name. */
static int add_name(struct rp_new_file *new_file, int dir, struct rp_error *error)
{
    char self[64];
    bool is_nameless = new_file->fd >= 0;
    snprintf(self, sizeof self, "/proc/self/fd/%d", new_file->fd);
    for (unsigned attempt = 0; attempt < 1000; attempt++) {
        char *name = rp_asprintf("%s.tmp.%ld.%u", new_file->path, (long)getpid(), attempt);
        if (!name)
            return rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", new_file->path);
        if (!is_nameless)
            new_file->fd = openat(dir, rp_path_name(name),
                                  O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (is_nameless ? linkat(AT_FDCWD, self, dir, rp_path_name(name), AT_SYMLINK_FOLLOW) == 0
                        : new_file->fd >= 0) {
            new_file->temporary = name;
            return 0;
        }
        int code = is_nameless ? rp_file_fail(error, new_file->path, "name the new file")
                               : rp_file_fail(error, name, "create");
        free(name);
        if (code == -ENOENT && is_nameless && rp_proc_hint())
            return rp_fail(error, -ENOENT, rp_proc_hint(), "%s: cannot name the new file: %s",
                           new_file->path, strerror(ENOENT));
        if (code != -EEXIST && code != -EINTR)
            return code;
    }
    return rp_fail(error, -EEXIST, "remove the old *.tmp.* files next to it",
                   "%s: 1000 temporary files are already there", new_file->path);
}

static int open_new(struct rp_new_file *new_file, const char *path, bool is_scratch,
                    struct rp_error *error)
{
    *new_file = (struct rp_new_file){.fd = -1, .path = strdup(path), .is_scratch = is_scratch};
    const char *name;
    int dir = new_file->path ? rp_out_dir_of(path, &name, error)
                             : rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", path);
    int code = dir < 0 ? dir : rp_out_file_check_replaced(dir, name, path, error);
    if (code == 0 && !is_scratch)
        new_file->fd = openat(dir, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0666);
    if (code == 0 && new_file->fd < 0) /* a named file works, or fails with a better message */
        code = add_name(new_file, dir, error);
    if (dir >= 0)
        close(dir);
    if (code < 0)
        rp_new_file_discard(new_file);
    return code;
}

int rp_new_file_open(struct rp_new_file *new_file, const char *path, struct rp_error *error)
{
    return open_new(new_file, path, false, error);
}

int rp_new_file_open_scratch(struct rp_new_file *new_file, const char *path, struct rp_error *error)
{
    return open_new(new_file, path, true, error);
}

int rp_new_file_rename(struct rp_new_file *new_file, struct rp_error *error)
{
    RP_ASSERT(new_file->fd >= 0);
    const char *name;
    int dir = rp_out_dir_of(new_file->path, &name, error);
    int code = dir < 0 ? dir : new_file->temporary ? 0 : add_name(new_file, dir, error);
    if (code == 0 && renameat(dir, rp_path_name(new_file->temporary), dir, name) < 0)
        code = rp_file_fail(error, new_file->path, "replace");
    if (dir >= 0)
        close(dir);
    if (code == 0) {
        free(new_file->temporary);
        new_file->temporary = NULL; /* so that discard does not unlink it */
    }
    return code;
}

int rp_new_file_publish(struct rp_new_file *new_file, struct rp_error *error)
{
    RP_ASSERT(new_file->fd >= 0);
    bool syncs = !new_file->is_scratch;
    int code = 0;
    if (syncs && fsync(new_file->fd) < 0)
        code = rp_file_fail(error, new_file->path, "sync the new file");
    if (code == 0)
        code = rp_new_file_rename(new_file, error);
    if (code == 0 && syncs)
        code = rp_dir_sync_parent(new_file->path, error);
    rp_new_file_discard(new_file);
    return code;
}

void rp_new_file_discard(struct rp_new_file *new_file)
{
    if (new_file->temporary)
        unlink(new_file->temporary);
    if (new_file->fd >= 0)
        close(new_file->fd);
    free(new_file->temporary);
    free(new_file->path);
    *new_file = (struct rp_new_file){.fd = -1};
}

/* "FILE.tmp.PID.ATTEMPT", as add_name makes it? */
static bool is_temporary_of(const char *name, const char *file)
{
    static const char middle[] = ".tmp.", digits[] = "0123456789";
    size_t length = strlen(file);
    if (strncmp(name, file, length) != 0 || strncmp(name + length, middle, sizeof middle - 1) != 0)
        return false;
    const char *pid = name + length + sizeof middle - 1;
    const char *dot = pid + strspn(pid, digits);
    if (dot == pid || *dot != '.')
        return false;
    const char *end = dot + 1 + strspn(dot + 1, digits);
    return end > dot + 1 && *end == '\0';
}

void rp_new_file_sweep(const char *path)
{
    const char *file = rp_path_name(path);
    char *directory = rp_path_directory(path);
    DIR *stream = directory ? opendir(directory) : NULL;
    for (struct dirent *entry; stream && (entry = readdir(stream)) != NULL;)
        if (is_temporary_of(entry->d_name, file))
            (void)unlinkat(dirfd(stream), entry->d_name, 0);
    if (stream)
        closedir(stream);
    free(directory);
}

int rp_file_replace(const char *path, const void *buffer, size_t bytes, struct rp_error *error)
{
    struct rp_new_file new_file;
    int code = rp_new_file_open(&new_file, path, error);
    if (code < 0)
        return code;
    code = rp_file_write(new_file.fd, path, buffer, bytes, error);
    if (code == 0)
        return rp_new_file_publish(&new_file, error);
    rp_new_file_discard(&new_file);
    return code;
}
