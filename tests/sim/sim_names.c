/* SPDX-License-Identifier: Apache-2.0 */
/* sim_names.c — system calls that open, list, rename and remove files. */
#include "sim_wrap.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim_files.h"

bool sim_is_saved(const struct sim_node *node)
{
    struct sim_node *directory = sim_lookup("/checkpoints");
    if (!directory || node == directory)
        return node == directory && directory;
    for (uint32_t i = 0; i < directory->entries.count; i++)
        if (directory->entries.list[i].node == node)
            return true;
    return false;
}

static int open_at(int at, const char *path, int flags)
{
    char name[64];
    sim_step();
    struct sim_node *directory = sim_walk(at, path, name);
    if (!directory)
        return -1;
    if (flags & __O_TMPFILE & ~O_DIRECTORY)
        return fail_with(EOPNOTSUPP);
    struct sim_node *node = !name[0] || !strcmp(name, ".") ? directory
                                                           : sim_entry_find(directory, name);
    if (node && (flags & O_EXCL) && (flags & O_CREAT))
        return fail_with(EEXIST);
    if (!node && (flags & O_CREAT)) {
        if (sim_is_saved(directory) && sim_fault(sim_faults.save_error, "a file cannot be made"))
            return fail_with(ENOSPC);
        node = sim_node_new(SIM_FILE);
        sim_entry_add(directory, name, node);
    }
    if (!node)
        return fail_with(ENOENT);
    if ((flags & O_DIRECTORY) && node->kind != SIM_DIRECTORY)
        return fail_with(ENOTDIR);
    return sim_descriptor_new(node, flags);
}

WRAP(int, open, const char *path, int flags, ...)
{
    if (!sim.current)
        return __real_open(path, flags, 0666);
    return open_at(-1, path, flags);
}

WRAP(int, openat, int at, const char *path, int flags, ...)
{
    return open_at(at, path, flags);
}

WRAP(int, access, const char *path, int mode)
{
    (void)mode;
    sim_step();
    return sim_lookup(path) ? 0 : -1;
}

WRAP(int, utimensat, int at, const char *path, const struct timespec times[2], int flags)
{
    if (!sim.current)
        return __real_utimensat(at, path, times, flags);
    sim_step();
    return 0; /* times of files are not simulated */
}

WRAP(int, mkdirat, int at, const char *path, mode_t mode)
{
    (void)mode;
    char name[64];
    sim_step();
    struct sim_node *directory = sim_walk(at, path, name);
    if (!directory)
        return -1;
    if (!name[0] || sim_entry_find(directory, name))
        return fail_with(EEXIST);
    sim_entry_add(directory, name, sim_node_new(SIM_DIRECTORY));
    return 0;
}

WRAP(int, mkdir, const char *path, mode_t mode)
{
    return __wrap_mkdirat(-1, path, mode);
}

WRAP(int, rmdir, const char *path)
{
    char name[64];
    sim_step();
    struct sim_node *directory = sim_walk(-1, path, name);
    struct sim_node *node = directory ? sim_entry_find(directory, name) : NULL;
    if (!node)
        return fail_with(ENOENT);
    if (node->entries.count)
        return fail_with(ENOTEMPTY);
    sim_entry_drop(directory, name);
    return 0;
}

WRAP(int, unlinkat, int at, const char *path, int flags)
{
    (void)flags;
    char name[64];
    sim_step();
    struct sim_node *directory = sim_walk(at, path, name);
    return directory && sim_entry_drop(directory, name) ? 0 : fail_with(ENOENT);
}

WRAP(int, unlink, const char *path)
{
    return __wrap_unlinkat(-1, path, 0);
}

WRAP(int, renameat2, int at, const char *from, int to_at, const char *to, unsigned flags)
{
    (void)to_at;
    char old[64], new[64];
    sim_step();
    struct sim_node *directory = sim_walk(at, from, old);
    struct sim_node *target = directory ? sim_walk(at, to, new) : NULL;
    struct sim_node *node = directory ? sim_entry_find(directory, old) : NULL;
    if (!node || !target)
        return fail_with(ENOENT);
    if (sim_is_saved(node) && sim_fault(sim_faults.save_error, "a rename fails"))
        return fail_with(EIO);
    if ((flags & RENAME_NOREPLACE) && sim_entry_find(target, new))
        return fail_with(EEXIST);
    node->names++; /* so that dropping its old name does not free it */
    sim_entry_drop(target, new);
    sim_entry_drop(directory, old);
    sim_entry_add(target, new, node);
    node->names--;
    return 0;
}

WRAP(int, renameat, int at, const char *from, int to_at, const char *to)
{
    return __wrap_renameat2(at, from, to_at, to, 0);
}

WRAP(int, rename, const char *from, const char *to)
{
    return __wrap_renameat2(-1, from, -1, to, 0);
}

/* ---- listing --------------------------------------------------------------------------------- */

struct listing {
    int fd;
    uint32_t count, at;
    struct dirent entry;
    char names[][64]; /* as they were at the start */
};

WRAP(DIR *, fdopendir, int fd)
{
    const struct sim_node *node = sim_node_of(fd);
    struct listing *listing = sim_take(sizeof *listing + node->entries.count * 64u, 16);
    listing->fd = fd;
    listing->count = node->entries.count;
    listing->at = 0;
    for (uint32_t i = 0; i < listing->count; i++)
        memcpy(listing->names[i], node->entries.list[i].name, 64);
    return (DIR *)(void *)listing;
}

WRAP(struct dirent *, readdir, DIR *stream)
{
    struct listing *listing = (struct listing *)(void *)stream;
    sim_step();
    if (listing->at == listing->count)
        return NULL;
    memcpy(listing->entry.d_name, listing->names[listing->at++], 64);
    return &listing->entry;
}

WRAP(int, closedir, DIR *stream)
{
    struct listing *listing = (struct listing *)(void *)stream;
    int fd = listing->fd;
    sim_give(listing);
    return close(fd);
}
