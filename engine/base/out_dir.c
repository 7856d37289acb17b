/* SPDX-License-Identifier: Apache-2.0 */
/* Symlinks are judged as by fs.protected_symlinks, and files as by fs.protected_regular: not every
 * machine and container has them set, and neither covers a directory that is writable by everybody
 * without being sticky. */
#include "base/out_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

#define LINKS_MAX 40u

/* ---- judgement ------------------------------------------------------------------------------- */

static bool is_foreign(const struct stat *holder, const struct stat *entry)
{
    return (holder->st_mode & S_IWOTH) && entry->st_uid != geteuid() && entry->st_uid != 0 &&
           entry->st_uid != holder->st_uid;
}

/* The name of an open directory, for messages. */
static char *name_of(int dir)
{
    char link[64], name[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
    ssize_t bytes = dir < 0 ? -1 : readlink(link, name, sizeof name - 1);
    return bytes > 0 ? rp_asprintf("%.*s", (int)bytes, name) : strdup("its directory");
}

static int fail_foreign(int dir, const struct stat *holder, const char *name,
                        const struct stat *entry, const char *path, struct rp_error *error)
{
    bool is_link = S_ISLNK(entry->st_mode), is_dir = S_ISDIR(entry->st_mode);
    char *folder = name_of(dir);
    const char *why = is_link  ? "it is not followed"
                      : is_dir ? "its files could be replaced by anybody"
                               : "it is not written to";
    char mode[32] = "";
    if (!is_link)
        snprintf(mode, sizeof mode, ", mode %04o", entry->st_mode & 07777u);
    int code = rp_fail(error, -EPERM,
                       is_link || is_dir ? "write to a directory of your own (`mkdir -m 700 DIR`)"
                                         : "choose another name, or a directory of your own "
                                           "(`mkdir -m 700 DIR`)",
                       "%s: %s `%s` in %s is of user %" PRIuMAX "%s, we are user %" PRIuMAX
                       ", and everybody may write to %s (user %" PRIuMAX ", mode %04o): %s",
                       path,
                       is_link  ? "the symlink"
                       : is_dir ? "the directory"
                                : "the file",
                       name, folder ? folder : "its directory", (uintmax_t)entry->st_uid, mode,
                       (uintmax_t)geteuid(), is_dir ? "both" : "that directory",
                       (uintmax_t)holder->st_uid, holder->st_mode & 07777u, why);
    free(folder);
    return code;
}

/* ---- the way to a directory ------------------------------------------------------------------ */

struct walk {
    const char *path; /* as it was given */
    char *rest;       /* rest of the path, still to be walked */
    int dir;          /* last directory walked; AT_FDCWD at first */
    unsigned links;
    bool makes;
    mode_t mode;
};

static void enter(struct walk *walk, int dir)
{
    if (walk->dir >= 0)
        close(walk->dir);
    walk->dir = dir;
}

/* A directory is opened for reading if it can be: with O_PATH an automatic mount is not made. */
static int open_entry(int dir, const char *name)
{
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd >= 0 ? fd : openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
}

/* In /proc, symlinks lead to files and not to names. Only the kernel makes entries there. */
static bool is_of_kernel(int dir)
{
    struct statfs info;
    return dir >= 0 && fstatfs(dir, &info) == 0 && info.f_type == PROC_SUPER_MAGIC;
}

static int fail_step(const struct walk *walk, const char *verb, struct rp_error *error)
{
    return rp_file_fail(error, walk->path, verb);
}

static int follow(struct walk *walk, int link, const char *name, struct rp_error *error)
{
    char target[PATH_MAX];
    if (is_of_kernel(walk->dir)) {
        int fd = openat(walk->dir, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
            return fail_step(walk, "open", error);
        enter(walk, fd);
        return 0;
    }
    ssize_t bytes = readlinkat(link, "", target, sizeof target - 1);
    if (bytes < 0)
        return fail_step(walk, "open", error);
    errno = ELOOP;
    if (++walk->links > LINKS_MAX)
        return fail_step(walk, "open", error);
    char *rest = rp_asprintf("%.*s/%s", (int)bytes, target, walk->rest);
    if (!rest)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", walk->path);
    free(walk->rest);
    walk->rest = rest;
    if (rest[0] == '/')
        enter(walk, AT_FDCWD);
    return 0;
}

/* Judge the entry, and go through it. `found` is its descriptor, which is closed or entered. */
static int take_step(struct walk *walk, int found, const char *name, struct rp_error *error)
{
    struct stat holder, entry;
    int at = walk->dir;
    int code = fstat(at, &holder) < 0 || fstat(found, &entry) < 0 ? fail_step(walk, "stat", error)
                                                                  : 0;
    bool is_dotted = !strcmp(name, ".") || !strcmp(name, ".."); /* made by the kernel */
    bool is_dir = code == 0 && S_ISDIR(entry.st_mode),
         is_link = code == 0 && S_ISLNK(entry.st_mode);
    if (code == 0 && !is_dotted && is_foreign(&holder, &entry) &&
        (is_link || (is_dir && (entry.st_mode & S_IWOTH))))
        code = fail_foreign(at, &holder, name, &entry, walk->path, error);
    else if (code == 0 && !is_link && !is_dir)
        code = rp_fail(error, -ENOTDIR, NULL,
                       "%s: expected a directory, found another kind of file: %s", walk->path,
                       name);
    if (code == 0 && is_dir) {
        enter(walk, found);
        return 0;
    }
    if (code == 0)
        code = follow(walk, found, name, error);
    close(found);
    return code;
}

static int step(struct walk *walk, const char *name, struct rp_error *error)
{
    int found = open_entry(walk->dir, name);
    if (found < 0 && errno == ENOENT && walk->makes) {
        if (mkdirat(walk->dir, name, walk->mode) < 0 && errno != EEXIST)
            return fail_step(walk, "create the directory", error);
        found = open_entry(walk->dir, name);
    }
    return found < 0 ? fail_step(walk, "open", error) : take_step(walk, found, name, error);
}

static int begin_at(struct walk *walk, const char *name, struct rp_error *error)
{
    int fd = open_entry(AT_FDCWD, name);
    if (fd < 0)
        return fail_step(walk, "open", error);
    enter(walk, fd);
    return 0;
}

/* Take the next name off the rest. *name is NULL after the last one. */
static int next_name(struct walk *walk, char **name, struct rp_error *error)
{
    char *at = walk->rest + strspn(walk->rest, "/");
    size_t bytes = strcspn(at, "/");
    *name = bytes > 0 ? strndup(at, bytes) : NULL;
    memmove(walk->rest, at + bytes, strlen(at + bytes) + 1);
    return bytes == 0 || *name
               ? 0
               : rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", walk->path);
}

static int walk_all(struct walk *walk, struct rp_error *error)
{
    int code = 0;
    bool is_begun = false;
    while (code == 0 && (walk->rest[0] || !is_begun)) {
        if (walk->dir < 0)
            code = begin_at(walk, walk->rest[0] == '/' ? "/" : ".", error);
        is_begun = true;
        char *name = NULL;
        if (code == 0)
            code = next_name(walk, &name, error);
        if (name)
            code = step(walk, name, error);
        free(name);
    }
    return code;
}

static int open_path(const char *path, const char *directory, bool makes, mode_t mode,
                     struct rp_error *error)
{
    struct walk walk = {
        .path = path, .rest = strdup(directory), .dir = AT_FDCWD, .makes = makes, .mode = mode};
    int code = walk.rest ? walk_all(&walk, error)
                         : rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", path);
    free(walk.rest);
    if (code == 0)
        return walk.dir;
    enter(&walk, AT_FDCWD);
    return code;
}

int rp_out_dir_make(const char *path, mode_t mode, struct rp_error *error)
{
    return open_path(path, path, true, mode, error);
}

int rp_out_dir_open_read(const char *path, struct rp_error *error)
{
    int dir = open_path(path, path, false, 0, error);
    if (dir < 0 || !(fcntl(dir, F_GETFL) & O_PATH))
        return dir;
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        fd = rp_file_fail(error, path, "open");
    close(dir);
    return fd;
}

int rp_out_dir_of(const char *path, const char **name, struct rp_error *error)
{
    char *directory = rp_path_directory(path);
    *name = rp_path_name(path);
    int dir = directory ? open_path(path, directory, false, 0, error)
                        : rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", path);
    free(directory);
    return dir;
}

/* ---- files in it ----------------------------------------------------------------------------- */

static int check_open(int dir, int fd, const char *name, const char *path, struct rp_error *error)
{
    struct stat holder, entry;
    if (fstat(dir, &holder) < 0 || fstat(fd, &entry) < 0)
        return rp_file_fail(error, path, "stat");
    if (is_foreign(&holder, &entry))
        return fail_foreign(dir, &holder, name, &entry, path, error);
    if ((holder.st_mode & S_IWOTH) && S_ISREG(entry.st_mode) && entry.st_nlink > 1)
        return rp_fail(
            error, -EPERM,
            "choose another name, or a directory of your own "
            "(`mkdir -m 700 DIR`)",
            "%s: it has %ju names (hard links), and everybody may write to its directory (mode "
            "%04o): it may be another file of yours",
            path, (uintmax_t)entry.st_nlink, holder.st_mode & 07777u);
    return 0;
}

/* Refuse a foreign entry before it is opened. */
static int inspect(int dir, const char *name, const char *path, struct rp_error *error)
{
    struct stat holder, entry;
    if (fstatat(dir, name, &entry, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : rp_file_fail(error, path, "open");
    if (fstat(dir, &holder) < 0)
        return rp_file_fail(error, path, "stat");
    if (is_foreign(&holder, &entry))
        return fail_foreign(dir, &holder, name, &entry, path, error);
    return 0;
}

int rp_out_file_open_at(int dir, const char *name, int flags, mode_t mode, const char *path,
                        struct rp_error *error)
{
    int code = inspect(dir, name, path, error);
    if (code < 0)
        return code;
    int fd = openat(dir, name, flags | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd < 0)
        return rp_file_fail(error, path, "open");
    code = check_open(dir, fd, name, path, error);
    if (code == 0)
        return fd;
    close(fd);
    return code;
}

/* The path that the symlink of a name leads to; *target is NULL if the name has no symlink, or one
 * of /proc. The link is judged and read by one descriptor. */
static int target_of(int dir, const char *name, const char *path, char **target,
                     struct rp_error *error)
{
    char text[PATH_MAX];
    struct stat holder, entry;
    *target = NULL;
    int link = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (link < 0)
        return errno == ENOENT ? 0 : rp_file_fail(error, path, "open");
    int code = fstat(dir, &holder) < 0 || fstat(link, &entry) < 0
                   ? rp_file_fail(error, path, "stat")
                   : 0;
    bool follows = code == 0 && S_ISLNK(entry.st_mode) && !is_of_kernel(dir);
    if (follows && is_foreign(&holder, &entry)) {
        code = fail_foreign(dir, &holder, name, &entry, path, error);
    } else if (follows) {
        ssize_t bytes = readlinkat(link, "", text, sizeof text - 1);
        if (bytes > 0)
            *target = text[0] == '/' ? rp_asprintf("%.*s", (int)bytes, text)
                                     : rp_asprintf("/proc/self/fd/%d/%.*s", dir, (int)bytes, text);
        if (bytes <= 0)
            code = rp_file_fail(error, path, "open");
        else if (!*target)
            code = rp_fail(error, -ENOMEM, NULL, "%s: no memory for a name", path);
    }
    close(link);
    return code;
}

/* `at` is the end of the links so far, `path` the caller's, for messages. */
static int open_linked(const char *at, const char *path, int flags, mode_t mode, unsigned links,
                       struct rp_error *error)
{
    const char *name;
    char *target = NULL;
    int dir = rp_out_dir_of(at, &name, error);
    if (dir < 0)
        return dir;
    bool follows = !(flags & O_NOFOLLOW);
    int fd = follows ? target_of(dir, name, path, &target, error) : 0;
    if (fd == 0 && target && links == LINKS_MAX) {
        errno = ELOOP;
        fd = rp_file_fail(error, path, "open");
    } else if (fd == 0 && target) {
        fd = open_linked(target, path, flags, mode, links + 1, error);
    } else if (fd == 0 && follows && is_of_kernel(dir)) { /* /dev/stdout leads there */
        fd = openat(dir, name, (flags & ~O_CREAT) | O_CLOEXEC);
        if (fd < 0)
            fd = rp_file_fail(error, path, "open");
    } else if (fd == 0) {
        fd = rp_out_file_open_at(dir, name, flags, mode, path, error);
    }
    free(target);
    close(dir);
    return fd;
}

int rp_out_file_open(const char *path, int flags, mode_t mode, struct rp_error *error)
{
    return open_linked(path, path, flags, mode, 0, error);
}

int rp_out_file_check_replaced(int dir, const char *name, const char *path, struct rp_error *error)
{
    struct stat holder, entry;
    if (fstatat(dir, name, &entry, AT_SYMLINK_NOFOLLOW) < 0 || fstat(dir, &holder) < 0 ||
        !(holder.st_mode & S_ISVTX) || !is_foreign(&holder, &entry))
        return 0;
    return fail_foreign(dir, &holder, name, &entry, path, error);
}
