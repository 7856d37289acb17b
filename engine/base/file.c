/* SPDX-License-Identifier: Apache-2.0 */
/* Invariants: a path is checked with stat(2) before it is opened, because opening a FIFO may block
 * and opening a device may have effects, and with fstat(2) after it, because it may have been
 * replaced; except by rp_file_head. New files are in new_file.c, directories in dir.c. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/clock.h"
#include "base/mapped.h"
#include "base/stop.h"

#define LOCK_PATIENCE_NS 500000000u
#define LOCK_RETRY_NS 2000000u
#define HASH_PIECE_BYTES (4u << 20) /* a few milliseconds from memory */

int(rp_file_fail)(struct rp_error *error, const char *path, const char *verb)
{
    int code = -errno;
    const char *hint = NULL;
    if (code == -ENOSPC || code == -EDQUOT)
        hint = "make room (`df -h`, `df -i`), or write to another file system; no file was "
               "replaced";
    else if (code == -EACCES || code == -EPERM)
        hint = "check the permissions of the file and of every directory above it";
    else if (code == -EMFILE || code == -ENFILE)
        hint = "raise the limit of open files (`ulimit -n`)";
    else if (code == -ENOENT || code == -ENOTDIR)
        hint = "check the path, and whether its file system is mounted";
    return rp_fail(error, code, hint, "%s: cannot %s: %s", path, verb, strerror(-code));
}

const char *rp_proc_hint(void)
{
    return access("/proc/self/fd", F_OK) == 0
               ? NULL
               : "mount /proc (`mount -t proc proc /proc`): without it open files have no names";
}

static const char *kind_name(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFDIR:
        return "a directory";
    case S_IFIFO:
        return "a FIFO";
    case S_IFSOCK:
        return "a socket";
    case S_IFCHR:
    case S_IFBLK:
        return "a device";
    default:
        return "something else";
    }
}

static int refuse_irregular(const char *path, const struct stat *info, struct rp_error *error)
{
    if (S_ISREG(info->st_mode))
        return 0;
    int code = S_ISDIR(info->st_mode) ? -EISDIR : -EINVAL;
    return rp_fail(error, code, "give the path of a regular file",
                   "%s: expected a regular file, found %s", path, kind_name(info->st_mode));
}

int rp_file_open_read(const char *path, uint64_t *bytes_out, struct rp_error *error)
{
    struct stat info;
    if (stat(path, &info) < 0)
        return rp_file_fail(error, path, "open");
    int code = refuse_irregular(path, &info, error);
    if (code < 0)
        return code;
    int fd;
    do
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    while (fd < 0 && errno == EINTR);
    if (fd < 0)
        return rp_file_fail(error, path, "open");
    code = fstat(fd, &info) < 0 ? rp_file_fail(error, path, "stat")
                                : refuse_irregular(path, &info, error);
    /* O_NONBLOCK was only for open(2): with it io_uring would fail reads that must wait for the
     * disk. */
    if (code == 0 && fcntl(fd, F_SETFL, 0) < 0)
        code = rp_file_fail(error, path, "open");
    if (code < 0) {
        close(fd);
        return code;
    }
    if (bytes_out)
        *bytes_out = (uint64_t)info.st_size;
    return fd;
}

int rp_file_read_at(int fd, const char *path, void *buffer, size_t bytes, uint64_t offset,
                    struct rp_error *error)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t got = pread(fd, (char *)buffer + done, bytes - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return rp_file_fail(error, path, "read");
        if (got == 0)
            return rp_fail(error, -RP_E_CHANGED, "was the file truncated while it was read?",
                           "%s: the file ends early: expected %zu bytes at offset %" PRIu64
                           ", found %zu",
                           path, bytes, offset, done);
        done += (size_t)got;
    }
    return 0;
}

bool rp_file_begins(const char *path, const void *magic, size_t bytes)
{
    char head[16];
    RP_ASSERT(bytes <= sizeof head);
    int fd = rp_file_open_read(path, NULL, NULL);
    bool begins = fd >= 0 && rp_file_read_at(fd, path, head, bytes, 0, NULL) == 0 &&
                  !memcmp(head, magic, bytes);
    if (fd >= 0)
        close(fd);
    return begins;
}

size_t rp_file_head(const char *path, char *text, size_t room)
{
    FILE *file = fopen(path, "re");
    size_t bytes = file ? fread(text, 1, room - 1, file) : 0;
    if (file)
        fclose(file);
    text[bytes] = '\0';
    return bytes;
}

/* At `offset`; -1: at the file's position. */
static int write_all(int fd, const char *path, const void *buffer, size_t bytes, off_t offset,
                     struct rp_error *error)
{
    size_t done = 0;
    while (done < bytes) {
        const char *rest = (const char *)buffer + done;
        ssize_t put = offset < 0 ? write(fd, rest, bytes - done)
                                 : pwrite(fd, rest, bytes - done, offset + (off_t)done);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return rp_file_fail(error, path, "write");
        done += (size_t)put;
    }
    return 0;
}

int rp_file_write(int fd, const char *path, const void *buffer, size_t bytes,
                  struct rp_error *error)
{
    return write_all(fd, path, buffer, bytes, -1, error);
}

int rp_file_write_at(int fd, const char *path, const void *buffer, size_t bytes, uint64_t offset,
                     struct rp_error *error)
{
    return write_all(fd, path, buffer, bytes, (off_t)offset, error);
}

