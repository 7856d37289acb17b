/* SPDX-License-Identifier: Apache-2.0 */
/* storage.h — the calls by which a checkpoint reaches the disk, as a table.
 *
 * The table is the seam for tests: one can fail any call once or for ever, and record all of them
 * to work out every state that a power cut could leave. Each method returns 0 (or a count, or a
 * file descriptor) or a negated errno, retries EINTR itself, and does one thing; what order they go
 * in is writer.c's business. */
#ifndef RP_CHECKPOINT_STORAGE_H
#define RP_CHECKPOINT_STORAGE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct rp_storage {
    /** A new file, O_EXCL and never through a link, for writing. */
    int (*create)(struct rp_storage *storage, int dir, const char *name);
    /** Take the room for the file, so that a full disk is known before anything is written. */
    int (*reserve)(struct rp_storage *storage, int fd, uint64_t bytes);
    /** Buffer, length and offset are multiples of 4096. May write less than asked. */
    ssize_t (*write)(struct rp_storage *storage, int fd, const void *data, size_t bytes,
                     uint64_t offset);
    int (*sync)(struct rp_storage *storage, int fd);
    int (*close)(struct rp_storage *storage, int fd);
    /** Open a file so that reads come from the disk and not from the page cache, as far as the file
     * system can. */
    int (*reopen)(struct rp_storage *storage, int dir, const char *name);
    /** Buffer, length and offset are multiples of 4096. May read less than asked; 0 at the end. */
    ssize_t (*read)(struct rp_storage *storage, int fd, void *data, size_t bytes, uint64_t offset);
    /** Never replaces a file: -EEXIST. */
    int (*rename)(struct rp_storage *storage, int dir, const char *from, const char *to);
    int (*sync_dir)(struct rp_storage *storage, int dir);
    int (*unlink)(struct rp_storage *storage, int dir, const char *name);
    /** Sleep before another attempt. */
    void (*wait)(struct rp_storage *storage, uint64_t ns);
};

/** The operating system. Has no state: one for all threads. */
extern struct rp_storage rp_storage_system;

/** Go round the page cache with this file from now on, where the file system can; its `read` and
 * `write` above go on without where it turns out that it cannot. */
void rp_storage_direct(int fd);

#endif
