/* SPDX-License-Identifier: Apache-2.0 */
/* storage.h — the table of system calls that take a checkpoint to the disk.
 *
 * Tests replace the table: a test can let any call fail once or for ever, or record all calls and
 * derive every state that a power cut could leave. Each method returns 0 (or a count, or a file
 * descriptor) or a negated errno, retries EINTR, and does one thing. The order of the calls is in
 * writer.c. */
#ifndef RP_CHECKPOINT_STORAGE_H
#define RP_CHECKPOINT_STORAGE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct rp_storage {
    /** Create a new file for writing: O_EXCL, no symbolic link is followed. */
    int (*create)(struct rp_storage *storage, int dir, const char *name);
    /** Allocate the blocks of the file, so that a full disk fails before the first write. */
    int (*reserve)(struct rp_storage *storage, int fd, uint64_t bytes);
    /** Buffer, length and offset are multiples of 4096. May write less than `bytes`. */
    ssize_t (*write)(struct rp_storage *storage, int fd, const void *data, size_t bytes,
                     uint64_t offset);
    int (*sync)(struct rp_storage *storage, int fd);
    int (*close)(struct rp_storage *storage, int fd);
    /** Open a file so that reads come from the disk and not from the page cache, if the file system
     * supports it. */
    int (*reopen)(struct rp_storage *storage, int dir, const char *name);
    /** Buffer, length and offset are multiples of 4096. May read less than `bytes`; 0 at the end.
     */
    ssize_t (*read)(struct rp_storage *storage, int fd, void *data, size_t bytes, uint64_t offset);
    /** -EEXIST if `to` exists: a file is never replaced. */
    int (*rename)(struct rp_storage *storage, int dir, const char *from, const char *to);
    int (*sync_dir)(struct rp_storage *storage, int dir);
    int (*unlink)(struct rp_storage *storage, int dir, const char *name);
    /** Sleep before another attempt. */
    void (*wait)(struct rp_storage *storage, uint64_t ns);
};

/** The operating system's calls. The table has no state, so all threads share it. */
extern struct rp_storage rp_storage_system;

/** Switch a file to direct I/O, if the file system supports it. rp_storage_system's `read` and
 * `write` switch it off again if the file system refuses the first transfer. */
void rp_storage_direct(int fd);

#endif
