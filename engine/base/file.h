/* SPDX-License-Identifier: Apache-2.0 */
/* file.h — files, with every result checked. All functions return 0 or a negative code and fill
 * *error with the path. EINTR is retried here and nowhere else. */
#ifndef RP_BASE_FILE_H
#define RP_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/fail.h"

/** What to do where /proc is not mounted, by which open files are named; NULL where it is. */
const char *rp_proc_hint(void);

/** Open a regular file for reading; a directory, FIFO or device is refused by name without
 * blocking. *bytes_out (may be NULL) receives its size. Returns a file descriptor >= 0. */
RP_MUST_CHECK int rp_file_open_read(const char *path, uint64_t *bytes_out, struct rp_error *error);

/** Read exactly `bytes` at `offset`. A file that ends earlier is -RP_E_CHANGED. */
RP_MUST_CHECK int rp_file_read_at(int fd, const char *path, void *buffer, size_t bytes,
                                  uint64_t offset, struct rp_error *error);

/** Write all of `buffer` at the file position. */
RP_MUST_CHECK int rp_file_write(int fd, const char *path, const void *buffer, size_t bytes,
                                struct rp_error *error);

/** Write all of `buffer` at `offset`; the file position stays. */
RP_MUST_CHECK int rp_file_write_at(int fd, const char *path, const void *buffer, size_t bytes,
                                   uint64_t offset, struct rp_error *error);

/** The whole of a regular file and a NUL, which is not counted. Refuses more than `bytes_max`. */
RP_MUST_CHECK int rp_file_read_all(const char *path, uint64_t bytes_max, char **text_out,
                                   size_t *bytes_out, struct rp_error *error);

/** Replace `path` by `bytes` of `buffer` so that a crash leaves the old or the new content:
 * temporary file in the same directory, fsync, rename, fsync of the directory. Fails as
 * rp_new_file_publish does. */
RP_MUST_CHECK int rp_file_replace(const char *path, const void *buffer, size_t bytes,
                                  struct rp_error *error);

/* A file that is being written and has no name yet where the file system allows that (O_TMPFILE),
 * so that even SIGKILL leaves nothing behind; elsewhere it has a temporary name beside `path`. */
struct rp_new_file {
    int fd;
    char *path;      /* what it will be called */
    char *temporary; /* its name until then; NULL while it has none */
};
/** Begin a file that will replace `path`. Write to new_file->fd, then publish or discard. */
RP_MUST_CHECK int rp_new_file_open(struct rp_new_file *new_file, const char *path,
                                   struct rp_error *error);
/** fsync, rename over `path`, fsync of the directory. Always ends the new file, and nothing is left
 * beside `path`. On failure that is as it was, or, if only the directory could not be synced,
 * replaced already, and perhaps not for good. */
RP_MUST_CHECK int rp_new_file_publish(struct rp_new_file *new_file, struct rp_error *error);
/** Drop it. Fine on a new file that was already ended, or that is all zero but fd = -1. */
void rp_new_file_discard(struct rp_new_file *new_file);

/** Lock an open file for this process alone (flock). Tries for half a second: a process that was
 * forked off a killed holder has the lock until it is gone as well. -EWOULDBLOCK: somebody has it.
 */
RP_MUST_CHECK int rp_file_lock(int fd);

/** Add one to a non-blocking eventfd. One that is full has woken its reader already. */
void rp_fd_wake(int fd);

/** Create a directory and its parents with mode 0700; an existing directory is fine. */
RP_MUST_CHECK int rp_dir_make(const char *path, struct rp_error *error);

/* What the file system says about the content of a file. Whoever writes to a file changes the
 * change time, which nobody can set; the modification time can be set back. Inode numbers are left
 * out: some file systems (FUSE) give a file another one at each open. */
struct rp_stamp {
    uint64_t bytes, mtime_ns, ctime_ns;
    uint64_t links; /* names: to give or take one changes the change time as well */
};
/** Of an open file, or of what has a name now. 0 or -errno. */
RP_MUST_CHECK int rp_stamp_of(int fd, struct rp_stamp *stamp);
RP_MUST_CHECK int rp_stamp_at(const char *path, struct rp_stamp *stamp);
/** NULL if both are the same (links aside); else the first field that differs, and its values. */
const char *rp_stamp_difference(const struct rp_stamp *expected, const struct rp_stamp *found,
                                uint64_t *expected_value, uint64_t *found_value);

/** The bytes of a whole regular file, to be read only; an empty file has `data` NULL. A large one
 * is mapped: one that is truncated meanwhile, see mapped.h. A small one is copied, because the
 * kernel gives a process few mappings (65530 by default). */
struct rp_map {
    const uint8_t *data; /* aligned as malloc does */
    uint64_t bytes;
    struct rp_mapped_file *mapping; /* NULL: a copy, which the file cannot change */
    struct rp_stamp stamp;          /* when it was mapped */
};
#define RP_MAP_COPY_BYTES_MAX (32u << 10)
RP_MUST_CHECK int rp_map_open(struct rp_map *map, const char *path, struct rp_error *error);
/** The same of a file that is open and has so many bytes; the descriptor stays the caller's. */
RP_MUST_CHECK int rp_map_file(struct rp_map *map, int fd, uint64_t bytes, const char *path,
                              struct rp_error *error);
/** The same bytes at the same address, but in memory: the file cannot change them any more. */
RP_MUST_CHECK int rp_map_detach(struct rp_map *map, const char *path, struct rp_error *error);
void rp_map_close(struct rp_map *map);

/** path up to and without the last '/', or "."; the caller frees it. NULL when out of memory. */
char *rp_path_directory(const char *path);

#endif
