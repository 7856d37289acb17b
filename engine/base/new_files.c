/* SPDX-License-Identifier: Apache-2.0 */
#include "base/new_files.h"

#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/bits.h"

/* A syncfs also writes other processes' data, so a few files are synced one by one. */
#define SYNCFS_FILES_MIN 8u
#define XFS_MAGIC 0x58465342

/* File systems that syncfs is known to write in full. On others, for instance FUSE, it need not
 * reach the server, and would be in vain. */
static bool has_syncfs(int fd)
{
    static const long magics[] = {EXT4_SUPER_MAGIC, XFS_MAGIC,   BTRFS_SUPER_MAGIC,
                                  F2FS_SUPER_MAGIC, TMPFS_MAGIC, OVERLAYFS_SUPER_MAGIC};
    struct statfs info;
    if (fstatfs(fd, &info) < 0)
        return false;
    for (size_t i = 0; i < RP_ARRAY_COUNT(magics); i++)
        if (info.f_type == magics[i])
            return true;
    return false;
}

static bool are_on_one_file_system(const struct rp_new_files *files)
{
    struct stat first, info;
    if (fstat(files->files[0].fd, &first) < 0)
        return false;
    for (uint32_t i = 1; i < files->count; i++)
        if (fstat(files->files[i].fd, &info) < 0 || info.st_dev != first.st_dev)
            return false;
    return has_syncfs(files->files[0].fd);
}

/* Write the content of many files in one commit of the file system's journal. Its success is no
 * proof: before Linux 5.8 syncfs does not report a write that failed, and an overlay need not
 * report a failed write of the file system below it. */
static void write_together(const struct rp_new_files *files)
{
    if (files->count >= SYNCFS_FILES_MIN && are_on_one_file_system(files))
        (void)!syncfs(files->files[0].fd);
}

/* For a file that is written already, fsync reports whether that write has failed. */
static void sync_each(struct rp_new_files *files)
{
    for (uint32_t i = 0; i < files->count; i++)
        if (fsync(files->files[i].fd) < 0)
            files->codes[i] = rp_file_fail(&files->errors[i], files->files[i].path,
                                           "sync the new file");
}

static bool are_neighbours(const char *path, const char *other)
{
    const char *slash = strrchr(path, '/');
    size_t length = slash ? (size_t)(slash + 1 - path) : 0;
    return strncmp(path, other, length) == 0 && !strchr(other + length, '/');
}

/* Files of one directory mostly follow each other. */
static void sync_directories(struct rp_new_files *files)
{
    const char *synced = NULL;
    for (uint32_t i = 0; i < files->count; i++) {
        const char *path = files->files[i].path;
        if (files->codes[i] < 0 || (synced && are_neighbours(synced, path)))
            continue;
        files->codes[i] = rp_dir_sync_parent(path, &files->errors[i]);
        synced = files->codes[i] == 0 ? path : NULL;
    }
}

static void rename_each(struct rp_new_files *files)
{
    for (uint32_t i = 0; i < files->count; i++)
        if (files->codes[i] == 0)
            files->codes[i] = rp_new_file_rename(&files->files[i], &files->errors[i]);
}

void rp_new_files_publish(struct rp_new_files *files)
{
    RP_ASSERT(files->count <= RP_NEW_FILES_MAX);
    memset(files->codes, 0, sizeof files->codes);
    if (files->count == 0)
        return;
    write_together(files);
    sync_each(files);
    rename_each(files);
    sync_directories(files);
    for (uint32_t i = 0; i < files->count; i++)
        rp_new_file_discard(&files->files[i]);
    files->count = 0;
}
