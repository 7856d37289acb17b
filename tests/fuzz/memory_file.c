/* SPDX-License-Identifier: Apache-2.0 */
/* memory_file.c — see memory_file.h. Only the calls of the engine's parsers are here. This file is
 * built without coverage: it is not under test. */
#include "memory_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <sanitizer/asan_interface.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES_MAX 8
#define FD_FIRST (1 << 20) /* the kernel gives the lowest one that is free, so none like these */
#define PAGE_BYTES 4096u
#define SEALS (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW) /* as of a message's body */
#define EDGE_BYTES (1u << 18)                              /* longest content */

/* Memory whose last byte is in front of a page that cannot be read. */
struct edge {
    uint8_t *start;
};

struct file {
    char path[32];
    struct edge edge;
    uint8_t *data;
    size_t bytes;
    size_t position; /* for read(2) */
    unsigned opened, mapped;
};
static struct file files[FILES_MAX];
static struct edge edge_of_copy;

static void require(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "a file in memory: this does not hold: %s\n", what);
    abort();
}

static uint8_t *put_at_edge(struct edge *edge, const void *content, size_t bytes)
{
    require(bytes <= EDGE_BYTES, "the content is short enough");
    if (!edge->start) {
        uint8_t *pages = mmap(NULL, EDGE_BYTES + PAGE_BYTES, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        require(pages != MAP_FAILED, "there is memory");
        require(mprotect(pages + EDGE_BYTES, PAGE_BYTES, PROT_NONE) == 0, "its end is closed");
        edge->start = pages;
    }
    size_t slack = -bytes & 7;
    uint8_t *end = edge->start + EDGE_BYTES, *data = end - slack - bytes;
    ASAN_UNPOISON_MEMORY_REGION(end - 8, 8);
    if (bytes)
        memcpy(data, content, bytes);
    ASAN_POISON_MEMORY_REGION(end - slack, slack);
    return data;
}

void *fuzz_at_edge(const void *content, size_t bytes)
{
    return put_at_edge(&edge_of_copy, content, bytes);
}

static bool is_below_folder(const char *path)
{
    return strncmp(path, FUZZ_FOLDER "/", sizeof FUZZ_FOLDER) == 0;
}

static struct file *find(const char *path)
{
    for (struct file *file = files; file < files + FILES_MAX && file->path[0]; file++)
        if (strcmp(file->path, path) == 0)
            return file;
    return NULL;
}

const char *fuzz_file(const char *name, const void *content, size_t bytes)
{
    char path[sizeof files->path];
    snprintf(path, sizeof path, FUZZ_FOLDER "/%s", name);
    struct file *file = find(path);
    for (file = file ? file : files; file->path[0] && strcmp(file->path, path) != 0; file++)
        require(file + 1 < files + FILES_MAX, "there are few files");
    require(file->opened == 0 && file->mapped == 0, "the file is closed and no longer mapped");
    memcpy(file->path, path, sizeof path);
    file->data = put_at_edge(&file->edge, content, bytes);
    file->bytes = bytes;
    return file->path;
}

/* ---- in the place of the kernel -------------------------------------------------------------- */

static struct file *of_descriptor(int fd)
{
    return fd >= FD_FIRST && fd < FD_FIRST + FILES_MAX ? &files[fd - FD_FIRST] : NULL;
}

static int describe(const struct file *file, struct stat *info)
{
    *info = (struct stat){.st_mode = S_IFREG | 0600,
                          .st_ino = (ino_t)(file - files) + 1,
                          .st_nlink = 1,
                          .st_size = (off_t)file->bytes};
    return 0;
}

static int not_there(void)
{
    errno = ENOENT;
    return -1;
}

int __real_stat(const char *path, struct stat *info);
int __wrap_stat(const char *path, struct stat *info);
int __wrap_stat(const char *path, struct stat *info)
{
    if (!is_below_folder(path))
        return __real_stat(path, info);
    const struct file *file = find(path);
    return file ? describe(file, info) : not_there();
}

int __real_access(const char *path, int mode);
int __wrap_access(const char *path, int mode);
int __wrap_access(const char *path, int mode)
{
    if (!is_below_folder(path))
        return __real_access(path, mode);
    return find(path) ? 0 : not_there();
}

static int open_file(const char *path)
{
    struct file *file = find(path);
    if (!file)
        return not_there();
    file->opened++;
    file->position = 0;
    return FD_FIRST + (int)(file - files);
}

int __real_openat(int directory, const char *path, int flags, ...);

static int open_path(int directory, const char *path, int flags, va_list arguments)
{
    if (is_below_folder(path))
        return open_file(path);
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
    return __real_openat(directory, path, flags, mode);
}

int __wrap_openat(int directory, const char *path, int flags, ...);
int __wrap_openat(int directory, const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    int fd = open_path(directory, path, flags, arguments);
    va_end(arguments);
    return fd;
}

int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    int fd = open_path(AT_FDCWD, path, flags, arguments);
    va_end(arguments);
    return fd;
}

int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
    struct file *file = of_descriptor(fd);
    if (!file)
        return __real_close(fd);
    require(file->opened > 0, "a descriptor is closed once");
    file->opened--;
    return 0;
}

unsigned fuzz_opened(int fd)
{
    require(of_descriptor(fd), "it is a descriptor of a file in memory");
    return of_descriptor(fd)->opened;
}

int __real_dup(int fd);
int __wrap_dup(int fd);
int __wrap_dup(int fd)
{
    struct file *file = of_descriptor(fd);
    if (!file)
        return __real_dup(fd);
    file->opened++;
    return fd;
}