int rp_file_read_all(const char *path, uint64_t bytes_max, char **text_out, size_t *bytes_out,
                     struct rp_error *error)
{
    uint64_t bytes;
    int fd = rp_file_open_read(path, &bytes, error);
    if (fd < 0)
        return fd;
    int code = 0;
    char *text = NULL;
    if (bytes > bytes_max)
        code = rp_fail(error, -EFBIG, NULL,
                       "%s: expected at most %" PRIu64 " bytes, found %" PRIu64, path, bytes_max,
                       bytes);
    else if (!(text = malloc((size_t)bytes + 1)))
        code = rp_fail(error, -ENOMEM, NULL, "%s: no memory for %" PRIu64 " bytes", path, bytes);
    else
        code = rp_file_read_at(fd, path, text, (size_t)bytes, 0, error);
    close(fd);
    if (code < 0) {
        free(text);
        return code;
    }
    text[bytes] = 0;
    *text_out = text;
    if (bytes_out)
        *bytes_out = (size_t)bytes;
    return 0;
}

int rp_file_lock(int fd)
{
    uint64_t give_up_ns = rp_now_ns() + LOCK_PATIENCE_NS;
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EINTR && (errno != EWOULDBLOCK || rp_now_ns() >= give_up_ns))
            return -errno;
        rp_sleep_ns(LOCK_RETRY_NS);
    }
    return 0;
}

int rp_file_fail_lock(struct rp_error *error, int code, const char *path)
{
    bool has_none = code == -ENOSYS || code == -EOPNOTSUPP || code == -EINVAL || code == -ENOLCK;
    return rp_fail(error, code,
                   has_none ? "two processes could write there at once: mount the file system with "
                              "locks (Lustre: `-o flock`), or give a directory on another one"
                            : NULL,
                   "%s: cannot lock it (flock): %s", path, rp_strerror(code));
}

bool rp_fd_lacks_inodes(int fd)
{
    struct statvfs room;
    return fstatvfs(fd, &room) == 0 && room.f_files > 0 && room.f_favail == 0;
}

void rp_fd_wake(int fd)
{
    const uint64_t one = 1;
    ssize_t written = write(fd, &one, sizeof one);
    (void)written;
}

/* ---- mappings -------------------------------------------------------------------------------- */

static int map_copy(struct rp_map *map, int fd, uint64_t bytes, const char *path,
                    struct rp_error *error)
{
    uint8_t *copy = malloc((size_t)bytes);
    if (!copy)
        return rp_fail(error, -ENOMEM, NULL, "%s: no memory for %" PRIu64 " bytes", path, bytes);
    int code = rp_file_read_at(fd, path, copy, (size_t)bytes, 0, error);
    if (code < 0)
        free(copy);
    else
        *map = (struct rp_map){.data = copy, .bytes = bytes};
    return code;
}

int rp_map_file(struct rp_map *map, int fd, uint64_t bytes, const char *path,
                struct rp_error *error)
{
    *map = (struct rp_map){0};
    if (bytes == 0)
        return 0;
    if (bytes <= RP_MAP_COPY_BYTES_MAX)
        return map_copy(map, fd, bytes, path, error);
    int code = rp_mapped_check_room(1, error);
    if (code < 0)
        return rp_fail_context(error, code, "%s", path);
    void *data = mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
        return rp_file_fail(error, path, "map");
    *map = (struct rp_map){
        .data = data, .bytes = bytes, .mapping = rp_mapped_add(data, bytes, path)};
    if (map->mapping && rp_stamp_settle(fd, &map->stamp) == 0)
        return 0;
    munmap(data, (size_t)bytes);
    *map = (struct rp_map){0};
    return rp_fail(error, -ENOMEM, NULL, "%s: no memory for its name", path);
}

int rp_map_open(struct rp_map *map, const char *path, struct rp_error *error)
{
    *map = (struct rp_map){0};
    uint64_t bytes;
    int fd = rp_file_open_read(path, &bytes, error);
    if (fd < 0)
        return fd;
    int code = rp_map_file(map, fd, bytes, path, error);
    close(fd);
    return code;
}

int rp_map_detach(struct rp_map *map, const char *path, struct rp_error *error)
{
    void *copy = mmap(NULL, (size_t)map->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                      -1, 0);
    if (copy == MAP_FAILED)
        return rp_file_fail(error, path, "take memory for a copy");
    memcpy(copy, map->data, (size_t)map->bytes);
    void *moved = mremap(copy, (size_t)map->bytes, (size_t)map->bytes,
                         MREMAP_MAYMOVE | MREMAP_FIXED, (void *)(uintptr_t)map->data);
    if (moved != MAP_FAILED)
        return 0;
    int code = rp_file_fail(error, path, "replace the mapping");
    munmap(copy, (size_t)map->bytes);
    return code;
}

void rp_map_close(struct rp_map *map)
{
    void *data = (void *)(uintptr_t)map->data;
    rp_mapped_remove(map->mapping);
    if (map->mapping)
        munmap(data, (size_t)map->bytes);
    else
        free(data);
    *map = (struct rp_map){0};
}

int rp_map_hash(const struct rp_map *map, struct rp_hash128 *hash, struct rp_error *error)
{
    struct rp_hasher hasher;
    int code = 0;
    rp_hasher_begin(&hasher);
    for (uint64_t at = 0; at < map->bytes && code == 0; at += HASH_PIECE_BYTES) {
        rp_hasher_add(&hasher, map->data + at,
                      (size_t)rp_min_u64(HASH_PIECE_BYTES, map->bytes - at));
        code = rp_stop_check(error);
    }
    *hash = rp_hasher_finish(&hasher);
    return code;
}

char *rp_path_directory(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return strdup(".");
    return slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

const char *rp_path_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool rp_path_exists(const char *format, ...)
{
    char *path;
    va_list arguments;
    va_start(arguments, format);
    int bytes = vasprintf(&path, format, arguments);
    va_end(arguments);
    bool is_there = bytes >= 0 && access(path, F_OK) == 0;
    if (bytes >= 0)
        free(path);
    return is_there;
}
