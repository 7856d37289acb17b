/* SPDX-License-Identifier: Apache-2.0 */
/* file.h — files and mappings. Unless said otherwise, functions return 0 or a negative
 * code, fill in *error with the path, and retry EINTR. */
#ifndef RP_BASE_FILE_H
#define RP_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/fail.h"
#include "base/hash.h"
#include "base/stamp.h"

/** A hint if /proc is not mounted, without which a nameless file cannot be given a name; NULL if it
 * is mounted. */
const char *rp_proc_hint(void);

/** A failure of errno: the failed operation, its path, and the usual hint. */
int rp_file_fail(struct rp_error *error, const char *path, const char *verb);
#define rp_file_fail(...) rp_negative(rp_file_fail(__VA_ARGS__))

/** Open a regular file for reading. A directory, FIFO or device is an error that names its kind,
 * and is never waited for. *bytes_out (may be NULL) is the size. Returns a file descriptor. */
RP_MUST_CHECK int rp_file_open_read(const char *path, uint64_t *bytes_out, struct rp_error *error);

/** Read exactly `bytes` at `offset`. A file that ends earlier is -RP_E_CHANGED. */
RP_MUST_CHECK int rp_file_read_at(int fd, const char *path, void *buffer, size_t bytes,
                                  uint64_t offset, struct rp_error *error);

/** Whether a file begins with these bytes, 16 at most; false if it cannot be read. */
bool rp_file_begins(const char *path, const void *magic, size_t bytes);

/** The first room - 1 bytes of a file of /proc or /sys, or of a regular file, and a NUL. Returns
 * their number; 0 if the file is empty or cannot be read. */
size_t rp_file_head(const char *path, char *text, size_t room);

/** Write all of `buffer` at the file's position. */
RP_MUST_CHECK int rp_file_write(int fd, const char *path, const void *buffer, size_t bytes,
                                struct rp_error *error);

/** Write all of `buffer` at `offset`. The file's position does not change. */
RP_MUST_CHECK int rp_file_write_at(int fd, const char *path, const void *buffer, size_t bytes,
                                   uint64_t offset, struct rp_error *error);

/** Read a whole regular file of at most `bytes_max` bytes. A NUL, which is not counted, follows the
 * text. The caller frees it. */
RP_MUST_CHECK int rp_file_read_all(const char *path, uint64_t bytes_max, char **text_out,
                                   size_t *bytes_out, struct rp_error *error);

/** Replace the content of `path`. A crash leaves the old or the new content. After a failure the
 * file is in the state that rp_new_file_publish describes. */
RP_MUST_CHECK int rp_file_replace(const char *path, const void *buffer, size_t bytes,
                                  struct rp_error *error);

/* A file that is being written. It has no name until it is published (O_TMPFILE), so that even
 * SIGKILL leaves no file; if the file system does not support that, it has a temporary name in the
 * directory of `path`. */
struct rp_new_file {
    int fd;
    char *path;      /* its name once it is published */
    char *temporary; /* its temporary name; NULL = none */
    bool is_scratch;
};
/** Begin a file that will replace `path`. Write to new_file->fd, then publish or discard. */
RP_MUST_CHECK int rp_new_file_open(struct rp_new_file *new_file, const char *path,
                                   struct rp_error *error);
/** The same for a file that can be made again and has hashes: it has a temporary name from the
 * beginning, which takes a tenth of the time and is left by SIGKILL, and is published without any
 * fsync, so that it may be there after a power cut and have other content. */
RP_MUST_CHECK int rp_new_file_open_scratch(struct rp_new_file *new_file, const char *path,
                                           struct rp_error *error);
/** fsync, rename to `path`, fsync of the directory. The new file is closed in any case, and no
 * temporary file is left. On failure `path` has its old content; if only the fsync of the directory
 * failed, it has the new content, which a power cut may still undo. */
RP_MUST_CHECK int rp_new_file_publish(struct rp_new_file *new_file, struct rp_error *error);
/** The rename of rp_new_file_publish without its syncs, which are the caller's then (new_files.h).
 * The file stays open, for rp_new_file_discard. */
RP_MUST_CHECK int rp_new_file_rename(struct rp_new_file *new_file, struct rp_error *error);
/** fsync of the parent directory of `path`. */
RP_MUST_CHECK int rp_dir_sync_parent(const char *path, struct rp_error *error);
/** Close and remove a file that was not published. Fine after rp_new_file_publish. */
void rp_new_file_discard(struct rp_new_file *new_file);
/** Remove the temporary files of `path` that killed processes have left. To be called only if no
 * other process can be writing this file. One that cannot be removed stays. */
void rp_new_file_sweep(const char *path);

/** Lock an open file exclusively (flock). It tries for half a second, because a child of a killed
 * holder keeps the lock until it has ended. -EWOULDBLOCK: another process has the lock. *error is
 * not involved. */
RP_MUST_CHECK int rp_file_lock(int fd);
/** Why rp_file_lock failed otherwise: most often, the file system has no locks. */
int rp_file_fail_lock(struct rp_error *error, int code, const char *path);

/** Whether the file system of an open file or directory counts its inodes and has none left: then
 * no file can be made, however many bytes are free. */
bool rp_fd_lacks_inodes(int fd);

/** Add one to a non-blocking eventfd. If its counter is full, the reader has been woken already. */
void rp_fd_wake(int fd);

/** Create a directory and its parents with mode 0700; an existing directory is fine. */
RP_MUST_CHECK int rp_dir_make(const char *path, struct rp_error *error);
/** The two parts of rp_dir_make. After only the first, a power cut may remove the new directories.
 */
RP_MUST_CHECK int rp_dir_make_unsynced(const char *path, struct rp_error *error);
RP_MUST_CHECK int rp_dir_sync_names(const char *path, struct rp_error *error);

/** The bytes of a whole regular file, for reading. `data` of an empty file is NULL. A large file is
 * mapped (mapped.h: the effect of a truncation); a small one is copied, because the kernel limits
 * the mappings of a process (65530 by default). */
struct rp_map {
    const uint8_t *data; /* aligned as malloc does */
    uint64_t bytes;
    struct rp_mapped_file *mapping; /* NULL = `data` is a copy */
    struct rp_stamp stamp;          /* a mapped file's, when it was mapped */
};
#define RP_MAP_COPY_BYTES_MAX (32u << 10)
RP_MUST_CHECK int rp_map_open(struct rp_map *map, const char *path, struct rp_error *error);
/** rp_map_open for an open file of `bytes` bytes. The caller keeps the descriptor. */
RP_MUST_CHECK int rp_map_file(struct rp_map *map, int fd, uint64_t bytes, const char *path,
                              struct rp_error *error);
/** Replace a mapping by a copy in memory at the same address, which later changes of the file do
 * not affect. */
RP_MUST_CHECK int rp_map_detach(struct rp_map *map, const char *path, struct rp_error *error);
void rp_map_close(struct rp_map *map);
/** rp_hash128 of all bytes. It checks between two pieces whether the process is to end (stop.h). */
RP_MUST_CHECK int rp_map_hash(const struct rp_map *map, struct rp_hash128 *hash,
                              struct rp_error *error);

/** The part of `path` before the last '/', or "."; the caller frees it. NULL when out of memory. */
char *rp_path_directory(const char *path);
/** The part behind it. */
const char *rp_path_name(const char *path);
/** Is there a file of that name? False also when out of memory. */
bool rp_path_exists(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