int __real_fstat(int fd, struct stat *info);
int __wrap_fstat(int fd, struct stat *info);
int __wrap_fstat(int fd, struct stat *info)
{
    const struct file *file = of_descriptor(fd);
    return file ? describe(file, info) : __real_fstat(fd, info);
}

int __real_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...)
{
    if (of_descriptor(fd))
        return command == F_GET_SEALS ? SEALS : 0;
    va_list arguments;
    va_start(arguments, command);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    return __real_fcntl(fd, command, argument);
}

int __real_posix_fadvise(int fd, off_t offset, off_t bytes, int advice);
int __wrap_posix_fadvise(int fd, off_t offset, off_t bytes, int advice);
int __wrap_posix_fadvise(int fd, off_t offset, off_t bytes, int advice)
{
    return of_descriptor(fd) ? 0 : __real_posix_fadvise(fd, offset, bytes, advice);
}

ssize_t __real_pread(int fd, void *buffer, size_t bytes, off_t offset);
ssize_t __wrap_pread(int fd, void *buffer, size_t bytes, off_t offset);
ssize_t __wrap_pread(int fd, void *buffer, size_t bytes, off_t offset)
{
    const struct file *file = of_descriptor(fd);
    if (!file)
        return __real_pread(fd, buffer, bytes, offset);
    size_t at = (size_t)offset < file->bytes ? (size_t)offset : file->bytes;
    size_t count = bytes < file->bytes - at ? bytes : file->bytes - at;
    memcpy(buffer, file->data + at, count);
    return (ssize_t)count;
}

ssize_t __real_read(int fd, void *buffer, size_t bytes);
ssize_t __wrap_read(int fd, void *buffer, size_t bytes);
ssize_t __wrap_read(int fd, void *buffer, size_t bytes)
{
    struct file *file = of_descriptor(fd);
    if (!file)
        return __real_read(fd, buffer, bytes);
    ssize_t count = __wrap_pread(fd, buffer, bytes, (off_t)file->position);
    file->position += (size_t)count;
    return count;
}

off64_t __real_lseek64(int fd, off64_t offset, int whence);
off64_t __wrap_lseek64(int fd, off64_t offset, int whence);
off64_t __wrap_lseek64(int fd, off64_t offset, int whence)
{
    struct file *file = of_descriptor(fd);
    if (!file)
        return __real_lseek64(fd, offset, whence);
    require(whence != SEEK_END, "nobody looks for the end");
    file->position = (size_t)offset + (whence == SEEK_CUR ? file->position : 0);
    return (off64_t)file->position;
}

void *__real_mmap(void *start, size_t bytes, int protection, int flags, int fd, off_t offset);
off_t __wrap_lseek(int fd, off_t offset, int whence);
off_t __wrap_lseek(int fd, off_t offset, int whence)
{
    return (off_t)__wrap_lseek64(fd, offset, whence);
}

void *__wrap_mmap(void *start, size_t bytes, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *start, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    struct file *file = of_descriptor(fd);
    if (!file)
        return __real_mmap(start, bytes, protection, flags, fd, offset);
    require(bytes == file->bytes && offset == 0 && protection == PROT_READ,
            "a file is mapped whole");
    file->mapped++;
    return file->data;
}

int __real_munmap(void *start, size_t bytes);
int __wrap_munmap(void *start, size_t bytes);
int __wrap_munmap(void *start, size_t bytes)
{
    for (struct file *file = files; file < files + FILES_MAX && file->path[0]; file++) {
        if (file->data != start || file->mapped == 0)
            continue;
        file->mapped--;
        return 0;
    }
    return __real_munmap(start, bytes);
}

/* ---- patterns -------------------------------------------------------------------------------- */

static const struct file *next_entry; /* the lister's */

static void *open_folder(const char *path)
{
    next_entry = strcmp(path, FUZZ_FOLDER) == 0 ? files : NULL;
    not_there(); /* the error if it is not the folder */
    return next_entry ? &next_entry : NULL;
}

static struct dirent *read_folder(void *stream)
{
    static struct dirent entry = {.d_ino = 1, .d_type = DT_REG};
    (void)stream;
    if (next_entry == files + FILES_MAX || !next_entry->path[0])
        return NULL;
    snprintf(entry.d_name, sizeof entry.d_name, "%s", next_entry->path + sizeof FUZZ_FOLDER);
    next_entry++;
    return &entry;
}

static void close_folder(void *stream)
{
    (void)stream;
}

static int look_at(const char *restrict path, struct stat *restrict info)
{
    return __wrap_stat(path, info);
}

/* Braces with many alternatives are very many patterns, each looked for: libc's affair, and nine
 * tenths of the time that configs take. */
static bool is_many_patterns(const char *pattern)
{
    unsigned marks = 0;
    for (; *pattern; pattern++)
        marks += *pattern == '{' || *pattern == ',';
    return marks > 8;
}

int __real_glob(const char *pattern, int flags, int (*on_error)(const char *, int), glob_t *found);
int __wrap_glob(const char *pattern, int flags, int (*on_error)(const char *, int), glob_t *found);
int __wrap_glob(const char *pattern, int flags, int (*on_error)(const char *, int), glob_t *found)
{
    if (!is_below_folder(pattern))
        return __real_glob(pattern, flags, on_error, found);
    if (is_many_patterns(pattern))
        return GLOB_NOMATCH;
    found->gl_opendir = open_folder;
    found->gl_readdir = read_folder;
    found->gl_closedir = close_folder;
    found->gl_stat = found->gl_lstat = look_at;
    return __real_glob(pattern, flags | GLOB_ALTDIRFUNC, on_error, found);
}
